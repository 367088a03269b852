#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return true; }
bool dropsLastVariableFirst() { return false; }

}  // namespace kintsugi::pyapi
