#include "torchapi/grad_node.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/SavedTensorHooks.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <kintsugi_torch_features.h>

#include "torchapi/gradient_layouts.h"
#include "torchapi/native_tensors.h"
#include "torchapi/node_ownership.h"
#include "torchapi/segment_gradients.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace autograd = torch::autograd;

namespace {

// An output node, an input node, or both.
class SegmentBackward final : public autograd::Node {
 public:
  SegmentBackward(uint64_t number, std::shared_ptr<SegmentGradients> shared, std::optional<size_t> outputNode,
                  std::optional<size_t> inputNode)
      : Node(number), shared_(std::move(shared)), outputNode_(outputNode), inputNode_(inputNode) {}
  ~SegmentBackward() override { shared_->forget(this); }

  std::string name() const override { return "KintsugiSegmentBackward"; }

  // Autograd asks for these right before it calls them.
  std::vector<std::unique_ptr<autograd::FunctionPreHook>>& tensor_pre_hooks() noexcept override {
    if (!inputNode_) shared_->orderForHooks();
    return Node::tensor_pre_hooks();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (outputNode_) shared_->arrive(*outputNode_, std::move(gradients));
    gradients.clear();
    return inputNode_ ? shared_->give(*inputNode_) : autograd::variable_list(num_outputs());
  }

 private:
  const std::shared_ptr<SegmentGradients> shared_;
  const std::optional<size_t> outputNode_, inputNode_;
};

using NodePointer =
    decltype(makeNode<SegmentBackward>(uint64_t{}, std::shared_ptr<SegmentGradients>(), size_t{}, size_t{}));

autograd::edge_list edgesTo(const GradNodeForm& form, std::span<const uint32_t> gets,
                            std::span<const Value> inputs) {
  autograd::edge_list edges;
  for (const uint32_t get : gets) {
    edges.push_back(autograd::impl::gradient_edge(sharedTensor(inputs[form.gets[get]].tensor)));
  }
  return edges;
}

// Makes all nodes, and returns the output nodes. Input nodes have the lowest numbers, so that all gradients
// have arrived when the first one runs; above them there is a number for each rank. An input node with an
// early rank has that rank's number, so that gradients of its inputs are added up in eager mode's order.
std::vector<NodePointer> makeNodes(uint64_t first, const std::shared_ptr<SegmentGradients>& shared,
                                   const GradNodeCode& code, std::span<const Value> inputs) {
  const NodePlan& plan = code.nodes();
  std::vector<NodePointer> outputNodes;
  if (plan.isSingle()) {
    auto node = makeNode<SegmentBackward>(first + plan.outputNodes[0].rank, shared, size_t{0}, size_t{0});
    node->set_next_edges(edgesTo(code.form(), plan.inputNodes[0].gets, inputs));
    shared->addInputNode(0, node.get());
    outputNodes.push_back(std::move(node));
    return outputNodes;
  }
  std::vector<NodePointer> inputNodes;
  for (size_t k = 0; k < plan.inputNodes.size(); ++k) {
    const std::optional<uint32_t>& earlyRank = plan.inputNodes[k].earlyRank;
    const uint64_t number = first + (earlyRank ? plan.lowNumbers() + *earlyRank : k);
    auto node = makeNode<SegmentBackward>(number, shared, std::nullopt, k);
    node->set_next_edges(edgesTo(code.form(), plan.inputNodes[k].gets, inputs));
    node->add_input_metadata(autograd::Node::undefined_input());
    shared->addInputNode(k, node.get());
    inputNodes.push_back(std::move(node));
  }
  for (size_t k = 0; k < plan.outputNodes.size(); ++k) {
    const uint64_t number = first + plan.lowNumbers() + plan.outputNodes[k].rank;
    auto node = makeNode<SegmentBackward>(number, shared, k, std::nullopt);
    uint64_t bits = 0;
    for (const uint32_t output : plan.outputNodes[k].outputs) bits |= code.form().bitOf(output);
    autograd::edge_list edges;
    for (size_t inputNode = 0; inputNode < inputNodes.size(); ++inputNode) {
      if ((plan.inputNodes[inputNode].outputs & bits) != 0) edges.emplace_back(inputNodes[inputNode], 0);
    }
    node->set_next_edges(std::move(edges));
    outputNodes.push_back(std::move(node));
  }
  return outputNodes;
}

uint64_t takeNumbers(const NodePlan& plan) {
  const uint64_t first = at::sequence_number::get_and_increment();
  const size_t count = plan.rankCount + plan.lowNumbers();
  for (size_t k = 1; k < count; ++k) at::sequence_number::get_and_increment();
  return first;
}

}  // namespace

