// Where CPython keeps the state that guards depend on, as addresses of eight-byte words: dict and type
// versions, instance dict slots, members, container sizes. Reading the same word again tells whether that
// state has changed.
//
//   const Word* word = dictVersionWord(dict);   const Word before = *word;
//   ... later: *word == before says that no entry of the dict has changed
//
// Nothing here runs Python code or leaves an exception pending. Ownership: everything is borrowed; a word
// lives as long as the object that it belongs to. Threads: the GIL is needed everywhere. Invalidation: none
// beyond the object's death.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"
#include "pyapi/ref.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

using Word = uint64_t;
static_assert(sizeof(Word) == sizeof(PyObject*), "guards compare pointers as words");

inline const Word* wordAt(const void* address) { return static_cast<const Word*>(address); }
inline Word wordOf(const void* pointer) { return reinterpret_cast<Word>(pointer); }

inline const Word* typeWord(PyObject* object) { return wordAt(&object->ob_type); }

// Unique in the process for each state of each dict: two equal tags mean the same dict with the same entries.
inline const Word* dictVersionWord(PyObject* dict) { return wordAt(versionTag(dict)); }
inline const Word* dictSizeWord(PyObject* dict) {
  return wordAt(&reinterpret_cast<PyDictObject*>(dict)->ma_used);
}

// Changes whenever the order of an OrderedDict changes (the dict's version does not). Null: an ordinary dict,
// whose order is that of its entries.
const Word* dictOrderWord(PyObject* dict);

// The version of everything that attribute look-up on the type sees. 0: the type has changed, and nothing has
// been looked up in it since. The four bytes after the tag are padding, which nobody writes.
inline uint32_t typeVersion(PyTypeObject* type) { return type->tp_version_tag; }
inline const Word* typeVersionWord(PyTypeObject* type) { return wordAt(&type->tp_version_tag); }
// Gives the type a version if it has none. False: it can't have one.
bool ensureTypeVersion(PyTypeObject* type);
// No `__class__` assignment can turn an instance of this type into one of another type, or the other way
// round.
bool hasFixedInstances(PyTypeObject* type);

// The place of the pointer to the instance dict; null if instances have none. Does not make the dict. While
// attributes are stored inline, the place may hold another nonzero word.
PyObject** instanceDictSlot(PyObject* object);
// The same, but first moves inline attributes into a dict.
inline PyObject** materializedDictSlot(PyObject* object) { return _PyObject_GetDictPtr(object); }
// The dict of an instance, module or type. If attributes are stored inline, makes the dict. Null: there is
// none.
PyObject* instanceDict(PyObject* object);
// True if the object has attributes of its own.
bool hasInstanceAttributes(PyObject* object);

// The place where a part of a function, method, cell or sequence is stored.
inline const Word* closureWord(PyObject* function) {
  return wordAt(&reinterpret_cast<PyFunctionObject*>(function)->func_closure);
}
inline const Word* codeWord(PyObject* function) {
  return wordAt(&reinterpret_cast<PyFunctionObject*>(function)->func_code);
}
inline const Word* defaultsWord(PyObject* function) {
  return wordAt(&reinterpret_cast<PyFunctionObject*>(function)->func_defaults);
}
inline const Word* keywordDefaultsWord(PyObject* function) {
  return wordAt(&reinterpret_cast<PyFunctionObject*>(function)->func_kwdefaults);
}
inline const Word* globalsWord(PyObject* function) {
  return wordAt(&reinterpret_cast<PyFunctionObject*>(function)->func_globals);
}
inline const Word* builtinsWord(PyObject* function) {
  return wordAt(&reinterpret_cast<PyFunctionObject*>(function)->func_builtins);
}
inline const Word* methodFunctionWord(PyObject* method) {
  return wordAt(&reinterpret_cast<PyMethodObject*>(method)->im_func);
}
inline const Word* methodSelfWord(PyObject* method) {
  return wordAt(&reinterpret_cast<PyMethodObject*>(method)->im_self);
}
inline const Word* referentWord(PyObject* reference) {
  return wordAt(&reinterpret_cast<PyWeakReference*>(reference)->wr_object);
}
// What a weakref.ref refers to; None if that has ended.
inline PyObject* referentOf(PyObject* reference) {
  PyObject* object = reinterpret_cast<PyWeakReference*>(reference)->wr_object;
  return Py_REFCNT(object) > 0 ? object : Py_None;
}
inline const Word* cellWord(PyObject* cell) { return wordAt(&reinterpret_cast<PyCellObject*>(cell)->ob_ref); }
inline const Word* tupleItemWord(PyObject* tuple, int64_t index) {
  return wordAt(&reinterpret_cast<PyTupleObject*>(tuple)->ob_item[index]);
}
// The place of the free variable in the closure's tuple.
inline const Word* closureItemWord(PyObject* function, int64_t index) {
  return tupleItemWord(reinterpret_cast<PyFunctionObject*>(function)->func_closure, index);
}
inline const Word* listItemWord(PyObject* list, int64_t index) {
  return wordAt(&reinterpret_cast<PyListObject*>(list)->ob_item[index]);
}
// The array itself, which moves when the list grows.
inline const Word* listItemsWord(PyObject* list) {
  return wordAt(&reinterpret_cast<PyListObject*>(list)->ob_item);
}
// The length of a list or tuple.
inline const Word* sizeWord(PyObject* sequence) {
  return wordAt(&reinterpret_cast<PyVarObject*>(sequence)->ob_size);
}

// True for a member descriptor whose slot holds an object (not a C number or string).
bool isObjectMember(PyObject* descriptor);
// The place of a slot's pointer in the object (`__slots__` or a T_OBJECT member). Null: `descriptor` is no
// such member, or not of this object's class. `noneIfNull`: an empty slot reads as None.
PyObject** memberSlot(PyObject* descriptor, PyObject* object, bool* noneIfNull);
// Applies a member or getset descriptor that has no side effects. A new reference; null if it fails.
Ref<> readDescriptor(PyObject* descriptor, PyObject* object);

// The i-th field of a functools.partial (0 func, 1 args, 2 keywords); null: the object is none.
PyObject** partialField(PyObject* object, int64_t index);

// The number of elements of a str, bytes, list, tuple, dict, set, frozenset or bytearray, as a word; null:
// something else.
const Word* lengthWord(PyObject* object);

}  // namespace kintsugi::pyapi
