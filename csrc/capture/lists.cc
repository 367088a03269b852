#include "capture/lists.h"

#include <algorithm>
#include <array>

#include "pyapi/slices.h"

namespace kintsugi::capture {

using ir::Op;

Shadows* listParts(RecordContext& rec, Shadow list, PyObject* object) {
  if (!PyList_Check(object) || list.isValue() || list.isNull()) return nullptr;
  if (list.isVirtual()) {
    Virtual& v = rec.objects.virtualOf(list);
    bool known =
        v.kind == VirtualKind::kList && v.parts.size() == static_cast<size_t>(PyList_GET_SIZE(object));
    return known ? &v.parts : nullptr;
  }
  Overlay* overlay = rec.objects.overlayOf(object);
  if (overlay != nullptr && !rec.objects.fitsList(*overlay)) return nullptr;
  if (overlay != nullptr && overlay->parts) return &*overlay->parts;
  if (overlay != nullptr && overlay->dirty) return nullptr;
  auto elements = rec.objects.elementsOf(list, object);
  if (!elements) return nullptr;
  Overlay& made = rec.objects.makeOverlay(object);
  made.parts = std::move(*elements);
  made.tail.clear();
  return &*made.parts;
}

bool isSharedList(RecordContext& rec, Shadow list) {
  return !list.isVirtual() || rec.objects.virtualOf(list).value != ir::kNone;
}

bool appendElement(RecordContext& rec, Shadow list, PyObject* object, Shadow item, PyObject* real) {
  bool known = list.isVirtual() ? rec.objects.virtualOf(list).kind == VirtualKind::kList
                                : (list.isSource() || list.isConst()) && PyList_Check(object);
  if (!known) return false;
  if (isSharedList(rec, list) && !rec.heap.emitMethod("append", list, object, {{item, real}})) return false;
  if (list.isVirtual()) {
    rec.objects.virtualOf(list).parts.push_back(item);
  } else {
    // No guard on the length is needed: the program has not asked for it.
    Overlay& overlay = rec.objects.makeOverlay(object);
    if (overlay.parts) {
      overlay.parts->push_back(item);
    } else if (!overlay.dirty) {
      overlay.tail.push_back(item);
    }
  }
  rec.objects.noteChange(list);
  return rec.live();
}

bool extendList(RecordContext& rec, Shadow list, PyObject* object, Shadow more, PyObject* iterable) {
  auto parts = rec.objects.iterated(more, iterable);
  bool shared = isSharedList(rec, list);
  bool known = list.isVirtual() ? rec.objects.virtualOf(list).kind == VirtualKind::kList
                                : (list.isSource() || list.isConst()) && PyList_Check(object);
  if (!parts || !known) {
    rec.abort(diag::Code::KTG0303, {"list.extend"});
    return false;
  }
  // The pairs of `dict.items()` are new objects. Only the effect holds them, so they have no shadows.
  bool pairs = more.isVirtual() && rec.objects.isItemsView(more);
  if (shared && !rec.heap.emitMethod("extend", list, object, {{more, iterable}})) return false;
  if (list.isVirtual()) {
    Virtual& v = rec.objects.virtualOf(list);
    if (pairs && shared) {
      rec.abort(diag::Code::KTG0303, {"list.extend"});
      return false;
    }
    v.parts.insert(v.parts.end(), parts->begin(), parts->end());
  } else {
    Overlay& overlay = rec.objects.makeOverlay(object);
    if (pairs) overlay.dirty = true;
    Shadows& known = overlay.parts ? *overlay.parts : overlay.tail;
    known.insert(known.end(), parts->begin(), parts->end());
  }
  rec.objects.noteChange(list);
  return rec.live();
}

void pairElements(RecordContext& rec, Shadow list, PyObject* object, Shadow more, Py_ssize_t start) {
  if (!rec.live() || !list.isVirtual() || rec.objects.virtualOf(list).kind != VirtualKind::kList) return;
  if (static_cast<Py_ssize_t>(rec.objects.virtualOf(list).parts.size()) != PyList_GET_SIZE(object)) return;
  for (Py_ssize_t i = start; i < PyList_GET_SIZE(object); ++i) {
    Shadow part = rec.objects.virtualOf(list).parts[static_cast<size_t>(i)];
    Shadow pair = rec.objects.itemOf(more, part, PyList_GET_ITEM(object, i));
    rec.objects.virtualOf(list).parts[static_cast<size_t>(i)] = pair;
  }
  rec.objects.noteChange(list);
}

bool storeElement(RecordContext& rec, Shadow list, PyObject* object, Py_ssize_t index, Shadow value,
                  PyObject* real) {
  Shadows* parts = listParts(rec, list, object);
  if (parts == nullptr) return false;
  auto n = static_cast<Py_ssize_t>(parts->size());
  if (index < 0) index += n;
  if (index < 0 || index >= n) return rec.live();  // the run raises IndexError
  pyapi::Ref<> key = pyapi::steal(PyLong_FromSsize_t(index));
  if (isSharedList(rec, list)) {
    Shadow target = list.isVirtual() ? list : Shadow::source(rec.guards.sourceOf(list, object));
    if (!rec.heap.emitEffect(Op::kSetItem,
                             {{target, object}, {Shadow::constant(), key.get()}, {value, real}})) {
      return false;
    }
  }
  (*parts)[static_cast<size_t>(index)] = value;
  rec.objects.noteChange(list);
  return rec.live();
}

bool storeSlice(RecordContext& rec, Shadow list, PyObject* object, Shadow& key, PyObject* slice, Shadow value,
                PyObject* real) {
  Shadows* parts = listParts(rec, list, object);
  bool sequence = PyList_CheckExact(real) || PyTuple_CheckExact(real) || PyRange_Check(real);
  if (parts == nullptr || real == object || !sequence || value.isValue() || !rec.guards.pinDeep(key, slice))
    return false;
  auto given = rec.objects.iterated(value, real);
  auto n = static_cast<Py_ssize_t>(parts->size());
  Py_ssize_t start = 0, stop = 0, step = 1;
  if (!given || !hasNumberBounds(slice) || PySlice_Unpack(slice, &start, &stop, &step) < 0) {
    PyErr_Clear();
    return false;
  }
  Py_ssize_t count = PySlice_AdjustIndices(n, &start, &stop, step);
  auto size = static_cast<Py_ssize_t>(given->size());
  if (step != 1 && size != count) return rec.live();  // the run raises ValueError
  if (isSharedList(rec, list)) {
    Shadow target = list.isVirtual() ? list : Shadow::source(rec.guards.sourceOf(list, object));
    if (!rec.heap.emitEffect(Op::kSetItem, {{target, object}, {Shadow::constant(), slice}, {value, real}}))
      return false;
  }
  if (step == 1) {
    parts->erase(parts->begin() + start, parts->begin() + start + count);
    parts->insert(parts->begin() + start, given->begin(), given->end());
  } else {
    for (Py_ssize_t i = 0; i < count; ++i) (*parts)[start + i * step] = (*given)[i];
  }
  rec.objects.noteChange(list);
  return rec.live();
}

bool clearElements(RecordContext& rec, Shadow list, PyObject* object) {
  if (list.isVirtual()) {
    Shadows* parts = listParts(rec, list, object);
    if (parts == nullptr || (isSharedList(rec, list) && !rec.heap.emitMethod("clear", list, object, {})))
      return false;
    parts->clear();
  } else {
    if ((!list.isSource() && !list.isConst()) || !PyList_Check(object) ||
        !rec.heap.emitMethod("clear", list, object, {})) {
      return false;
    }
    Overlay& overlay = rec.objects.makeOverlay(object);
    overlay.parts = Shadows{};  // the old length does not matter any more
    overlay.tail.clear();
    overlay.dirty = false;
  }
  rec.objects.noteChange(list);
  return rec.live();
}

namespace {

// True for the slice `[:]`, with constant bounds.
bool isFullSlice(RecordContext& rec, Shadow key, PyObject* index) {
  if (!PySlice_Check(index)) return false;
  if (!pyapi::isFullSlice(index)) return false;
  if (key.isConst()) return true;
  if (!key.isVirtual()) return false;
  const auto& parts = rec.objects.virtualOf(key).parts;
  return std::all_of(parts.begin(), parts.end(), [](Shadow part) { return part.isConst(); });
}

}  // namespace

bool hasNumberBounds(PyObject* slice) {
  const pyapi::SliceParts parts = pyapi::partsOfSlice(slice);
  return std::ranges::all_of(std::array{parts.start, parts.stop, parts.step},
                             [](PyObject* part) { return part == Py_None || PyLong_CheckExact(part); });
}

bool deleteElements(RecordContext& rec, Shadow list, PyObject* object, Shadow& key, PyObject* index) {
  if (!PyList_Check(object) || (!PyLong_CheckExact(index) && !PySlice_Check(index))) return false;
  if (!list.isValue() && isFullSlice(rec, key, index) &&
      specialMethod(Py_TYPE(object), "clear") == specialMethod(&PyList_Type, "clear")) {
    return clearElements(rec, list, object);
  }
  Shadows* parts = listParts(rec, list, object);
  if (parts == nullptr || !rec.guards.pinDeep(key, index)) return false;
  auto n = static_cast<Py_ssize_t>(parts->size());
  Py_ssize_t start = 0, stop = 0, step = 1, count = 1;
  if (PyLong_CheckExact(index)) {
    start = PyLong_AsSsize_t(index);
    PyErr_Clear();
    if (start < 0) start += n;
    if (start < 0 || start >= n) return rec.live();  // the run raises IndexError
  } else {
    if (!hasNumberBounds(index) || PySlice_Unpack(index, &start, &stop, &step) < 0) {
      PyErr_Clear();
      return false;
    }
    count = PySlice_AdjustIndices(n, &start, &stop, step);
  }
  if (isSharedList(rec, list)) {
    Shadow target = list.isVirtual() ? list : Shadow::source(rec.guards.sourceOf(list, object));
    if (!rec.heap.emitEffect(Op::kDelItem, {{target, object}, {Shadow::constant(), index}})) return false;
  }
  if (step < 0) {
    start += (count - 1) * step;
    step = -step;
  }
  for (Py_ssize_t i = count; i-- > 0;) parts->erase(parts->begin() + start + i * step);
  rec.objects.noteChange(list);
  return rec.live();
}

}  // namespace kintsugi::capture
