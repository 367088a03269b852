// Models: torch's constructors of tensors, which fill or share memory without the dispatcher.
//
// A tensor of literals is a copy of a constant that the trace keeps. A constructor that only makes empty
// memory or a view does call the dispatcher. Any other call is a step.
#include <algorithm>

#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/foreign.h"
#include "capture/tables/pauses.h"
#include "pyapi/known_objects.h"
#include "pyapi/plain.h"
#include "torchapi/dispatched.h"
#include "torchapi/global_state.h"
#include "torchapi/known_torch.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

// True if the object is equal in every call: written in the program, or a list or tuple of such that the
// trace makes.
bool isLiteral(RecordContext& rec, Shadow shadow, PyObject* object) {
  if (shadow.isConst()) return isPlainDeep(object) || pyapi::isPlainOfLibrary(object);
  // `dtype=self.dtype`: pinned, as for any operator.
  if (shadow.isSource() && pyapi::isPlainOfLibrary(object)) return rec.guards.pin(shadow, object);
  if (!shadow.isVirtual() || !(PyTuple_CheckExact(object) || PyList_CheckExact(object))) return false;
  const Virtual& v = rec.objects.virtualOf(shadow);
  if ((v.kind != VirtualKind::kList && v.kind != VirtualKind::kTuple) || v.value != ir::kNone) return false;
  const auto items = static_cast<size_t>(Py_SIZE(object));
  if (v.parts.size() != items) return false;
  const Shadows parts = v.parts;
  for (size_t i = 0; i < items; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* item = PyList_Check(object) ? PyList_GET_ITEM(object, at) : PyTuple_GET_ITEM(object, at);
    if (!isLiteral(rec, parts[i], item)) return false;
  }
  return true;
}

// True if the arguments from `first` on are literals, and no gradient is asked for.
bool areLiterals(CallContext& ctx, size_t first) {
  for (size_t i = first; i < ctx.total(); ++i) {
    if (!isLiteral(ctx.rec, ctx.shadows.any(i), ctx.args.any(i))) return false;
  }
  const auto gradient = ctx.keyword("requires_grad");
  return !gradient || ctx.args.any(*gradient) == Py_False;
}

bool isSequence(PyObject* object) { return PyList_CheckExact(object) || PyTuple_CheckExact(object); }

// True if guards cover the dtype and device of a tensor after which others are modelled.
bool isKnownTensor(CallContext& ctx) {
  if (isForeign(ctx.shadows[0], ctx.args[0]) || torchapi::isWrapper(ctx.args[0])) return false;
  const Shadow tensor = ctx.rec.guards.tensorShadow(ctx.args[0], ctx.shadows[0]);
  return ctx.rec.live() && ctx.rec.torch.values().hasStaticMeta(tensor, ctx.args[0]);
}

// True for a dense tensor of torch's own class. For other tensors, a copy of a constant can't stand for the
// call.
bool isDenseTensor(PyObject* made) {
  return torchapi::isExactTensorType(Py_TYPE(made)) && torchapi::describe(made).plain;
}

Flow literalTensor(CallContext& ctx, Shadow& result) {
  RecordContext& rec = ctx.rec;
  const ir::StateId snap = rec.snapshots.stateBefore();
  Flow flow;
  {
    const Paused paused(rec.pauses);
    flow = run(ctx);
  }
  result = Shadow::constant();
  if (flow != Flow::kNext || !rec.live()) return flow;
  PyObject*& made = ctx.act.peek(1);
  if (!isDenseTensor(made)) {
    rec.abort(diag::Code::KTG0301, {"a tensor of another kind"});
    return flow;
  }
  const pyapi::Ref<> constant = torchapi::constantOf(made);
  if (!constant) return Flow::kRaise;
  rec.guards.tensorShadow(constant.get(), rec.guards.pinnedRoot(constant.get()));
  pyapi::Ref<> copy;
  const auto shadow =
      rec.torch.torchOperation(snap, copy, [&] { return torchapi::copyOfConstant(constant.get()); });
  if (!shadow) return Flow::kRaise;
  Py_SETREF(made, copy.release());
  result = *shadow;
  return flow;
}

bool isRecordable() { return !torchapi::hasModes() && !torchapi::transformsActive(); }

// `torch.as_tensor(data)`, `torch.asarray(data)`.
Flow dataModel(CallContext& ctx, Shadow& result) {
  const bool literal = ctx.positional > 0 && !torchapi::isTensor(ctx.args[0]) && isRecordable();
  return literal && areLiterals(ctx, 0) ? literalTensor(ctx, result) : knownModel(ctx, result);
}

