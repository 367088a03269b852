// The bytecode interpreter: evaluates one frame with the semantics of CPython.
//
// It is used in two ways: alone (every frame of a program, `kintsugi._interpret_everything()`), and under a
// StepObserver (the recorder), which sees every instruction before it is executed and decides how to execute
// it.
//
// Ownership: an Activation lives on the C stack of interpretFrame(); the frame belongs to CPython, which
// pushed it; it is gone when it has returned or raised (pyapi::finishFrame). All stack slots own one
// reference, as in CPython. Threads: everything here needs the GIL. One Activation belongs to one thread.
// Invalidation: a CodeInfo lives as long as its code object (it is stored in the code object's extra slot).
#pragma once

#include <cstdint>

#include "pyapi/attribute_cache.h"
#include "pyapi/frame.h"
#include "pyapi/opcodes.h"

namespace kintsugi::capture {

namespace op = pyapi::op;  // op::LOAD_FAST

enum class Flow : uint8_t;
struct Activation;
struct Instr;
using OpHandler = Flow (*)(Activation& act, const Instr& instr);

// One decoded instruction. `index` is the code unit of the opcode itself; `start` the code unit to resume at
// in order to run the instruction again: its first EXTENDED_ARG, or, for CALL, the KW_NAMES/PRECALL that
// belongs to it; `next` is the code unit after its inline caches.
struct Instr {
  uint8_t op = 0;
  uint32_t arg = 0;
  int32_t start = 0;
  int32_t index = 0;
  int32_t next = 0;
  int32_t target = -1;      // the code unit that it may jump to
  int32_t cache = -1;       // the number of its GlobalCache or AttributeCache in the CodeInfo
  OpHandler run = nullptr;  // what executes it
};

// What a LOAD_GLOBAL found, valid as long as both dicts have these versions (versions are never reused).
struct GlobalCache {
  uint64_t globalsVersion = 0;
  uint64_t builtinsVersion = 0;
  PyObject* value = nullptr;  // borrowed from one of the dicts
};

// The de-specialized, pre-decoded form of a code object.
class CodeInfo {
 public:
  // The decoded form, made at the first request. Null with a pending Python exception when memory runs out.
  static const CodeInfo* of(PyCodeObject* code);

  // The instruction that begins at code unit `unit` (an EXTENDED_ARG counts as the beginning of its
  // instruction).
  const Instr& at(int32_t unit) const { return instrs_[unit]; }
  int32_t size() const { return size_; }
  // LOAD_GLOBAL; LOAD_ATTR, STORE_ATTR, LOAD_METHOD. Only their handlers use these.
  GlobalCache& globalCache(const Instr& instr) const { return globalCaches_[instr.cache]; }
  pyapi::AttributeCache& attributeCache(const Instr& instr) const { return attributeCaches_[instr.cache]; }

 private:
  friend struct CodeInfoBuilder;
  Instr* instrs_ = nullptr;  // one entry a code unit
  int32_t size_ = 0;
  GlobalCache* globalCaches_ = nullptr;
  pyapi::AttributeCache* attributeCaches_ = nullptr;
};

// The instruction after `in`, past those that only belong to a CALL.
inline const Instr& callAfter(const CodeInfo& code, const Instr& in) {
  const Instr* next = &code.at(in.next);
  while (next->op == op::PRECALL || next->op == op::KW_NAMES) next = &code.at(next->next);
  return *next;
}

// What an instruction did. kRaise: a Python exception is pending, and the exception table has to be searched.
enum class Flow : uint8_t { kNext, kReturn, kYield, kRaise };

// The running state of one frame.
struct Activation {
  PyThreadState* tstate;
  pyapi::Frame* frame;
  const CodeInfo* code;
  PyObject** sp;       // one past the top of the value stack
  int32_t pc;          // code unit of the next instruction to run
  PyObject* kwnames;   // borrowed; set by KW_NAMES for the CALL that follows
  PyObject* result;    // the returned or yielded value after kReturn / kYield (owned)
  Activation* caller;  // the interpreted frame below on this thread, if any
  void* observerData;  // free for the StepObserver (the recorder's shadow frame)
  // Instructions run one by one under a StepObserver: none may do the work of the next one. The observer
  // clears it to have the frame taken over by CPython's evaluator, before `pc`.
  bool observed;
  bool keepTraceback;  // set with Flow::kRaise by instructions that re-raise: no traceback entry for this
                       // frame

  // Executes one instruction with CPython's semantics. `pc` already points after it.
  Flow execute(const Instr& instr) { return instr.run(*this, instr); }

  int32_t stackDepth() const { return static_cast<int32_t>(sp - pyapi::stackBase(frame)); }
  PyObject*& peek(int n) { return sp[-n]; }  // peek(1) is the top
  PyObject* local(uint32_t index) const { return pyapi::localAt(frame, static_cast<int>(index)); }
};

// Sees the instructions of the frames that it accepts. Methods are called with the GIL held; none may throw.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // A frame is about to run from its current instruction. False: run it unobserved.
  // `throwing`: a generator is resumed by throw().
  virtual bool enterFrame(Activation& act, bool throwing) = 0;
  // Runs one instruction, usually by calling act.execute(instr) in the middle of its own bookkeeping.
  virtual Flow step(Activation& act, const Instr& instr) = 0;
  // The exception table has been applied: the value stack was cut to `depth`, then, if `pushedLasti`, the
  // instruction offset, and always the exception were pushed; act.pc is the handler's.
  virtual void caught(Activation& act, int32_t depth, bool pushedLasti) = 0;
  // The frame is left: kReturn/kYield with act.result, kRaise with a pending exception; kNext: it is handed
  // over to CPython's evaluator and goes on there, because a tracing or profiling function was set, or
  // because the observer has asked for it.
  virtual void leaveFrame(Activation& act, Flow how) = 0;
};

// Evaluates `frame`. This is what the PEP 523 hook calls; same contract as CPython's own evaluator.
PyObject* interpretFrame(PyThreadState* tstate, pyapi::Frame* frame, bool throwing, StepObserver* observer);

}  // namespace kintsugi::capture
