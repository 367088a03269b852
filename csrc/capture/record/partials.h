// A call while it is unwrapped, and functools.partial: what it adds to a call of it.
//
//   partial(f, 1, k=2)(x)                   f(1, x, k=2)
//   partial(f, Placeholder, 2)(x, y)        f(x, 2, y), from CPython 3.14 on
//
// Ownership: a call borrows its objects, but for `kept`. Threads: the recording one, GIL held.
#pragma once

#include "capture/record_context.h"

namespace kintsugi::capture {

// A call as the instruction has it on the stack, and later as it is after unwrapping.
struct Call {
  PyObject* callable = nullptr;
  Shadow shadow;
  PooledVector<PyObject*> args;  // positional, then keywords
  Shadows shadows;
  size_t positional = 0;
  PyObject* kwnames = nullptr;
  Refs kept;  // keeps alive what nobody else holds

  void prepend(PyObject* object, Shadow s) {
    args.insert(args.begin(), object);
    shadows.insert(shadows.begin(), s);
    ++positional;
  }
};

// Replaces a partial by what it calls. False: it is none, its placeholders can't be filled (the call raises
// TypeError), or the recording has ended.
bool unwrapPartial(RecordContext& rec, Call& call);

}  // namespace kintsugi::capture
