#include "runtime/visible_frames.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <unordered_set>
#include <utility>

#include "pyapi/exception_state.h"
#include "runtime/compiled_trace.h"

namespace kintsugi::runtime {

namespace {

size_t frameSize(const PyCodeObject* code) {
  return offsetof(_PyInterpreterFrame, localsplus) +
         sizeof(PyObject*) * static_cast<size_t>(std::max(1, code->co_nlocalsplus));
}

// Can an object be made without running code of the program? `seen`: recipes that were asked already, as a
// function that calls itself holds itself.
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

// What to call to get such a frame, where the state names the generator that it belongs to.
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
  const Py_ssize_t count = reinterpret_cast<PyCodeObject*>(code.get())->co_nfreevars;
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
                _PyInterpreterFrame* frame) {
  const std::span<const ir::Operand> locals = trace.localsOf(state);
  const size_t count = std::min(locals.size(), static_cast<size_t>(frame->f_code->co_nlocalsplus));
  for (size_t k = 0; k < count; ++k) {
    pyapi::Ref<> object;
    if (isPlain(trace, locals[k]) && make.get(locals[k], object)) {
      frame->localsplus[k] = object.release();
    }
    PyErr_Clear();
  }
}

// CPython reads the cells of free variables without asking whether they are there.
void showFreeVariables(const PyFunctionObject* function, _PyInterpreterFrame* frame) {
  const PyCodeObject* code = frame->f_code;
  const int first = code->co_nlocalsplus - code->co_nfreevars;
  for (int k = 0; k < code->co_nfreevars; ++k) {
    PyObject*& slot = frame->localsplus[first + k];
    if (slot == nullptr || !PyCell_Check(slot)) {
      Py_XSETREF(slot, Py_NewRef(PyTuple_GET_ITEM(function->func_closure, k)));
    }
  }
}

// The frame object outlives its frame: as CPython does when a frame is left, it gets a copy of its own.
void keepFrameObject(PyThreadState* tstate, PyFrameObject* object, _PyInterpreterFrame* frame) {
  Py_INCREF(frame->f_code);
  Py_INCREF(frame->f_func);
  auto* copy = reinterpret_cast<_PyInterpreterFrame*>(object->_f_frame_data);
  std::memcpy(copy, frame, frameSize(frame->f_code));
  copy->owner = FRAME_OWNED_BY_FRAME_OBJECT;
  copy->previous = nullptr;
  object->f_frame = copy;
  // The caller is on top now, so that its frame object can be asked for.
  if (PyFrameObject* back = pyapi::currentFrameObject(tstate, pyapi::currentFrame(tstate))) {
    object->f_back = reinterpret_cast<PyFrameObject*>(Py_NewRef(reinterpret_cast<PyObject*>(back)));
  } else {
    PyErr_Clear();
  }
  if (PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(object)) == 0) {
    PyObject_GC_Track(object);
  }
}

}  // namespace

VisibleFrames::VisibleFrames(const RunView& run, ir::StateId stateId, Locals locals)
    : tstate_(PyThreadState_Get()) {
  cframe_.use_tracing = tstate_->cframe->use_tracing;
  cframe_.previous = tstate_->cframe;
  cframe_.current_frame = tstate_->cframe->current_frame;
  tstate_->cframe = &cframe_;

  const Recording& recording = run.recording;
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
    size += frameSize(reinterpret_cast<PyCodeObject*>(recording.consts[trace.states[id].code].get()));
  }
  memory_ = std::make_unique<char[]>(size);
  levels_ = static_cast<int>(chain.size());
  tstate_->recursion_remaining -= levels_;
  char* next = memory_.get();
  for (size_t k = chain.size(); k-- > 0;) {
    const ir::FrameState& state = trace.states[chain[k]];
    auto* code = reinterpret_cast<PyCodeObject*>(recording.consts[state.code].get());
    // The innermost frame is at its instruction, the others are behind theirs.
    auto* function = reinterpret_cast<PyFunctionObject*>(functions_[k].get());
    push(function, code, chain[k] == stateId ? state.pc : state.pc - 1, next);
    if (locals == Locals::kShown) {
      showLocals(make, trace, state, frames_.back());
    }
    showFreeVariables(function, frames_.back());
    next += frameSize(code);
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

void VisibleFrames::push(PyFunctionObject* function, PyCodeObject* code, int32_t unit, char* memory) {
  auto* frame = reinterpret_cast<_PyInterpreterFrame*>(memory);
  frame->f_func = function;
  frame->f_globals = function->func_globals;
  frame->f_builtins = function->func_builtins;
  frame->f_locals = nullptr;
  frame->f_code = code;
  frame->frame_obj = nullptr;
  frame->previous = cframe_.current_frame;
  frame->stacktop = code->co_nlocalsplus;
  frame->is_entry = true;
  frame->owner = FRAME_OWNED_BY_THREAD;
  for (int k = 0; k < code->co_nlocalsplus; ++k) {
    frame->localsplus[k] = nullptr;
  }
  pyapi::setPrevInstrIndex(frame, unit);
  cframe_.current_frame = frame;
  frames_.push_back(frame);
}

VisibleFrames::~VisibleFrames() {
  tstate_->recursion_remaining += levels_;
  if (handles_) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);  // the exception may die, with all that it holds
    pyapi::exchangeHandled(std::move(handledBefore_));
    PyErr_Restore(type, value, traceback);
  }
  for (size_t k = frames_.size(); k-- > 0;) {
    _PyInterpreterFrame* frame = frames_[k];
    cframe_.current_frame = frame->previous;
    PyFrameObject* object = std::exchange(frame->frame_obj, nullptr);
    if (object != nullptr && Py_REFCNT(object) > 1) {
      PyObject *type, *value, *traceback;
      PyErr_Fetch(&type, &value, &traceback);
      keepFrameObject(tstate_, object, frame);  // takes over what the frame holds
      PyErr_Restore(type, value, traceback);
    } else {
      for (int slot = 0; slot < frame->f_code->co_nlocalsplus; ++slot) {
        Py_CLEAR(frame->localsplus[slot]);
      }
      Py_CLEAR(frame->f_locals);
    }
    Py_XDECREF(object);
  }
  tstate_->cframe = cframe_.previous;
  cframe_.previous->use_tracing = cframe_.use_tracing;
}

}  // namespace kintsugi::runtime
