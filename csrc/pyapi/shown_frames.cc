#include "pyapi/shown_frames.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace kintsugi::pyapi {

ShownFrames::ShownFrames() : tstate_(PyThreadState_Get()) { linkEvaluation(tstate_, state_); }

size_t ShownFrames::sizeOf(const PyCodeObject* code) {
  return offsetof(Frame, localsplus) +
         sizeof(PyObject*) * static_cast<size_t>(std::max(1, code->co_nlocalsplus));
}

void ShownFrames::allocate(size_t size, int count) {
  KINTSUGI_CHECK(memory_ == nullptr, "frames are allocated twice");
  memory_ = std::make_unique<char[]>(size);
  next_ = memory_.get();
  end_ = next_ + size;
  levels_ = count;
  takeRecursion(tstate_, levels_);
}

Frame* ShownFrames::push(PyFunctionObject* function, PyCodeObject* code, int32_t unit) {
  KINTSUGI_CHECK(sizeOf(code) <= static_cast<size_t>(end_ - next_), "no room for a frame of ", sizeOf(code),
                 " bytes behind ", frames_.size());
  auto* frame = reinterpret_cast<Frame*>(std::exchange(next_, next_ + sizeOf(code)));
  setFunction(frame, function);
  frame->f_globals = function->func_globals;
  frame->f_builtins = function->func_builtins;
  frame->f_locals = nullptr;
  setCode(frame, code);
  frame->frame_obj = nullptr;
  frame->previous = currentSlot(tstate_, state_);
  markEntry(frame);
  frame->owner = FRAME_OWNED_BY_THREAD;
  emptySlots(frame);
  setRunningUnit(frame, unit);
  currentSlot(tstate_, state_) = frame;
  frames_.push_back(frame);
  return frame;
}

// CPython reads cells of free variables without checking that they exist.
void ShownFrames::fillFreeVariables() {
  KINTSUGI_CHECK(!frames_.empty(), "no frame to fill");
  Frame* frame = frames_.back();
  const PyCodeObject* code = codeOf(frame);
  const int first = firstFreeVariable(code);
  for (int k = 0; k < code->co_nfreevars; ++k) {
    PyObject* object = localAt(frame, first + k);
    if (object == nullptr || !PyCell_Check(object)) {
      PyObject* closure = functionOf(frame)->func_closure;
      KINTSUGI_CHECK(closure != nullptr && k < PyTuple_GET_SIZE(closure), "free variable ", k,
                     " has no cell");
      PyObject* cell = PyTuple_GET_ITEM(closure, k);
      Py_XDECREF(exchangeLocal(frame, first + k, Py_NewRef(cell)));
    }
  }
}

ShownFrames::~ShownFrames() {
  takeRecursion(tstate_, -levels_);
  for (size_t k = frames_.size(); k-- > 0;) {
    Frame* frame = frames_[k];
    currentSlot(tstate_, state_) = frame->previous;
    PyFrameObject* object = std::exchange(frame->frame_obj, nullptr);
    if (object != nullptr && Py_REFCNT(object) > 1) {
      Py_INCREF(functionOf(frame));
      keepFrameObject(object, frame);
    } else {
      for (int slot = 0; slot < codeOf(frame)->co_nlocalsplus; ++slot) {
        Py_XDECREF(exchangeLocal(frame, slot, nullptr));
      }
      Py_CLEAR(frame->f_locals);
    }
    Py_XDECREF(object);
  }
  unlinkEvaluation(tstate_, state_);
}

}  // namespace kintsugi::pyapi
