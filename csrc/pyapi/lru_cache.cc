#include "pyapi/lru_cache.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"

namespace kintsugi::pyapi {

namespace {

// Offsets in bytes; -1: not found.
struct Layout {
  Py_ssize_t cache = -1;   // wrapper: its dict
  Py_ssize_t mark = -1;    // wrapper: what separates keywords from other arguments in a key
  Py_ssize_t typed = -1;   // wrapper: an int, 1 if the types of arguments belong to the key
  Py_ssize_t result = -1;  // link: the result of the call
  PyTypeObject* link = nullptr;
  PyObject* field = nullptr;
};

template <typename T>
T read(PyObject* object, Py_ssize_t offset) {
  T value;
  std::memcpy(&value, reinterpret_cast<const char*>(object) + offset, sizeof(T));
  return value;
}

// The offset at which an object has a pointer; -1: it is not there, or it is there twice.
Py_ssize_t offsetOf(PyObject* object, PyObject* pointer) {
  Py_ssize_t found = -1;
  for (auto at = static_cast<Py_ssize_t>(sizeof(PyObject)); at < Py_TYPE(object)->tp_basicsize;
       at += static_cast<Py_ssize_t>(sizeof(PyObject*))) {
    if (read<PyObject*>(object, at) != pointer) continue;
    if (found >= 0) return -1;
    found = at;
  }
  return found;
}

// The objects that an object holds, as the garbage collector sees them.
std::vector<PyObject*> heldBy(PyObject* object) {
  std::vector<PyObject*> held;
  const auto visit = [](PyObject* part, void* all) {
    static_cast<std::vector<PyObject*>*>(all)->push_back(part);
    return 0;
  };
  if (Py_TYPE(object)->tp_traverse != nullptr) Py_TYPE(object)->tp_traverse(object, visit, &held);
  return held;
}

// functools.lru_cache(maxsize, typed)(list), a wrapper that nobody else has.
Ref<> makeProbe(PyObject* maxsize, bool typed) {
  Ref<> module = steal(importModule("functools"));
  Ref<> decorator =
      steal(module ? PyObject_CallMethod(module.get(), "lru_cache", "OO", maxsize, typed ? Py_True : Py_False)
                   : nullptr);
  return steal(decorator ? PyObject_CallOneArg(decorator.get(), reinterpret_cast<PyObject*>(&PyList_Type))
                         : nullptr);
}

// The offset of an int that is 0 in one wrapper and 1 in the other; -1: there is none, or there are two.
Py_ssize_t differingFlag(PyObject* zero, PyObject* one) {
  Py_ssize_t found = -1;
  for (auto at = static_cast<Py_ssize_t>(sizeof(PyObject)); at < Py_TYPE(zero)->tp_basicsize;
       at += static_cast<Py_ssize_t>(sizeof(int))) {
    if (read<int>(zero, at) != 0 || read<int>(one, at) != 1) continue;
    if (found >= 0) return -1;
    found = at;
  }
  return found;
}

PyMemberDef resultMember = {"result", T_OBJECT_EX, 0, READONLY, nullptr};

void measureLink(Layout& layout, PyObject* text) {
  const Ref<> bound = steal(PyLong_FromLong(4));
  const Ref<> probe = bound ? makeProbe(bound.get(), false) : Ref<>();
  const Ref<> result = steal(probe ? PyObject_CallOneArg(probe.get(), text) : nullptr);
  PyObject* cache = result ? read<PyObject*>(probe.get(), layout.cache) : nullptr;
  PyObject* entry =
      cache != nullptr && PyDict_CheckExact(cache) ? PyDict_GetItemWithError(cache, text) : nullptr;
  if (entry == nullptr || entry == result.get()) return;
  layout.result = offsetOf(entry, result.get());
  if (layout.result < 0) return;
  layout.link = Py_TYPE(entry);
  resultMember.offset = layout.result;
  layout.field = PyDescr_NewMember(layout.link, &resultMember);
}

const Layout* measure() {
  auto* layout = new Layout();
  const Ref<> text = steal(PyUnicode_FromString("kintsugi"));
  const Ref<> plain = makeProbe(Py_None, false), typed = makeProbe(Py_None, true);
  const Ref<> first = steal(plain && text ? PyObject_CallOneArg(plain.get(), text.get()) : nullptr);
  const Ref<> second = steal(typed && text ? PyObject_CallOneArg(typed.get(), text.get()) : nullptr);
  if (first && second && Py_TYPE(plain.get()) == knownType(Known::kLruCacheWrapper)) {
    for (PyObject* part : heldBy(plain.get())) {
      const bool keeps = PyDict_CheckExact(part) && PyDict_GET_SIZE(part) == 1 &&
                         PyDict_GetItemWithError(part, text.get()) == first.get();
      if (keeps) layout->cache = offsetOf(plain.get(), part);
      if (Py_IS_TYPE(part, &PyBaseObject_Type)) layout->mark = offsetOf(plain.get(), part);
    }
    layout->typed = differingFlag(plain.get(), typed.get());
    if (layout->cache >= 0) measureLink(*layout, text.get());
  }
  PyErr_Clear();
  return layout;
}

const Layout& layout() {
  static constinit Lazy<const Layout*> slot;
  return *slot.get(measure);
}

bool isKnownLayout() { return layout().cache >= 0 && layout().mark >= 0 && layout().typed >= 0; }

}  // namespace

PyObject* cacheOf(PyObject* wrapper) {
  if (!isA(wrapper, Known::kLruCacheWrapper) || !isKnownLayout()) return nullptr;
  auto* cache = read<PyObject*>(wrapper, layout().cache);
  return cache != nullptr && PyDict_CheckExact(cache) ? cache : nullptr;
}

Ref<> cacheKey(PyObject* wrapper, std::span<PyObject* const> values, PyObject* names) {
  if (!isKnownLayout()) return {};
  const bool typed = read<int>(wrapper, layout().typed) != 0;
  const size_t keywords = names == nullptr ? 0 : static_cast<size_t>(PyTuple_GET_SIZE(names));
  const size_t positional = values.size() - keywords;
  Ref<> key;
  if (!typed && keywords == 0 && positional == 1 &&
      (PyUnicode_CheckExact(values[0]) || PyLong_CheckExact(values[0]))) {
    key = newRef(values[0]);
  } else {
    std::vector<PyObject*> parts(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(positional));
    if (keywords != 0) parts.push_back(read<PyObject*>(wrapper, layout().mark));
    for (size_t i = 0; i < keywords; ++i) {
      parts.push_back(PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)));
      parts.push_back(values[positional + i]);
    }
    if (typed) {
      std::transform(values.begin(), values.end(), std::back_inserter(parts),
                     [](PyObject* value) { return reinterpret_cast<PyObject*>(Py_TYPE(value)); });
    }
    key = steal(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
    for (size_t i = 0; key && i < parts.size(); ++i)
      PyTuple_SET_ITEM(key.get(), static_cast<Py_ssize_t>(i), Py_NewRef(parts[i]));
  }
  Py_hash_t hash = 0;
  if (!key || !plainHash(key.get(), &hash)) {
    PyErr_Clear();
    return {};
  }
  return key;
}

