#include "capture/ending_writes.h"

#include <utility>

#include "pyapi/write_functions.h"
#include "torchapi/ended_objects.h"

namespace kintsugi::capture {

using ir::Op;

Py_ssize_t EndingWrites::ownReferences(PyObject* object) const {
  return static_cast<Py_ssize_t>(tables_.kept.contains(object)) +
         static_cast<Py_ssize_t>(tables_.overlays.contains(object));
}

bool EndingWrites::endsSomething(Op op, PyObject* target, PyObject* key) {
  const auto own = [this](PyObject* object) { return ownReferences(object); };
  const size_t known = ending_.size();
  const pyapi::End end = torchapi::endOfReplaced(op, target, key, own, &ending_);
  // A weak reference would still find what the recorder holds.
  return end == pyapi::End::kRuns || (end == pyapi::End::kEmpties && ending_.size() > known);
}

PyObject* EndingWrites::stepFor(Op op, PyObject* target, PyObject* key, ir::StateId before) {
  if (!pending_) ending_.clear();
  const size_t known = ending_.size();
  const ir::FrameState& frame = tables_.trace.states[before];
  const bool seen =
      tables_.places != nullptr && tables_.places->contains(tables_.constants.at(frame.code), frame.pc);
  if (!endsSomething(op, target, key) && !seen) {
    ending_.resize(known);
    return nullptr;
  }
  pending_ = true;
  tables_.classVersions.expectWrites();
  switch (op) {
    case Op::kSetAttr:
    case Op::kDelAttr:
      return pyapi::attributeWriter();
    case Op::kSetCell:
      return pyapi::cellWriter();
    default:
      return pyapi::itemWriter();
  }
}

void EndingWrites::finish(StaleReads& reads) {
  pending_ = false;
  const std::vector<PyObject*> ending = std::exchange(ending_, {});
  if (!breaks_.isLive()) return;  // nothing is held any more
  for (PyObject* object : ending) {
    if (Py_REFCNT(object) != ownReferences(object)) continue;  // the program has taken it up again
    tables_.sources.forget(object);
    Refs last;
    if (pyapi::Ref<> kept = tables_.kept.take(object)) last.push_back(std::move(kept));
    if (pyapi::Ref<> written = tables_.overlays.take(object)) last.push_back(std::move(written));
    const Paused paused(tables_.pauses);
    last.clear();
  }
  if (!breaks_.isLive()) return;
  if (!tables_.blocks.isPending()) tables_.blocks.next();
  tables_.blocks.setPending(true);
  reads.invalidateReads();
  reads.forgetEscapedObjects();
}

}  // namespace kintsugi::capture
