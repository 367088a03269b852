// Models: torch's C functions and tensor methods.
//
// C functions in torch's namespaces are recorded through the dispatcher, by rule. The rows below are
// exceptions: functions that fill memory without the dispatcher, that read metadata or global state, or that
// change guarded state.
#include <utility>

#include "capture/calls/model.h"
#include "capture/calls/scripts.h"
#include "capture/class_attributes.h"
#include "capture/foreign.h"
#include "capture/sizes.h"
#include "capture/tables/pauses.h"
#include "pyapi/callable_name.h"
#include "pyapi/imports.h"
#include "pyapi/lazy.h"
#include "pyapi/types.h"
#include "torchapi/eager_traits.h"
#include "torchapi/transforms.h"

namespace kintsugi::capture {

namespace {

// A change of the global state inside the trace. Each run makes the call again in the same place.
Flow stateModel(CallContext& ctx, Shadow& result) {
  std::vector<Shadow> shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    // A context object that the trace makes anew in each run is not pinned.
    if (ctx.rec.guards.comesFromStep(shadows[i]) && !isPlainDeep(ctx.args.any(i))) continue;
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  Flow flow = ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
  if (flow == Flow::kNext && ctx.rec.live() && isPlain(ctx.act.peek(1))) result = Shadow::constant();
  return flow;
}

// A Python function of torch that always gives the same answer outside of torch's own compilers, or that only
// prepares something.
Flow fixedAnswerModel(CallContext& ctx, Shadow& result) {
  const Paused paused(ctx.rec.pauses);
  return constantModel(ctx, result);
}

// A capture on a device may begin without a change of the guarded state, so each run asks again. Without such
// a device the call raises, in each run.
Flow streamCaptureModel(CallContext& ctx, Shadow& result) {
  return torchapi::hasCapturingDevices() ? knownModel(ctx, result) : constantModel(ctx, result);
}

// torch.functional.einsum() of more than two tensors asks opt_einsum for the order, where that is installed:
// Python code of another library, which looks at nothing but sizes. A polyfill asks it for sizes.
Flow einsumModel(CallContext& ctx, Shadow& result) {
  bool many = ctx.kwnames == nullptr && ctx.total() > 3 && PyUnicode_CheckExact(ctx.args[0]) &&
              !torchapi::hasModes() && !torchapi::hasFunctionModes() && !torchapi::transformsActive();
  for (size_t i = 1; i < ctx.total(); ++i)
    many = many && torchapi::isExactTensorType(Py_TYPE(ctx.args.any(i))) &&
           !isForeign(ctx.shadows.any(i), ctx.args.any(i));
  if (many) {
    if (auto flow = enterPolyfill(ctx, "einsum_in_order", result)) return *flow;
  }
  return inlineFunction(ctx, result);
}

// What opt_einsum says of sizes follows from these, and is computed while recording.
Flow contractionModel(CallContext& ctx, Shadow& result) {
  std::vector<Shadow> shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  const Paused paused(ctx.rec.pauses);
  result = Shadow::constant();
  return run(ctx);
}

// Two tensors exchange what they are, and shadows would name the wrong one from now on. The function refuses
// tensors that somebody refers to weakly, as the recording does, so that no caller of it can be a step
// either.
Flow swapModel(CallContext& ctx, Shadow&) {
  ctx.rec.abort(diag::Code::KTG0303, {"two tensors are swapped"});
  ctx.rec.breaks.failWhole();
  ctx.rec.ops().forgetTensors();
  return run(ctx);
}

// Changes of the grad mode have an operation of their own, since nearly all of them stand between tensor
// operations.
Flow gradModeModel(CallContext& ctx, Shadow& result) {
  if (ctx.total() != 1 || !PyBool_Check(ctx.args[0])) return stateModel(ctx, result);
  bool enabled = ctx.args[0] == Py_True;
  Shadow mode = ctx.shadows[0];
  if (!ctx.rec.guards.pinDeep(mode, ctx.args[0])) return run(ctx);
  Flow flow = run(ctx);
  enabled = ctx.rec.transforms.gradModeBelow(enabled);
  if (flow == Flow::kNext && ctx.rec.live())
    ctx.rec.steps.emit(ir::Op::kSetGrad, {ir::Operand::boolean(enabled)}, {}, ir::kNone);
  result = Shadow::constant();
  return flow;
}

// The call looks for overrides in types only, which are guarded.
Flow overridesModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (ctx.shadows.any(i).isSource()) ctx.rec.guards.guardType(ctx.shadows.any(i), ctx.args.any(i));
  }
  result = Shadow::constant();
  return run(ctx);
}

