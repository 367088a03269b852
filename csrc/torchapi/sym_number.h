// Numbers of the trace on their way through torch's bindings: a torch.SymInt or SymFloat in the number's
// place.
//
// Idea: a binding passes a symbolic number on to the dispatcher untouched, where the recorder sees which
// value of the trace an argument is, and the kernel gets the number itself. A binding that wants to know the
// number asks the node, which tells the sink: the number is pinned with a guard before the binding goes on.
//
// Ownership: the object borrows the sink, which must outlive it; neither leaves the call. Thread: the
// recording one; pins happen with the GIL. Example: stack slot 5 -> makeSymNumber(sink, {%3, int, 5}).
#pragma once

#include <cstdint>

#include "ir/trace.h"
#include "pyapi/ref.h"

namespace kintsugi::torchapi {

class NumberSink {
 public:
  virtual ~NumberSink() = default;
  // The trace depends on this very number from here on.
  virtual void pinNumber(ir::ValueId value) = 0;
};

struct TraceNumber {
  ir::ValueId value = ir::kNone;
  ir::TypeKind kind = ir::TypeKind::kInt;  // or kFloat
  int64_t i = 0;
  double f = 0;
  // A constant that bindings are not told: they must not decide with it on sizes that vary.
  bool veiled = false;
};

// A torch.SymInt or torch.SymFloat. Null: a Python exception is pending.
pyapi::Ref<> makeSymNumber(NumberSink& sink, const TraceNumber& number);
// The object with the numbers that they stand for in place of symbolic ones, in lists, tuples and dicts too.
// Null: there is none in it, or, with a Python exception pending, it could not be made.
pyapi::Ref<> withoutSymNumbers(PyObject* object);

}  // namespace kintsugi::torchapi
