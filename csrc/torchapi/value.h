// Value: what a running trace holds for one SSA value: a tensor, a number or a Python object.
//
//   Value value;
//   if (!unbox(object, ValueKind::kFloat, value)) return exit();     // it is of another type
//   use(value.f);
//   clear(value);
//
// Ownership: a plain tagged union, freed by hand, since the executor knows the last use of each. A tensor is
// one owned reference to its TensorImpl, an object one owned reference to a PyObject. Threads/GIL: tensors
// may be retained and released without the GIL (torch takes it where a Python object dies with them); objects
// need it. Invalidation: none.
#pragma once

#include <cstdint>

#include "ir/types.h"
#include "pyapi/ref.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::torchapi {

enum class ValueKind : uint8_t { kEmpty, kNone, kTensor, kInt, kFloat, kBool, kObject };

struct Value {
  ValueKind kind = ValueKind::kEmpty;
  union {
    int64_t i = 0;  // kInt, kBool
    double f;
    void* tensor;  // TensorImpl*
    PyObject* object;
  };
};

// The kind of value that a recorded type asks for. kEmpty for objects of any kind.
ValueKind kindOfType(ir::TypeKind type);

void retainTensor(void* impl);
void releaseTensor(void* impl);
// Frees what the value owns and empties it.
inline void clear(Value& value) {
  if (value.kind == ValueKind::kTensor) {
    releaseTensor(value.tensor);
  } else if (value.kind == ValueKind::kObject) {
    Py_DECREF(value.object);
  }
  value.kind = ValueKind::kEmpty;
}

// The tensor of a THPVariable, retained.
void* unpackTensor(PyObject* tensor);
// A new reference to the Python object of a tensor (made if there is none yet). Null: a Python error is
// pending.
PyObject* wrapTensor(void* impl);

// Converts an object to a value of the wanted kind (a new reference or a copy). False: it is of another type.
bool unbox(PyObject* object, ValueKind wanted, Value& out);
// A new reference to the Python form of a value. Null: a Python error is pending.
PyObject* box(const Value& value);

// Metadata of a trace value.
int64_t tensorSize(const void* impl, int64_t dim);
int64_t tensorStride(const void* impl, int64_t dim);
int64_t tensorNumel(const void* impl);
int64_t tensorDim(const void* impl);
// As matches(PyObject*, ...), without the Python type.
bool implMatches(const void* impl, const ir::TensorDesc& info, bool sizes);

}  // namespace kintsugi::torchapi
