#include "capture/tables/class_versions.h"

#include "pyapi/errors.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"

namespace kintsugi::capture {

namespace {

PyTypeObject* at(PyObject* order, Py_ssize_t i) {
  return reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
}

}  // namespace

void ClassVersions::expectWrites() {
  if (!log_.isAnythingOpen()) return;
  before_ = {};
  for (size_t i = 0; i < guards_.size(); ++i) {
    if (guards_[i].kind != guard::GuardKind::kTypeVersion) continue;
    PyTypeObject* type = constants_.typeAt(guards_[i].key);
    if (guards_[i].number != static_cast<int64_t>(*pyapi::typeVersionWord(type))) continue;
    PyObject* order = pyapi::mroOf(type);
    before_.guards.emplace_back(i, pyapi::newRef(order));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(order); ++k) {
      PyTypeObject* base = at(order, k);
      const auto [entry, isNew] =
          before_.dicts.try_emplace(base, *pyapi::dictVersionWord(pyapi::dictOf(base)));
      if (isNew && log_.hasOpen(base))
        before_.contents[base] = pyapi::steal(PyDict_Copy(pyapi::dictOf(base)));
    }
  }
}

void ClassVersions::renew() {
  Before before = std::exchange(before_, {});
  const pyapi::PendingErrorScope kept;  // the instruction's own error, if any
  std::unordered_map<PyTypeObject*, bool> same;
  for (const auto& [base, version] : before.dicts) {
    const auto contents = before.contents.find(base);
    same[base] = *pyapi::dictVersionWord(pyapi::dictOf(base)) == version ||
                 (contents != before.contents.end() && closedEntriesEqual(base, contents->second.get()));
  }
  for (const auto& [i, order] : before.guards) {
    PyTypeObject* type = constants_.typeAt(guards_[i].key);
    bool all = pyapi::mroOf(type) == order.get();
    for (Py_ssize_t k = 0; all && k < PyTuple_GET_SIZE(order.get()); ++k) all = same[at(order.get(), k)];
    if (all && pyapi::ensureTypeVersion(type))
      guards_[i].number = static_cast<int64_t>(*pyapi::typeVersionWord(type));
  }
  before = {};  // its references may be dropped here
}

// True if the class has the same entries as before, apart from open ones.
bool ClassVersions::closedEntriesEqual(PyTypeObject* type, PyObject* before) const {
  Py_ssize_t same = 0, open = 0;
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(pyapi::dictOf(type), &place, &key, &value)) {
    if (PyUnicode_CheckExact(key) && log_.isOpen(type, key)) continue;
    if (PyDict_GetItemWithError(before, key) != value) {
      PyErr_Clear();
      return false;
    }
    ++same;
  }
  place = 0;
  while (PyDict_Next(before, &place, &key, &value)) {
    open += PyUnicode_CheckExact(key) && log_.isOpen(type, key) ? 1 : 0;
  }
  return same + open == PyDict_GET_SIZE(before);
}

}  // namespace kintsugi::capture
