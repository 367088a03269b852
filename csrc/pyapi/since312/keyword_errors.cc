#include "pyapi/keyword_errors.h"

namespace kintsugi::pyapi {

bool rewordsRepeatedKeyword() { return true; }

}  // namespace kintsugi::pyapi
