// Objects: virtual objects, the shadows of containers' parts, and overlays of old objects that the trace has
// written to.
#include "capture/objects.h"

#include "capture/plain_objects.h"
#include "capture/special_methods.h"
#include "pyapi/gil.h"
#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "support/check.h"

namespace kintsugi::capture {

using guard::GuardKind;
using guard::SourceKind;

Shadow Objects::newVirtual(VirtualKind kind, PyObject* object) {
  const Shadow shadow = virtuals_.add(kind, object);
  dead_.add(shadow.virtualId());
  return shadow;
}

Shadow Objects::newCell(PyObject* cell, Shadow content) {
  Shadow shadow = newVirtual(VirtualKind::kCell, cell);
  virtualOf(shadow).parts = {content};
  return shadow;
}

std::optional<Shadow> Objects::knownObject(PyObject* object) {
  if (const auto made = virtuals_.find(object)) return Shadow::virt(*made);
  if (torchapi::isTensor(object)) {
    if (auto value = ops_.valueOf(object)) return Shadow::value(*value);
  }
  if (const auto source = sources_.of(object)) {
    const Shadow known = sources_.shadowOf(*source);
    return known.isNull() ? Shadow::source(*source) : known;
  }
  return std::nullopt;
}

Shadow Objects::tupleOf(PyObject* tuple, Shadows parts) {
  if (PyTuple_CheckExact(tuple) && PyTuple_GET_SIZE(tuple) == 0) return Shadow::constant();
  bool constant = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    constant = constant && parts[i].isConst() && isPlainDeep(PyTuple_GET_ITEM(tuple, i));
  }
  if (constant && PyTuple_CheckExact(tuple)) return Shadow::constant();
  Shadow shadow = newVirtual(VirtualKind::kTuple, tuple);
  virtualOf(shadow).parts = std::move(parts);
  return shadow;
}

std::optional<Shadow> Objects::elementOf(Shadow shadow, PyObject* sequence, Py_ssize_t index) {
  PyObject* item =
      PyTuple_Check(sequence) ? PyTuple_GET_ITEM(sequence, index) : PyList_GET_ITEM(sequence, index);
  switch (shadow.kind()) {
    case ShadowKind::kVirtual: {
      Virtual& v = virtualOf(shadow);
      if (v.kind != VirtualKind::kTuple && v.kind != VirtualKind::kList) return std::nullopt;
      if (static_cast<size_t>(index) >= v.parts.size()) return std::nullopt;
      if (v.value != ir::kNone && !fitsElement(v.parts[index], sequence, item)) return std::nullopt;
      return virtualOf(shadow).parts[index];
    }
    case ShadowKind::kConst:
      if (isPlain(item)) return Shadow::constant();
      if (isPlainDeep(item)) return Shadow::constant();
      if (PyTuple_CheckExact(sequence) &&
          (PyType_Check(item) || PyFunction_Check(item) || PyCFunction_Check(item))) {
        return Shadow::constant();  // an immutable tuple always has this item
      }
      [[fallthrough]];
    case ShadowKind::kSource: {
      if (Overlay* overlay = overlayOf(sequence)) {
        if (!fitsList(*overlay)) return std::nullopt;
        if (overlay->parts) {
          const Shadow part = (*overlay->parts)[index];
          return fitsElement(part, sequence, item) ? std::optional(part) : std::nullopt;
        }
        if (overlay->dirty) {
          roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(sequence)});
          return std::nullopt;
        }
        Py_ssize_t base = Py_SIZE(sequence) - static_cast<Py_ssize_t>(overlay->tail.size());
        if (index >= base) {
          if (!roles_.containers.pinLength(shadow, sequence)) return std::nullopt;
          const Shadow part = overlay->tail[index - base];
          return fitsElement(part, sequence, item) ? std::optional(part) : std::nullopt;
        }
      }
      ir::SourceId source = roles_.guards.sourceOf(shadow, sequence);
      roles_.guards.guardType(Shadow::source(source), sequence);
      return roles_.guards.readSource(
          PyTuple_Check(sequence) ? SourceKind::kTupleItem : SourceKind::kListItem, source, nullptr, index,
          item);
    }
    default:
      return std::nullopt;
  }
}

std::optional<Shadows> Objects::elementsOf(Shadow shadow, PyObject* sequence) {
  if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) return std::nullopt;
  Py_ssize_t n = Py_SIZE(sequence);
  if (shadow.isSource() || (shadow.isConst() && PyList_Check(sequence))) {
    Overlay* overlay = overlayOf(sequence);
    if (overlay != nullptr && !fitsList(*overlay)) return std::nullopt;
    if (overlay != nullptr && overlay->parts) {
      const Shadows parts = *overlay->parts;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!fitsElement(parts[i], sequence, PySequence_Fast_ITEMS(sequence)[i])) return std::nullopt;
      }
      return parts;
    }
    ir::SourceId source = roles_.guards.sourceOf(shadow, sequence);
    Py_ssize_t added = overlay != nullptr ? static_cast<Py_ssize_t>(overlay->tail.size()) : 0;
    roles_.containers.guardLength(Shadow::source(source), sequence, n - added);
  }
  Shadows result;
  result.reserve(n);
  for (Py_ssize_t i = 0; i < n; ++i) {
    auto part = elementOf(shadow, sequence, i);
    if (!part) return std::nullopt;
    result.push_back(*part);
  }
  return result;
}

