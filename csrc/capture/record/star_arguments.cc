#include "capture/record/star_arguments.h"

#include "capture/calls/lazy.h"
#include "capture/calls/model.h"
#include "pyapi/order.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

bool takeArguments(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int at) {
  PyObject* iterable = act.peek(at);
  if (!torchapi::isTensor(iterable) && !isAskedForItems(rec, f.top(at), iterable)) return true;
  PyObject* function = pyapi::tupleAsksLength() ? listFunction(iterable) : polyfill("list_");
  return rec.callees.listItems(f, act, in, function, nullptr, at);
}

}  // namespace kintsugi::capture
