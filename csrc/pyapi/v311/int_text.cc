#include "pyapi/int_text.h"

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

int maxIntDigits() { return PyThreadState_Get()->interp->int_max_str_digits; }

}  // namespace kintsugi::pyapi
