#include "runtime/visible_frames.h"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "pyapi/code.h"
#include "pyapi/errors.h"
#include "pyapi/exception_state.h"
#include "pyapi/frame.h"
#include "pyapi/functions.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

namespace {

// Can the object be made without running code of the program? `seen`: recipes that were visited, since
// recipes may form cycles (a function that calls itself holds itself).
bool isPlain(const ir::Trace& trace, const ir::Operand& operand, std::unordered_set<ir::RecipeId>& seen) {
  using ir::RecipeKind;
  if (operand.kind == ir::OperandKind::kList) {
    return false;
  }
  if (operand.kind != ir::OperandKind::kRecipe) {
    return true;
  }
  if (!seen.insert(operand.id).second) {
    return true;
  }
  const ir::Recipe& recipe = trace.recipes[operand.id];
  switch (recipe.kind) {
    case RecipeKind::kTuple:
    case RecipeKind::kList:
    case RecipeKind::kDict:
    case RecipeKind::kSlice:
    case RecipeKind::kCell:
    case RecipeKind::kMethod:
    case RecipeKind::kFunction:
      return std::all_of(recipe.parts.begin(), recipe.parts.end(),
                         [&](const ir::Operand& part) { return isPlain(trace, part, seen); });
    default:
      return false;
  }
}

bool isPlain(const ir::Trace& trace, const ir::Operand& operand) {
  std::unordered_set<ir::RecipeId> seen;
  return isPlain(trace, operand, seen);
}

// The function of a frame state. Where the state names a generator, the function that made it.
ir::Operand functionOf(const ir::Trace& trace, const ir::FrameState& state) {
  const ir::Operand owner = state.function;
  const bool generator =
      owner.kind == ir::OperandKind::kRecipe && trace.recipes[owner.id].kind == ir::RecipeKind::kGenerator;
  return generator ? trace.recipes[owner.id].parts.at(0) : owner;
}

// A function with code and globals like one that the trace has made, and with empty cells: those of the real
// one may hold what can't be made without running code, or can't be dropped again without it (a generator
// that waits in a `with`).
pyapi::Ref<> standIn(Materializer& make, const ir::Recipe& function) {
  pyapi::Ref<> code, globals;
  if (!make.get(function.parts.at(0), code) || !make.get(function.parts.at(1), globals) || !code ||
      !globals || !PyCode_Check(code.get())) {
    return {};
  }
  pyapi::Ref<> made = pyapi::steal(PyFunction_New(code.get(), globals.get()));
  const Py_ssize_t count = pyapi::freeVariableCount(reinterpret_cast<PyCodeObject*>(code.get()));
  pyapi::Ref<> closure = pyapi::steal(PyTuple_New(count));
  if (!made || !closure) {
    return {};
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(closure.get(), i, PyCell_New(nullptr));
  }
  if (count > 0 && PyFunction_SetClosure(made.get(), closure.get()) < 0) {
    return {};
  }
  return made;
}

// The function of a frame that is shown. Null: there is none.
pyapi::Ref<> shownFunction(Materializer& make, const ir::Trace& trace, const ir::FrameState& state) {
  const ir::Operand owner = functionOf(trace, state);
  pyapi::Ref<> function;
  if (owner.kind == ir::OperandKind::kRecipe && trace.recipes[owner.id].kind == ir::RecipeKind::kFunction &&
      !isPlain(trace, owner)) {
    function = standIn(make, trace.recipes[owner.id]);
  } else if (!make.get(owner, function)) {
    function = nullptr;
  }
  PyErr_Clear();
  return function && PyFunction_Check(function.get()) ? std::move(function) : pyapi::Ref<>();
}

void showLocals(Materializer& make, const ir::Trace& trace, const ir::FrameState& state,
                pyapi::Frame* frame) {
  const std::span<const ir::Operand> locals = trace.localsOf(state);
  const size_t count =
      std::min(locals.size(), static_cast<size_t>(pyapi::localsPlusCount(pyapi::codeOf(frame))));
  for (size_t k = 0; k < count; ++k) {
    pyapi::Ref<> object;
    if (isPlain(trace, locals[k]) && make.get(locals[k], object)) {
      Py_XDECREF(pyapi::exchangeLocal(frame, static_cast<int>(k), object.release()));
    }
    PyErr_Clear();
  }
}

}  // namespace

VisibleFrames::VisibleFrames(const RunView& run, ir::StateId stateId, Locals locals) {
  const recording::Recording& recording = run.recording;
  const ir::Trace& trace = recording.document.trace;
  Materializer make(run);
  if (locals == Locals::kShown) {
    handle(make, trace, stateId);
  }
  std::vector<ir::StateId> chain;
  size_t size = 0;
  for (ir::StateId id = stateId; id != ir::kNone; id = trace.states[id].parent) {
    if (pyapi::isHidden(reinterpret_cast<PyCodeObject*>(recording.consts[trace.states[id].code].get())))
      continue;
    pyapi::Ref<> function = shownFunction(make, trace, trace.states[id]);
    if (!function) {
      return;
    }
    chain.push_back(id);
    functions_.push_back(std::move(function));
    size += pyapi::ShownFrames::sizeOf(
        reinterpret_cast<PyCodeObject*>(recording.consts[trace.states[id].code].get()));
  }
  frames_.allocate(size, static_cast<int>(chain.size()));
  for (size_t k = chain.size(); k-- > 0;) {
    const ir::FrameState& state = trace.states[chain[k]];
    auto* code = reinterpret_cast<PyCodeObject*>(recording.consts[state.code].get());
    auto* function = pyapi::asFunction(functions_[k].get());
    pyapi::Frame* frame = frames_.push(function, code, chain[k] == stateId ? state.pc : state.waitingUnit());
    if (locals == Locals::kShown) {
      showLocals(make, trace, state, frame);
    }
    frames_.fillFreeVariables();
  }
}

void VisibleFrames::handle(Materializer& make, const ir::Trace& trace, ir::StateId state) {
  while (state != ir::kNone && trace.states[state].handled.kind == ir::OperandKind::kNull) {
    state = trace.states[state].parent;
  }
  pyapi::Ref<> exception;
  if (state != ir::kNone && make.get(trace.states[state].handled, exception) && exception) {
    handles_ = true;
    handledBefore_ = pyapi::exchangeHandled(std::move(exception));
  }
  PyErr_Clear();
}

VisibleFrames::~VisibleFrames() {
  if (handles_) {
    const pyapi::PendingErrorScope kept;  // the exception may die, with all that it holds
    pyapi::exchangeHandled(std::move(handledBefore_));
  }
}

}  // namespace kintsugi::runtime
