#include "capture/record/star_arguments.h"

#include <utility>
#include <vector>

#include "capture/calls/lazy.h"
#include "capture/calls/model.h"
#include "capture/nested_frames.h"
#include "pyapi/code.h"
#include "torchapi/tensor_desc.h"

namespace kintsugi::capture {

bool expandGenerator(RecordContext& rec, ShadowFrame& f, Activation& act, const Instr& in, int at) {
  Shadow shadow = f.top(at);
  const bool ours = shadow.isVirtual() && rec.objects.virtualOf(shadow).kind == VirtualKind::kGenerator;
  const bool open = torchapi::isTensor(act.peek(at)) || hasOpenLength(rec, shadow, act.peek(at));
  const bool asked = !ours && itemsRunPython(rec, shadow, act.peek(at));
  if ((asked || open) && at == 1)
    return rec.callees.listItems(f, act, in, listFunction(act.peek(at)), nullptr);
  if (!ours) return true;
  rec.callees.expectItems(shadow);
  PyObject* tuple = nullptr;
  {
    const NestedFrames nested(rec);
    tuple = PySequence_Tuple(act.peek(at));
  }
  Shadows items = rec.callees.takeItems();
  if (tuple == nullptr) {
    rec.abort(diag::Code::KTG0101, {"a generator that raises"});
    rec.instruction.setExecuted(true);  // the instruction must not ask for the items again
    return false;
  }
  PyObject* generator = std::exchange(act.peek(at), tuple);
  Py_DECREF(generator);
  f.top(at) = rec.objects.tupleOf(tuple, std::move(items));
  return true;
}

}  // namespace kintsugi::capture
