#include "pyapi/stack_limit.h"

namespace kintsugi::pyapi {

uintptr_t interpreterStackFloor() { return 0; }

}  // namespace kintsugi::pyapi
