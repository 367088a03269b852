// Dicts that share the inline values of an instance. CPython has a function that parts the two, but does not
// export it: this is the same, without the instance, whose values are known by the dict.
#include <cstring>

#include "pyapi/dict.h"

namespace kintsugi::pyapi {

namespace {

// As CPython allocates them, since it frees them: the head, the values, and after these the order in which
// they were set, a byte each.
PyDictValues* newValues(uint8_t capacity) {
  const size_t order = _Py_SIZE_ROUND_UP(capacity, sizeof(PyObject*));
  auto* values =
      static_cast<PyDictValues*>(PyMem_Calloc(1, (size_t{capacity} + 1) * sizeof(PyObject*) + order));
  if (values == nullptr)
    Py_FatalError("out of memory");  // a version that says nothing would be a wrong guard
  values->capacity = capacity;
  return values;
}

}  // namespace

void takeValues(PyDictObject* dict) {
  PyDictValues* inside = dict->ma_values;
  PyDictValues* values = newValues(inside->capacity);
  values->size = inside->size;
  std::memcpy(get_insertion_order_array(values), get_insertion_order_array(inside), inside->capacity);
  for (uint8_t i = 0; i < inside->capacity; ++i) {
    values->values[i] = inside->values[i];
    inside->values[i] = nullptr;
  }
  inside->valid = 0;
  dict->ma_values = values;
  // So far the instance showed them to the collector.
  if (PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(dict)) == 0) PyObject_GC_Track(dict);
}

}  // namespace kintsugi::pyapi
