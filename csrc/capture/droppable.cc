#include "capture/droppable.h"

#include <algorithm>
#include <iterator>

#include "capture/recorder_state.h"

namespace kintsugi::capture {

namespace {

constexpr size_t kNewest = 16;
constexpr size_t kMany = 32;

// None of the program's code runs when one of these goes, but that of what only it holds.
constexpr VirtualKind kKinds[] = {VirtualKind::kTuple,    VirtualKind::kList,      VirtualKind::kDict,
                                  VirtualKind::kCell,     VirtualKind::kFunction,  VirtualKind::kMethod,
                                  VirtualKind::kIterator, VirtualKind::kDictView,  VirtualKind::kSlice,
                                  VirtualKind::kZip,      VirtualKind::kEnumerate, VirtualKind::kMap,
                                  VirtualKind::kRange,    VirtualKind::kDeque};

bool hasFinalizer(PyTypeObject* type) { return type->tp_finalize != nullptr || type->tp_del != nullptr; }

bool isDroppable(const Virtual& v) {
  return v.object && !v.shared && !hasFinalizer(Py_TYPE(v.object.get())) &&
         !isWeaklyReferenced(v.object.get()) &&
         std::find(std::begin(kKinds), std::end(kKinds), v.kind) != std::end(kKinds);
}

void drop(RecorderState& state, Virtual& v) {
  state.virtualIds_.erase(v.object.get());
  v.kind = VirtualKind::kOpaque;  // nothing names it; if something did, it couldn't be built again
  v.parts.clear();
  v.partObjects.clear();
  v.attrs.reset();
  v.entries.reset();
  v.object.reset();
}

}  // namespace

bool isWeaklyReferenced(PyObject* object) {
  return Py_TYPE(object)->tp_weaklistoffset > 0 && *PyObject_GET_WEAKREFS_LISTPTR(object) != nullptr;
}

void Droppable::sweep(RecorderState& state) {
  if (ids_.size() > 2 * left_ + kMany) {
    sweepFrom(state, 0);
    left_ = ids_.size();
  } else {
    sweepFrom(state, ids_.size() - std::min(ids_.size(), kNewest));
  }
}

// The newest first: they hold older ones.
void Droppable::sweepFrom(RecorderState& state, size_t first) {
  for (size_t i = ids_.size(); i-- > first;) {
    Virtual& v = *state.virtuals_[ids_[i]];
    const bool droppable = isDroppable(v);
    if (droppable && Py_REFCNT(v.object.get()) > 1) {
      continue;
    }
    if (droppable) {
      drop(state, v);
    }
    ids_.erase(ids_.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace kintsugi::capture
