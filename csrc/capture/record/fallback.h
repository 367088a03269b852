// Ways to record an instruction that several handlers share: pin the operands and run; a torch operation by
// operator; a special method as a frame; a step.
//
// All of these execute the instruction, pop `popped` shadows and push one, if nothing else is said.
#pragma once

#include <initializer_list>
#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

// Pins all operands; the result is a constant.
Flow pinAndRun(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int popped);
// Records a call of operator.<function>: logged operations if a tensor is among the operands, else a step.
Flow operatorStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* function,
                  int popped, bool pushes,
                  // Of a step; by default it follows from the operands.
                  std::optional<CallKind> kind = std::nullopt);
// Enters the Python special method `method`; its arguments are the stack entries `order`, counted from the
// top. `rebuildable`: the result is pushed unchanged, so frames can be rebuilt inside the method.
Flow methodStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* method,
                std::initializer_list<int> order, bool rebuildable, bool pushes = true);
// `list += iterable`.
Flow extendInPlace(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);
// `tensor[key] = value`. `args` and `shadows` are those of tensor, key and value.
Flow tensorStore(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject** args,
                 Shadow* shadows);
// True if str() and repr() of an exception that the trace has made are the same in every run. Pins its
// arguments.
bool pinText(RecordContext& rec, Shadow shadow, PyObject* object);
// A display such as `{a: b}` whose keys run code to be hashed: records a step that calls a polyfill to make
// the same.
Flow displayStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* polyfill,
                 int popped);
Flow fallbackContains(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);

}  // namespace kintsugi::capture
