#include "pyapi/type_versions.h"

#include <unordered_set>
#include <vector>

#include "pyapi/dict.h"
#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::pyapi {

namespace {

// Compares without the order of the keys: a type's version stands for what look-up finds, and look-up does
// not depend on the order. Code that walks a class's dict (vars(), a metaclass's registry) reads a dict,
// which has guards of its own.
bool sameContents(PyObject* a, PyObject* b) {
  if (PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return false;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(a, &at, &key, &value)) {
    if (PyDict_GetItemWithError(b, key) != value) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

}  // namespace

TypeVersions::TypeVersions(PyTypeObject* root) {
  std::vector<PyTypeObject*> open = {root};
  std::unordered_set<PyTypeObject*> seen;
  while (!open.empty()) {
    PyTypeObject* type = open.back();
    open.pop_back();
    if (!seen.insert(type).second) continue;
    remember(type);
    for (Py_ssize_t i = 0; type->tp_mro != nullptr && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
      remember(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)));
    }
    Ref<> subclasses =
        steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__", "O", type));
    PyErr_Clear();
    for (Py_ssize_t i = 0; subclasses && i < PyList_GET_SIZE(subclasses.get()); ++i) {
      open.push_back(reinterpret_cast<PyTypeObject*>(PyList_GET_ITEM(subclasses.get(), i)));
    }
  }
  kept_.at(root).contents = steal(PyDict_Copy(dictOf(root)));
  PyErr_Clear();
}

void TypeVersions::remember(PyTypeObject* type) {
  auto [it, fresh] = kept_.try_emplace(type);
  if (!fresh || dictOf(type) == nullptr) return;
  Kept& kept = it->second;
  kept.type = newRef(reinterpret_cast<PyObject*>(type));
  kept.order = newRef(type->tp_mro);
  kept.version = validTypeVersion(type);
  kept.dictVersion = dictVersion(dictOf(type));
}

bool TypeVersions::unchanged(const Kept& kept) const {
  auto* type = reinterpret_cast<PyTypeObject*>(kept.type.get());
  if (type == nullptr || type->tp_mro != kept.order.get() || dictOf(type) == nullptr) return false;
  if (dictVersion(dictOf(type)) == kept.dictVersion) return true;
  return kept.contents && sameContents(kept.contents.get(), dictOf(type));
}

void TypeVersions::restore() {
  KINTSUGI_CHECK(!kept_.empty(), "versions that were not remembered");
  std::unordered_map<PyTypeObject*, bool> same;
  for (const auto& [type, kept] : kept_) same[type] = kept.version != 0 && unchanged(kept);
  for (const auto& [type, kept] : kept_) {
    bool all = same[type] && type->tp_version_tag != kept.version;
    for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(kept.order.get()); ++i) {
      all = same[reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(kept.order.get(), i))];
    }
    if (!all) continue;
    setTypeVersion(type, kept.version);
  }
}

}  // namespace kintsugi::pyapi
