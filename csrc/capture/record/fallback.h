// What several record handlers do alike: pin and run, a torch operation by operator, a special method as a
// frame, a step.
//
// All of these execute the instruction, pop `popped` shadows and push one (unless said otherwise).
#pragma once

#include <initializer_list>
#include <optional>

#include "capture/record_context.h"

namespace kintsugi::capture {

// All operands become constants; so is the result.
Flow pinAndRun(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int popped);
// As a call of operator.<function>: recorded operations where a tensor is among the operands, else a step.
Flow operatorStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* function,
                  int popped, bool pushes,
                  std::optional<CallKind> kind = std::nullopt);  // of a step; else by the operands
// Enters the Python special method `method` with the stack entries `order` (from the top) as arguments.
// `rebuildable`: its result is pushed as it is.
Flow methodStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject* method,
                std::initializer_list<int> order, bool rebuildable, bool pushes = true);
// list += iterable
Flow extendInPlace(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);
// tensor[key] = value; args and shadows: tensor, key, value
Flow tensorStore(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, PyObject** args,
                 Shadow* shadows);
// Are str() and repr() of an exception that was made here the same in every run? Pins its arguments.
bool pinText(RecordContext& rec, Shadow shadow, PyObject* object);
// {...}, whose keys have a hash that only running code tells: a step, as the call of a polyfill that makes
// the same.
Flow displayStep(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, const char* polyfill,
                 int popped);
Flow fallbackContains(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in);

}  // namespace kintsugi::capture
