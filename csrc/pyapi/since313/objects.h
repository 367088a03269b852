// The layout of instances since CPython 3.13, and where a call has its null. The version's own objects.h has
// the rest.
//
// Ownership: everything is borrowed. Threads: the GIL is needed.
#pragma once

#include <cstdint>

#include "pyapi/since312/objects.h"

#define Py_BUILD_CORE 1
#include <internal/pycore_setobject.h>
#undef Py_BUILD_CORE

namespace kintsugi::pyapi {

// -- Instances whose attributes are stored inline, behind the object's head. If somebody asks for the dict,
// it shares these values; from then on they count as being in the dict.

// Null: a dict has the attributes, or there are none.
inline PyDictValues* managedValues(PyObject* owner) {
  if ((Py_TYPE(owner)->tp_flags & Py_TPFLAGS_INLINE_VALUES) == 0) return nullptr;
  PyDictValues* values = _PyObject_InlineValues(owner);
  return _PyObject_GetManagedDict(owner) == nullptr && values->valid != 0 ? values : nullptr;
}
inline PyObject** managedDictSlot(PyObject* owner) {
  return reinterpret_cast<PyObject**>(&_PyObject_ManagedDictPointer(owner)->dict);
}
// The dict in such a slot; null: there is none.
inline PyObject* dictIn(PyObject* const* slot) { return *slot; }

// 1: found, a new reference; 0: there is no such attribute; -1: an exception is pending.
inline int optionalAttribute(PyObject* object, PyObject* name, PyObject** value) {
  return PyObject_GetOptionalAttr(object, name, value);
}

// The version of everything that look-up on a type finds. 0: it has none, because it was changed, or was
// changed too often to get another one.
inline unsigned validTypeVersion(const PyTypeObject* type) { return type->tp_version_tag; }
inline void setTypeVersion(PyTypeObject* type, unsigned version) { type->tp_version_tag = version; }

// What `import` calls, from the builtins of a frame, which may be any mapping. Returns as above.
inline int importEntry(PyObject* builtins, PyObject** function) {
  return PyMapping_GetOptionalItem(builtins, &_Py_ID(__import__), function);
}

// `raise X from C` is an error if C() is no exception.
inline constexpr bool kChecksCause = true;

// For a call, the null of a plain callable is above it.
inline constexpr bool kNullBelowCallable = false;

}  // namespace kintsugi::pyapi
