#include "pyapi/attribute_cache.h"

#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::pyapi {

namespace {

// Where the code sees many types, the cache must not be filled again and again.
bool worthFilling(AttributeCache* cache) {
  cache->misses++;
  return cache->misses < 16 || cache->misses % 64 == 0;
}

// True if attribute look-up begins with object.__getattribute__. (A `__getattr__` may follow if that finds
// nothing.) Such a type has the generic slot, or the slot that also calls `__getattr__`.
bool getsGenerically(PyTypeObject* type) {
  if (type->tp_getattro == PyObject_GenericGetAttr) {
    return true;
  }
  PyObject* mine = _PyType_Lookup(type, &_Py_ID(__getattribute__));
  return mine != nullptr && mine == _PyType_Lookup(&PyBaseObject_Type, &_Py_ID(__getattribute__));
}

// The index of a name in the keys that all instances of the type share, or -1. Names are interned, and keys
// are only ever appended.
int32_t sharedIndex(PyTypeObject* type, PyObject* name) {
  PyDictKeysObject* keys = sharedKeys(type);
  if (keys == nullptr || keys->dk_kind != DICT_KEYS_SPLIT) {
    return -1;
  }
  const PyDictUnicodeEntry* entries = DK_UNICODE_ENTRIES(keys);
  for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
    if (entries[i].me_key == name) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

void fillInstance(AttributeCache* cache, PyObject* owner, PyObject* name) {
  PyTypeObject* type = Py_TYPE(owner);
  if (inlineValues(owner) == nullptr || PyUnicode_CHECK_INTERNED(name) == 0) {
    return;
  }
  // If the type has the name itself, the value could be a data descriptor or become one.
  const int32_t index = _PyType_Lookup(type, name) == nullptr ? sharedIndex(type, name) : -1;
  const uint32_t version = validTypeVersion(type);
  if (index >= 0 && version != 0) {
    cache->kind = AttributeCache::Kind::kInstance;
    KINTSUGI_DCHECK(index < sharedKeys(type)->dk_nentries, "attribute ", index);
    cache->typeVersion = version;
    cache->index = index;
  }
}

bool fillModule(AttributeCache* cache, PyObject* owner, PyObject* name) {
  if (!Py_IS_TYPE(owner, &PyModule_Type)) {
    return false;
  }
  PyObject* dict = PyModule_GetDict(owner);
  if (_PyType_Lookup(&PyModule_Type, name) != nullptr) {
    return true;
  }
  PyObject* value = PyDict_GetItemWithError(dict, name);
  PyErr_Clear();
  if (value != nullptr) {
    cache->kind = AttributeCache::Kind::kModule;
    cache->dictVersion = *versionTag(dict);
    cache->value = value;
  }
  return true;
}

}  // namespace

void fillLoadCache(AttributeCache* cache, PyObject* owner, PyObject* name) {
  if (!worthFilling(cache)) {
    return;
  }
  cache->kind = AttributeCache::Kind::kEmpty;
  if (!fillModule(cache, owner, name) && getsGenerically(Py_TYPE(owner))) {
    fillInstance(cache, owner, name);
  }
}

void fillStoreCache(AttributeCache* cache, PyObject* owner, PyObject* name) {
  if (!worthFilling(cache)) {
    return;
  }
  cache->kind = AttributeCache::Kind::kEmpty;
  if (Py_TYPE(owner)->tp_setattro == PyObject_GenericSetAttr) {
    fillInstance(cache, owner, name);
  }
}

void fillMethodCache(AttributeCache* cache, PyObject* owner, PyObject* name) {
  if (!worthFilling(cache)) {
    return;
  }
  cache->kind = AttributeCache::Kind::kEmpty;
  PyTypeObject* type = Py_TYPE(owner);
  if (fillModule(cache, owner, name) || type->tp_getattro != PyObject_GenericGetAttr) {
    return;
  }
  PyObject* method = _PyType_Lookup(type, name);
  const uint32_t version = validTypeVersion(type);
  if (method == nullptr || version == 0 || !isMethodLike(method)) {
    return;
  }
  if (type->tp_dictoffset == 0) {
    cache->index = -1;
  } else if (inlineValues(owner) != nullptr && sharedKeys(type) != nullptr &&
             sharedKeys(type)->dk_kind == DICT_KEYS_SPLIT && PyUnicode_CHECK_INTERNED(name) != 0 &&
             sharedIndex(type, name) < 0) {
    cache->index = static_cast<int32_t>(sharedKeys(type)->dk_nentries);
  } else {
    return;
  }
  cache->kind = AttributeCache::Kind::kMethod;
  cache->typeVersion = version;
  cache->value = method;
}

}  // namespace kintsugi::pyapi
