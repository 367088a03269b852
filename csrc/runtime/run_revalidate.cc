// Changes by other threads while a trace runs.
//
// A trace reads older objects at its entry, or where a guard block is entered. Its operators release the GIL.
// So another thread may change by then what the program reads later:
//
//   y = self.weight @ x        # thread 1, traced; meanwhile thread 2 sets self.n = 100
//   self.n = self.n + 1
//
// Before each step that acts (an effect, a call), the run checks whether another thread has had the GIL. If
// so, it reads again what the trace has read, and what it has written. If anything differs, the run leaves
// the trace there, and the interpreter goes on with the present objects. If nothing differs, all that the
// trace knows is true at this moment, and stays so until an operator runs again.
//
// So does a step that runs Python code although it was said to run none (see leaveIfChanged()).
//
// A run with no such step behind its operators is as if all of it had happened at its entry. A long one
// checks from time to time nevertheless, so that a loop ends when another thread tells it to.
#include <algorithm>

#include "diag/events.h"
#include "pyapi/object_layout.h"
#include "pyapi/plain.h"
#include "runtime/run.h"

namespace kintsugi::runtime {

using ir::Op;

void Run::enteredBlock(guard::BlockId block, size_t index) {
  block_ = block;
  blockOwner_ = owner_;
  heldOwner_ = side_;
  blockBegin_ = actedUntil_ = index;
  storage_.writes.clear();
  switches_ = pyapi::gilSwitches(tstate_);
}

void Run::noteWrite(const ir::Instruction& ins, PyObject* target, PyObject* key, PyObject* value) {
  noteAct(ins);
  const auto operands = trace_->operandsOf(ins);
  if (operands[0].kind != ir::OperandKind::kSource) return;
  const bool isAttribute = ins.op == Op::kSetAttr || ins.op == Op::kDelAttr;
  if (ins.op == Op::kSetCell) {
    storage_.writes.push_back({target, nullptr, key, false});
  } else if (isAttribute || (PyDict_Check(target) && operands[1].kind == ir::OperandKind::kConst)) {
    storage_.writes.push_back({target, key, value, isAttribute});
  }
}

namespace {

// Does the place still hold what the run wrote there? True where that can't be found out.
bool isThere(const OwnWrite& write) {
  if (write.key == nullptr) return PyCell_GET(write.target) == write.value;
  PyObject* dict = write.target;
  if (write.isAttribute) {
    dict = PyType_Check(dict) ? nullptr : pyapi::instanceDict(dict);
    if (dict == nullptr) return true;
    if (write.value != nullptr && PyDict_Contains(dict, write.key) == 0) {
      return pyapi::lookUpInType(Py_TYPE(write.target), write.key) != nullptr;  // it has gone to a slot
    }
  }
  PyObject* found = PyDict_GetItemWithError(dict, write.key);
  PyErr_Clear();
  return found == write.value;
}

}  // namespace

bool Run::writesHold() const {
  const std::vector<OwnWrite>& writes = storage_.writes;
  for (size_t i = 0; i < writes.size(); ++i) {
    const auto overwritten = [&](const OwnWrite& later) {
      return later.target == writes[i].target && later.key == writes[i].key;
    };
    const bool last =
        std::none_of(writes.begin() + static_cast<std::ptrdiff_t>(i) + 1, writes.end(), overwritten);
    if (last && !isThere(writes[i])) return false;
  }
  return true;
}

// In front of an operator the GIL need not be held: then the number of switches is a hint. What is looked at
// there is less (inputs may be dead), so a step that acts behind it looks again, at all of it.
void Run::revalidate(const Step& step) {
  constexpr uint64_t kInterval = 5'000'000;  // ns: as often as CPython lets threads run by default
  if (!step.acts) {
    const uint64_t now = diag::events::nowNs();
    if (step.op != Op::kAten || revalidatedAt_ == 0 || now - revalidatedAt_ < kInterval) {
      revalidatedAt_ = revalidatedAt_ == 0 ? now : revalidatedAt_;
      return;
    }
    revalidatedAt_ = now;
    gil_.hold();
  }
  if (step.acts) switches_ = pyapi::gilSwitches(tstate_);
  leaveSoon_ = leaveSoon_ || !readsHold(step.acts);
  if (!step.acts) gil_.release();
}

// A step was to run no Python code, but did: an object in a list, say, has a class now that has an `__eq__`.
// What the code has changed is looked for as after another thread.
void Run::leaveIfChanged() {
  if (readsHold(true)) return;
  leaveSoon_ = true;
  stale_ = true;
}

bool Run::readsHold(bool identities) {
  const recording::Recording& recording = blockOwner_->recording();
  const std::vector<guard::SourceNode>& nodes = recording.document.sources.nodes;
  for (const guard::SourceNode& node : nodes) {
    const bool isRoot = node.kind == guard::SourceKind::kValue && node.block == block_;
    if (isRoot && storage_.objects[static_cast<size_t>(node.index)] == nullptr) return true;  // dropped since
  }
  std::vector<PyObject*> slots(slots_, slots_ + nodes.size());
  const WrittenPlaces* written = owner_->rereads().hold(*blockOwner_, blockBegin_, actedUntil_, block_, args_,
                                                        storage_.objects.data(), slots.data());
  if (written == nullptr) return false;
  const auto same = [&](guard::SourceId source) {
    if (slots[source] == slots_[source] || written->covers(source)) return true;
    if (slots[source] == nullptr || slots_[source] == nullptr) return false;
    const bool madeAnew = nodes[source].kind == guard::SourceKind::kGetSet && !pyapi::isPlain(slots[source]);
    return madeAnew || pyapi::plainEquals(slots[source], slots_[source]);
  };
  if (!identities) return writesHold();  // inputs may be dead
  const BlockPrologue& read = blockOwner_->replay().code().prologues[block_];
  return std::ranges::all_of(read.inputs, [&](const InputLoad& load) { return same(load.source); }) &&
         std::ranges::all_of(read.held, same) && writesHold();
}

}  // namespace kintsugi::runtime
