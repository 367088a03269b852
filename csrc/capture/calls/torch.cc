// Models: torch's C functions and tensor methods.
//
// C functions in torch's namespaces are recorded through the dispatcher, by rule. The rows below are
// exceptions: functions that fill memory without the dispatcher, that read metadata or global state, or that
// change guarded state.
#include <utility>

#include "capture/calls/model.h"
#include "capture/calls/scripts.h"
#include "capture/calls/table.h"
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
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
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
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
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
  if (!pinLikely(ctx.rec, tensor, ctx.args[0])) return false;
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
  Shadows shadows(ctx.shadows.begin(), ctx.shadows.end());
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

constexpr Facts kCount = gives("int");
constexpr Facts kSetsState = kWritesProcess.gives("None");
constexpr Facts kAnswer = gives("bool");
constexpr Facts kUnguardedFlag = kReadsProcess.gives("bool").runsNoPython();
constexpr Facts kBackendFlag = dependsOn(StateWord::kBackends).gives("bool").runsNoPython();
constexpr Facts kSetsChecked = kWritesProcess.gives("None").raises("RuntimeError");

constexpr ModelRow kRows[] = {
    // Memory is filled, or data is read, without the dispatcher.
    {"torch.from_numpy", knownModel, gives("torch.Tensor")},
    {"torch.frombuffer", knownModel, gives("torch.Tensor")},
    {"torch._C._to_dlpack", knownModel, gives("PyCapsule")},
    {"torch._C._to_dlpack_versioned", knownModel, gives("PyCapsule")},
    {"torch._C._from_dlpack", knownModel, gives("torch.Tensor").raises("RuntimeError")},
    {"torch.sparse_coo_tensor", knownModel,
     gives("torch.Tensor").raises("IndexError RuntimeError ValueError")},
    {"torch._C.TensorBase.numpy", knownModel, gives("numpy.ndarray").raises("RuntimeError")},
    {"torch._C.TensorBase.tolist", knownModel, gives("bool complex float int list")},
    {"torch._C.TensorBase.data_ptr", knownModel, kReadsWorld.gives("int")},
    {"torch._C.TensorBase.set_", opaqueModel, gives("argument").raises("RuntimeError")},
    {"torch._C.TensorBase.untyped_storage", knownModel, gives("torch.storage.UntypedStorage")},
    {"torch._C.TensorBase.requires_grad_", requiresGradModel, gives("argument").raises("RuntimeError")},
    {"torch._C.TensorBase._make_subclass", subclassModel, gives(kItsObject)},
    {"torch._C.TensorBase.apply_", opaqueModel, gives("argument").raises("RuntimeError")},
    {"torch._C.TensorBase.map_", opaqueModel, gives("argument torch.Tensor").raises("RuntimeError")},
    {"torch.manual_seed", knownModel, kWritesProcess.gives("torch._C.Generator").raises("ValueError")},
    {"torch._C.Generator", knownModel, gives("torch._C.Generator").raises("RuntimeError ValueError")},
    {"torch._C.Generator.manual_seed", knownModel,
     gives("argument torch._C.Generator").raises("RuntimeError")},
    {"torch._C.Generator.initial_seed", knownModel, kCount},
    {"torch.random.manual_seed", knownModel, kWritesProcess.gives("torch._C.Generator").raises("ValueError")},
    {"torch.get_rng_state", knownModel, kReadsProcess.gives("torch.Tensor")},
    {"torch.set_rng_state", knownModel, kSetsState},
    {"torch.initial_seed", knownModel, kReadsProcess.gives("int")},
    // Metadata.
    {"torch._C.TensorBase.size", torchMetaModel, gives("int torch.Size").raises("IndexError")},
    {"torch._C.TensorBase.dim", torchMetaModel, kCount},
    {"torch._C.TensorBase.ndimension", torchMetaModel, kCount},
    {"torch._C.TensorBase.numel", torchMetaModel, kCount},
    {"torch._C.TensorBase.nelement", torchMetaModel, kCount},
    {"torch._C.TensorBase.stride", torchMetaModel, gives("int tuple").raises("IndexError")},
    {"torch._C.TensorBase.is_contiguous", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.is_floating_point", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.is_complex", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.is_signed", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.is_conj", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.is_neg", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.is_inference", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.element_size", torchMetaModel, kCount},
    {"torch._C.TensorBase.get_device", torchMetaModel, kCount},
    {"torch._C.TensorBase.is_same_size", torchMetaModel, kAnswer},
    {"torch._C.TensorBase.__len__", torchMetaModel, kCount},
    {"torch.is_floating_point", torchMetaModel, kAnswer},
    {"torch.is_complex", torchMetaModel, kAnswer},
    {"torch.is_signed", torchMetaModel, kAnswer},
    {"torch.numel", torchMetaModel, kCount},
    {"torch.is_same_size", torchMetaModel, kAnswer},
    {"torch.broadcast_shapes", torchMetaModel, gives("torch.Size").raises("RuntimeError ValueError")},
    {"torch.result_type", torchMetaModel, gives("torch.dtype")},
    {"torch.Size.numel", foldModel, kCount},
    {"torch.promote_types", constantModel,
     dependsOn(StateWord::kArguments).gives("torch.dtype").runsNoPython()},
    {"torch.can_cast", constantModel, dependsOn(StateWord::kArguments).gives("bool").runsNoPython()},
    {"torch.finfo", constantModel, dependsOn(StateWord::kArguments).gives("torch.finfo").runsNoPython()},
    {"torch.iinfo", constantModel, dependsOn(StateWord::kArguments).gives("torch.iinfo").runsNoPython()},
    // State that no guard has: each run asks again.
    {"torch.get_num_threads", knownModel, kReadsProcess.gives("int").runsNoPython()},
    {"torch.get_num_interop_threads", knownModel, kReadsProcess.gives("int").runsNoPython()},
    {"torch.is_anomaly_enabled", knownModel, kUnguardedFlag},
    {"torch.is_anomaly_check_nan_enabled", knownModel, kUnguardedFlag},
    {"torch.is_autocast_ipu_enabled", knownModel, kUnguardedFlag},
    {"torch.is_autocast_xla_enabled", knownModel, kUnguardedFlag},
    {"torch.get_autocast_ipu_dtype", knownModel, kReadsProcess.gives("torch.dtype").runsNoPython()},
    {"torch.get_autocast_xla_dtype", knownModel, kReadsProcess.gives("torch.dtype").runsNoPython()},
    {"torch._C._get_float32_matmul_precision", knownModel, kReadsProcess.gives("str").runsNoPython()},
    {"torch._C._get_deterministic_algorithms_warn_only", constantModel,
     dependsOn(StateWord::kDeterministic).gives("bool").runsNoPython()},
    {"torch._C._get_warnAlways", knownModel, kUnguardedFlag},
    {"torch._C._is_multithreading_enabled", knownModel, kUnguardedFlag},
    {"torch._C._is_view_replay_enabled", constantModel,
     dependsOn(StateWord::kGradMode).gives("bool").runsNoPython()},
    {"torch._C._autograd.kineto_available", knownModel, kAnswer},
    {"torch._C.StorageBase.is_shared", knownModel, kAnswer},
    // Sorts tensors into lists, by what guards know of them.
    {"torch._C._group_tensors_by_device_and_dtype", knownModel, gives("dict").raises("RuntimeError")},
    // Guarded global state.
    {"torch.is_grad_enabled", constantModel, dependsOn(StateWord::kGradMode).gives("bool").runsNoPython()},
    {"torch.is_inference_mode_enabled", constantModel,
     dependsOn(StateWord::kInferenceMode).gives("bool").runsNoPython()},
    {"torch.is_autocast_enabled", constantModel,
     dependsOn(StateWord::kAutocast).gives("bool").runsNoPython().raises("RuntimeError")},
    {"torch.is_autocast_cache_enabled", constantModel,
     dependsOn(StateWord::kAutocast).gives("bool").runsNoPython()},
    {"torch.is_autocast_cpu_enabled", constantModel,
     dependsOn(StateWord::kAutocast).gives("bool").runsNoPython()},
    {"torch.get_autocast_dtype", constantModel,
     dependsOn(StateWord::kAutocast).gives("torch.dtype").runsNoPython().raises("RuntimeError")},
    {"torch.get_autocast_cpu_dtype", constantModel,
     dependsOn(StateWord::kAutocast).gives("torch.dtype").runsNoPython()},
    {"torch.get_autocast_gpu_dtype", constantModel,
     dependsOn(StateWord::kAutocast).gives("torch.dtype").runsNoPython()},
    {"torch.get_default_dtype", constantModel,
     dependsOn(StateWord::kDefaultDtype).gives("torch.dtype").runsNoPython()},
    {"torch._C._accelerator_getAccelerator", constantModel,
     dependsOn(StateWord::kBuild).gives("None torch.device").runsNoPython()},
    {"torch._C._functorch.unwrap_if_dead", unwrapModel, gives(kAnItem)},
    {"torch._C._is_autocast_available", constantModel,
     dependsOn(StateWord::kBuild).gives("bool").runsNoPython().raises("RuntimeError")},
    {"torch._C._get_tracing_state", constantModel,
     dependsOn(StateWord::kTracing).gives("None").runsNoPython()},
    {"torch._jit_internal.is_scripting", fixedAnswerModel, kAnswer},
    {"torch._C._is_tracing", constantModel, dependsOn(StateWord::kTracing).gives("bool").runsNoPython()},
    {"torch._C._is_torch_function_enabled", constantModel,
     dependsOn(StateWord::kFunctionModes).gives("bool").runsNoPython()},
    {"torch._C._is_torch_function_all_disabled", constantModel,
     dependsOn(StateWord::kFunctionModes).gives("bool").runsNoPython()},
    {"torch._C._is_torch_function_mode_enabled", constantModel,
     dependsOn(StateWord::kFunctionModes).gives("bool").runsNoPython()},
    {"torch._C._len_torch_function_stack", constantModel,
     dependsOn(StateWord::kFunctionModes).gives("int").runsNoPython()},
    {"torch._C._len_torch_dispatch_stack", constantModel,
     dependsOn(StateWord::kDispatchModes).gives("int").runsNoPython()},
    {"torch._C._are_functorch_transforms_active", constantModel,
     dependsOn(StateWord::kDispatchModes).gives("bool").runsNoPython()},
    {"torch._C._log_api_usage_once", constantModel,
     dependsOn(StateWord::kBuild).gives("None").runsNoPython()},
    {"torch._C._get_deterministic_algorithms", constantModel,
     dependsOn(StateWord::kDeterministic).gives("bool").runsNoPython()},
    {"torch._C._cuda_getDeviceCount", constantModel,
     dependsOn(StateWord::kBuild).gives("int").runsNoPython()},
    {"torch._C._cuda_isCurrentStreamCapturing", streamCaptureModel, kAnswer.raises("RuntimeError")},
    {"torch._C._get_privateuse1_backend_name", constantModel,
     dependsOn(StateWord::kBuild).gives("str").runsNoPython()},
    {"torch._C._get_cudnn_enabled", constantModel, kBackendFlag},
    {"torch._C._get_mkldnn_enabled", constantModel, kBackendFlag},
    {"torch._C._get_cudnn_benchmark", constantModel, kBackendFlag},
    {"torch._C._get_cudnn_deterministic", constantModel, kBackendFlag},
    {"torch._C._get_mkldnn_deterministic", constantModel, kBackendFlag},
    {"torch._C._get_nnpack_enabled", constantModel, kBackendFlag},
    {"torch._C._get_flash_sdp_enabled", constantModel, kBackendFlag},
    {"torch._C._get_mem_efficient_sdp_enabled", constantModel, kBackendFlag},
    {"torch._C._get_math_sdp_enabled", constantModel, kBackendFlag},
    {"torch._C._get_cudnn_sdp_enabled", constantModel, kBackendFlag},
    {"torch._C._get_overrideable_sdp_enabled", constantModel, kBackendFlag},
    {"torch._C._get_sdp_priority_order", knownModel, gives("list")},
    {"torch._C._has_torch_function", overridesModel, kAnswer},
    {"torch._C._has_torch_function_unary", overridesModel, kAnswer},
    {"torch._C._has_torch_function_variadic", overridesModel, kAnswer},
    // Changes of the global state.
    {"torch._C._set_grad_enabled", gradModeModel, kSetsState},
    {"torch._C._set_default_dtype", stateModel, kSetsState},
    {"torch._C._set_deterministic_algorithms", stateModel, kSetsState},
    {"torch._C._set_float32_matmul_precision", stateModel, kSetsChecked},
    {"torch.set_autocast_ipu_dtype", stateModel, kSetsState},
    {"torch.set_autocast_xla_dtype", stateModel, kSetsState},
    {"torch._C._set_sdp_use_flash", stateModel, kSetsChecked},
    {"torch._C._set_sdp_use_mem_efficient", stateModel, kSetsChecked},
    {"torch._C._set_sdp_use_math", stateModel, kSetsChecked},
    {"torch._C._set_sdp_use_cudnn", stateModel, kSetsChecked},
    {"torch._C._set_sdp_use_overrideable", stateModel, kSetsChecked},
    {"torch._C._set_sdp_priority_order", stateModel, kSetsChecked},
    {"torch._C.DisableTorchFunctionSubclass", stateModel,
     kWritesProcess.gives("torch._C.DisableTorchFunctionSubclass")},
    {"torch._C.DisableTorchFunctionSubclass.__enter__", stateModel, kSetsState},
    {"torch._C.DisableTorchFunctionSubclass.__exit__", stateModel, kSetsState},
    {"torch._C._InferenceMode", stateModel, kWritesProcess.gives("torch._C._InferenceMode")},
    {"torch._C._InferenceMode.__enter__", stateModel, kSetsState},
    {"torch._C._InferenceMode.__exit__", stateModel, kSetsState},
    {"torch.set_autocast_enabled", stateModel, kSetsState},
    {"torch.set_autocast_cpu_enabled", stateModel, kSetsState},
    {"torch.set_autocast_dtype", stateModel, kSetsChecked},
    {"torch.set_autocast_cpu_dtype", stateModel, kSetsState},
    {"torch.set_autocast_gpu_dtype", stateModel, kSetsState},
    {"torch.set_autocast_cache_enabled", stateModel, kSetsState},
    {"torch.autocast_increment_nesting", stateModel, kWritesProcess.gives("int")},
    {"torch.autocast_decrement_nesting", stateModel, kWritesProcess.gives("int")},
    {"torch.clear_autocast_cache", stateModel, kSetsState},
    {"torch._C._swap_tensor_impl", swapModel, gives("None").raises("RuntimeError")},
    // autograd at run time.
    {"torch.autograd.variable.Variable._execution_engine.__class__.run_backward", autogradModel,
     Facts{}.runsAnyPython().gives("tuple")},
    {"torch._tensor.Tensor.backward", autogradModel,
     Facts{}.runsAnyPython().gives("None").raises("AssertionError RuntimeError")},
    {"torch.autograd.backward", autogradModel,
     Facts{}.runsAnyPython().gives("None").raises("AssertionError OverflowError RuntimeError")},
    {"torch.autograd.grad", autogradModel,
     Facts{}.runsAnyPython().gives("tuple").raises("AssertionError RuntimeError")},
    {"torch._tensor.Tensor.register_hook", hookModel,
     kWritesProcess.gives("torch.utils.hooks.RemovableHandle").raises("AttributeError RuntimeError")},
    {"torch._tensor.Tensor.register_post_accumulate_grad_hook", hookModel,
     kWritesProcess.gives("torch.utils.hooks.RemovableHandle").raises("AttributeError RuntimeError")},
    // functorch: the functions behind the public ones.
    {"torch._functorch.vmap.lazy_load_decompositions", fixedAnswerModel, kSetsState},
    {"torch._functorch.eager_transforms.linearize", functorchModel, gives(kOfFunction).raises(kFromFunction)},
    {"torch.functional.einsum", einsumModel, gives("torch.Tensor").raises("RuntimeError ValueError")},
    {"torch._C.ScriptFunction.__call__", scriptModel, gives(kOfFunction).raises(kFromFunction)},
    {"torch._C.ScriptMethod.__call__", scriptModel, gives(kOfFunction).raises(kFromFunction)},
    {"kintsugi._scripts.attributes", knownModel, gives(kAnItem)},
    // These are recorded as Python code: most of what they are asked ends without an operator.
    {"torch.nn.functional._canonical_mask", inlineFunction, gives("torch.Tensor None")},
    {"torch.nn.functional._none_or_dtype", inlineFunction, gives("None torch.dtype").raises("RuntimeError")},
    {"kintsugi._polyfill_operators.contraction_path", contractionModel,
     gives("any: the order of a contraction")},
};

}  // namespace

void registerTorchModels() { addTable<kRows>(); }

}  // namespace kintsugi::capture
