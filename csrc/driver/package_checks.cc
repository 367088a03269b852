#include "driver/package_checks.h"

#include "guard/verifier.h"
#include "pyapi/code.h"
#include "pyapi/object_layout.h"
#include "pyapi/types.h"

namespace kintsugi::driver {

namespace {

using guard::GuardKind;
using guard::SourceKind;

bool isCode(PyObject* object) { return PyCode_Check(object); }
bool isType(PyObject* object) { return PyType_Check(object); }
bool isAnything(PyObject*) { return true; }
bool isMember(PyObject* object) { return Py_IS_TYPE(object, &PyMemberDescr_Type); }
bool isGetSet(PyObject* object) { return Py_IS_TYPE(object, &PyGetSetDescr_Type); }
bool isTuple(PyObject* object) { return PyTuple_CheckExact(object); }
bool isSet(PyObject* object) { return PyAnySet_CheckExact(object); }
bool isNamedClass(PyObject* object) {
  return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2 &&
         PyType_Check(PyTuple_GET_ITEM(object, 0)) && PyUnicode_CheckExact(PyTuple_GET_ITEM(object, 1));
}
bool isRange(PyObject* object) {
  if (!PyTuple_CheckExact(object) || PyTuple_GET_SIZE(object) != 3) return false;
  for (Py_ssize_t i = 0; i < 3; ++i) {
    if (!PyLong_CheckExact(PyTuple_GET_ITEM(object, i))) return false;
  }
  return true;
}

using IsKind = bool (*)(PyObject*);

IsKind keyOf(SourceKind kind) {
  switch (kind) {
    case SourceKind::kMember:
      return isMember;
    case SourceKind::kGetSet:
      return isGetSet;
    default:
      return isAnything;
  }
}

IsKind keyOf(GuardKind kind) {
  switch (kind) {
    case GuardKind::kType:
    case GuardKind::kTypeVersion:
      return isType;
    case GuardKind::kOpenAttribute:
      return isNamedClass;
    case GuardKind::kKeys:
      return isTuple;
    case GuardKind::kSetEquals:
      return isSet;
    case GuardKind::kEmptyMember:
      return isMember;
    case GuardKind::kFunction:
      return isCode;
    case GuardKind::kDimRange:
      return isRange;
    default:
      return isAnything;
  }
}

class Checker {
 public:
  explicit Checker(const recording::Recording& recording)
      : recording_(recording), document_(recording.document), trace_(document_.trace) {}

  std::string problem() const {
    if (recording_.consts.size() != trace_.constCount) return "constants are missing";
    if (recording_.globalStates.empty() || recording_.start >= trace_.code.size() ||
        recording_.firstBlock >= document_.guards.blockCount)
      return "it has no beginning";
    const auto problems = guard::verify(document_, ir::VerifierMode::kOptimized);
    if (!problems.empty()) return problems.front().format();
    std::string found = sources();
    if (found.empty()) found = guards();
    if (found.empty()) found = states();
    if (found.empty()) found = recipes();
    return found;
  }

 private:
  PyObject* constant(ir::ConstId id) const { return recording_.consts.at(id).get(); }

  std::string sources() const {
    for (const guard::SourceNode& node : document_.sources.nodes) {
      if (node.key != ir::kNone && !keyOf(node.kind)(constant(node.key))) return "a source has another key";
    }
    return {};
  }

  std::string guards() const {
    for (const guard::Guard& g : document_.guards.guards) {
      if (g.key != ir::kNone && !keyOf(g.kind)(constant(g.key))) return "a guard has another constant";
      if (g.kind == GuardKind::kGlobalState &&
          static_cast<uint64_t>(g.number) >= recording_.globalStates.size())
        return "a guard has no global state";
    }
    return {};
  }

  std::string states() const {
    for (const ir::FrameState& state : trace_.states) {
      if (state.code >= recording_.consts.size() || !isCode(constant(state.code)))
        return "a frame without a code object";
      const auto* code = reinterpret_cast<PyCodeObject*>(constant(state.code));
      if (state.localCount != pyapi::localsPlusCount(code) || state.stackCount > pyapi::stackCapacity(code) ||
          state.pc < 0 || state.pc > pyapi::codeUnitCount(code))
        return "a frame of another code object";
      const ir::Operand& function = state.function;
      if (function.kind != ir::OperandKind::kConst) continue;
      if (!PyFunction_Check(constant(function.id)) ||
          PyFunction_GET_CODE(constant(function.id)) != constant(state.code))
        return "a frame of another function";
    }
    return {};
  }

  std::string recipes() const {
    for (const ir::Recipe& recipe : trace_.recipes) {
      if (recipe.type != ir::kNone && !isType(constant(recipe.type))) return "a recipe without its type";
    }
    return {};
  }

  const recording::Recording& recording_;
  const guard::Document& document_;
  const ir::Trace& trace_;
};

}  // namespace

std::string problemOf(const recording::Recording& recording) { return Checker(recording).problem(); }

namespace {

// The instructions before `at`, without the marks of segments.
std::vector<const ir::Instruction*> before(const ir::Trace& trace, size_t at) {
  std::vector<const ir::Instruction*> out;
  for (size_t i = 0; i < at; ++i) {
    const ir::Op op = trace.code[i].op;
    if (op != ir::Op::kSegment && op != ir::Op::kSegmentEnd) out.push_back(&trace.code[i]);
  }
  return out;
}

}  // namespace

bool followsFrom(const recording::Recording& side, const recording::Recording& parent, size_t at) {
  const ir::Trace& from = parent.document.trace;
  const ir::Trace& to = side.document.trace;
  if (at >= from.code.size() || (ir::opInfo(from.code[at].op).flags & ir::kExit) == 0 || side.start == 0 ||
      side.consts.size() < parent.consts.size() || to.values.size() < from.values.size() ||
      side.document.sources.nodes.size() < parent.document.sources.nodes.size() ||
      side.argCount != parent.argCount || to.metas.size() < from.metas.size() ||
      side.globalStates.size() < parent.globalStates.size())
    return false;
  for (size_t i = 0; i < parent.consts.size(); ++i) {
    if (side.consts[i].get() != parent.consts[i].get()) return false;
  }
  for (size_t i = 0; i < from.values.size(); ++i) {
    if (to.values[i].kind != from.values[i].kind) return false;
  }
  const auto common = before(from, at), own = before(to, side.start);
  if (common.size() != own.size()) return false;
  guard::BlockId blocks = 1;
  for (size_t i = 0; i < common.size(); ++i) {
    if (common[i]->op != own[i]->op || common[i]->resultCount != own[i]->resultCount ||
        common[i]->firstResult != own[i]->firstResult)
      return false;
    blocks += common[i]->op == ir::Op::kGuardBlock ? 1 : 0;
  }
  return side.firstBlock == blocks;
}

}  // namespace kintsugi::driver
