#include "pyapi/stack_limit.h"

namespace kintsugi::pyapi {

uintptr_t interpreterStackFloor() {
  return reinterpret_cast<_PyThreadStateImpl*>(PyThreadState_Get())->c_stack_soft_limit;
}

}  // namespace kintsugi::pyapi