NodePlan::NodePlan(const GradNodeForm& form) : epilogueNodes(form.epilogueAt.size()) {
  addOutputNodes(form);
  std::vector<Observed> observed;
  for (uint32_t k = 0; k < outputNodes.size(); ++k)
    observed.push_back({form.madeAt[outputNodes[k].outputs[0]], false, k});
  for (uint32_t k = 0; k < epilogueNodes.size(); ++k) {
    observed.push_back({form.epilogueAt[k], true, k});
    reorders =
        reorders || (!outputNodes.empty() && form.epilogueAt[k] < form.madeAt[outputNodes.back().outputs[0]]);
  }
  std::ranges::stable_sort(observed, {}, &Observed::at);
  // A result of the epilogue that is made between a use of an input and the outputs: eager mode runs its node
  // before it has all gradients of inputs.
  const auto isInMiddle = [&](uint32_t at) {
    return at < form.madeAt[outputNodes.front().outputs[0]] &&
           std::ranges::any_of(form.usedAt,
                               [&](const auto& uses) { return uses.empty() || uses.front().at < at; });
  };
  isSingle_ = outputNodes.size() == 1 && std::ranges::none_of(form.epilogueAt, isInMiddle);
  addInputNodes(form, observed);
  rankAll(observed);
}

void NodePlan::addOutputNodes(const GradNodeForm& form) {
  for (uint32_t k = 0; k < form.madeAt.size(); ++k) {
    const auto known = std::ranges::find_if(outputNodes, [&](const OutputNode& node) {
      return form.madeAt[k] != 0 && form.madeAt[node.outputs[0]] == form.madeAt[k];
    });
    (known != outputNodes.end() ? *known : outputNodes.emplace_back()).outputs.push_back(k);
  }
  std::ranges::stable_sort(outputNodes, {},
                           [&](const OutputNode& node) { return form.madeAt[node.outputs[0]]; });
}

// Here a rank is the number of observed operators before it in the program, which eager mode runs after it;
// rankAll() makes ranks of these numbers.
void NodePlan::addInputNodes(const GradNodeForm& form, const std::vector<Observed>& observed) {
  const auto placeOf = [&](uint32_t at) {
    return static_cast<uint32_t>(
        std::ranges::count_if(observed, [&](const Observed& each) { return each.at < at; }));
  };
  for (uint32_t k = 0; k < form.gets.size(); ++k) {
    InputNode made;
    if (!isSingle_) {
      if (!form.feeds.empty()) made.outputs = form.feeds[k];
      for (const ir::KeptForm::Use& use : form.usedAt[k]) {
        const uint32_t place = placeOf(use.at);
        if (made.ranks.empty() || made.ranks.back().rank != place) made.ranks.push_back({0, place});
        made.ranks.back().outputs |= use.outputs;
      }
      for (size_t view = 0; view < epilogueNodes.size(); ++view) {
        const uint32_t place = placeOf(form.epilogueAt[view]);
        const bool isBefore =
            form.epilogueOf[view] == k && !made.ranks.empty() && place < made.ranks.front().rank;
        if (isBefore) made.earlyRank = std::max(made.earlyRank.value_or(0), place + 1);
      }
    }
    if (made.ranks.empty()) made.ranks.emplace_back();
    const auto known = std::ranges::find_if(inputNodes, [&](const InputNode& node) {
      return node.outputs == made.outputs && node.ranks == made.ranks && node.earlyRank == made.earlyRank;
    });
    (known != inputNodes.end() ? *known : inputNodes.emplace_back(std::move(made))).gets.push_back(k);
  }
  if (isSingle_ && inputNodes.empty()) inputNodes.emplace_back().ranks.emplace_back();
  std::ranges::stable_sort(inputNodes, {}, [](const InputNode& node) { return node.ranks.front().rank; });
}

