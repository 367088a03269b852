// Models: torch's higher-order operators, and other functions that call a function that they are given.
//
// In eager mode, each of these Python functions calls torch's own compiler, or does something around a call.
// A function of kintsugi._polyfill_higher_order is recorded in its place, with all branches and loop bodies.
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "pyapi/exception_state.h"
#include "pyapi/functions.h"
#include "pyapi/known_objects.h"
#include "torchapi/global_state.h"
#include "torchapi/known_torch.h"
#include "torchapi/op_effects.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

using torchapi::CodeFamily;

// For each operator, the function that torch hands to its compiler, and the polyfill.
struct CompiledOperator {
  CodeFamily code;
  const char* polyfill;
};
constexpr CompiledOperator kCompiledOperators[] = {
    {CodeFamily::kCondCall, "cond"},
    {CodeFamily::kWhileLoopCall, "while_loop"},
    {CodeFamily::kMapCall, "map_"},
    {CodeFamily::kScanCall, "scan"},
    {CodeFamily::kFlexCall, "flex_attention"},
};

Flow asStep(CallContext& ctx, const char* name, Shadow& result) {
  ctx.rec.breaks.noteBreak(diag::Code::KTG0101, {name});
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

// `torch._higher_order_ops.utils._hop_compile_and_call(function, arguments)`. torch has made the function in
// this trace.
Flow compileModel(CallContext& ctx, Shadow& result) {
  PyObject* function = ctx.positional >= 2 && ctx.shadows[0].isVirtual() ? ctx.args[0] : nullptr;
  if (function == nullptr || !PyFunction_Check(function)) return inlineFunction(ctx, result);
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  for (const CompiledOperator& row : kCompiledOperators) {
    if (!pyapi::isKnownCode(code, row.code)) continue;
    if (!pyapi::isPolyfill(ctx.frame.code)) {
      if (auto flow = enterPolyfill(ctx, row.polyfill, result)) return *flow;
    }
    return asStep(ctx, row.polyfill, result);
  }
  return inlineFunction(ctx, result);
}

// True in torch.nn.attention.flex_attention, which makes and enters contexts for torch's compiler itself.
bool isFlexCode(const CallContext& ctx) {
  return pyapi::isKnownCode(ctx.frame.code, CodeFamily::kFlexAttention);
}

Flow compilerContextModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() == 0 && isFlexCode(ctx)) {
    if (auto flow = enterPolyfill(ctx, "no_surroundings", result)) return *flow;
  }
  return inlineFunction(ctx, result);
}

Flow torchCompileModel(CallContext& ctx, Shadow& result) {
  PyObject* function = ctx.positional == 1 && ctx.shadows[0].isVirtual() ? ctx.args[0] : nullptr;
  const bool handed = function != nullptr && PyFunction_Check(function) &&
                      pyapi::isKnownCode(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function)),
                                         CodeFamily::kFlexCall);
  if (handed && isFlexCode(ctx)) {
    if (auto flow = enterPolyfill(ctx, "compiled_flex_attention", result)) return *flow;
  }
  return inlineFunction(ctx, result);
}

// flex_attention() without a mask makes an empty block mask, of which little is used. A polyfill makes it
// instead.
Flow emptyMaskModel(CallContext& ctx, Shadow& result) {
  if (ctx.kwnames == nullptr && ctx.total() == 2 && isFlexCode(ctx)) {
    if (auto flow = enterPolyfill(ctx, "empty_block_mask", result)) return *flow;
  }
  return inlineFunction(ctx, result);
}

// torch.utils.checkpoint.checkpoint(). Without gradients there is nothing to recompute, so it is a call of
// its function. In training, torch's own steps run before and behind that call. A program's own context_fn is
// left to torch. With use_reentrant=True it is a torch.autograd.Function.
Flow checkpointModel(CallContext& ctx, Shadow& result) {
  const auto reentrant = ctx.keyword("use_reentrant");
  const bool training = torchapi::gradMode();
  const bool again = reentrant && ctx.args.any(*reentrant) == Py_True;
  bool plain = reentrant && ctx.positional >= 1 && (again || ctx.args.any(*reentrant) == Py_False) &&
               !torchapi::hasModes() && !torchapi::transformsActive() && !pyapi::isPolyfill(ctx.frame.code);
  if (again) plain = plain && ctx.total() - ctx.positional == (ctx.keyword("preserve_rng_state") ? 2 : 1);
  for (const char* option : {"context_fn", "debug", "respect_saved_tensors_hooks"})
    plain = plain && !ctx.keyword(option);
  for (const char* option : {"determinism_check", "early_stop"})
    plain = plain && (training || !ctx.keyword(option));
  if (!plain) return inlineFunction(ctx, result);
  Shadow asked = ctx.shadows.any(*reentrant);
  if (!ctx.rec.guards.pin(asked, ctx.args.any(*reentrant))) return run(ctx);
  return callPolyfill(ctx,
                      again      ? "checkpoint_reentrant"
                      : training ? "checkpoint_recomputed"
                                 : "checkpoint",
                      result);
}

// torch.autograd.Function.apply(): a polyfill takes its place, so that `forward` is recorded. If the polyfill
// can't do it, it calls apply() again, which is then a step.
Flow applyModel(CallContext& ctx, Shadow& result) {
  if (torchapi::transformsActive()) return torchModel(ctx, result);
  if (!pyapi::isPolyfill(ctx.frame.code) && !torchapi::hasModes()) {
    if (auto flow = enterClassPolyfill(ctx, "apply_function", result)) return *flow;
  }
  ctx.rec.breaks.noteBreak(diag::Code::KTG0108, {"autograd.Function.apply"});
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

constexpr ModelRow kRows[] = {
    {"torch._C._FunctionBase.apply", applyModel, gives(kOfFunction).raises(kFromFunction)},
    {"torch._higher_order_ops.utils._hop_compile_and_call", compileModel,
     kWritesProcess.gives(kOfFunction).raises(kFromFunction)},
    {"torch._higher_order_ops.utils.setup_compilation_env", compilerContextModel,
     kWritesProcess.gives("contextlib._GeneratorContextManager")},
    {"torch.compile", torchCompileModel, kWritesProcess.gives(kOfFunction).raises(kFromFunction)},
    {"torch.utils.checkpoint.checkpoint", checkpointModel,
     kWritesProcess.gives(kOfFunction).raises(kFromFunction)},
};

}  // namespace

CallModel modelOfCode(PyObject* code) {
  const bool mask = pyapi::isKnownCode(reinterpret_cast<PyCodeObject*>(code), CodeFamily::kEmptyBlockMask);
  return mask ? emptyMaskModel : nullptr;
}

std::optional<Flow> mapOperatorCall(CallContext& ctx, Shadow& result) {
  const ShadowFrame* caller = ctx.frame.caller;
  const bool ours = pyapi::isKnown(ctx.callable, torchapi::Known::kMapOperator) && caller != nullptr &&
                    pyapi::isKnownCode(ctx.frame.code, CodeFamily::kMapCall) &&
                    pyapi::isPolyfill(caller->code);
  if (!ours || !ctx.rec.guards.pin(ctx.callableShadow, ctx.callable)) return std::nullopt;
  return enterPolyfill(ctx, "map_rows", result);
}

void registerHigherOrderModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
