#include "torchapi/grad_node.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <typeinfo>

#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "pyapi/errors.h"
#include "pyapi/ref.h"
#include "torchapi/global_state.h"
#include "torchapi/kept_tensors.h"
#include "torchapi/native_tensors.h"
#include "torchapi/node_ownership.h"
#include "torchapi/op_log.h"
#include "torchapi/taped_call.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

namespace autograd = torch::autograd;

Value borrowed(const at::Tensor& tensor) {
  Value value;
  value.kind = ValueKind::kTensor;
  value.tensor = tensor.unsafeGetTensorImpl();
  return value;
}

// Values that own their tensors.
class OwnValues {
 public:
  explicit OwnValues(size_t count) : values_(count) {}
  ~OwnValues() {
    for (Value& value : values_) {
      clear(value);
    }
  }
  OwnValues(const OwnValues&) = delete;
  std::span<Value> all() { return values_; }
  at::Tensor take(size_t k) {
    values_[k].kind = ValueKind::kEmpty;
    return takenTensor(values_[k].tensor);
  }

 private:
  std::vector<Value> values_;
};

// During its lifetime only autograd sees the operators of this thread: no modes, no transforms, no autocast.
class AutogradAlone {
  // detach() asks for modes, unless this key is excluded.
  c10::impl::ForceDispatchKeyGuard keys_{c10::default_included_set,
                                         c10::default_excluded_set.add(c10::DispatchKey::Python)};
};

// A hook of one output. In eager mode an output that no gradient arrives for is of a node that is not run,
// and its hooks are not called.
class ArrivedHook final : public autograd::FunctionPreHook {
 public:
  ArrivedHook(std::unique_ptr<autograd::FunctionPreHook> hook, size_t output)
      : hook_(std::move(hook)), output_(output) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    return gradients.at(output_).defined() ? (*hook_)(gradients) : gradients;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    hook_->compiled_args(args);
  }

 private:
  std::unique_ptr<autograd::FunctionPreHook> hook_;
  const size_t output_;
};

// The class of hooks that Python code registers. torch does not export it, so it is that of the hook of a
// tensor that is made for this. Null: it can't be told.
const std::type_info* pythonHookType() {
  static std::atomic<const std::type_info*> known = nullptr;
  if (const std::type_info* type = known.load(std::memory_order_acquire)) return type;
  const pybind11::gil_scoped_acquire gil;
  const pyapi::PendingErrorScope pending;
  const c10::InferenceMode ordinary(false);
  const c10::impl::ExcludeDispatchKeyGuard unseen(
      c10::DispatchKeySet({c10::DispatchKey::Python, kRecorderKey}));
  const at::Tensor tensor = at::zeros({}).requires_grad_(true);
  const pyapi::Ref<> object = pyapi::steal(THPVariable_Wrap(tensor));
  const pyapi::Ref<> handle =
      pyapi::steal(object ? PyObject_CallMethod(object.get(), "register_hook", "O",
                                                reinterpret_cast<PyObject*>(&PyUnicode_Type))
                          : nullptr);
  PyErr_Clear();
  const auto& hooks = autograd::impl::hooks(tensor);
  if (!handle || hooks.size() != 1) return nullptr;
  const autograd::FunctionPreHook& hook = *hooks.front();
  known.store(&typeid(hook), std::memory_order_release);
  return &typeid(hook);
}

// The output that a hook is of. Nothing: it is wrapped already, or C++ code has registered it.
std::optional<size_t> outputOf(const autograd::FunctionPreHook& hook) {
  const std::type_info* python = pythonHookType();
  if (python == nullptr || typeid(hook) != *python) return std::nullopt;
  return static_cast<const autograd::PyFunctionTensorPreHook&>(hook).value_idx;
}

class SegmentBackward final : public autograd::Node {
 public:
  SegmentBackward(std::shared_ptr<const GradNodeCode> code, uint64_t forwardTime)
      : code_(std::move(code)), kept_(code_->form()), forwardTime_(forwardTime) {}

  std::string name() const override { return "KintsugiSegmentBackward"; }

  void keepInputs(std::span<const Value> inputs) {
    kept_.keepInputs(inputs);
    numbers_.assign(inputs.begin(), inputs.end());
  }
  void keepOutputs(std::span<const Value> outputs) { kept_.keepOutputs(outputs); }
  void keepOwn(std::span<Value> own) { kept_.keepOwn(own); }

