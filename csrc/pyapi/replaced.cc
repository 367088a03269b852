#include "pyapi/replaced.h"

#include <algorithm>
#include <unordered_map>

#include "pyapi/errors.h"
#include "pyapi/generator.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"

namespace kintsugi::pyapi {

namespace {

constexpr int kDepth = 500;  // what is nested deeper is said to run code
// Objects that several references to one object go with: of these alone is counted how many go. There are
// seldom any, so the rest of a large container is taken for held by others.
constexpr Py_ssize_t kMostHolders = 8;
constexpr size_t kMostCounted = 64;

struct Search {
  const EndRules& rules;
  std::unordered_map<PyObject*, Py_ssize_t> seen;  // how many references go, of objects that have several
  int depth = 0;
  End end = End::kQuiet;

  bool isOver() const { return end == End::kRuns && rules.ending == nullptr; }
};

// What its weak references do.
End endOfWeakReferences(PyObject* object, const EndRules& rules) {
  if (!isWeaklyReferenceable(object)) return End::kQuiet;
  auto* at = reinterpret_cast<PyWeakReference*>(*PyObject_GET_WEAKREFS_LISTPTR(object));
  End end = End::kQuiet;
  for (; at != nullptr; at = at->wr_next) {
    PyObject* callback = at->wr_callback;
    const bool library = callback != nullptr && rules.isLibrary != nullptr && PyFunction_Check(callback) &&
                         rules.isLibrary(PyFunction_GET_GLOBALS(callback));
    end = std::max(end, library ? End::kLibrary : callback == nullptr ? End::kEmpties : End::kRuns);
  }
  return end;
}

bool finalizerRunsCode(PyObject* object) {
  if (!hasAnyFinalizer(Py_TYPE(object))) return false;
  if (!PyGen_CheckExact(object)) return true;
  auto* generator = asGenerator(object);
  return stateOf(generator) == GeneratorState::kSuspended &&
         (delegatesTo(generator) != nullptr || !closesQuietly(generator));
}

// Nothing happens at its end, and it holds nothing that is looked for.
bool isInert(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return !PyType_HasFeature(type, Py_TPFLAGS_HAVE_GC) && !hasAnyFinalizer(type) &&
         !isWeaklyReferenceable(object);
}

// Another one of the references to an object goes. Was it the last one?
bool goesAltogether(PyObject* object, Py_ssize_t others, Search& search) {
  const bool counted =
      hasAnyFinalizer(Py_TYPE(object)) ||
      (others <= kMostHolders && (search.seen.size() < kMostCounted || search.seen.contains(object)));
  return counted && ++search.seen[object] >= others;
}

int visit(PyObject* object, void* data);

// One reference to the object goes.
void look(PyObject* object, Search& search) {
  if (isInert(object) || search.isOver()) return;
  const Py_ssize_t count = Py_REFCNT(object);
  const Py_ssize_t own = search.rules.own && count > 1 ? search.rules.own(object) : 0;
  if (count > 1 + own && !goesAltogether(object, count - own, search)) return;
  if (own > 0 && search.rules.ending != nullptr) search.rules.ending->push_back(object);
  search.end = std::max(search.end, endOfWeakReferences(object, search.rules));
  if (finalizerRunsCode(object) || search.depth == kDepth) search.end = End::kRuns;
  if (search.isOver() || search.depth == kDepth || !isTraversable(object) || !PyObject_IS_GC(object)) return;
  ++search.depth;
  traverse(object, visit, &search);
  --search.depth;
}

// The attribute `name` of the object's own. Its dict is not made for this.
PyObject* ownAttribute(PyObject* object, PyObject* name) {
  PyObject** slot = instanceDictSlot(object);
  if (slot != nullptr && dictIn(slot) != nullptr) return PyDict_GetItemWithError(*slot, name);
  PyDictValues* values = hasManagedDict(Py_TYPE(object)) ? managedValues(object) : nullptr;
  if (values == nullptr) return nullptr;
  PyDictKeysObject* keys = reinterpret_cast<PyHeapTypeObject*>(Py_TYPE(object))->ht_cached_keys;
  for (Py_ssize_t i = 0; i < keys->dk_nentries; ++i) {
    if (DK_UNICODE_ENTRIES(keys)[i].me_key == name) return values->values[i];
  }
  return nullptr;
}

int visit(PyObject* object, void* data) {
  auto& search = *static_cast<Search*>(data);
  look(object, search);
  return search.isOver() ? 1 : 0;  // the rest need not be visited
}

// The item for a key that can be looked up without code of the program; one for a key of another class is
// found by the key's identity, in a dict that is not too large.
PyObject* itemOf(PyObject* dict, PyObject* key) {
  if (isPlain(key)) return PyDict_GetItemWithError(dict, key);
  constexpr Py_ssize_t kMost = 256;
  if (PyDict_GET_SIZE(dict) > kMost) return nullptr;
  PyObject *other = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &other, &value) != 0;) {
    if (other == key) return value;
  }
  return nullptr;
}

}  // namespace

PyObject* replacedAttribute(PyObject* object, PyObject* name) {
  const PendingErrorScope kept;
  if (PyType_Check(object))
    return PyDict_GetItemWithError(dictOf(reinterpret_cast<PyTypeObject*>(object)), name);
  bool noneIfNull = false;
  if (PyObject* descriptor = lookUpInType(Py_TYPE(object), name); descriptor != nullptr) {
    if (PyObject** slot = memberSlot(descriptor, object, &noneIfNull)) return *slot;
    if (hasDescriptorSet(descriptor)) return nullptr;
  }
  return ownAttribute(object, name);
}

PyObject* replacedItem(PyObject* container, PyObject* key) {
  const PendingErrorScope kept;
  if (PyDict_Check(container)) return itemOf(container, key);
  if (!PyList_Check(container) || !PyLong_Check(key)) return nullptr;
  Py_ssize_t at = PyLong_AsSsize_t(key);
  if (at < 0) at += PyList_GET_SIZE(container);
  return at >= 0 && at < PyList_GET_SIZE(container) ? PyList_GET_ITEM(container, at) : nullptr;
}

// CPython drops them from the last one on.
std::vector<PyObject*> replacedItems(PyObject* list, PyObject* slice) {
  const PendingErrorScope kept;
  std::vector<PyObject*> items;
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (!PyList_Check(list) || PySlice_Unpack(slice, &start, &stop, &step) < 0) return items;
  const Py_ssize_t count = PySlice_AdjustIndices(PyList_GET_SIZE(list), &start, &stop, step);
  for (Py_ssize_t i = count; i-- > 0;) items.push_back(PyList_GET_ITEM(list, start + i * step));
  return items;
}

End endOf(PyObject* object, const EndRules& rules) {
  const bool stays = object == nullptr || isInert(object) || (Py_REFCNT(object) > 1 && !rules.own);
  return stays ? End::kQuiet : endOf(std::span(&object, 1), rules);
}

End endOf(std::span<PyObject* const> objects, const EndRules& rules) {
  Search search{.rules = rules};
  for (PyObject* object : objects) look(object, search);
  return search.end;
}

}  // namespace kintsugi::pyapi
