// Models: functorch's transforms (vmap, grad, jvp and what is made of them), recorded below the transform.
//
// torch's Python code that enters and leaves a transform is recorded like any other code. What it and the
// user's function do to the wrappers reaches the dispatcher's log as operations on the tensors inside
// (op_log.cc); so do the operations by which autograd differentiates inside a transform. The trace has only
// these: a replay enters no transform. Wrappers can't be rebuilt. So there is no exit, and no call that needs
// one, from where the transform is entered until torch's code returns. If one is needed, the whole transform
// is one step the next time.
#include "torchapi/transforms.h"
#include "capture/calls/model.h"
#include "capture/calls/table.h"
#include "capture/tables/pauses.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"
#include "torchapi/known_torch.h"
#include "torchapi/op_effects.h"

namespace kintsugi::capture {

namespace {

// The level of the transform follows from the active transforms, which are part of the guarded state.
Flow enterModel(CallContext& ctx, Shadow& result) {
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  // Operators below grad() track gradients only if its caller's mode does.
  const bool tracks = pyapi::isKnown(ctx.callable, torchapi::Known::kGradIncrement);
  // torch's code imports this module while the transform is active, where no step is possible. So it is
  // imported now.
  if (tracks) {
    const Paused paused(ctx.rec.pauses);
    Py_XDECREF(pyapi::importModule("torch._dynamo.compiled_autograd"));
    PyErr_Clear();
  }
  if (!ctx.rec.transforms.enter(!tracks || torchapi::gradMode()))
    ctx.rec.abort(diag::Code::KTG0109, {"a transform that the program enters itself"});
  result = Shadow::constant();
  return run(ctx);
}

Flow leaveModel(CallContext& ctx, Shadow& result) {
  ctx.rec.transforms.leave();
  return constantModel(ctx, result);
}

// A flag that only matters while a transform is active. torch's code resets it.
Flow innerStateModel(CallContext& ctx, Shadow& result) {
  if (!ctx.rec.transforms.isInside()) return opaqueModel(ctx, result);
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  result = Shadow::constant();
  return run(ctx);
}

// True in torch's code for transforms, which switches off hooks of saved tensors, and autograd's compiler,
// for a while. Code below the transforms has neither.
bool calledByTransform(const ShadowFrame& innermost) {
  for (const ShadowFrame* frame = &innermost; frame != nullptr; frame = frame->caller) {
    if (isTransformCode(frame->code)) return true;
    const bool manager = pyapi::isKnownCode(frame->code, pyapi::CodeFamily::kContextManagers) ||
                         pyapi::isKnownCode(frame->code, torchapi::CodeFamily::kSwitchesHooks);
    if (!manager) return false;
  }
  return false;
}

Flow switchModel(CallContext& ctx, Shadow& result) {
  if (!calledByTransform(ctx.frame)) return opaqueModel(ctx, result);
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  result = Shadow::constant();
  return run(ctx);
}

// Autograd's engine, started by torch's Python code, which also prepares its threads for other devices.
Flow runBackwardModel(CallContext& ctx, Shadow& result) {
  if (!torchapi::transformsActive()) return inlineFunction(ctx, result);
  auto flow = enterPolyfill(ctx, "run_backward", result);
  return flow ? *flow : inlineFunction(ctx, result);
}

// torch's code for transforms switches autograd's compiler off. If it is off anyway, a context manager that
// does nothing takes the place of the call.
Flow withoutCompilerModel(CallContext& ctx, Shadow& result) {
  PyObject* module = pyapi::loadedNamespace("torch._dynamo.compiled_autograd");
  PyObject* enabled = module != nullptr ? PyDict_GetItemString(module, "compiled_autograd_enabled") : nullptr;
  if (enabled == Py_False && calledByTransform(ctx.frame)) {
    if (auto flow = enterPolyfill(ctx, "no_context", result)) return *flow;
  }
  return inlineFunction(ctx, result);
}

// For torch.func.functional_call: finds out which parameters are tied. It looks at the module and makes a
// dict.
Flow untieModel(CallContext& ctx, Shadow& result) {
  static constinit pyapi::Lazy<PyObject*> moduleSlot;
  PyObject* module = moduleSlot.get([] {
    pyapi::Ref<> found = pyapi::steal(pyapi::importModule("torch.nn"));
    PyObject* type = found ? PyObject_GetAttrString(found.get(), "Module") : nullptr;
    PyErr_Clear();
    return type;
  });
  bool plain = ctx.total() == 2 && ctx.kwnames == nullptr && module != nullptr &&
               PyDict_CheckExact(ctx.args[1]) &&
               PyObject_TypeCheck(ctx.args[0], reinterpret_cast<PyTypeObject*>(module));
  for (const char* name : {"named_parameters", "named_buffers", "named_modules", "_named_members"}) {
    plain = plain && specialMethod(Py_TYPE(ctx.args[0]), name) ==
                         specialMethod(reinterpret_cast<PyTypeObject*>(module), name);
  }
  if (!plain) return inlineFunction(ctx, result);
  ctx.rec.guards.guardType(ctx.shadows[0], ctx.args[0]);
  ctx.rec.guards.guardTypeVersion(Py_TYPE(ctx.args[0]));
  return knownModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"torch.nn.utils.stateless._untie_named_tensors_map", untieModel, gives("dict").raises("AttributeError")},
    {"torch._C._functorch._vmap_increment_nesting", enterModel,
     kWritesProcess.gives("int").raises("RuntimeError")},
    {"torch._C._functorch._vmap_decrement_nesting", leaveModel,
     dependsOn(StateWord::kDispatchModes).gives("int").raises("RuntimeError")},
    {"torch._C._functorch._grad_increment_nesting", enterModel, kWritesProcess.gives("int")},
    {"torch._C._functorch._grad_decrement_nesting", leaveModel,
     dependsOn(StateWord::kDispatchModes).gives("int").raises("RuntimeError")},
    {"torch._C._functorch._jvp_increment_nesting", enterModel, kWritesProcess.gives("int")},
    {"torch._C._functorch._jvp_decrement_nesting", leaveModel,
     dependsOn(StateWord::kDispatchModes).gives("int").raises("RuntimeError")},
    {"torch._C._functorch.get_inplace_requires_grad_allowed", innerStateModel, kWritesProcess.gives("bool")},
    {"torch._C._functorch.set_inplace_requires_grad_allowed", innerStateModel, kWritesProcess.gives("None")},
    {"torch._C._autograd._saved_tensors_hooks_get_disabled_error_message", switchModel,
     kWritesProcess.gives("None")},
    {"torch._C._autograd._saved_tensors_hooks_disable", switchModel, kWritesProcess.gives("None")},
    {"torch._C._autograd._saved_tensors_hooks_enable", switchModel, kWritesProcess.gives("None")},
    {"torch.autograd.graph._engine_run_backward", runBackwardModel, gives("tuple").raises("OverflowError")},
    {"torch._dynamo.compiled_autograd._disable", withoutCompilerModel,
     gives("any: a context manager of torch's")},
    {"torch._C._enter_dual_level", innerStateModel, kWritesProcess.gives("int").raises("RuntimeError")},
    {"torch._C._exit_dual_level", innerStateModel,
     kWritesProcess.gives("None").raises("RuntimeError ValueError")},
    {"torch._C._is_fwd_grad_enabled", innerStateModel, kWritesProcess.gives("bool")},
    {"torch._C._set_fwd_grad_enabled", innerStateModel, kWritesProcess.gives("None")},
    {"torch._C._functorch._wrap_for_grad", torchModel, gives("torch.Tensor").raises("RuntimeError")},
    {"torch._C._functorch._unwrap_for_grad", torchModel, gives("argument")},
    {"torch._C._functorch._add_batch_dim", torchModel, gives("torch.Tensor")},
    {"torch._C._functorch._remove_batch_dim", torchModel, gives("torch.Tensor")},
};

}  // namespace

bool isWholeTransform(PyCodeObject* code) {
  return pyapi::isKnownCode(code, torchapi::CodeFamily::kWholeTransforms);
}

bool leavesTransforms(PyCodeObject* code) {
  return isTransformCode(code) || pyapi::isKnownCode(code, pyapi::CodeFamily::kContextManagers) ||
         pyapi::isKnownCode(code, pyapi::CodeFamily::kQuietHandlers);
}

bool isTransformCode(PyCodeObject* code) {
  return pyapi::isKnownCode(code, torchapi::CodeFamily::kTransforms);
}

void registerTransformModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