PyObject* entryOf(PyObject* cache, PyObject* key) {
  Py_hash_t hash = 0;
  PyObject* entry = nullptr;
  return plainHash(key, &hash) && lookUp(cache, key, hash, &entry) == Lookup::kFound ? entry : nullptr;
}

bool isFull(PyObject* wrapper) {
  static PyObject* method = PyUnicode_InternFromString("cache_info");
  // Of the class: an instance may have an attribute of that name.
  const Ref<> info =
      steal(PyObject_CallMethodOneArg(reinterpret_cast<PyObject*>(Py_TYPE(wrapper)), method, wrapper));
  constexpr Py_ssize_t kMaxSize = 2, kSize = 3;  // fields of functools' _CacheInfo
  const auto number = [&](Py_ssize_t field) { return PyLong_AsSsize_t(PyTuple_GET_ITEM(info.get(), field)); };
  const bool known = info && PyTuple_Check(info.get()) && PyTuple_GET_SIZE(info.get()) > kSize;
  const bool full =
      !known || (PyTuple_GET_ITEM(info.get(), kMaxSize) != Py_None && number(kSize) >= number(kMaxSize));
  PyErr_Clear();
  return full;
}

namespace {

// The misses of one cache, by hashes of their keys. `cache` is a weak reference: another one may be made at
// the same address later.
struct Misses {
  Ref<> cache;
  std::unordered_set<Py_hash_t> keys;
};

}  // namespace

bool noteMiss(PyObject* wrapper, PyObject* key) {
  static auto& all = *new std::unordered_map<PyObject*, Misses>();  // lives as long as the process
  static size_t count = 0;
  constexpr size_t kMost = 4096;
  Py_hash_t hash = 0;
  if (!plainHash(key, &hash)) return false;
  if (count == kMost) {
    all.clear();
    count = 0;
  }
  Misses& misses = all[wrapper];
  if (!misses.cache || PyWeakref_GET_OBJECT(misses.cache.get()) != wrapper) {
    count -= misses.keys.size();
    misses = {steal(PyWeakref_NewRef(wrapper, nullptr)), {}};
    PyErr_Clear();
  }
  const bool first = misses.keys.insert(hash).second;
  count += first ? 1 : 0;
  return first;
}

namespace {

PyObject* hasCall(PyObject*, PyObject* const* args, Py_ssize_t count) {
  constexpr Py_ssize_t kFixed = 2;  // the wrapper and the names
  PyObject* cache = count < kFixed ? nullptr : cacheOf(args[0]);
  Ref<> key;
  if (cache != nullptr) {
    PyObject* names = args[1] == Py_None ? nullptr : args[1];
    key = cacheKey(args[0], {args + kFixed, static_cast<size_t>(count - kFixed)}, names);
  }
  return Py_NewRef(key && entryOf(cache, key.get()) != nullptr ? Py_True : Py_False);
}

}  // namespace

PyObject* cacheHasCall() {
  static PyMethodDef definition = {"has_call",
                                   reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(hasCall)),
                                   METH_FASTCALL, nullptr};
  static PyObject* function = PyCFunction_New(&definition, nullptr);
  return function;
}

bool isCacheLink(PyObject* entry) { return layout().link != nullptr && Py_IS_TYPE(entry, layout().link); }

PyObject* linkResultField() { return layout().field; }

PyObject* resultOfEntry(PyObject* entry) {
  return isCacheLink(entry) ? read<PyObject*>(entry, layout().result) : entry;
}

}  // namespace kintsugi::pyapi
