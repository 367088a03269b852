// CPython 3.12's evaluator clears and frees the frames that it has run, with functions that it does not
// export.
#include "pyapi/v312/frame_end.h"

#include <cstring>
#include <utility>

#include "pyapi/errors.h"
#include "pyapi/generator.h"

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

// Frames of functions lie on a stack of chunks, the running one on top.
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

// What the generator handles is no longer what the thread handles.
void leaveHandled(PyThreadState* tstate, PyGenObject* generator) {
  tstate->exc_info = generator->gi_exc_state.previous_item;
  generator->gi_exc_state.previous_item = nullptr;
}

}  // namespace

void keepFrameObject(PyFrameObject* object, Frame* frame) {
  Py_INCREF(frame->f_code);
  const auto size = static_cast<size_t>(reinterpret_cast<char*>(&frame->localsplus[frame->stacktop]) -
                                        reinterpret_cast<char*>(frame));
  auto* copy = reinterpret_cast<Frame*>(object->_f_frame_data);
  std::memcpy(copy, frame, size);
  copy->owner = FRAME_OWNED_BY_FRAME_OBJECT;
  copy->previous = nullptr;
  copy->frame_obj = nullptr;
  if (_PyFrame_IsIncomplete(copy)) {
    copy->prev_instr = _PyCode_CODE(copy->f_code) + copy->f_code->_co_firsttraceable;
  }
  object->f_frame = copy;
  // The caller is on top now, so that its frame object can be asked for.
  const KeptError kept;
  if (PyFrameObject* back = PyEval_GetFrame()) {
    object->f_back = reinterpret_cast<PyFrameObject*>(Py_NewRef(reinterpret_cast<PyObject*>(back)));
  } else {
    PyErr_Clear();
  }
  if (PyObject_GC_IsTracked(reinterpret_cast<PyObject*>(object)) == 0) {
    PyObject_GC_Track(object);
  }
}

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
