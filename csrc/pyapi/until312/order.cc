#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return false; }
bool dropsLastVariableFirst() { return false; }

}  // namespace kintsugi::pyapi
