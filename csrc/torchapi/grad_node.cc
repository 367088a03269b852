#include "torchapi/grad_node.h"

#include <algorithm>
#include <cmath>

#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "torchapi/global_state.h"
#include "torchapi/native_tensors.h"
#include "torchapi/node_ownership.h"
#include "torchapi/taped_call.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

namespace autograd = torch::autograd;
using From = GradNodeForm::From;

Value borrowed(const at::Tensor& tensor) {
  Value value;
  value.kind = ValueKind::kTensor;
  value.tensor = tensor.unsafeGetTensorImpl();
  return value;
}

// Values that are owned here.
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

// Nobody but autograd sees the operators of this thread while one lives: not modes, transforms, autocast.
class AutogradAlone {
  // detach() asks for modes unless the key is excluded.
  c10::impl::ForceDispatchKeyGuard keys_{c10::default_included_set,
                                         c10::default_excluded_set.add(c10::DispatchKey::Python)};
};

class SegmentBackward final : public autograd::Node {
 public:
  SegmentBackward(std::shared_ptr<const GradNodeCode> code, uint64_t forwardTime)
      : code_(std::move(code)), forwardTime_(forwardTime) {}

  std::string name() const override { return "KintsugiSegmentBackward"; }

  void keepInputs(std::span<const Value> inputs) {
    const std::vector<uint32_t>& written = code_->form().written;
    for (uint32_t k = 0; k < inputs.size(); ++k) {
      const Value& input = inputs[k];
      if (input.kind != ValueKind::kTensor) {
        inputs_.emplace_back();
      } else if (std::find(written.begin(), written.end(), k) != written.end()) {
        inputs_.emplace_back(sharedTensor(input.tensor).variable_data(), false);  // with a counter of its own
      } else {
        inputs_.emplace_back(sharedTensor(input.tensor), false);
      }
      numbers_.push_back(input);
    }
  }

  void keepOutputs(std::span<const Value> outputs) {
    const GradNodeForm& form = code_->form();
    outputs_.resize(outputs.size());
    for (const GradNodeForm::Kept& kept : form.kept) {
      if (kept.from == From::kOutput) {
        outputs_[kept.index] =
            autograd::SavedVariable(sharedTensor(outputs[kept.index].tensor), form.follows[kept.index]);
      }
    }
  }