// `tensor.new_tensor(data)`.
Flow newTensorModel(CallContext& ctx, Shadow& result) {
  const bool literal = ctx.positional == 2 && !torchapi::isTensor(ctx.args[1]) && isRecordable();
  return literal && areLiterals(ctx, 1) && isKnownTensor(ctx) ? literalTensor(ctx, result)
                                                              : knownModel(ctx, result);
}

// True for torch.Tensor(2, 3) and tensor.new(2, 3), which make empty memory of that size through the
// dispatcher.
bool areSizes(const CallContext& ctx, size_t first) {
  bool numbers = ctx.kwnames == nullptr;
  for (size_t i = first; i < ctx.total(); ++i) {
    numbers = numbers && (PyLong_CheckExact(ctx.args[i]) ||
                          (ctx.total() == first + 1 && pyapi::isA(ctx.args[i], torchapi::Known::kTorchSize)));
  }
  return numbers;
}

// `tensor.new(...)`.
Flow newModel(CallContext& ctx, Shadow& result) {
  if (isRecordable() && areSizes(ctx, 1) && isKnownTensor(ctx)) return torchModel(ctx, result);
  const bool literal = ctx.total() == 2 && ctx.kwnames == nullptr && isSequence(ctx.args[1]) &&
                       isRecordable() && areLiterals(ctx, 1) && isKnownTensor(ctx);
  return literal ? literalTensor(ctx, result) : opaqueModel(ctx, result);
}

bool isOneTensor(const CallContext& ctx) {
  return ctx.total() == 1 && ctx.kwnames == nullptr && torchapi::isTensor(ctx.args[0]) &&
         !isForeign(ctx.shadows[0], ctx.args[0]);
}

// `torch.Tensor(...)`, `torch.FloatTensor(...)`.
Flow tensorTypeModel(CallContext& ctx, Shadow& result) {
  if (!isRecordable()) return opaqueModel(ctx, result);
  if (areSizes(ctx, 0) || isOneTensor(ctx)) return torchModel(ctx, result);
  const bool literal =
      ctx.total() == 1 && ctx.kwnames == nullptr && isSequence(ctx.args[0]) && areLiterals(ctx, 0);
  return literal ? literalTensor(ctx, result) : opaqueModel(ctx, result);
}

// `torch.autograd.Variable(tensor)`: a detached view.
Flow variableModel(CallContext& ctx, Shadow& result) {
  return isOneTensor(ctx) && isRecordable() ? torchModel(ctx, result) : opaqueModel(ctx, result);
}

constexpr Facts kMadeTensor = kReadsWorld.gives("torch.Tensor").raises("RuntimeError ValueError");

constexpr ModelRow kRows[] = {
    {"torch.as_tensor", dataModel, gives("argument torch.Tensor").raises("RuntimeError ValueError")},
    {"torch.asarray", dataModel, gives("argument torch.Tensor").raises("RuntimeError ValueError")},
    {"torch._C.TensorBase.new", newModel, kMadeTensor},
    {"torch._C.TensorBase.new_tensor", newTensorModel, gives("torch.Tensor").raises("ValueError")},
    {"torch.autograd.variable.Variable", variableModel,
     dependsOn(StateWord::kDefaultDtype)
         .gives("torch.Tensor")
         .raises("OverflowError RuntimeError ValueError")},
    {"torch.Tensor", tensorTypeModel, kMadeTensor},
    {"torch.FloatTensor", tensorTypeModel, kMadeTensor},
    {"torch.DoubleTensor", tensorTypeModel, kMadeTensor},
    {"torch.HalfTensor", tensorTypeModel, kMadeTensor},
    {"torch.BFloat16Tensor", tensorTypeModel, kMadeTensor},
    {"torch.ByteTensor", tensorTypeModel, kMadeTensor},
    {"torch.CharTensor", tensorTypeModel, kMadeTensor},
    {"torch.ShortTensor", tensorTypeModel, kMadeTensor},
    {"torch.IntTensor", tensorTypeModel, kMadeTensor},
    {"torch.LongTensor", tensorTypeModel, kMadeTensor},
    {"torch.BoolTensor", tensorTypeModel, kMadeTensor},
};

}  // namespace

std::optional<Flow> literalTensorModel(CallContext& ctx, Shadow& result) {
  if (!isRecordable() || !areLiterals(ctx, 0)) return std::nullopt;
  return literalTensor(ctx, result);
}

void registerTorchTensorModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
