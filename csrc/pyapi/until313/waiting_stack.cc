#include "pyapi/waiting_stack.h"

namespace kintsugi::pyapi {

PyObject* waitingStackAt(const Frame* frame, int index) { return stackAt(frame, index); }

}  // namespace kintsugi::pyapi
