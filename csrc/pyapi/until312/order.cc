#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return false; }
bool dropsLastFirst() { return false; }
bool tupleAsksLength() { return true; }

}  // namespace kintsugi::pyapi
