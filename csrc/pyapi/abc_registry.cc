#include "pyapi/abc_registry.h"

#include "pyapi/errors.h"
#include "pyapi/known_objects.h"
#include "pyapi/ref.h"

namespace kintsugi::pyapi {

namespace {

bool watched = false;
uint64_t first = 0;

uint64_t token() {
  const PendingErrorScope kept;
  PyObject* function = known(Known::kAbcToken);
  const Ref<> number = function != nullptr ? steal(PyObject_CallNoArgs(function)) : Ref<>();
  const uint64_t count = number ? PyLong_AsUnsignedLongLong(number.get()) : 0;
  PyErr_Clear();
  return count;
}

}  // namespace

void watchAbcs() {
  if (!watched) {
    watched = true;
    first = token();
  }
}

uint64_t abcRegistrations() { return watched ? token() - first : 0; }

}  // namespace kintsugi::pyapi