  std::vector<std::unique_ptr<autograd::FunctionPreHook>>& tensor_pre_hooks() noexcept override {
    auto& hooks = Node::tensor_pre_hooks();
    const std::lock_guard<std::mutex> lock(hookMutex_);
    for (auto& hook : hooks) {
      if (const auto output = outputOf(*hook)) hook = std::make_unique<ArrivedHook>(std::move(hook), *output);
    }
    return hooks;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    released_ |= groups_;
    if (!code_->form().together.empty() && released_ != allOutputs()) return;
    released_ = GradNodeForm::kAll;
    kept_.clear();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const GradNodeForm& form = code_->form();
    uint64_t arriving = 0;
    bool any = false, all = true, ordinary = true;
    for (size_t k = 0; k < gradients.size(); ++k) {
      const at::Tensor& gradient = gradients[k];
      arriving |= gradient.defined() && !form.together.empty() ? uint64_t{1} << k : 0;
      any = any || gradient.defined();
      all = all && gradient.defined();
      ordinary = ordinary && (!gradient.defined() || isOrdinary(gradient.unsafeGetTensorImpl()));
    }
    arrived_ = groups_ = 0;
    if (!any) {
      return autograd::variable_list(form.gets.size());
    }
    arrived_ = form.together.empty() ? kAll : arriving;
    groups_ = withGroups(arriving);
    TORCH_CHECK((released_ & groups_) == 0 || !kept_.isNeeded(arrived_), autograd::ERR_BACKWARD_TWICE);
    if ((released_ & groups_) == 0) kept_.check(arrived_, *this);
    const c10::impl::ExcludeDispatchKeyGuard noAutocast(c10::autocast_dispatch_keyset);
    autograd::variable_list made;
    // If a mode or transform sees the backward's operators, it has to see those of eager mode.
    ordinary = ordinary && mayUseOwnKernels();
    if (!ordinary || c10::GradMode::is_enabled() || !runCode(gradients, all, made) ||
        (!all && !areFinite(made) && kept_.mayRecompute(arrived_))) {
      made = runAgain(gradients);
    }
    for (size_t k = 0; k < form.feeds.size(); ++k) {
      if ((form.feeds[k] & arriving) == 0) made[k] = at::Tensor();
    }
    gradients.clear();
    separate(made);
    return made;
  }

 private:
  static constexpr uint64_t kAll = GradNodeForm::kAll;
  std::mutex hookMutex_;  // of the list of hooks
  uint64_t allOutputs() const {
    const size_t count = code_->form().together.size();
    return count == 64 ? kAll : (uint64_t{1} << count) - 1;
  }
  uint64_t withGroups(uint64_t outputs) const {
    const std::vector<uint64_t>& together = code_->form().together;
    uint64_t all = together.empty() ? kAll : 0;
    for (size_t k = 0; k < together.size(); ++k) {
      all |= (outputs >> k & 1) != 0 ? together[k] : 0;
    }
    return all;
  }
  // Missing gradients are replaced by zeros. 0 * infinity is NaN, where eager mode would compute nothing. So
  // the results are summed, and if the sum is not finite, the segment is run again with autograd. (The sum
  // may also overflow. That costs time, but the results stay right.)
  static bool areFinite(const autograd::variable_list& made) {
    return std::all_of(made.begin(), made.end(), [](const at::Tensor& gradient) {
      if (!gradient.defined()) return true;
      const at::Tensor reals = gradient.is_complex() ? at::view_as_real(gradient.resolve_conj()) : gradient;
      const bool small = reals.scalar_type() == at::kHalf || reals.scalar_type() == at::kBFloat16;
      return std::isfinite((small ? reals.sum(at::kFloat) : reals.sum()).item<double>());
    });
  }

  // A leaf keeps its gradient tensor and may write to it later. So gradients must not share memory.
  void separate(autograd::variable_list& made) const {
    for (size_t k = 0; k < made.size() && !c10::GradMode::is_enabled(); ++k) {
      const bool leaf = dynamic_cast<autograd::AccumulateGrad*>(next_edge(k).function.get()) != nullptr;
      if (leaf && made[k].defined() && made[k].has_storage() && made[k].storage().use_count() > 1) {
        made[k] = made[k].clone();
      }
    }
  }

  at::Tensor gradientOrZeros(const at::Tensor& gradient, size_t k) const {
    return gradient.defined() ? gradient.contiguous() : input_metadata(k).zeros_like();
  }

  GradNodeCode::Requested findRequested() const {
    const GradNodeForm& form = code_->form();
    GradNodeCode::Requested asked;
    bool all = form.together.empty() || (arrived_ & allOutputs()) == allOutputs();
    for (size_t k = 0; k < form.gets.size(); ++k) {
      asked.gets.push_back(task_should_compute_output(k));
      all = all && asked.gets.back();
    }
    if (all) return {};
    for (const GradNodeForm::Tape& tape : form.tapes) {
      bool leads = false;
      for (size_t k = 0; k < tape.leads.size(); ++k) leads = leads || (tape.leads[k] && asked.gets[k]);
      asked.tapes.push_back(leads && (tape.outputs & arrived_) != 0);
    }
    return asked;
  }

