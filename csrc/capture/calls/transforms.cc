// Models: functorch's vmap, recorded below the transform.
//
// torch's Python code that enters and leaves the transform is recorded like any other; what it and the user's
// function do to the wrappers reaches the dispatcher's log as operations on the tensors inside (op_log.cc),
// and only these are in the trace: a replay enters no transform. Wrappers are objects that can't be built
// again, so there is no exit, and no call that needs one, from where the transform is entered until torch's
// code returns. Where that is not enough, the whole transform becomes one step the next time.
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

constexpr ModelRow kRows[] = {
    {"torch._C._functorch._vmap_increment_nesting", enterModel},
    {"torch._C._functorch._vmap_decrement_nesting", constantModel},
    {"torch._C._functorch._add_batch_dim", torchModel},
    {"torch._C._functorch._remove_batch_dim", torchModel},
};

}  // namespace

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
