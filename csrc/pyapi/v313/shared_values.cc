// Separates a dict from the inline values that it shares with an instance. CPython has a function for this,
// but does not export it, and it needs the instance. This one only needs the dict, which knows the values.
#include <cstring>

#include "pyapi/dict.h"

namespace kintsugi::pyapi {

namespace {

// Allocates values the way CPython does, since CPython frees them: the head, the values, and then the
// insertion order, one byte for each value.
PyDictValues* newValues(uint8_t capacity) {
  const size_t order = _Py_SIZE_ROUND_UP(capacity, sizeof(PyObject*));
  auto* values =
      static_cast<PyDictValues*>(PyMem_Calloc(1, (size_t{capacity} + 1) * sizeof(PyObject*) + order));
  if (values == nullptr) Py_FatalError("out of memory");  // guards on this dict would be wrong otherwise
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
  // So far the collector has reached the values through the instance.
  if (PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(dict)) == 0) PyObject_GC_Track(dict);
}

}  // namespace kintsugi::pyapi
