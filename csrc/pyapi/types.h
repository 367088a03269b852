// Facts about classes: names, order of look-up, and what their C slots do.
//
// Slots are asked about by questions (`hasDescriptorSet(object)`), so that no other layer names a field of
// PyTypeObject. Ownership: results are borrowed from the class. Threads: the GIL is needed. Invalidation: a
// change of the class or of its bases; see typeVersion() in object_layout.h.
// Example: if (PyObject* found = lookUpInType(Py_TYPE(object), name); found && hasDescriptorSet(found)) ...
#pragma once

#include "pyapi/internal.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

// -- Names and the order of look-up

inline const char* typeName(const PyTypeObject* type) { return type->tp_name; }
inline const char* typeNameOf(PyObject* object) { return Py_TYPE(object)->tp_name; }
// The name of a class in Python (isHeapType()), as a str.
inline PyObject* heapTypeName(PyObject* type) { return reinterpret_cast<PyHeapTypeObject*>(type)->ht_name; }
inline PyObject* mroOf(const PyTypeObject* type) { return type->tp_mro; }      // a tuple
inline PyObject* basesOf(const PyTypeObject* type) { return type->tp_bases; }  // a tuple
inline PyTypeObject* baseOf(const PyTypeObject* type) { return type->tp_base; }
// The value under the name in the class, or in the first of its bases that has it; null: none has. Runs no
// code. (dictOf(type), in the version's objects.h, is the dict of the class alone.)
inline PyObject* lookUpInType(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }

// -- How instances are laid out

inline bool isHeapType(const PyTypeObject* type) { return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0; }
// Attributes of instances are stored inline, without a dict, until somebody asks for the dict.
inline bool hasManagedDict(const PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0;
}
inline bool hasNoInstanceDict(const PyTypeObject* type) { return type->tp_dictoffset == 0; }
inline bool hasSameSize(const PyTypeObject* type, const PyTypeObject* other) {
  return type->tp_basicsize == other->tp_basicsize;
}
inline bool hasVariableSize(const PyTypeObject* type) { return type->tp_itemsize != 0; }
inline bool isWeaklyReferenceable(PyObject* object) { return Py_TYPE(object)->tp_weaklistoffset != 0; }
// `case int(x)`: the class pattern's only positional argument is the object itself.
inline bool matchesSelf(const PyTypeObject* type) { return (type->tp_flags & _Py_TPFLAGS_MATCH_SELF) != 0; }

// -- Descriptors: questions about an object that was found in a class

inline bool hasDescriptorGet(PyObject* descriptor) { return Py_TYPE(descriptor)->tp_descr_get != nullptr; }
// Binds to an instance as a function does, and gives way to an attribute of the instance.
inline bool isMethodLike(PyObject* descriptor) {
  return PyType_HasFeature(Py_TYPE(descriptor), Py_TPFLAGS_METHOD_DESCRIPTOR) != 0;
}
inline bool hasDescriptorSet(PyObject* descriptor) { return Py_TYPE(descriptor)->tp_descr_set != nullptr; }
// Calls `__get__`, which must exist. A new reference, or null with an exception pending.
inline PyObject* bindDescriptor(PyObject* descriptor, PyObject* object, PyObject* owner) {
  return Py_TYPE(descriptor)->tp_descr_get(descriptor, object, owner);
}
// Reads and writes by the C code of properties, without a `__get__` or `__set__` in Python.
inline bool bindsLikeProperty(PyObject* descriptor) {
  return Py_TYPE(descriptor)->tp_descr_get == PyProperty_Type.tp_descr_get &&
         Py_TYPE(descriptor)->tp_descr_set == PyProperty_Type.tp_descr_set;
}

// -- Attributes

inline bool getsAttributesPlainly(const PyTypeObject* type) {
  return type->tp_getattro == PyObject_GenericGetAttr;
}
inline bool setsAttributesPlainly(const PyTypeObject* type) {
  return type->tp_setattro == PyObject_GenericSetAttr;
}
// For a metaclass: it reads (sets) the attributes of classes as `type` does.
inline bool getsAttributesLikeType(const PyTypeObject* meta) {
  return meta->tp_getattro == PyType_Type.tp_getattro;
}
inline bool setsAttributesLikeType(const PyTypeObject* meta) {
  return meta->tp_setattro == PyType_Type.tp_setattro;
}
// type.__setattr__, which a `__setattr__` of the metaclass does not change. 0, or -1 with an exception.
inline int setTypeAttribute(PyObject* type, PyObject* name, PyObject* value) {
  return PyType_Type.tp_setattro(type, name, value);
}

