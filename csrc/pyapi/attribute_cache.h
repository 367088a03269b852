// Inline caches of attribute look-ups: what one LOAD_ATTR, LOAD_METHOD or STORE_ATTR found last time, with
// the versions under which the same look-up finds the same again. A cache is only ever a shortcut: on any
// doubt the functions answer null, and the caller takes CPython's general way.
//
// Ownership: `value` is borrowed from a module's dict or a type, which keeps it alive as long as the version
// that is checked first stays the same. Threads: the GIL is needed. Invalidation: by the versions alone: type
// versions change with every change of a type or its bases, dict versions with every change of the dict, and
// neither is reused.
#pragma once

#include <cstdint>

#include "pyapi/internal.h"
#include "pyapi/version.h"
#include KINTSUGI_VERSION_OBJECTS

namespace kintsugi::pyapi {

struct AttributeCache {
  enum class Kind : uint8_t {
    kEmpty,
    kInstance,  // in the inline values of an instance, at `index`
    kModule,    // in the dict of a module
    kMethod,    // a function or method descriptor of the type, not shadowed by the instance
  };
  Kind kind = Kind::kEmpty;
  uint8_t misses = 0;
  uint32_t typeVersion = 0;
  int32_t index = 0;  // kInstance: see there; kMethod: how many names instances of the type had, or -1
  uint64_t dictVersion = 0;
  PyObject* value = nullptr;
};

// The inline attribute values of an instance; null when it has an ordinary dict, or none.
inline PyDictValues* inlineValues(PyObject* owner) {
  return (Py_TYPE(owner)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0 ? managedValues(owner) : nullptr;
}
inline PyDictKeysObject* sharedKeys(PyTypeObject* type) {
  return reinterpret_cast<PyHeapTypeObject*>(type)->ht_cached_keys;
}

// The attribute's value (kInstance, kModule), borrowed; null: unknown.
inline PyObject* cachedAttribute(const AttributeCache& cache, PyObject* owner) {
  if (cache.kind == AttributeCache::Kind::kInstance && Py_TYPE(owner)->tp_version_tag == cache.typeVersion) {
    PyDictValues* values = managedValues(owner);
    return values != nullptr ? values->values[cache.index] : nullptr;
  }
  if (cache.kind == AttributeCache::Kind::kModule && Py_IS_TYPE(owner, &PyModule_Type)) {
    return *versionTag(PyModule_GetDict(owner)) == cache.dictVersion ? cache.value : nullptr;
  }
  return nullptr;
}

// The unbound method, borrowed; null: unknown.
inline PyObject* cachedMethod(const AttributeCache& cache, PyObject* owner) {
  if (cache.kind != AttributeCache::Kind::kMethod || Py_TYPE(owner)->tp_version_tag != cache.typeVersion) {
    return nullptr;
  }
  if (cache.index < 0) {
    return cache.value;
  }
  const bool unshadowed =
      managedValues(owner) != nullptr && sharedKeys(Py_TYPE(owner))->dk_nentries == cache.index;
  return unshadowed ? cache.value : nullptr;
}

// Stores into the inline values (kInstance). False: nothing was done.
inline bool storeCachedAttribute(const AttributeCache& cache, PyObject* owner, PyObject* value) {
  if (cache.kind != AttributeCache::Kind::kInstance || Py_TYPE(owner)->tp_version_tag != cache.typeVersion) {
    return false;
  }
  PyDictValues* values = managedValues(owner);
  if (values == nullptr) {
    return false;
  }
  PyObject* old = values->values[cache.index];
  values->values[cache.index] = Py_NewRef(value);
  if (old == nullptr) {
    _PyDictValues_AddToInsertionOrder(values, cache.index);
  } else {
    Py_DECREF(old);
  }
  return true;
}

// Fill the cache for the next time, after a look-up by the general way. They leave no exception pending and
// may leave the cache empty.
void fillLoadCache(AttributeCache* cache, PyObject* owner, PyObject* name);
void fillMethodCache(AttributeCache* cache, PyObject* owner, PyObject* name);
void fillStoreCache(AttributeCache* cache, PyObject* owner, PyObject* name);

}  // namespace kintsugi::pyapi
