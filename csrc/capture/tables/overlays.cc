#include "capture/tables/overlays.h"

#include <utility>

namespace kintsugi::capture {

PyObject* Overlay::deletedKeys() {
  if (!deleted) deleted = pyapi::steal(PyDict_New());
  return deleted.get();
}

bool Overlay::added(PyObject* key) { return PyDict_Contains(entries.get(), key) == 1; }

void Overlay::written(PyObject* dict, PyObject* key, PyObject* encoded) {
  if (!added(key) && PyDict_Contains(dict, key) == 0) {
    if (!fresh) fresh = pyapi::steal(PyDict_New());
    PyDict_SetItem(fresh.get(), key, Py_True);
  }
  PyDict_SetItem(entries.get(), key, encoded);
}

Overlays::Made Overlays::make(PyObject* object) {
  const auto [entry, isNew] = overlays_.try_emplace(object);
  Overlay& overlay = entry->second;
  if (isNew) {
    overlay.object = pyapi::newRef(object);
    overlay.attrs = pyapi::steal(PyDict_New());
    overlay.entries = pyapi::steal(PyDict_New());
  }
  return {overlay, isNew};
}

Overlay* Overlays::find(PyObject* object) {
  if (overlays_.empty()) return nullptr;
  const auto found = overlays_.find(object);
  return found == overlays_.end() ? nullptr : &found->second;
}

pyapi::Ref<> Overlays::take(PyObject* object) {
  const auto found = overlays_.find(object);
  if (found == overlays_.end()) return {};
  pyapi::Ref<> taken = std::move(found->second.object);
  overlays_.erase(found);
  return taken;
}

}  // namespace kintsugi::capture