// -- Making and calling instances

inline bool makesLike(const PyTypeObject* type, const PyTypeObject* other) {
  return type->tp_new == other->tp_new;
}
inline bool initializesLike(const PyTypeObject* type, const PyTypeObject* other) {
  return type->tp_init == other->tp_init;
}
inline bool callsLike(const PyTypeObject* type, const PyTypeObject* other) {
  return type->tp_call == other->tp_call;
}
// The C function behind `__new__`.
inline newfunc newFunctionOf(const PyTypeObject* type) { return type->tp_new; }

// -- Iteration, comparison

inline bool isIterable(PyObject* object) { return Py_TYPE(object)->tp_iter != nullptr; }
inline bool isOwnIterator(PyObject* object) { return Py_TYPE(object)->tp_iter == PyObject_SelfIter; }
inline bool hasNextItem(PyObject* object) { return Py_TYPE(object)->tp_iternext != nullptr; }
// The next item of an iterator; null: the end, where StopIteration need not be pending.
inline PyObject* nextItem(PyObject* iterator) { return Py_TYPE(iterator)->tp_iternext(iterator); }
inline bool comparesByIdentity(PyObject* object) {
  return Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}
inline bool hashesByIdentity(PyObject* object) {
  return Py_TYPE(object)->tp_hash == PyBaseObject_Type.tp_hash;
}

// -- Numbers and sequences in C

// True if instances have neither `__bool__` nor `__len__`, in C or Python, so that every instance is true.
inline bool isAlwaysTrue(const PyTypeObject* type) {
  return (type->tp_as_number == nullptr || type->tp_as_number->nb_bool == nullptr) &&
         (type->tp_as_mapping == nullptr || type->tp_as_mapping->mp_length == nullptr) &&
         (type->tp_as_sequence == nullptr || type->tp_as_sequence->sq_length == nullptr);
}
inline bool concatenates(PyObject* object) {
  const PySequenceMethods* methods = Py_TYPE(object)->tp_as_sequence;
  return methods != nullptr && (methods->sq_concat != nullptr || methods->sq_inplace_concat != nullptr);
}
inline bool repeats(PyObject* object) {
  const PySequenceMethods* methods = Py_TYPE(object)->tp_as_sequence;
  return methods != nullptr && methods->sq_repeat != nullptr;
}
inline bool repeatsInPlace(PyObject* object) {
  const PySequenceMethods* methods = Py_TYPE(object)->tp_as_sequence;
  return methods != nullptr && methods->sq_inplace_repeat != nullptr;
}

// -- Asynchronous iteration: the C functions behind `__await__`, `__aiter__` and `__anext__`; null: none

inline unaryfunc awaitFunctionOf(const PyTypeObject* type) {
  return type->tp_as_async != nullptr ? type->tp_as_async->am_await : nullptr;
}
inline unaryfunc aiterFunctionOf(const PyTypeObject* type) {
  return type->tp_as_async != nullptr ? type->tp_as_async->am_aiter : nullptr;
}
inline unaryfunc anextFunctionOf(const PyTypeObject* type) {
  return type->tp_as_async != nullptr ? type->tp_as_async->am_anext : nullptr;
}

// -- The end of an object, and what it holds

// True for `__del__`, and for C code in its place.
inline bool hasFinalizer(const PyTypeObject* type) { return type->tp_finalize != nullptr; }
// True for those, and for the older form of a C finalizer.
inline bool hasAnyFinalizer(const PyTypeObject* type) {
  return type->tp_finalize != nullptr || type->tp_del != nullptr;
}
inline bool isTraversable(PyObject* object) { return Py_TYPE(object)->tp_traverse != nullptr; }
// Calls `visit` with each object that the object holds. Only when isTraversable().
inline void traverse(PyObject* object, visitproc visit, void* data) {
  Py_TYPE(object)->tp_traverse(object, visit, data);
}

// -- For the types of our own extension module

inline PyObject* allocate(PyTypeObject* type) { return type->tp_alloc(type, 0); }
// At the end of a tp_dealloc: frees the memory of the object, and drops its reference to its class.
inline void freeInstance(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}
// Sets a flag that CPython does not pass on to subclasses in Python.
inline void enableVectorcall(PyTypeObject* type) { type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL; }

}  // namespace kintsugi::pyapi
