#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return true; }
bool dropsLastFirst() { return true; }

}  // namespace kintsugi::pyapi