Shadow Objects::dictEntry(Shadow shadow, PyObject* dict, PyObject* key, PyObject* value) {
  if (shadow.isVirtual()) {
    auto entry = entryOf(virtualOf(shadow), key);
    if (entry) return *entry;
    roles_.breaks.abort(diag::Code::KTG0303, {"dict"});
    return Shadow::constant();
  }
  if (Overlay* overlay = overlayOf(dict)) {
    if (const auto written = readBack(overlay->entries, key, dict, value)) return *written;
    if (overlay->dirty || overlay->isDeleted(key)) {
      roles_.breaks.abort(diag::Code::KTG0303, {"dict"});
      return Shadow::constant();
    }
  }
  ir::SourceId source = roles_.guards.sourceOf(shadow, dict);
  roles_.guards.guardType(Shadow::source(source), dict);
  return roles_.guards.readSource(SourceKind::kDictItem, source, key, 0, value);
}

std::optional<Shadow> Objects::readBack(const WrittenEntries& written, PyObject* key, PyObject* holder,
                                        PyObject* found) {
  const auto entry = written.find(key);
  if (!entry) return std::nullopt;
  if (entry->object != found) roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(holder)});
  return entry->shadow;
}

bool Objects::fitsList(const Overlay& overlay) {
  const auto size = static_cast<size_t>(Py_SIZE(overlay.object.get()));
  const bool fits = overlay.parts ? overlay.parts->size() == size : overlay.tail.size() <= size;
  if (!fits) roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(overlay.object.get())});
  return fits;
}

bool Objects::fitsElement(Shadow shadow, PyObject* sequence, PyObject* found) {
  if (PyTuple_Check(sequence) || pyapi::gilSwitches(PyThreadState_Get()) == gilSwitches_) return true;
  const auto fits = [&] {
    switch (shadow.kind()) {
      case ShadowKind::kSource: {
        PyObject* known = sources_.objectOf(shadow.sourceId());
        return known == found || (known != nullptr && pyapi::plainEquals(known, found));
      }
      case ShadowKind::kValue:
        return torchapi::isTensor(found) && ops_.valueOf(found) == shadow.valueId();
      case ShadowKind::kVirtual:
        return virtualOf(shadow).object.get() == found;
      default:
        return !isPlain(found);  // nobody knows which number or text it was
    }
  };
  const bool same = fits();
  if (!same) roles_.breaks.abort(diag::Code::KTG0303, {pyapi::typeNameOf(sequence)});
  return same;
}

Overlay& Objects::makeOverlay(PyObject* object) {
  const auto [overlay, isNew] = overlays_.make(object);
  const auto own = isNew ? sources_.of(object) : std::nullopt;
  if (!own) return overlay;
  // Guards that this object is different from all others of its type that were read before.
  for (ir::SourceId id = 0; id < sources_.size(); ++id) {
    PyObject* other = sources_.objectOf(id);
    if (other == nullptr || other == object || Py_TYPE(other) != Py_TYPE(object) ||
        torchapi::isTensor(other) || sources_.node(id).kind == SourceKind::kPinned) {
      continue;
    }
    if (sources_.of(other) == id) roles_.guards.guard(GuardKind::kNotSame, id, ir::kNone, 0, *own);
  }
  return overlay;
}

std::optional<Shadow> Objects::closureCell(ShadowFrame& frame, int index, PyObject* cell) {
  if (frame.functionShadow.isVirtual()) {
    auto known = knownObject(cell);
    if (known) return known;
  }
  Shadow function = frame.functionShadow;
  if (function.isVirtual()) {
    Virtual& v = virtualOf(function);
    if (v.parts.size() > 2 + static_cast<size_t>(index)) return v.parts[2 + index];
    return std::nullopt;
  }
  ir::SourceId source = roles_.guards.sourceOf(function, frame.function.get());
  return roles_.guards.readSource(SourceKind::kClosure, source, nullptr, index, cell);
}

bool Objects::isDirty(PyObject* container) {
  Overlay* overlay = overlayOf(container);
  return roles_.varying.hasVaryingLength(container) ||
         (overlay != nullptr && (overlay->dirty || overlay->lengthUnknown()));
}

Shadow Objects::current(Shadow shadow) {
  if (!shadow.isVirtual() || !virtualOf(shadow).forgotten) return shadow;
  Virtual& v = virtualOf(shadow);
  return roles_.guards.readSource(SourceKind::kValue, ir::kNone, nullptr, v.value, v.object.get());
}

bool Objects::plainIteration(PyObject* dict) {
  if (PyDict_CheckExact(dict) || Py_TYPE(dict) == &PyODict_Type) return true;
  PyObject* method = specialMethod(Py_TYPE(dict), "__iter__");
  if (method == nullptr || PyFunction_Check(method)) return false;
  roles_.values.guardTypeVersion(Py_TYPE(dict));
  return true;
}

bool Objects::plainMembership(PyObject* dict) {
  if (PyDict_CheckExact(dict) || Py_TYPE(dict) == &PyODict_Type) return true;
  if (specialMethod(Py_TYPE(dict), "__contains__") != specialMethod(&PyDict_Type, "__contains__"))
    return false;
  roles_.values.guardTypeVersion(Py_TYPE(dict));
  return true;
}

bool Objects::plainDict(PyObject* dict) {
  if (PyDict_CheckExact(dict) || Py_TYPE(dict) == &PyODict_Type) return true;
  for (const char* name : {"__contains__", "__getitem__", "__len__", "__iter__"}) {
    PyObject* method = specialMethod(Py_TYPE(dict), name);
    if (method == nullptr || PyFunction_Check(method)) return false;
  }
  roles_.values.guardTypeVersion(Py_TYPE(dict));
  return true;
}

}  // namespace kintsugi::capture
