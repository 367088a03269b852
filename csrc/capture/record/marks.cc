#include "capture/record/marks.h"

#include <string_view>

#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "pyapi/text.h"
#include "torchapi/known_torch.h"

namespace kintsugi::capture {

namespace {

// Names of marks in a function's dict. They are interned because every call of a function asks for all of
// them.
struct Marks {
  PyObject* disable = PyUnicode_InternFromString("_kintsugi_disable");
  PyObject* torchDisable = PyUnicode_InternFromString("_torchdynamo_disable");
  PyObject* constant = PyUnicode_InternFromString("_kintsugi_assume_constant_result");
  PyObject* torchConstant = PyUnicode_InternFromString("_dynamo_marked_constant");
  PyObject* forbidden = PyUnicode_InternFromString("_dynamo_forbidden");
  PyObject* allowed = PyUnicode_InternFromString("_kintsugi_allow_in_graph");
};
const Marks& marks() {
  static const Marks made;
  return made;
}

bool hasMark(PyObject* function, PyObject* name) {
  PyObject* dict = pyapi::attributesOf(pyapi::asFunction(function));
  if (dict == nullptr || PyDict_GET_SIZE(dict) == 0) return false;
  PyObject* value = PyDict_GetItemWithError(dict, name);
  if (value == nullptr) PyErr_Clear();
  return value != nullptr && value != Py_False && value != Py_None;
}

}  // namespace

bool isMarkedConstant(PyObject* function) {
  return hasMark(function, marks().constant) || hasMark(function, marks().torchConstant);
}

// torch forbids some of its own functions to its own compiler. This does not concern us.
bool isForbidden(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return hasMark(function, marks().forbidden) &&
         !torchapi::isTorchCode(code, PyFunction_GET_GLOBALS(function));
}

bool isMarkedAllowed(PyObject* function) { return hasMark(function, marks().allowed); }

// The user says that it is one instruction of the graph. Of ours are the ends of regions.
Flow allowedCall(CallContext& ctx, Shadow& result) {
  const Flow flow = ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
  auto& trace = ctx.rec.trace();
  if (flow != Flow::kNext || !ctx.rec.live() || trace.code.back().op != ir::Op::kCallKnown) return flow;
  const auto* code = reinterpret_cast<const PyCodeObject*>(PyFunction_GET_CODE(ctx.callable));
  if (pyapi::isKnownCode(code, pyapi::CodeFamily::kOpensRegion))
    trace.code.back().region = ir::RegionMark::kOpens;
  else if (pyapi::isKnownCode(code, pyapi::CodeFamily::kClosesRegion))
    trace.code.back().region = ir::RegionMark::kCloses;
  return flow;
}

namespace {

// The code of the function that torch hides from its own compiler, inside all wrappers; borrowed, or null.
PyCodeObject* hiddenCode(PyObject* wrapper) {
  PyObject* dict = pyapi::attributesOf(pyapi::asFunction(wrapper));
  PyObject* hidden = dict != nullptr ? PyDict_GetItemString(dict, "_torchdynamo_orig_callable") : nullptr;
  for (int depth = 0; depth < 16 && hidden != nullptr && PyFunction_Check(hidden); ++depth) {
    dict = pyapi::attributesOf(pyapi::asFunction(hidden));
    PyObject* inner = dict != nullptr ? PyDict_GetItemString(dict, "__wrapped__") : nullptr;
    if (inner == nullptr) return reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(hidden));
    hidden = inner;
  }
  return nullptr;
}

// True for a wrapper that torch needs only for its own compiler: it just calls a function of torch.
bool isLookedThrough(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  if (!torchapi::isTorchCode(code, PyFunction_GET_GLOBALS(function))) return false;
  const PyCodeObject* hidden = hiddenCode(function);
  return hidden != nullptr && pyapi::isKnownCode(hidden, torchapi::CodeFamily::kOwnFrameDisabled);
}

bool movesParameters(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return pyapi::isKnownCode(code, torchapi::CodeFamily::kMovesParameters);
}

}  // namespace

bool isDisabled(PyObject* function) {
  return hasMark(function, marks().disable) ||
         (hasMark(function, marks().torchDisable) && !isLookedThrough(function)) || movesParameters(function);
}

// The reason that was given for disabling the function, for messages.
std::string disableReason(PyObject* function) {
  PyObject* dict = PyFunction_Check(function) ? pyapi::attributesOf(pyapi::asFunction(function)) : nullptr;
  PyObject* reason = dict != nullptr ? PyDict_GetItemString(dict, "_kintsugi_disable_reason") : nullptr;
  if (dict != nullptr && reason == nullptr) reason = PyDict_GetItemString(dict, "_torchdynamo_disable_msg");
  if (reason == nullptr && PyFunction_Check(function) && movesParameters(function))
    return "it gathers and frees parameters";
  return reason != nullptr && PyUnicode_Check(reason) ? pyapi::utf8(reason) : "no reason given";
}

// True for functions that torch.optim hides from torch's own compiler (zero_grad(), state_dict()): they only
// do bookkeeping. Such a call is a step, but no break that is reported, since nobody has asked for it.
bool isBookkeeping(PyObject* function) {
  const PyCodeObject* hidden = hiddenCode(function);
  return hidden != nullptr && pyapi::isKnownCode(hidden, torchapi::CodeFamily::kOptimizers);
}

}  // namespace kintsugi::capture
