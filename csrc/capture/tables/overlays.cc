#include "capture/tables/overlays.h"

#include <utility>

#include "capture/tables/virtual_table.h"
#include "pyapi/plain.h"
#include "support/check.h"

namespace kintsugi::capture {

void WrittenEntries::note(PyObject* key, Shadow shadow, PyObject* object) {
  KINTSUGI_CHECK(key != nullptr, "an entry without a key");
  if (!entries_) entries_ = pyapi::steal(PyDict_New());
  const pyapi::Ref<> encoded = pyapi::steal(encodeShadow(shadow));
  const pyapi::Ref<> address = pyapi::steal(PyLong_FromVoidPtr(object));
  PyObject* held = object != nullptr && pyapi::isPlain(object) ? object : Py_None;
  const pyapi::Ref<> entry = pyapi::steal(PyTuple_Pack(3, encoded.get(), address.get(), held));
  PyDict_SetItem(entries_.get(), key, entry.get());
}

void WrittenEntries::forget(PyObject* key) {
  if (entries_ && PyDict_Contains(entries_.get(), key) == 1) PyDict_DelItem(entries_.get(), key);
}

std::optional<WrittenEntries::Entry> WrittenEntries::find(PyObject* key) const {
  PyObject* entry = entries_ ? PyDict_GetItemWithError(entries_.get(), key) : nullptr;
  if (entry == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  KINTSUGI_CHECK(PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 3,
                 "a written entry of another form");
  return Entry{decodeShadow(PyTuple_GET_ITEM(entry, 0)), PyLong_AsVoidPtr(PyTuple_GET_ITEM(entry, 1))};
}

void Overlay::noteDeleted(PyObject* key) {
  entries.forget(key);
  if (!deleted) deleted = pyapi::steal(PyDict_New());
  PyDict_SetItem(deleted.get(), key, Py_True);
}

void Overlay::written(PyObject* dict, PyObject* key, Shadow shadow, PyObject* value) {
  KINTSUGI_CHECK(PyDict_Check(dict), "an overlay of an object that is no dict");
  if (!entries.contains(key) && PyDict_Contains(dict, key) == 0) {
    if (!fresh) fresh = pyapi::steal(PyDict_New());
    PyDict_SetItem(fresh.get(), key, Py_True);
  }
  entries.note(key, shadow, value);
}

Overlays::Made Overlays::make(PyObject* object) {
  const auto [entry, isNew] = overlays_.try_emplace(object);
  Overlay& overlay = entry->second;
  if (isNew) overlay.object = pyapi::newRef(object);
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
