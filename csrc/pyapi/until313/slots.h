// The variables and the value stack of a frame up to CPython 3.13: an array of references.
//
// Ownership, threads and invalidation: see pyapi/frame_fields.h, which says what each function does.
#pragma once

#include <cstddef>
#include <utility>

#include "pyapi/frame_fields.h"
#include "support/check.h"

namespace kintsugi::pyapi {

// The interpreter reads and writes slots in every instruction, so these checks are those of debug builds.
inline PyObject* localAt(const Frame* frame, int index) {
  KINTSUGI_DCHECK(index >= 0 && index < localsPlusCount(codeOf(frame)), "variable ", index);
  return frame->localsplus[index];
}
inline PyObject* exchangeLocal(Frame* frame, int index, PyObject* value) {
  KINTSUGI_DCHECK(index >= 0 && index < localsPlusCount(codeOf(frame)), "variable ", index);
  return std::exchange(frame->localsplus[index], value);
}

inline PyObject** stackBase(Frame* frame) { return frame->localsplus + codeOf(frame)->co_nlocalsplus; }
inline PyObject** takeStack(Frame* frame) {
  KINTSUGI_DCHECK(frame->stacktop >= localsPlusCount(codeOf(frame)), "the stack was taken before");
  return frame->localsplus + std::exchange(frame->stacktop, -1);
}
inline void giveStack(Frame* frame, PyObject** top) {
  KINTSUGI_DCHECK(top >= stackBase(frame) && top - stackBase(frame) <= stackCapacity(codeOf(frame)),
                  "the stack ends at entry ", top - stackBase(frame));
  frame->stacktop = static_cast<int>(top - frame->localsplus);
}
inline int stackDepth(const Frame* frame) { return frame->stacktop - codeOf(frame)->co_nlocalsplus; }
inline PyObject* stackAt(const Frame* frame, int index) {
  KINTSUGI_DCHECK(index >= 0 && index < stackCapacity(codeOf(frame)), "entry ", index);
  return frame->localsplus[codeOf(frame)->co_nlocalsplus + index];
}
inline void pushOn(Frame* frame, PyObject* object) {
  KINTSUGI_DCHECK(stackDepth(frame) >= 0 && stackDepth(frame) < stackCapacity(codeOf(frame)), "depth ",
                  stackDepth(frame));
  frame->localsplus[frame->stacktop++] = object;
}
inline PyObject* popFrom(Frame* frame) {
  KINTSUGI_DCHECK(stackDepth(frame) > 0, "depth ", stackDepth(frame));
  return frame->localsplus[--frame->stacktop];
}

// For a new frame: unsets all variables and empties the stack.
inline void emptySlots(Frame* frame) {
  const int count = codeOf(frame)->co_nlocalsplus;
  for (int i = 0; i < count; ++i) frame->localsplus[i] = nullptr;
  frame->stacktop = count;
}
// The size of the frame in bytes, up to the top of its stack; `copy` is a copy of these bytes.
inline size_t usedSize(const Frame* frame) {
  return offsetof(Frame, localsplus) + sizeof(PyObject*) * static_cast<size_t>(frame->stacktop);
}
inline void moveSlots(Frame*, const Frame*) {}

inline PyGenObject* generatorOf(Frame* frame) { return _PyFrame_GetGenerator(frame); }

inline PyObject* newPlace(int32_t unit) { return PyLong_FromLong(unit); }

}  // namespace kintsugi::pyapi
