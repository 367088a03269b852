#include "pyapi/waiting_stack.h"

#include "pyapi/ref.h"

namespace kintsugi::pyapi {

PyObject* waitingStackAt(const Frame* frame, int index) {
  const _PyStackRef slot = frame->localsplus[codeOf(frame)->co_nlocalsplus + index];
  if (!PyStackRef_IsTaggedInt(slot)) return objectIn(slot);
  return steal(plainPlace(slot)).get();  // such objects are never freed
}

}  // namespace kintsugi::pyapi
