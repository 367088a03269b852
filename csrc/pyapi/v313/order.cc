#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return true; }
bool dropsLastFirst() { return false; }
bool tupleAsksLength() { return true; }

}  // namespace kintsugi::pyapi
