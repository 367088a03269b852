#include "pyapi/order.h"

namespace kintsugi::pyapi {

bool servesBeforeJump() { return true; }
bool dropsLastVariableFirst() { return true; }

}  // namespace kintsugi::pyapi
