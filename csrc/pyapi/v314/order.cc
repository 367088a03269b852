#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return true; }
bool dropsLastFirst() { return true; }
bool tupleAsksLength() { return false; }

}  // namespace kintsugi::pyapi
