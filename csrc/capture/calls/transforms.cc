// Models: functorch's vmap, recorded below the transform.
//
// torch's Python code that enters and leaves the transform is recorded like any other; what it and the user's
// function do to the wrappers reaches the dispatcher's log as operations on the tensors inside (op_log.cc),
// and only these are in the trace: a replay enters no transform. Wrappers are objects that can't be built
// again, so there is no exit, and no call that needs one, from where the transform is entered until torch's
// code returns. Where that is not enough, the whole transform becomes one step the next time.
#include <algorithm>
#include <string_view>

#include "capture/calls/model.h"

namespace kintsugi::capture {

namespace {

// The level follows from the transforms that are active at the call, which are part of the guarded state.
Flow enterModel(CallContext& ctx, Shadow& result) {
  std::vector<Shadow> shadows(ctx.shadows, ctx.shadows + ctx.total());
  for (size_t i = 0; i < ctx.total(); ++i) {
    if (!ctx.rec.pinDeep(shadows[i], ctx.args[i])) return run(ctx);
  }
  if (!ctx.rec.enterTransform())
    ctx.rec.abort(diag::Code::KTG0109, {"a transform that the program enters itself"});
  result = Shadow::constant();
  return run(ctx);
}

// torch.func.functional_call: which parameters are tied. It looks at the module, and makes a dict.
Flow untieModel(CallContext& ctx, Shadow& result) {
  static PyObject* module = [] {
    pyapi::Ref<> found = pyapi::steal(PyImport_ImportModule("torch.nn"));
    PyObject* type = found ? PyObject_GetAttrString(found.get(), "Module") : nullptr;
    PyErr_Clear();
    return type;
  }();
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
    {"torch._C._functorch._vmap_increment_nesting", enterModel},
    {"torch._C._functorch._vmap_decrement_nesting", constantModel, {StateWord::kDispatchModes}},
    {"torch._C._functorch._add_batch_dim", torchModel},
    {"torch._C._functorch._remove_batch_dim", torchModel},
};

static_assert(statesAreNamed(kRows));

}  // namespace

bool isWholeTransform(PyCodeObject* code) {
  static constexpr std::string_view kNames[] = {"grad_impl",
                                                "grad_and_value_impl",
                                                "vjp",
                                                "jvp",
                                                "_vjp_with_argnums",
                                                "_jvp_with_argnums",
                                                "jacrev.<locals>.wrapper_fn",
                                                "jacfwd.<locals>.wrapper_fn",
                                                "linearize"};
  // The name first: a function's file is a long text to search.
  Py_ssize_t length = 0;
  const char* name = PyUnicode_AsUTF8AndSize(code->co_qualname, &length);
  const std::string_view qualname(name, static_cast<size_t>(length));
  return std::find(std::begin(kNames), std::end(kNames), qualname) != std::end(kNames) &&
         isTransformCode(code);
}

bool isTransformCode(PyCodeObject* code) {
  const std::string_view file = PyUnicode_AsUTF8(code->co_filename);
  return file.find("/torch/_functorch/") != std::string_view::npos;
}

// Torch's code in the current frame enters a transform. False: it is not torch's.
bool Recorder::enterTransform() {
  if (current_ == nullptr || !isTransformCode(current_->code)) return false;
  for (ShadowFrame* frame = current_; frame != nullptr && frame->caller != nullptr; frame = frame->caller) {
    const std::string_view file = PyUnicode_AsUTF8(frame->code->co_filename);
    if (!isTransformCode(frame->code) && !file.ends_with("/contextlib.py")) break;
    frame->transform = isTransformCode(frame->code);
    frame->rebuildable = false;
  }
  return true;
}

void registerTransformModels() { addModels(kRows, std::size(kRows)); }

}  // namespace kintsugi::capture