void NodePlan::rankAll(const std::vector<Observed>& observed) {
  std::vector<std::vector<uint32_t*>> at(observed.size() + 1);  // ranks of input nodes, by place
  uint32_t last = 0;
  for (InputNode& node : inputNodes) {
    if (isSingle_) break;
    if (node.earlyRank) at[*node.earlyRank].push_back(&*node.earlyRank);
    for (RankIf& each : node.ranks) {
      last = std::max(last, each.rank);
      at[each.rank].push_back(&each.rank);
    }
  }
  for (uint32_t k = 0; k <= observed.size(); ++k) {
    for (uint32_t* rank : at[k]) *rank = rankCount++;
    if (k == observed.size()) return;
    const Observed& each = observed[k];
    const auto place = [&](auto& node) {
      node.rank = rankCount++;
      node.runsAfterInputs = last > k;
    };
    each.isEpilogue ? place(epilogueNodes[each.index]) : place(outputNodes[each.index]);
  }
}

std::shared_ptr<GradientLayouts> newGradientLayouts() { return std::make_shared<GradientLayouts>(); }

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

AttachedNodes attachGradNode(std::shared_ptr<const GradNodeCode> code, std::span<const Value> inputs,
                             std::span<Value> outputs, std::span<Value> own, uint64_t forwardTime) {
  const GradNodeForm& form = code->form();
  const uint64_t first = takeNumbers(code->nodes());
  const auto shared = std::make_shared<SegmentGradients>(code, forwardTime);
  std::vector<NodePointer> outputNodes = makeNodes(first, shared, *code, inputs);
  shared->keepInputs(inputs);
  std::vector<void*> followed;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (outputs[k].kind != ValueKind::kTensor) {
      continue;
    }
    at::TensorImpl& impl = *implOf(outputs[k].tensor);
    if (impl.requires_grad()) {
      at::Tensor alias(impl.shallow_copy_and_detach(impl.version_counter(), true));
      releaseTensor(std::exchange(outputs[k].tensor, givenTensor(std::move(alias))));
    }
    if (form.follows[k]) followed.push_back(outputs[k].tensor);
  }
  for (size_t k = 0; k < outputNodes.size(); ++k) {
    for (const uint32_t output : code->nodes().outputNodes[k].outputs) {
      autograd::set_history(sharedTensor(followed[output]), outputNodes[k]);
    }
    shared->addOutputNode(k, outputNodes[k].get());
  }
  shared->kept().keepOutputs(outputs);
  shared->kept().keepOwn(own);
  return {shared, first};
}

EpilogueOrder::EpilogueOrder(const GradNodeCode& code, const AttachedNodes& nodes)
    : plan_(code.nodes()), nodes_(nodes), next_(at::sequence_number::peek()) {}

void EpilogueOrder::end(std::span<const Value> inputs, std::span<const Value> results) const {
#if KINTSUGI_TORCH_HAS_SEQUENCE_NUMBERS
  if (!plan_.reorders) return;
  std::vector<const autograd::Node*> others;
  for (const Value& input : inputs) {
    if (input.kind != ValueKind::kTensor) continue;
    others.push_back(autograd::impl::grad_fn_unsafe(sharedTensor(input.tensor)));
  }
  std::vector<size_t> order(results.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](size_t k) { return plan_.epilogueNodes[k].rank; });
  const uint64_t first = nodes_.first + plan_.lowNumbers();
  for (const size_t k : order) {
    if (results[k].kind != ValueKind::kTensor) continue;
    // The tensor's node, and those between it and the nodes that were there before.
    const at::Tensor result = sharedTensor(results[k].tensor);
    const auto& last = result.grad_fn();
    std::vector<autograd::Node*> waiting{last.get()};
    while (!waiting.empty()) {
      autograd::Node* node = waiting.back();
      waiting.pop_back();
      if (node == nullptr || node->sequence_nr() < next_ || std::ranges::find(others, node) != others.end() ||
          dynamic_cast<autograd::AccumulateGrad*>(node) != nullptr) {
        continue;
      }
      node->set_sequence_nr(first + plan_.epilogueNodes[k].rank);
      for (const autograd::Edge& edge : node->next_edges()) waiting.push_back(edge.function.get());
    }
    if (last && plan_.epilogueNodes[k].runsAfterInputs) nodes_.shared->addEpilogueNode(WeakNode(last));
  }
#else
  (void)inputs, (void)results;
#endif
}

GradModeOff::GradModeOff() : before_(c10::GradMode::is_enabled()) { c10::GradMode::set_enabled(false); }
GradModeOff::~GradModeOff() { c10::GradMode::set_enabled(before_); }

}  // namespace kintsugi::torchapi
