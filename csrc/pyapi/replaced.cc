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

constexpr int kDepth = 100;             // deeper ones are said to run code
constexpr Py_ssize_t kMostHolders = 8;  // objects with more references are held by others, too

struct Search {
  const EndRules& rules;
  std::unordered_map<PyObject*, Py_ssize_t> seen;  // how many references go, of objects that have several
  int depth = 0;
  End end = End::kQuiet;
};

bool isScalar(PyObject* object) {
  return object == Py_None || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || PyBool_Check(object) ||
         PyComplex_CheckExact(object);
}

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
  PyTypeObject* type = Py_TYPE(object);
  if (!hasAnyFinalizer(type)) return false;
  if (PyGen_CheckExact(object)) {
    auto* generator = asGenerator(object);
    return stateOf(generator) == GeneratorState::kSuspended &&
           (delegatesTo(generator) != nullptr || !closesQuietly(generator));
  }
  // A finalizer in C of a class in C closes a file or the like.
  return PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || PyCoro_CheckExact(object) ||
         PyAsyncGen_CheckExact(object);
}

int visit(PyObject* object, void* data);

// One reference to the object goes.
void look(PyObject* object, Search& search) {
  if (search.end == End::kRuns || isScalar(object)) return;
  const Py_ssize_t count = Py_REFCNT(object);
  const Py_ssize_t own = search.rules.own && count > 1 ? search.rules.own(object) : 0;
  if (count > 1 + own) {
    if (count > kMostHolders + own || ++search.seen[object] + own < count) return;
  }
  if (own > 0 && search.rules.ending != nullptr) search.rules.ending->push_back(object);
  search.end = std::max(search.end, endOfWeakReferences(object, search.rules));
  if (finalizerRunsCode(object) || search.depth == kDepth) search.end = End::kRuns;
  if (search.end == End::kRuns || !isTraversable(object) || !PyObject_IS_GC(object)) return;
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
  return search.end == End::kRuns ? 1 : 0;  // the rest need not be visited
}

}  // namespace

PyObject* replacedAttribute(PyObject* object, PyObject* name) {
  const PendingErrorScope kept;
  bool noneIfNull = false;
  if (PyObject* descriptor = lookUpInType(Py_TYPE(object), name); descriptor != nullptr) {
    if (PyObject** slot = memberSlot(descriptor, object, &noneIfNull)) return *slot;
    if (hasDescriptorSet(descriptor)) return nullptr;
  }
  return ownAttribute(object, name);
}

PyObject* replacedItem(PyObject* container, PyObject* key) {
  const PendingErrorScope kept;
  if (PyDict_Check(container)) return PyDict_GetItemWithError(container, key);
  if (!PyList_Check(container) || !PyLong_Check(key)) return nullptr;
  Py_ssize_t at = PyLong_AsSsize_t(key);
  if (at < 0) at += PyList_GET_SIZE(container);
  return at >= 0 && at < PyList_GET_SIZE(container) ? PyList_GET_ITEM(container, at) : nullptr;
}

std::vector<PyObject*> replacedItems(PyObject* list, PyObject* slice) {
  const PendingErrorScope kept;
  std::vector<PyObject*> items;
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (!PyList_Check(list) || !PySlice_Check(slice) || PySlice_Unpack(slice, &start, &stop, &step) < 0)
    return items;
  const Py_ssize_t count = PySlice_AdjustIndices(PyList_GET_SIZE(list), &start, &stop, step);
  for (Py_ssize_t i = 0; i < count; ++i) items.push_back(PyList_GET_ITEM(list, start + i * step));
  return items;
}

End endOf(PyObject* object, const EndRules& rules) {
  const bool stays = object == nullptr || isScalar(object) || (Py_REFCNT(object) > 1 && !rules.own);
  if (stays) return End::kQuiet;
  Search search{.rules = rules};
  look(object, search);
  return search.end;
}

}  // namespace kintsugi::pyapi
