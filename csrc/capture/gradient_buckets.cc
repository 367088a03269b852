#include "capture/gradient_buckets.h"

#include "pyapi/errors.h"
#include "pyapi/known_objects.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

namespace {

using torchapi::Known;

// The entry of a dict for a string key; borrowed, or null.
PyObject* entry(PyObject* dict, const char* name) {
  PyObject* found = dict != nullptr ? PyDict_GetItemString(dict, name) : nullptr;
  PyErr_Clear();
  return found;
}

int64_t bytesIn(PyObject* number) {
  if (number == nullptr || !PyLong_Check(number)) return 0;
  const int64_t bytes = PyLong_AsLongLong(number);
  if (bytes == -1) PyErr_Clear();
  return bytes > 0 ? bytes : 0;
}

}  // namespace

ir::GradientLimits activeBuckets() {
  PyTypeObject* type = pyapi::knownType(Known::kDistributedDataParallel);
  PyObject* module = type != nullptr ? entry(pyapi::dictOf(type), "_active_ddp_module") : nullptr;
  if (module == nullptr || module == Py_None || !PyObject_TypeCheck(module, type)) return {};
  const pyapi::PendingErrorScope kept;
  PyObject** slot = pyapi::materializedDictSlot(module);
  PyObject* dict = slot != nullptr ? *slot : nullptr;
  ir::GradientLimits limits;
  limits.rest = bytesIn(entry(dict, "bucket_bytes_cap"));
  limits.first = limits.rest;
  // If the program has not given a bucket size, DistributedDataParallel makes the first bucket smaller.
  if (entry(dict, "bucket_bytes_cap_default") == Py_True && pyapi::known(Known::kC10d) != nullptr)
    limits.first =
        bytesIn(entry(PyModule_GetDict(pyapi::known(Known::kC10d)), "_DEFAULT_FIRST_BUCKET_BYTES"));
  return limits;
}

}  // namespace kintsugi::capture