// Inside a transform, autograd's work is recorded as operations on the tensors in the wrappers.
Flow autogradModel(CallContext& ctx, Shadow& result) {
  if (torchapi::transformsActive())
    return PyFunction_Check(ctx.callable) ? inlineFunction(ctx, result) : torchModel(ctx, result);
  const std::string name = pyapi::callableName(ctx.callable);
  ctx.rec.breaks.noteBreak(diag::Code::KTG0108, {name == "grad" ? "autograd.grad" : "backward"});
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

// Registers a function for the backward pass, which runs in eager mode. It is a step that no graph needs. For
// a tensor of torch's own class it changes only the tensor's hooks, which each run reads again.
Flow hookModel(CallContext& ctx, Shadow& result) {
  const bool plain = ctx.total() > 0 && torchapi::isTensor(ctx.args[0]) &&
                     torchapi::isExactTensorType(Py_TYPE(ctx.args[0])) && !torchapi::hasModes();
  if (plain) {  // each handle gets a number from this class attribute
    static constinit pyapi::Lazy<PyObject*> handleSlot;
    PyObject* handle = handleSlot.get([] {
      const pyapi::Ref<> hooks = pyapi::steal(pyapi::importModule("torch.utils.hooks"));
      return PyObject_GetAttrString(hooks.get(), "RemovableHandle");
    });
    opensAttribute(ctx.rec, reinterpret_cast<PyTypeObject*>(handle), "next_id");
  }
  const auto kind = plain ? CallKind::kKnown : CallKind::kOpaque;
  return ctx.rec.steps.callStep(ctx, kind, nullptr, result);
}

// While a transform is active, tensors are wrappers. So the whole call is one step.
Flow functorchModel(CallContext& ctx, Shadow& result) {
  ctx.rec.breaks.noteBreak(diag::Code::KTG0109, {pyapi::callableName(ctx.callable)});
  return ctx.rec.steps.callStep(ctx, CallKind::kOpaque, nullptr, result);
}

// Returns its argument, unless it is a wrapper of a functorch transform that is over.
Flow unwrapModel(CallContext& ctx, Shadow& result) {
  pyapi::Ref<> tensor = pyapi::newRef(ctx.args[0]);
  const bool plain = torchapi::isTensor(ctx.args[0]) && !ctx.shadows[0].isVirtual();
  result = plain                        ? ctx.rec.guards.tensorShadow(ctx.args[0], ctx.shadows[0])
           : ctx.shadows[0].isVirtual() ? ctx.shadows[0]
                                        : Shadow::constant();
  Flow flow = run(ctx);
  if (flow == Flow::kNext && ctx.act.peek(1) != tensor.get()) {
    ctx.rec.abort(diag::Code::KTG0301, {"unwrap_if_dead"});
  }
  return flow;
}

// True if `requires_grad_()` would change nothing, in this run and in each other one.
bool changesNothing(CallContext& ctx, Shadow tensor) {
  const auto named = ctx.keyword("requires_grad");
  PyObject* asked = named ? ctx.args.any(*named) : ctx.positional > 1 ? ctx.args[1] : Py_True;
  return PyBool_Check(asked) && ctx.rec.ops().level(tensor.valueId()) != torchapi::MetaLevel::kUnknown &&
         ctx.rec.ops().likelyFrom(tensor.valueId()) == nullptr &&
         torchapi::describe(ctx.args[0]).requiresGrad == (asked == Py_True);
}

// Changes metadata without the dispatcher. Each run makes the call again; the metadata is unknown afterwards.
Flow requiresGradModel(CallContext& ctx, Shadow& result) {
  if (torchapi::isWrapper(ctx.args[0]) && ctx.shadows[0].isVirtual()) {
    result = ctx.shadows[0];  // the tensor inside stays as it is
    return run(ctx);
  }
  Shadow tensor = ctx.rec.guards.tensorShadow(ctx.args[0], ctx.shadows[0]);
  std::vector<Shadow> shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 1; i < ctx.total(); ++i) {
    if (!ctx.rec.guards.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  if (!ctx.rec.live()) return run(ctx);
  if (changesNothing(ctx, tensor)) {
    result = tensor;
    return run(ctx);
  }
  shadows[0] = tensor;
  ctx.shadows.replace(shadows.data());
  forgetMeta(ctx.rec, tensor.valueId());
  bool pushes = std::exchange(ctx.pushes, false);  // the result is the tensor itself
  Flow flow = ctx.rec.steps.callStep(ctx, CallKind::kKnown, nullptr, result);
  ctx.pushes = pushes;
  result = tensor;
  return flow;
}

// `nn.Parameter(data)`: another tensor object over the same memory. A tensor of a subclass may run Python
// code here.
Flow subclassModel(CallContext& ctx, Shadow& result) {
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (isForeign(ctx.shadows.any(i), ctx.args.any(i))) return opaqueModel(ctx, result);
  }
  return knownModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    // Memory is filled, or data is read, without the dispatcher.
    {"torch.from_numpy", knownModel},
    {"torch.frombuffer", knownModel},
    {"torch._C._to_dlpack", knownModel},
    {"torch._C._to_dlpack_versioned", knownModel},
    {"torch._C._from_dlpack", knownModel},
    {"torch.sparse_coo_tensor", knownModel},
    {"torch._C.TensorBase.numpy", knownModel},
    {"torch._C.TensorBase.tolist", knownModel},
    {"torch._C.TensorBase.data_ptr", knownModel, kReadsWorld},
    {"torch._C.TensorBase.set_", opaqueModel},
    {"torch._C.TensorBase.untyped_storage", knownModel},
    {"torch._C.TensorBase.requires_grad_", requiresGradModel},
    {"torch._C.TensorBase._make_subclass", subclassModel},
    {"torch._C.TensorBase.apply_", opaqueModel},
    {"torch._C.TensorBase.map_", opaqueModel},
    {"torch.manual_seed", knownModel, kWritesProcess},
    {"torch._C.Generator", knownModel},
    {"torch._C.Generator.manual_seed", knownModel},
    {"torch._C.Generator.initial_seed", knownModel},
    {"torch.random.manual_seed", knownModel, kWritesProcess},
    {"torch.get_rng_state", knownModel},
    {"torch.set_rng_state", knownModel, kWritesProcess},
    {"torch.initial_seed", knownModel},
    // Metadata.
    {"torch._C.TensorBase.size", torchMetaModel},
    {"torch._C.TensorBase.dim", torchMetaModel},
    {"torch._C.TensorBase.ndimension", torchMetaModel},
    {"torch._C.TensorBase.numel", torchMetaModel},
    {"torch._C.TensorBase.nelement", torchMetaModel},
    {"torch._C.TensorBase.stride", torchMetaModel},
    {"torch._C.TensorBase.is_contiguous", torchMetaModel},
    {"torch._C.TensorBase.is_floating_point", torchMetaModel},
    {"torch._C.TensorBase.is_complex", torchMetaModel},
    {"torch._C.TensorBase.is_signed", torchMetaModel},
    {"torch._C.TensorBase.is_conj", torchMetaModel},
    {"torch._C.TensorBase.is_neg", torchMetaModel},
    {"torch._C.TensorBase.is_inference", torchMetaModel},
    {"torch._C.TensorBase.element_size", torchMetaModel},
    {"torch._C.TensorBase.get_device", torchMetaModel},
    {"torch._C.TensorBase.is_same_size", torchMetaModel},
    {"torch._C.TensorBase.__len__", torchMetaModel},
    {"torch.is_floating_point", torchMetaModel},
    {"torch.is_complex", torchMetaModel},
    {"torch.is_signed", torchMetaModel},
    {"torch.numel", torchMetaModel},
    {"torch.is_same_size", torchMetaModel},
    {"torch.broadcast_shapes", torchMetaModel},
    {"torch.result_type", torchMetaModel},
    {"torch.Size.numel", foldModel},
    {"torch.promote_types", constantModel, {StateWord::kArguments}},
    {"torch.can_cast", constantModel, {StateWord::kArguments}},
    {"torch.finfo", constantModel, {StateWord::kArguments}},
    {"torch.iinfo", constantModel, {StateWord::kArguments}},
    // State that no guard has.
    {"torch.get_num_threads", knownModel},
    {"torch.get_num_interop_threads", knownModel},
    {"torch.is_anomaly_enabled", knownModel},
    {"torch.is_anomaly_check_nan_enabled", knownModel},
    {"torch.is_autocast_ipu_enabled", knownModel},
    {"torch.is_autocast_xla_enabled", knownModel},
    {"torch.get_autocast_ipu_dtype", knownModel},
    {"torch.get_autocast_xla_dtype", knownModel},
    {"torch._C._get_float32_matmul_precision", knownModel},
    {"torch._C._get_deterministic_algorithms_warn_only", knownModel},
    {"torch._C._get_warnAlways", knownModel},
    {"torch._C._is_multithreading_enabled", knownModel},
    {"torch._C._is_view_replay_enabled", knownModel},
    {"torch._C._autograd.kineto_available", knownModel},
    {"torch._C.StorageBase.is_shared", knownModel},
    // Sorts tensors into lists, by what guards know of them.
    {"torch._C._group_tensors_by_device_and_dtype", knownModel},
    // Guarded global state.
    {"torch.is_grad_enabled", constantModel, {StateWord::kGradMode}},
    {"torch.is_inference_mode_enabled", constantModel, {StateWord::kInferenceMode}},
    {"torch.is_autocast_enabled", constantModel, {StateWord::kAutocast}},
    {"torch.is_autocast_cache_enabled", constantModel, {StateWord::kAutocast}},
    {"torch.is_autocast_cpu_enabled", constantModel, {StateWord::kAutocast}},
    {"torch.get_autocast_dtype", constantModel, {StateWord::kAutocast}},
    {"torch.get_autocast_cpu_dtype", constantModel, {StateWord::kAutocast}},
    {"torch.get_autocast_gpu_dtype", constantModel, {StateWord::kAutocast}},
    {"torch.get_default_dtype", constantModel, {StateWord::kDefaultDtype}},
    {"torch._C._accelerator_getAccelerator", constantModel, {StateWord::kBuild}},
    {"torch._C._functorch.unwrap_if_dead", unwrapModel},
    {"torch._C._is_autocast_available", constantModel, {StateWord::kBuild}},
    {"torch._C._get_tracing_state", constantModel, {StateWord::kTracing}},
    {"torch._jit_internal.is_scripting", fixedAnswerModel},
    {"torch._C._is_tracing", constantModel, {StateWord::kTracing}},
    {"torch._C._is_torch_function_enabled", constantModel, {StateWord::kFunctionModes}},
    {"torch._C._is_torch_function_all_disabled", constantModel, {StateWord::kFunctionModes}},
    {"torch._C._is_torch_function_mode_enabled", constantModel, {StateWord::kFunctionModes}},
    {"torch._C._len_torch_function_stack", constantModel, {StateWord::kFunctionModes}},
    {"torch._C._len_torch_dispatch_stack", constantModel, {StateWord::kDispatchModes}},
    {"torch._C._are_functorch_transforms_active", constantModel, {StateWord::kDispatchModes}},
    {"torch._C._log_api_usage_once", constantModel, {StateWord::kBuild}},
    {"torch._C._get_deterministic_algorithms", constantModel, {StateWord::kDeterministic}},
    {"torch._C._cuda_getDeviceCount", constantModel, {StateWord::kBuild}},
    {"torch._C._cuda_isCurrentStreamCapturing", streamCaptureModel},
    {"torch._C._get_privateuse1_backend_name", constantModel, {StateWord::kBuild}},
    {"torch._C._get_cudnn_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_mkldnn_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_flash_sdp_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_mem_efficient_sdp_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_math_sdp_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_cudnn_sdp_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_overrideable_sdp_enabled", constantModel, {StateWord::kBackends}},
    {"torch._C._get_sdp_priority_order", knownModel},
    {"torch._C._has_torch_function", overridesModel},
    {"torch._C._has_torch_function_unary", overridesModel},
    {"torch._C._has_torch_function_variadic", overridesModel},
    // Changes of the global state.
    {"torch._C._set_grad_enabled", gradModeModel, kWritesProcess},
    {"torch._C._set_default_dtype", stateModel, kWritesProcess},
    {"torch._C._set_deterministic_algorithms", stateModel, kWritesProcess},
    {"torch._C._set_float32_matmul_precision", stateModel, kWritesProcess},
    {"torch.set_autocast_ipu_dtype", stateModel, kWritesProcess},
    {"torch.set_autocast_xla_dtype", stateModel, kWritesProcess},
    {"torch._C._set_sdp_use_flash", stateModel, kWritesProcess},
    {"torch._C._set_sdp_use_mem_efficient", stateModel, kWritesProcess},
    {"torch._C._set_sdp_use_math", stateModel, kWritesProcess},
    {"torch._C._set_sdp_use_cudnn", stateModel, kWritesProcess},
    {"torch._C._set_sdp_use_overrideable", stateModel, kWritesProcess},
    {"torch._C._set_sdp_priority_order", stateModel, kWritesProcess},
    {"torch._C.DisableTorchFunctionSubclass", stateModel, kWritesProcess},
    {"torch._C.DisableTorchFunctionSubclass.__enter__", stateModel, kWritesProcess},
    {"torch._C.DisableTorchFunctionSubclass.__exit__", stateModel, kWritesProcess},
    {"torch._C._InferenceMode", stateModel, kWritesProcess},
    {"torch._C._InferenceMode.__enter__", stateModel, kWritesProcess},
    {"torch._C._InferenceMode.__exit__", stateModel, kWritesProcess},
    {"torch.set_autocast_enabled", stateModel, kWritesProcess},
    {"torch.set_autocast_cpu_enabled", stateModel, kWritesProcess},
    {"torch.set_autocast_dtype", stateModel, kWritesProcess},
    {"torch.set_autocast_cpu_dtype", stateModel, kWritesProcess},
    {"torch.set_autocast_gpu_dtype", stateModel, kWritesProcess},
    {"torch.set_autocast_cache_enabled", stateModel, kWritesProcess},
    {"torch.autocast_increment_nesting", stateModel, kWritesProcess},
    {"torch.autocast_decrement_nesting", stateModel, kWritesProcess},
    {"torch.clear_autocast_cache", stateModel, kWritesProcess},
    {"torch._C._swap_tensor_impl", swapModel},
    // autograd at run time.
    {"torch.autograd.variable.Variable._execution_engine.__class__.run_backward", autogradModel},
    {"torch._tensor.Tensor.backward", autogradModel},
    {"torch.autograd.backward", autogradModel},
    {"torch.autograd.grad", autogradModel},
    {"torch._tensor.Tensor.register_hook", hookModel, kWritesProcess},
    {"torch._tensor.Tensor.register_post_accumulate_grad_hook", hookModel, kWritesProcess},
    // functorch: the functions behind the public ones.
    {"torch._functorch.vmap.lazy_load_decompositions", fixedAnswerModel, kWritesProcess},
    {"torch._functorch.eager_transforms.linearize", functorchModel},
    {"torch.functional.einsum", einsumModel},
    {"torch._C.ScriptFunction.__call__", scriptModel},
    {"torch._C.ScriptMethod.__call__", scriptModel},
    {"kintsugi._scripts.attributes", knownModel},
    // These are recorded as Python code: most of what they are asked ends without an operator.
    {"torch.nn.functional._canonical_mask", inlineFunction},
    {"torch.nn.functional._none_or_dtype", inlineFunction},
    {"kintsugi._polyfill_operators.contraction_path", contractionModel},
};

static_assert(statesAreNamed(kRows));

}  // namespace

void registerTorchModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