  bool runCode(const autograd::variable_list& gradients, bool all, autograd::variable_list& made) {
    autograd::variable_list tensors;
    if (!kept_.take(tensors)) return false;
    for (size_t k = 0; k < gradients.size(); ++k) {
      const bool absent = !gradients[k].defined() && !code_->takesZeros();
      tensors.push_back(absent ? at::Tensor() : gradientOrZeros(gradients[k], k));
    }
    std::vector<Value> values;
    for (const at::Tensor& tensor : tensors) {
      values.push_back(tensor.defined() ? borrowed(tensor) : Value());
    }
    OwnValues results(code_->form().gets.size());
    takeTapeError();
    if (!code_->run(values, results.all(), std::exchange(forwardTime_, 0), findRequested())) {
      // If gradients are missing, the error may come from a part that eager mode would not compute.
      const std::exception_ptr error = takeTapeError();
      if (error && (all || !code_->takesZeros())) std::rethrow_exception(error);
      return false;
    }
    for (size_t k = 0; k < results.all().size(); ++k) {
      made.push_back(results.take(k));
    }
    return true;
  }

  void forwardAgain(autograd::variable_list& aliases, OwnValues& outputs, bool create) {
    const AutogradAlone scope;
    std::vector<Value> values = numbers_;
    for (size_t k = 0; k < aliases.size(); ++k) {
      if (numbers_[k].kind == ValueKind::kTensor) {
        aliases[k] = kept_.recomputeInput(k, create);
        values[k] = borrowed(aliases[k]);
      }
    }
    TORCH_CHECK(code_->recompute(values, outputs.all()),
                "kintsugi: a segment could not be run again for the gradient of its gradient");
    for (size_t k = 0; k < aliases.size(); ++k) kept_.moveInput(k, aliases[k]);
  }

  // Runs the segment again with autograd, on aliases of its inputs. With the inputs themselves, autograd
  // would also differentiate the path by which one input was computed from another.
  autograd::variable_list runAgain(const autograd::variable_list& gradients) {
    const bool create = c10::GradMode::is_enabled();
    kept_.checkRecompute(arrived_);
    const c10::AutoGradMode on(true);
    autograd::variable_list aliases(kept_.inputCount());
    const GradNodeForm& form = code_->form();
    OwnValues outputs(form.follows.size());
    forwardAgain(aliases, outputs, create);
    autograd::variable_list followed, arriving, targets;
    size_t next = 0;
    for (size_t k = 0; k < form.follows.size(); ++k) {
      at::Tensor output = outputs.take(k);
      kept_.moveOutput(k, output);
      if (form.follows[k]) {
        const at::Tensor& gradient = gradients[next++];
        if (gradient.defined()) {
          followed.push_back(output);
          arriving.push_back(gradient);
        }
      }
    }
    for (const uint32_t input : form.gets) {
      targets.push_back(aliases[input]);
    }
    return autograd::grad(followed, targets, arriving, /*retain_graph=*/create, create,
                          /*allow_unused=*/true);
  }

  const std::shared_ptr<const GradNodeCode> code_;
  KeptTensors kept_;
  std::vector<Value> numbers_;  // by input: inputs that are no tensors
  uint64_t forwardTime_;
  uint64_t released_ = 0;  // groups of outputs whose backward has run
  uint64_t arrived_ = 0;   // outputs whose gradients have arrived in this call
  uint64_t groups_ = 0;    // arrived_, and outputs that share kept tensors with them
};

}  // namespace

bool hasTangent(const void* impl) {
  auto* meta =
      static_cast<autograd::AutogradMeta*>(static_cast<const at::TensorImpl*>(impl)->autograd_meta());
  return meta != nullptr && meta->fw_grad_ != nullptr;
}

bool mayReplaceSegment() {
  const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state();
  return hooks.stack.empty() && !hooks.disabled_error_message && !autograd::AnomalyMode::is_enabled() &&
         !c10::InferenceMode::is_enabled();
}

void attachGradNode(std::shared_ptr<const GradNodeCode> code, std::span<const Value> inputs,
                    std::span<Value> outputs, std::span<Value> own, uint64_t forwardTime) {
  const GradNodeForm& form = code->form();
  auto node = makeNode<SegmentBackward>(code, forwardTime);
  autograd::edge_list edges;
  for (const uint32_t input : form.gets) {
    edges.push_back(autograd::impl::gradient_edge(sharedTensor(inputs[input].tensor)));
  }
  node->set_next_edges(std::move(edges));
  node->keepInputs(inputs);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].kind != ValueKind::kTensor) {
      continue;
    }
    at::TensorImpl& impl = *implOf(outputs[k].tensor);
    if (impl.requires_grad()) {
      at::Tensor alias(impl.shallow_copy_and_detach(impl.version_counter(), true));
      releaseTensor(std::exchange(outputs[k].tensor, givenTensor(std::move(alias))));
    }
    if (form.follows[k]) {
      autograd::set_history(sharedTensor(outputs[k].tensor), node);
    }
  }
  node->keepOutputs(outputs);
  node->keepOwn(own);
}

GradModeOff::GradModeOff() : before_(c10::GradMode::is_enabled()) { c10::GradMode::set_enabled(false); }
GradModeOff::~GradModeOff() { c10::GradMode::set_enabled(before_); }

}  // namespace kintsugi::torchapi
