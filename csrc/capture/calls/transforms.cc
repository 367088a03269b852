// Models: functorch's vmap, recorded below the transform.
//
// torch's Python code that enters and leaves the transform is recorded like any other; what it and the user's
// function do to the wrappers reaches the dispatcher's log as operations on the tensors inside (op_log.cc),
// and only these are in the trace: a replay enters no transform. Wrappers are objects that can't be built
// again, so there is no exit, and no call that needs one, from where the transform is entered until torch's
// code returns. Where that is not enough, the whole transform becomes one step the next time.
#include "capture/calls/model.h"
#include "pyapi/imports.h"
#include "pyapi/known_objects.h"
#include "pyapi/lazy.h"

namespace kintsugi::capture {

namespace {

// The level follows from the transforms that are active at the call, which are part of the guarded state.
Flow enterModel(CallContext& ctx, Shadow& result) {
  std::vector<Shadow> shadows(ctx.shadows.begin(), ctx.shadows.end());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.pinDeep(shadows[i], ctx.args.any(i))) return run(ctx);
  }
  if (!ctx.rec.enterTransform())
    ctx.rec.abort(diag::Code::KTG0109, {"a transform that the program enters itself"});
  result = Shadow::constant();
  return run(ctx);
}

// torch.func.functional_call: which parameters are tied. It looks at the module, and makes a dict.
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
    plain = plain && Recorder::specialMethod(Py_TYPE(ctx.args[0]), name) ==
                         Recorder::specialMethod(reinterpret_cast<PyTypeObject*>(module), name);
  }
  if (!plain) return inlineFunction(ctx, result);
  ctx.rec.guardType(ctx.shadows[0], ctx.args[0]);
  ctx.rec.guardTypeVersion(Py_TYPE(ctx.args[0]));
  return knownModel(ctx, result);
}

constexpr ModelRow kRows[] = {
    {"torch.nn.utils.stateless._untie_named_tensors_map", untieModel},
    {"torch._C._functorch._vmap_increment_nesting", enterModel, kWritesProcess},
    {"torch._C._functorch._vmap_decrement_nesting", constantModel, {StateWord::kDispatchModes}},
    {"torch._C._functorch._add_batch_dim", torchModel},
    {"torch._C._functorch._remove_batch_dim", torchModel},
};

static_assert(statesAreNamed(kRows));

}  // namespace

bool isWholeTransform(PyCodeObject* code) {
  return pyapi::isKnownCode(code, pyapi::CodeFamily::kWholeTransforms);
}

bool isTransformCode(PyCodeObject* code) { return pyapi::isKnownCode(code, pyapi::CodeFamily::kTransforms); }

// Torch's code in the current frame enters a transform. False: it is not torch's.
bool Recorder::enterTransform() {
  if (current_ == nullptr || !isTransformCode(current_->code)) return false;
  for (ShadowFrame* frame = current_; frame != nullptr && frame->caller != nullptr; frame = frame->caller) {
    const bool manager = pyapi::isKnownCode(frame->code, pyapi::CodeFamily::kContextManagers);
    if (!isTransformCode(frame->code) && !manager) break;
    frame->transform = isTransformCode(frame->code);
    frame->rebuildable = false;
  }
  return true;
}

void registerTransformModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
