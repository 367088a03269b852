#include "capture/tables/virtual_table.h"

#include <algorithm>

#include "pyapi/frame.h"
#include "pyapi/generator.h"
#include "support/check.h"

namespace kintsugi::capture {

PyObject* encodeShadow(Shadow shadow) {
  return PyLong_FromUnsignedLongLong((static_cast<uint64_t>(shadow.kind()) << 32) | shadow.anyId());
}

Shadow decodeShadow(PyObject* encoded) {
  const uint64_t bits = PyLong_AsUnsignedLongLong(encoded);
  KINTSUGI_CHECK(bits >> 32 <= static_cast<uint64_t>(ShadowKind::kVirtual), "no encoded shadow: ", bits);
  return Shadow::of(static_cast<ShadowKind>(bits >> 32), static_cast<uint32_t>(bits));
}

namespace {

bool hasEntries(VirtualKind kind) {
  return kind == VirtualKind::kDict || kind == VirtualKind::kInstance || kind == VirtualKind::kFunction ||
         kind == VirtualKind::kPartial || kind == VirtualKind::kException || kind == VirtualKind::kClass;
}

}  // namespace

Shadow VirtualTable::add(VirtualKind kind, PyObject* object) {
  KINTSUGI_CHECK(object != nullptr, "a virtual of kind ", static_cast<int>(kind), " without an object");
  auto v = std::make_unique<Virtual>();
  v->kind = kind;
  v->object = pyapi::newRef(object);
  if (hasEntries(kind)) {
    v->entries = pyapi::steal(PyDict_New());
    v->attrs = pyapi::steal(PyDict_New());
  }
  const auto id = static_cast<uint32_t>(virtuals_.size());
  if (kind == VirtualKind::kIterator || kind == VirtualKind::kEnumerate) iterators_.push_back({id});
  held_.push_back(v.get());
  virtuals_.push_back(std::move(v));
  ids_[object] = id;
  return Shadow::virt(id);
}

const std::vector<Virtual*>& VirtualTable::held() {
  if (2 * dropped_ > held_.size()) {
    std::erase_if(held_, [](const Virtual* v) { return !v->object; });
    dropped_ = 0;
  }
  return held_;
}

std::optional<uint32_t> VirtualTable::find(PyObject* object) const {
  const auto found = ids_.find(object);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

Virtual* VirtualTable::findObject(PyObject* object) const {
  const auto found = ids_.find(object);
  return found == ids_.end() ? nullptr : virtuals_[found->second].get();
}

void VirtualTable::dropObject(Virtual& v) {
  KINTSUGI_CHECK(v.object, "a virtual is dropped twice");
  forgetIdentity(v);
  v.kind = VirtualKind::kOpaque;
  ++dropped_;
  v.object.reset();
}

void VirtualTable::replaceObject(Shadow shadow, PyObject* object) {
  Virtual& v = (*this)[shadow];
  KINTSUGI_CHECK(object != nullptr, "virtual ", shadow.virtualId(), " gets no object");
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

void VirtualTable::noteChange() { lastGeneralChange_ = ++epoch_; }

void VirtualTable::noteChange(Virtual& v) {
  if (v.recipe != ir::kNone) v.changed = ++epoch_;  // else no snapshot names it
}

bool VirtualTable::setEntry(Virtual& v, PyObject* key, Shadow value) {
  KINTSUGI_CHECK(v.entries && key != nullptr, "an entry of a virtual of kind ", static_cast<int>(v.kind));
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
  KINTSUGI_CHECK(v.attrs && name != nullptr, "an attribute of a virtual of kind ", static_cast<int>(v.kind));
  const pyapi::Ref<> encoded = pyapi::steal(encodeShadow(value));
  noteChange(v);
  return encoded && PyDict_SetItem(v.attrs.get(), name, encoded.get()) == 0;
}

Virtual* VirtualTable::classOf(PyTypeObject* type) const {
  if (classes_.empty()) return nullptr;
  Virtual* v = findObject(reinterpret_cast<PyObject*>(type));
  return v != nullptr && v->kind == VirtualKind::kClass ? v : nullptr;
}

Virtual* VirtualTable::classOfCell(Shadow cell) {
  if (classes_.empty() || !cell.isVirtual()) return nullptr;
  const Virtual& v = (*this)[cell];
  if (v.kind != VirtualKind::kCell || v.parts.empty() || !v.parts[0].isVirtual()) return nullptr;
  Virtual& content = (*this)[v.parts[0]];
  return content.kind == VirtualKind::kClass && content.parts.back() == cell ? &content : nullptr;
}

PyObject* VirtualTable::newestClassBody() const {
  for (size_t i = classes_.size(); i-- > 0;) {
    const Virtual& v = at(classes_[i]);
    if (v.partObjects.back()) return v.partObjects.back().get();
  }
  return nullptr;
}

Shadow VirtualTable::shadowOf(Shadow shadow, PyObject* object) const {
  if (!shadow.isConst() || object == nullptr) return shadow;
  if (classes_.empty() && !PyFunction_Check(object)) return shadow;
  const auto found = find(object);
  return found ? Shadow::virt(*found) : shadow;
}

Virtual* VirtualTable::ofRunningGenerator(const Activation& act) const {
  Virtual* v = findObject(reinterpret_cast<PyObject*>(pyapi::generatorOf(act.frame)));
  return v != nullptr && v->kind == VirtualKind::kGenerator && v->value == ir::kNone ? v : nullptr;
}

bool VirtualTable::isShared(Shadow shadow) const {
  if (!shadow.isVirtual()) return false;
  const Virtual& v = (*this)[shadow];
  switch (v.kind) {
    case VirtualKind::kTuple:
    case VirtualKind::kSlice:
    case VirtualKind::kMethod:
    case VirtualKind::kSuper:
    case VirtualKind::kDictView:
      return std::ranges::any_of(v.parts, [this](Shadow part) { return isShared(part); });
    case VirtualKind::kSet:
      return !PyFrozenSet_Check(v.object.get()) ||
             std::ranges::any_of(v.parts, [this](Shadow part) { return isShared(part); });
    case VirtualKind::kRange:
    case VirtualKind::kTraceback:
      return false;  // the object says all
    default:
      return true;
  }
}

}  // namespace kintsugi::capture