  // The memory that inputs have now.
  void keepMemory(std::span<const Value> inputs) {
    const GradNodeForm& form = code_->form();
    views_.resize(inputs.size());
    for (const uint32_t k : form.byView) {
      if (inputs[k].kind != ValueKind::kTensor) continue;
      at::TensorImpl& impl = *implOf(inputs[k].tensor);
      if (impl.is_inference()) continue;
      views_[k] = at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), true));
    }
    if (!form.hasOwnGraphs) return;
    for (const uint32_t k : form.asIs) {
      if (inputs[k].kind != ValueKind::kTensor) continue;
      const at::TensorImpl& impl = *implOf(inputs[k].tensor);
      if (impl.has_storage()) {
        memory_.push_back({sharedTensor(inputs[k].tensor), impl.storage().unsafeGetStorageImpl()});
      }
    }
  }

  // A counter is all that is held.
  void watch(std::span<const Value> inputs, std::span<const Value> outputs) {
    const GradNodeForm& form = code_->form();
    for (const GradNodeForm::Kept& place : form.watched) {
      const Value& value = (place.from == From::kInput ? inputs : outputs)[place.index];
      const bool isWritten = place.from == From::kInput && std::find(form.written.begin(), form.written.end(),
                                                                     place.index) != form.written.end();
      if (value.kind != ValueKind::kTensor || isWritten || implOf(value.tensor)->is_inference()) continue;
      const c10::VariableVersion& counter = implOf(value.tensor)->version_counter();
      const size_t at = static_cast<size_t>(&place - form.watched.data());
      watched_.push_back(
          {counter, counter.current_version(), form.watchedFor.empty() ? kAll : form.watchedFor[at]});
    }
  }

  // Whatever becomes of them: for backwards that do not depend on them. A write to one output is no error of
  // another one's backward; nor is one to an input, where outputs have backwards of their own.
  void keepAsTheyAre(std::span<const Value> inputs, std::span<const Value> outputs) {
    const GradNodeForm& form = code_->form();
    if (form.keptFor.empty() || form.together.size() < 2) return;
    const bool oneGroup = form.together[0] == allOutputs();
    for (const GradNodeForm::Kept& kept : form.kept) {
      asTheyAre_.emplace_back();
      if (kept.from == From::kOwn || (oneGroup && kept.from == From::kInput)) continue;
      at::TensorImpl& impl = *implOf((kept.from == From::kInput ? inputs : outputs)[kept.index].tensor);
      if (impl.is_inference()) continue;
      asTheyAre_.back() = at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), true));
    }
  }

  void keepOwn(std::span<Value> own) {
    for (Value& value : own) {
      value.kind = ValueKind::kEmpty;
      own_.push_back(takenTensor(value.tensor));
    }
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    released_ |= groups_;
    if (!code_->form().together.empty() && released_ != allOutputs()) return;
    released_ = kAll;
    asTheyAre_.clear();
    own_.clear();
    views_.clear();
    memory_.clear();
    watched_.clear();
    for (auto* list : {&inputs_, &outputs_}) {
      for (autograd::SavedVariable& saved : *list) {
        saved.reset_data();
      }
    }
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
    TORCH_CHECK((released_ & groups_) == 0 || !takesKept(), autograd::ERR_BACKWARD_TWICE);
    checkWatched();
    const c10::impl::ExcludeDispatchKeyGuard noAutocast(c10::autocast_dispatch_keyset);
    autograd::variable_list made;
    // Who wants to see the operators of the backward (a mode, a transform) sees those of eager mode.
    ordinary = ordinary && kernelsAreOwn() && !hasOtherMemory();
    if (!ordinary || c10::GradMode::is_enabled() || !runCode(gradients, all, made) ||
        (!all && !areFinite(made))) {
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
  static constexpr uint64_t kAll = ~uint64_t{0};
  struct Watched {
    c10::VariableVersion counter;
    uint32_t version;
    uint64_t outputs;  // whose gradients need it
  };
  struct Memory {
    at::Tensor tensor;
    const c10::StorageImpl* storage;
  };

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
  // Does the backward of the gradients that have arrived need a value that is kept?
  bool isNeeded(size_t kept) const {
    const std::vector<uint64_t>& keptFor = code_->form().keptFor;
    return keptFor.empty() || (keptFor[kept] & arrived_) != 0;
  }
  bool takesKept() const {
    for (size_t k = 0; k < code_->form().kept.size(); ++k) {
      if (isNeeded(k)) return true;
    }
    return false;
  }

  // Gradients that have not arrived are taken for zeros, which make NaN of infinities. A sum shows that; one
  // that overflows has the segment run again for nothing.
  static bool areFinite(const autograd::variable_list& made) {
    return std::all_of(made.begin(), made.end(), [](const at::Tensor& gradient) {
      if (!gradient.defined()) return true;
      const at::Tensor reals = gradient.is_complex() ? at::view_as_real(gradient.resolve_conj()) : gradient;
      const bool small = reals.scalar_type() == at::kHalf || reals.scalar_type() == at::kBFloat16;
      return std::isfinite((small ? reals.sum(at::kFloat) : reals.sum()).item<double>());
    });
  }

  void checkWatched() const {
    for (const Watched& watched : watched_) {
      if ((watched.outputs & arrived_) == 0) continue;
      TORCH_CHECK(watched.counter.current_version() == watched.version,
                  "one of the variables needed for gradient computation has been modified by an inplace "
                  "operation: it is at version ",
                  watched.counter.current_version(), "; expected version ", watched.version, " instead.");
    }
  }

  // Was an input given other memory (`weight.data = other`)? Autograd looks at that in the backward.
  bool hasOtherMemory() const {
    return std::any_of(memory_.begin(), memory_.end(), [](const Memory& memory) {
      return memory.tensor.has_storage() && memory.tensor.storage().unsafeGetStorageImpl() != memory.storage;
    });
  }

  // What is kept, in the order in which the code takes it. Raises where it was written to or is gone.
  autograd::variable_list unpack() {
    autograd::variable_list out;
    const std::vector<GradNodeForm::Kept>& all = code_->form().kept;
    for (size_t k = 0; k < all.size(); ++k) {
      const GradNodeForm::Kept& kept = all[k];
      if (!asTheyAre_.empty() && asTheyAre_[k].defined() && !isNeeded(k)) {
        out.push_back(asTheyAre_[k]);
        continue;
      }
      switch (kept.from) {
        case From::kInput:
          out.push_back(inputs_[kept.index].unpack());
          if (views_[kept.index].defined()) out.back() = views_[kept.index];
          break;
        case From::kOutput:
          out.push_back(outputs_[kept.index].unpack(getptr()));
          break;
        case From::kOwn:
          out.push_back(own_[kept.index]);
          break;
      }
    }
    return out;
  }

  // Leaves take their gradients over, and write to them later: those must not share memory with anything.
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

  bool runCode(const autograd::variable_list& gradients, bool all, autograd::variable_list& made) {
    autograd::variable_list tensors = unpack();
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
    if (!code_->run(values, results.all(), std::exchange(forwardTime_, 0))) {
      // Of a gradient that has not arrived nobody would know.
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
    for (size_t k = 0; k < inputs_.size(); ++k) {
      if (numbers_[k].kind == ValueKind::kTensor) {
        const at::Tensor input = inputs_[k].unpack();
        aliases[k] = !input.requires_grad() ? input
                     : create               ? at::alias(input)
                                            : input.detach().requires_grad_();
        values[k] = borrowed(aliases[k]);
      }
    }
    TORCH_CHECK(code_->again(values, outputs.all()),
                "kintsugi: a segment could not be run again for the gradient of its gradient");
  }

  // The segment is run with autograd from aliases of its inputs, so that paths from one input to another are
  // no part of what is differentiated here.
  autograd::variable_list runAgain(const autograd::variable_list& gradients) {
    const bool create = c10::GradMode::is_enabled();
    const c10::AutoGradMode on(true);
    autograd::variable_list aliases(inputs_.size());
    const GradNodeForm& form = code_->form();
    OwnValues outputs(form.follows.size());
    forwardAgain(aliases, outputs, create);
    autograd::variable_list followed, arriving, targets;
    size_t next = 0;
    for (size_t k = 0; k < form.follows.size(); ++k) {
      const at::Tensor output = outputs.take(k);
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
  std::vector<autograd::SavedVariable> inputs_;   // by input; numbers have none
  std::vector<autograd::SavedVariable> outputs_;  // by output; where they are kept
  std::vector<Value> numbers_;                    // by input: what is no tensor
  autograd::variable_list own_;
  std::vector<Watched> watched_;
  autograd::variable_list views_;  // by input; of those that eager mode keeps as views alone
  std::vector<Memory> memory_;     // of inputs
  uint64_t forwardTime_;
  autograd::variable_list asTheyAre_;  // by kept value; empty where all outputs are of one group
  uint64_t released_ = 0;              // groups of outputs whose backward has been run
  uint64_t arrived_ = 0;               // outputs whose gradients have arrived last
  uint64_t groups_ = 0;                // with those that share what is kept
};

}  // namespace

bool hasTangent(const void* impl) {
  auto* meta =
      static_cast<autograd::AutogradMeta*>(static_cast<const at::TensorImpl*>(impl)->autograd_meta());
  return meta != nullptr && meta->fw_grad_ != nullptr;
}

bool mayStandForSegment() {
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
  node->watch(inputs, outputs);
  node->keepMemory(inputs);
  node->keepAsTheyAre(inputs, outputs);
  node->keepOwn(own);
}

GradModeOff::GradModeOff() : before_(c10::GradMode::is_enabled()) { c10::GradMode::set_enabled(false); }
GradModeOff::~GradModeOff() { c10::GradMode::set_enabled(before_); }

}  // namespace kintsugi::torchapi
