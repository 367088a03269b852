// Models: output, and functions that talk to the recorder. Each run writes the output again, in order with
// all other effects. Output changes nothing that a trace reads.
#include "capture/calls/model.h"

namespace kintsugi::capture {

namespace {

// True if str() of the object runs no code other than CPython's and torch's.
bool printsPlainly(PyObject* object) {
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
      PyObject* part = PyTuple_CheckExact(object) ? PyTuple_GET_ITEM(object, i) : PyList_GET_ITEM(object, i);
      if (!printsPlainly(part)) return false;
    }
    return true;
  }
  if (torchapi::isTensor(object)) return torchapi::isExactTensorType(Py_TYPE(object));
  return PyUnicode_CheckExact(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyBool_Check(object) || object == Py_None || PyComplex_CheckExact(object) ||
         PyBytes_CheckExact(object) || isPlainDeep(object);
}

// print() reads its arguments and writes text. So it may run after tensor operations that follow it, unless
// these write to its arguments.
Flow printModel(CallContext& ctx, Shadow& result) {
  bool plain = true;
  for (size_t i = 0; i < ctx.total(); ++i) plain = plain && printsPlainly(ctx.args.any(i));
  RecordContext& rec = ctx.rec;
  size_t before = rec.trace().code.size();
  Flow flow = knownModel(ctx, result);
  auto& code = rec.trace().code;
  if (flow == Flow::kNext && rec.live() && code.size() > before && code.back().op == ir::Op::kCallKnown)
    code.back().deferrable = plain;
  return flow;
}

constexpr ModelRow kRows[] = {
    {"builtins.print", printModel, kWritesProcess},
    // Tells the recording whether breaks are errors. A run has nothing to do.
    {"kintsugi._C.set_error_on_graph_break",
     constantModel,
     {StateWord::kArguments, Reads::kArguments, Writes::kProcess}},
};

}  // namespace

void registerOutputModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
