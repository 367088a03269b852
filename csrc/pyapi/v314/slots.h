// The variables and the value stack of a frame in CPython 3.14: an array of tagged references.
//
// Variables always keep that form, since others read and write them while the frame runs. While we evaluate a
// frame, its stack has plain references, null where there is no object. Nobody else looks at it then, and
// CPython's collector only sees the variables. Ownership, threads and invalidation: see pyapi/frame_fields.h,
// which says what each function does.
#pragma once

#include <cstddef>
#include <utility>

#include "pyapi/frame_fields.h"
#include "pyapi/v314/references.h"
#include "support/check.h"

namespace kintsugi::pyapi {

// Converts a counted reference to one without tags, and back. On the stack of a frame that we evaluate,
// CPython's tagged int is an object of a class of ours.
PyObject* plainPlace(_PyStackRef place);
bool isPlace(PyObject* object);
_PyStackRef taggedPlace(PyObject* place);

inline PyObject* takeReference(_PyStackRef slot) {
  if (PyStackRef_IsNull(slot)) return nullptr;
  if (PyStackRef_IsTaggedInt(slot)) [[unlikely]]
    return plainPlace(slot);
  return PyStackRef_AsPyObjectSteal(slot);
}
inline _PyStackRef giveReference(PyObject* object) {
  if (object == nullptr) return PyStackRef_NULL;
  if (isPlace(object)) [[unlikely]]
    return taggedPlace(object);
  return PyStackRef_FromPyObjectSteal(object);
}

// The interpreter reads and writes slots in every instruction, so these checks are those of debug builds.
inline PyObject* localAt(const Frame* frame, int index) {
  KINTSUGI_DCHECK(index >= 0 && index < localsPlusCount(codeOf(frame)), "variable ", index);
  return objectIn(frame->localsplus[index]);
}
inline PyObject* exchangeLocal(Frame* frame, int index, PyObject* value) {
  KINTSUGI_DCHECK(index >= 0 && index < localsPlusCount(codeOf(frame)), "variable ", index);
  _PyStackRef slot = value != nullptr ? PyStackRef_FromPyObjectSteal(value) : PyStackRef_NULL;
  slot = std::exchange(frame->localsplus[index], slot);
  return PyStackRef_IsNull(slot) ? nullptr : PyStackRef_AsPyObjectSteal(slot);
}

inline PyObject** stackBase(Frame* frame) {
  return reinterpret_cast<PyObject**>(frame->localsplus + codeOf(frame)->co_nlocalsplus);
}
inline PyObject** takeStack(Frame* frame) {
  _PyStackRef* base = frame->localsplus + codeOf(frame)->co_nlocalsplus;
  _PyStackRef* top = std::exchange(frame->stackpointer, base);
  for (_PyStackRef* slot = base; slot != top; ++slot) {
    *reinterpret_cast<PyObject**>(slot) = takeReference(*slot);
  }
  return reinterpret_cast<PyObject**>(top);
}
inline void giveStack(Frame* frame, PyObject** top) {
  for (PyObject** slot = stackBase(frame); slot != top; ++slot) {
    *reinterpret_cast<_PyStackRef*>(slot) = giveReference(*slot);
  }
  frame->stackpointer = reinterpret_cast<_PyStackRef*>(top);
}
inline int stackDepth(const Frame* frame) {
  return static_cast<int>(frame->stackpointer - frame->localsplus) - codeOf(frame)->co_nlocalsplus;
}
inline PyObject* stackAt(const Frame* frame, int index) {
  KINTSUGI_DCHECK(index >= 0 && index < stackCapacity(codeOf(frame)), "entry ", index);
  const _PyStackRef slot = frame->localsplus[codeOf(frame)->co_nlocalsplus + index];
  return PyStackRef_IsTaggedInt(slot) ? nullptr : objectIn(slot);
}
inline void pushOn(Frame* frame, PyObject* object) { *frame->stackpointer++ = giveReference(object); }
inline PyObject* popFrom(Frame* frame) {
  KINTSUGI_DCHECK(stackDepth(frame) > 0, "depth ", stackDepth(frame));
  return takeReference(*--frame->stackpointer);
}

inline void emptySlots(Frame* frame) {
  const int count = codeOf(frame)->co_nlocalsplus;
  for (int i = 0; i < count; ++i) frame->localsplus[i] = PyStackRef_NULL;
  frame->stackpointer = frame->localsplus + count;
}
inline PyGenObject* generatorOf(Frame* frame) { return _PyGen_GetGeneratorFromFrame(frame); }

inline size_t usedSize(const Frame* frame) {
  return static_cast<size_t>(reinterpret_cast<const char*>(frame->stackpointer) -
                             reinterpret_cast<const char*>(frame));
}
inline void moveSlots(Frame* copy, const Frame* frame) {
  copy->stackpointer = copy->localsplus + (frame->stackpointer - frame->localsplus);
}

}  // namespace kintsugi::pyapi
