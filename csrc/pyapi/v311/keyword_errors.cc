#include "pyapi/keyword_errors.h"

#include "pyapi/internal.h"

namespace kintsugi::pyapi {

bool rewordsRepeatedKeyword() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const bool made = value != nullptr && PyExceptionInstance_Check(value);
  PyErr_Restore(type, value, traceback);
  return !made;
}

}  // namespace kintsugi::pyapi
