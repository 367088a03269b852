// Clears and frees the frames that have run. CPython 3.12's evaluator does this with functions that it does
// not export.
#include <utility>

#include "pyapi/frame.h"

namespace kintsugi::pyapi {

namespace {

void clearExceptCode(Frame* frame) {
  if (PyFrameObject* object = std::exchange(frame->frame_obj, nullptr)) {
    const bool kept = Py_REFCNT(object) > 1;
    if (kept) keepFrameObject(object, frame);
    Py_DECREF(object);
    if (kept) return;
  }
  for (int i = 0; i < frame->stacktop; ++i) {
    Py_XDECREF(frame->localsplus[i]);
  }
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
}

// Frames of functions are on a stack of chunks, with the running frame on top.
void popFrame(PyThreadState* tstate, Frame* frame) {
  auto** base = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* chunk = tstate->datastack_chunk;
  if (base != &chunk->data[0]) {
    tstate->datastack_top = base;
    return;
  }
  _PyStackChunk* previous = chunk->previous;  // there is one: the first chunk is never empty
  tstate->datastack_top = &previous->data[previous->top];
  tstate->datastack_chunk = previous;
  tstate->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(previous) + previous->size);
  PyObjectArenaAllocator arena;
  PyObject_GetArenaAllocator(&arena);
  arena.free(arena.ctx, chunk, chunk->size);
}

// The exception that the generator handles is no longer the thread's handled exception.
void leaveHandled(PyThreadState* tstate, PyGenObject* generator) {
  tstate->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
}

}  // namespace

void finishFrame(PyThreadState* tstate, Frame* frame, FrameEnd how) {
  if (how == FrameEnd::kSuspended) {
    leaveHandled(tstate, generatorOf(frame));
    frame->previous = nullptr;
    return;
  }
  if (ownedByGenerator(frame)) {
    PyGenObject* generator = generatorOf(frame);
    generator->gi_frame_state = FRAME_CLEARED;
    leaveHandled(tstate, generator);
    clearExceptCode(frame);
    frame->previous = nullptr;
    return;
  }
  PyCodeObject* code = frame->f_code;
  clearExceptCode(frame);
  Py_DECREF(code);
  popFrame(tstate, frame);
}

}  // namespace kintsugi::pyapi
