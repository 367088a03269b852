// How CPython lays out instances from 3.13 on, and where a call has its null; the version's own objects.h has
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

// -- Instances whose attributes are kept inline, after the object's head. A dict that somebody asks for
// shares them; here they are said to be in the dict then.

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

// The version of all that look-up on a type finds; 0: it has none, since it was changed, or was changed too
// often to get another one.
inline unsigned validTypeVersion(const PyTypeObject* type) { return type->tp_version_tag; }
inline void setTypeVersion(PyTypeObject* type, unsigned version) { type->tp_version_tag = version; }

// What `import` calls, in the builtins of a frame, which may be any mapping. The same answers.
inline int importEntry(PyObject* builtins, PyObject** function) {
  return PyMapping_GetOptionalItem(builtins, &_Py_ID(__import__), function);
}

// `raise X from C`, where C() is no exception, is an error.
inline constexpr bool kChecksCause = true;

// The null of a plain callable lies above it when it is called.
inline constexpr bool kNullBelowCallable = false;

}  // namespace kintsugi::pyapi
