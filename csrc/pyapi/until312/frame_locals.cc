#include "pyapi/frame_locals.h"

namespace kintsugi::pyapi {

bool localsAreWritable() { return false; }

}  // namespace kintsugi::pyapi
