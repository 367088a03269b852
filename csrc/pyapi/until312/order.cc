#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return false; }
bool dropsLastFirst() { return false; }

}  // namespace kintsugi::pyapi
