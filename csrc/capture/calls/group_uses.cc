// While a call is recorded, the groups of itertools.groupby() are stand-ins: objects of
// kintsugi._polyfill_iterators, which have another type. The program must never get hold of one. So the loop
// has to store each group in a local variable, and that variable may only be read by a loop over it, or by a
// builtin that takes the items and drops the group.
#include "capture/calls/group_uses.h"

#include <algorithm>
#include <array>
#include <vector>

#include "capture/handlers/handlers.h"
#include "capture/interpreter.h"
#include "pyapi/code.h"
#include "pyapi/opcodes.h"

namespace kintsugi::capture {

namespace {

constexpr std::array kDropItsArgument = {"list", "tuple", "sum", "any",    "all",      "set",
                                         "dict", "max",   "min", "sorted", "frozenset"};

bool dropsItsArgument(PyObject* callable) {
  PyObject* builtins = PyEval_GetBuiltins();
  return callable != nullptr &&
         std::any_of(kDropItsArgument.begin(), kDropItsArgument.end(),
                     [&](const char* name) { return PyDict_GetItemString(builtins, name) == callable; });
}

class Uses {
 public:
  Uses(PyCodeObject* code, PyObject* globals) : code_(code), globals_(globals) {
    const CodeInfo& info = *CodeInfo::of(code);
    for (int32_t unit = 0; unit < info.size(); unit = info.at(unit).next) add(info.at(unit));
  }

  // True if groups stay in the loop of the FOR_ITER at `unit`.
  bool stayInLoop(int32_t unit) const {
    const auto loop = std::ranges::find(all_, unit, &Instr::start);
    if (loop == all_.end() || loop->op != op::FOR_ITER) return false;
    auto at = static_cast<size_t>(loop - all_.begin()) + 1;
    if (at >= all_.size() || all_[at].op != op::UNPACK_SEQUENCE || all_[at].arg != 2) return false;
    at = behindTarget(at + 1);
    return at < all_.size() && all_[at].op == op::STORE_FAST && isOnlyIterated(all_[at].arg);
  }

 private:
  void add(const Instr& in) {
    if (hasHalves(in)) {
      for (const Instr& half : halvesOf(in)) all_.push_back(half);
    } else if (in.op != op::PRECALL && in.op != op::SET_FUNCTION_ATTRIBUTE) {
      all_.push_back(in);
    }
  }

  // Skips the instructions that store the key, and returns the index after them.
  size_t behindTarget(size_t at) const {
    if (at >= all_.size()) return at;
    if (all_[at].op == op::UNPACK_SEQUENCE) {
      const uint32_t count = all_[at].arg;
      ++at;
      for (uint32_t i = 0; i < count; ++i) at = behindTarget(at);
      return at;
    }
    const uint8_t op = all_[at].op;
    const bool plain = op == op::STORE_FAST || op == op::STORE_DEREF || op == op::STORE_GLOBAL;
    return plain ? at + 1 : all_.size();
  }

  bool isOnlyIterated(uint32_t variable) const {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].op == op::LOAD_FAST && all_[i].arg == variable && !isTaken(i)) return false;
    }
    return true;
  }

  // True if the load of the variable at all_[at] is such a use.
  bool isTaken(size_t at) const {
    if (at < 3 || at + 4 >= all_.size()) return false;
    if (all_[at + 1].op != op::GET_ITER) return calls(at + 1, all_[at - 1]);
    if (all_[at - 1].op != op::MAKE_FUNCTION) return true;
    // A list comprehension is over when it has its items. A generator expression holds the group until it is
    // dropped itself.
    if (all_[at - 2].op != op::LOAD_CONST || all_[at + 2].op != op::CALL) return false;
    return !isGenerator(all_[at - 2].arg) || calls(at + 3, all_[at - 3]);
  }

  // True if all_[at] calls a builtin that drops its only argument. `load` has loaded the callable.
  bool calls(size_t at, const Instr& load) const {
    return all_[at].op == op::CALL && all_[at].arg == 1 && load.op == op::LOAD_GLOBAL &&
           (load.arg & 1) != 0 && dropsItsArgument(global(load.arg >> 1));
  }

  bool isGenerator(uint32_t constant) const {
    PyObject* inner = pyapi::constantAt(code_, constant);
    return !PyCode_Check(inner) ||
           (pyapi::flagsOf(reinterpret_cast<PyCodeObject*>(inner)) & CO_GENERATOR) != 0;
  }

  PyObject* global(uint32_t index) const {
    PyObject* name = pyapi::nameAt(code_, index);
    PyObject* found = PyDict_GetItemWithError(globals_, name);
    return found != nullptr ? found : PyDict_GetItemWithError(PyEval_GetBuiltins(), name);
  }

  PyCodeObject* code_;
  PyObject* globals_;
  std::vector<Instr> all_;  // without instructions that only prepare a CALL or a MAKE_FUNCTION
};

// The unit of the FOR_ITER of a comprehension that gets its iterator as an argument; -1: there is none.
int32_t firstLoop(PyCodeObject* code) {
  const CodeInfo& info = *CodeInfo::of(code);
  for (int32_t unit = 0; unit < info.size(); unit = info.at(unit).next) {
    if (info.at(unit).op == op::FOR_ITER) return unit;
  }
  return -1;
}

// An inlined comprehension begins by saving the variables of its loop. Skips these instructions.
const Instr& behindComprehensionStart(const CodeInfo& info, const Instr& first) {
  const Instr* in = &first;
  while (in->op == op::LOAD_FAST_AND_CLEAR || in->op == op::SWAP ||
         ((in->op == op::BUILD_LIST || in->op == op::BUILD_SET || in->op == op::BUILD_MAP) && in->arg == 0)) {
    in = &info.at(in->next);
  }
  return *in;
}

}  // namespace

bool groupsDoNotEscape(CallContext& ctx) {
  const CodeInfo& info = *CodeInfo::of(ctx.frame.code);
  const Instr& iterate = info.at(ctx.instr.next);
  if (iterate.op != op::GET_ITER) return false;
  PyObject* globals = pyapi::globalsOf(ctx.act.frame);
  const Instr& next = behindComprehensionStart(info, callAfter(info, iterate));
  if (next.op == op::FOR_ITER) return Uses(ctx.frame.code, globals).stayInLoop(next.start);
  // `[... for k, g in groupby(...)]`: the comprehension's function is on the stack below the call.
  const int below = static_cast<int>(ctx.popped) + 1;
  if (next.op != op::CALL || next.arg != 0 || ctx.act.stackDepth() < below) return false;
  PyObject* function = ctx.act.peek(below);
  if (function == nullptr || !PyFunction_Check(function)) return false;
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const int32_t loop = (pyapi::flagsOf(code) & CO_GENERATOR) == 0 ? firstLoop(code) : -1;
  return loop >= 0 && Uses(code, globals).stayInLoop(loop);
}

}  // namespace kintsugi::capture
