// Inside runtime only: a trace lowered to steps, and the storage of one run.
//
// Ownership: a ReplayCode owns its steps and borrows the Recording that it was made of, which outlives it. A
// RunStorage belongs to one run at a time and goes back to the free list afterwards, so that nothing is
// allocated in steady state. Threads: ReplayCode is constant but for `forced`; the free list is only touched
// under the GIL. Invalidation: none.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "guard/guard.h"
#include "ir/liveness.h"
#include "ir/trace.h"
#include "pyapi/ref.h"
#include "runtime/materialize.h"
#include "runtime/segment_run.h"
#include "torchapi/aten_call.h"
#include "torchapi/value.h"

namespace kintsugi::recording {
struct Recording;
}

namespace kintsugi::runtime {

// How a step wants the GIL. Operators run without it: their kernels may wait for threads that need it.
enum class GilNeed : uint8_t { kAny, kReleased, kHeld };

struct Step {
  ir::Op op = ir::Op::kRet;
  GilNeed gil = GilNeed::kAny;
  bool forced = false;          // testing: this guard fails
  bool acts = false;            // changes something outside the trace, or asks code that may
  bool dropsReference = false;  // a call of pyapi::dropReferenceFunction()
  uint32_t index = 0;           // into Trace::code
  uint32_t firstDrop = 0;       // into ReplayCode::drops: values that die here
  uint32_t dropCount = 0;
  uint32_t earlyDropCount = 0;  // of these, the first so many before the step runs
  ir::StateId snap = ir::kNone;
  uint32_t segment = 0;  // segment: into ReplayCode::segments
  const torchapi::AtenCall* call = nullptr;
  pyapi::Ref<> names;  // call: tuple of keyword names; effect on an attribute: its name
};

// An `input`: done where its source becomes known, in one go, so that a run of operators is not interrupted
// by them.
struct InputLoad {
  guard::SourceId source;
  ir::ValueId value;
  torchapi::ValueKind kind;  // kObject as well for a tensor that only runners with Python in them see
  bool kept = false;         // a number whose object nobody else need hold for the run
};

// What happens right after guard block k has passed (k = 0: at entry).
struct BlockPrologue {
  std::vector<InputLoad> inputs;
  std::vector<guard::SourceId> held;  // sources that instructions or snapshots name: kept alive for the run
};

struct ReplayCode {
  const recording::Recording* recording = nullptr;
  std::vector<bool> liveIn;               // by value, side traces: it comes from the parent and is used here
  std::vector<ir::ValueId> rootsOnEntry;  // side traces: their objects have to be there
  std::vector<Step> steps;
  std::vector<ir::ValueId> drops;
  std::vector<ir::ValueId> leftAtReturn;  // what no step drops on the way to the return
  std::vector<BlockPrologue> prologues;   // by block
  std::vector<std::unique_ptr<torchapi::AtenCall>> calls;
  std::vector<SegmentCode> segments;
  // By instruction: what was read from the object that the step drops its reference to, and is held for the
  // run.
  std::unordered_map<uint32_t, std::vector<guard::SourceId>> droppedSources;
  // Tensor inputs that nothing but the graphs of these segments uses: where their runners take Python
  // objects, the tensor need not be unpacked, nor wrapped again.
  std::unordered_map<ir::ValueId, std::vector<uint32_t>> graphInputs;
  // By value: the argument that a number is, which the caller holds; ir::kNone for all other values.
  std::vector<guard::SourceId> numberArguments;
  std::vector<ir::ValueId> madeTensors;   // by operators of the trace, in order
  std::vector<bool> isRoot;               // by value: sources start at it, so its object is kept as well
  std::vector<torchapi::Value> expected;  // by step: of a guard.value
};

// Throws InternalError (KINTSUGI_CHECK) when the trace can't be executed.
ReplayCode lowerTrace(const recording::Recording& recording);

// For traces without all of their guards: is the source an input that `block` loads, and are the inputs of
// block 0 of the kinds that were recorded?
bool loadsInput(const ReplayCode& code, guard::BlockId block, guard::SourceId source);
bool takesInputs(const ReplayCode& code, PyObject* const* slots);

// What a run has written since its last guard block to something older that it holds. All borrowed; the value
// may be dead, and is only compared.
struct OwnWrite {
  PyObject* target;  // a dict, a cell, or an object with a dict
  PyObject* key;     // a dict's key; an attribute's name; null: a cell
  PyObject* value;   // null: deleted
  bool isAttribute;
};

struct RunStorage {
  std::vector<torchapi::Value> values;  // by ValueId
  std::vector<PyObject*> objects;       // by ValueId: owned, for roots of sources
  std::vector<PyObject*> held;          // owned
  std::vector<PyObject*> slots;         // by SourceId, borrowed: once the run has crossed into a side trace
  NumberObjects numbers;                // owned
  std::vector<OwnWrite> writes;
  torchapi::CallState calls;

  explicit RunStorage(size_t valueCount) : values(valueCount), objects(valueCount, nullptr) {}
  ~RunStorage() { clear(); }
  void grow(size_t valueCount) {
    if (valueCount > values.size()) {
      values.resize(valueCount);
      objects.resize(valueCount, nullptr);
    }
  }
  void drop(ir::ValueId value) {
    torchapi::clear(values[value]);
    Py_CLEAR(objects[value]);
  }
  void keepNumber(ir::ValueId value, PyObject* object) {
    if (numbers.emplace(value, object).second) Py_INCREF(object);
  }
  void forgetNumber(ir::ValueId value) {
    const auto found = numbers.find(value);
    if (found == numbers.end()) return;
    PyObject* object = found->second;
    numbers.erase(found);
    Py_DECREF(object);
  }
  // An object's last reference, as far as the trace is concerned, and those to what was read from it.
  void dropReference(ir::ValueId value, const std::vector<guard::SourceId>& parts, PyObject** sources);
  void clear();
  // The same after a run that returned from `code` itself, not from a side trace: it need not go through all
  // values.
  void clearReturned(const ReplayCode& code);

 private:
  void release();
};

// Scalar arithmetic, sizes and comparisons (replay_scalar.cc). False: leave through the snapshot.
bool runScalar(const ir::Trace& trace, const ir::Instruction& instruction, torchapi::Value* values);
bool isScalarOp(ir::Op op);

}  // namespace kintsugi::runtime
