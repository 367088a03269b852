#include "capture/tables/virtual_table.h"

namespace kintsugi::capture {

PyObject* encodeShadow(Shadow shadow) {
  return PyLong_FromUnsignedLongLong((static_cast<uint64_t>(shadow.kind()) << 32) | shadow.anyId());
}

Shadow decodeShadow(PyObject* encoded) {
  const uint64_t bits = PyLong_AsUnsignedLongLong(encoded);
  return Shadow::of(static_cast<ShadowKind>(bits >> 32), static_cast<uint32_t>(bits));
}

namespace {

bool hasEntries(VirtualKind kind) {
  return kind == VirtualKind::kDict || kind == VirtualKind::kInstance || kind == VirtualKind::kFunction ||
         kind == VirtualKind::kPartial || kind == VirtualKind::kException || kind == VirtualKind::kClass;
}

}  // namespace

Shadow VirtualTable::add(VirtualKind kind, PyObject* object) {
  auto v = std::make_unique<Virtual>();
  v->kind = kind;
  v->object = pyapi::newRef(object);
  if (hasEntries(kind)) {
    v->entries = pyapi::steal(PyDict_New());
    v->attrs = pyapi::steal(PyDict_New());
  }
  const auto id = static_cast<uint32_t>(virtuals_.size());
  if (kind == VirtualKind::kIterator) iterators_.push_back(id);
  virtuals_.push_back(std::move(v));
  ids_[object] = id;
  return Shadow::virt(id);
}

std::optional<uint32_t> VirtualTable::find(PyObject* object) const {
  const auto found = ids_.find(object);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Virtual* VirtualTable::findObject(PyObject* object) const {
  const auto found = ids_.find(object);
  return found == ids_.end() ? nullptr : virtuals_[found->second].get();
}

void VirtualTable::replaceObject(Shadow shadow, PyObject* object) {
  Virtual& v = (*this)[shadow];
  forgetIdentity(v);
  ids_[object] = shadow.virtualId();
  v.object = pyapi::newRef(object);
}

void VirtualTable::releaseObjects() {
  ids_.clear();
  for (size_t i = virtuals_.size(); i-- > 0;) {
    virtuals_[i]->object.reset();
    for (pyapi::Ref<>& part : virtuals_[i]->partObjects) part.reset();
  }
}

bool VirtualTable::setEntry(Virtual& v, PyObject* key, Shadow value) {
  const pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
  v.shared ? noteChange() : noteChange(v);  // a shared dict belongs to the instance's recipe
  return encoded && PyDict_SetItem(v.entries.get(), key, encoded.get()) == 0;
}

std::optional<Shadow> VirtualTable::entryOf(const Virtual& v, PyObject* key) const {
  PyObject* encoded = v.entries ? PyDict_GetItemWithError(v.entries.get(), key) : nullptr;
  if (encoded == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return decodeShadow(encoded);
}

bool VirtualTable::setAttribute(Virtual& v, PyObject* name, Shadow value) {
  const pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
  noteChange(v);
  return encoded && PyDict_SetItem(v.attrs.get(), name, encoded.get()) == 0;
}

}  // namespace kintsugi::capture
