#include "torchapi/grad_node.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/SavedTensorHooks.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "torchapi/native_tensors.h"
#include "torchapi/node_ownership.h"
#include "torchapi/segment_gradients.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace autograd = torch::autograd;

namespace {

// An output, a gate, or both.
class SegmentBackward final : public autograd::Node {
 public:
  SegmentBackward(std::shared_ptr<SegmentGradients> shared, std::optional<size_t> output,
                  std::optional<size_t> gate)
      : shared_(std::move(shared)), output_(output), gate_(gate) {}
  ~SegmentBackward() override { shared_->forget(this); }

  std::string name() const override { return "KintsugiSegmentBackward"; }

  // Autograd asks for these right before it calls them.
  std::vector<std::unique_ptr<autograd::FunctionPreHook>>& tensor_pre_hooks() noexcept override {
    if (!gate_) shared_->orderForHooks();
    return Node::tensor_pre_hooks();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (output_) shared_->arrive(*output_, std::move(gradients[0]));
    gradients.clear();
    return gate_ ? shared_->give(*gate_) : autograd::variable_list(num_outputs());
  }

 private:
  const std::shared_ptr<SegmentGradients> shared_;
  const std::optional<size_t> output_, gate_;
};

using NodePointer = decltype(makeNode<SegmentBackward>(std::shared_ptr<SegmentGradients>(), size_t{}, size_t{}));

autograd::edge_list edgesTo(const GradNodeForm& form, std::span<const uint32_t> gets,
                            std::span<const Value> inputs) {
  autograd::edge_list edges;
  for (const uint32_t get : gets) {
    edges.push_back(autograd::impl::gradient_edge(sharedTensor(inputs[form.gets[get]].tensor)));
  }
  return edges;
}

// The nodes of outputs that autograd follows. They are made from the last to the first in which autograd runs
// them.
std::vector<NodePointer> makeNodes(const std::shared_ptr<SegmentGradients>& shared, const GradNodeCode& code,
                                   std::span<const Value> inputs) {
  const NodePlan& plan = code.nodes();
  std::vector<NodePointer> outputs(plan.outputs.size());
  if (plan.isSingle()) {
    auto node = makeNode<SegmentBackward>(shared, size_t{0}, size_t{0});
    node->set_next_edges(edgesTo(code.form(), plan.gates[0].gets, inputs));
    shared->addGate(0, node.get());
    outputs[0] = std::move(node);
    return outputs;
  }
  std::vector<NodePointer> gates;
  for (size_t k = 0; k < plan.gates.size(); ++k) {
    auto node = makeNode<SegmentBackward>(shared, std::nullopt, k);
    node->set_next_edges(edgesTo(code.form(), plan.gates[k].gets, inputs));
    node->add_input_metadata(autograd::Node::undefined_input());
    shared->addGate(k, node.get());
    gates.push_back(std::move(node));
  }
  for (const uint32_t output : plan.order) {
    outputs[output] = makeNode<SegmentBackward>(shared, size_t{output}, std::nullopt);
    const uint64_t bit = code.form().together.empty() ? GradNodeForm::kAll : uint64_t{1} << output;
    autograd::edge_list edges;
    for (size_t k = 0; k < gates.size(); ++k) {
      if ((plan.gates[k].outputs & bit) != 0) edges.emplace_back(gates[k], 0);
    }
    outputs[output]->set_next_edges(std::move(edges));
  }
  return outputs;
}

}  // namespace

NodePlan::NodePlan(const GradNodeForm& form) : outputs(form.madeAt.size()), order(form.madeAt.size()) {
  // Outputs that are made before an input is used: eager mode comes to them when it has its gradient.
  const auto after = [&](uint32_t usedAt) {
    return static_cast<uint32_t>(std::ranges::count_if(form.madeAt, [&](uint32_t at) { return at < usedAt; }));
  };
  for (uint32_t k = 0; k < form.gets.size(); ++k) {
    const uint64_t leading = form.feeds.empty() ? GradNodeForm::kAll : form.feeds[k];
    const uint32_t place = isSingle() ? 0 : after(form.usedAt[k]);
    const auto known = std::ranges::find_if(
        gates, [&](const Gate& gate) { return gate.outputs == leading && gate.rank == place; });
    Gate& gate = known != gates.end() ? *known : gates.emplace_back(Gate{leading, {}, place});
    gate.gets.push_back(k);
  }
  if (isSingle()) {
    if (gates.empty()) gates.emplace_back();
    return;
  }
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](uint32_t k) { return form.madeAt[k]; });
  std::ranges::stable_sort(gates, {}, &Gate::rank);
  const uint32_t earliest = gates.empty() ? 0 : gates.back().rank;
  uint32_t rank = 0;
  auto gate = gates.begin();
  for (uint32_t k = 0; k <= order.size(); ++k) {
    for (; gate != gates.end() && gate->rank == k; ++gate) gate->rank = rank++;
    if (k == order.size()) break;
    outputs[order[k]] = {rank++, earliest > k};
  }
}

bool isFollowedLeaf(const void* impl) {
  auto* meta =
      static_cast<autograd::AutogradMeta*>(static_cast<const at::TensorImpl*>(impl)->autograd_meta());
  return meta != nullptr && meta->grad_fn_ == nullptr && meta->requires_grad_;
}

bool hasLeafHooks(const void* impl) {
  if (!isFollowedLeaf(impl)) return false;
  auto* meta =
      static_cast<autograd::AutogradMeta*>(static_cast<const at::TensorImpl*>(impl)->autograd_meta());
  return !meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr;
}

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
  const auto shared = std::make_shared<SegmentGradients>(code, forwardTime);
  std::vector<NodePointer> nodes = makeNodes(shared, *code, inputs);
  shared->keepInputs(inputs);
  size_t next = 0;
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
      autograd::set_history(sharedTensor(outputs[k].tensor), nodes[next]);
      shared->addOutput(next, nodes[next].get());
      ++next;
    }
  }
  shared->kept().keepOutputs(outputs);
  shared->kept().keepOwn(own);
}

GradModeOff::GradModeOff() : before_(c10::GradMode::is_enabled()) { c10::GradMode::set_enabled(false); }
GradModeOff::~GradModeOff() { c10::GradMode::set_enabled(before_); }

}  // namespace kintsugi::torchapi
