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

PyObject* EndingWrites::stepFor(Op op, PyObject* target, PyObject* key, ir::StateId before) {
  if (op == Op::kTakeItem || op == Op::kAddItem) return nullptr;
  if (!pending_) ending_.clear();
  const ir::FrameState& frame = tables_.trace.states[before];
  const bool seen =
      tables_.places != nullptr && tables_.places->contains(tables_.constants.at(frame.code), frame.pc);
  const auto own = [this](PyObject* object) { return ownReferences(object); };
  std::vector<PyObject*> ending;
  const pyapi::End end = torchapi::endOfReplaced(op, target, key, own, &ending);
  const bool runs = seen || end == pyapi::End::kRuns;
  // A weak reference would still find what the recorder holds.
  if (!runs && (end != pyapi::End::kEmpties || ending.empty())) return nullptr;
  ending_.insert(ending_.end(), ending.begin(), ending.end());
  pending_ = true;
  if (!runs) return nullptr;
  runs_ = true;
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
  const bool runs = std::exchange(runs_, false);
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
  if (!runs || !breaks_.isLive()) return;
  if (!tables_.blocks.isPending()) tables_.blocks.next();
  tables_.blocks.setPending(true);
  reads.invalidateReads();
  reads.forgetEscapedObjects();
}

}  // namespace kintsugi::capture
