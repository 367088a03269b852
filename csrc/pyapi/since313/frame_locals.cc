#include "pyapi/frame_locals.h"

namespace kintsugi::pyapi {

bool localsAreWritable() { return true; }

}  // namespace kintsugi::pyapi
