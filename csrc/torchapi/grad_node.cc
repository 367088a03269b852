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

// What an operator gives out, a gate, or both.
class SegmentBackward final : public autograd::Node {
 public:
  SegmentBackward(uint64_t number, std::shared_ptr<SegmentGradients> shared, std::optional<size_t> maker,
                  std::optional<size_t> gate)
      : Node(number), shared_(std::move(shared)), maker_(maker), gate_(gate) {}
  ~SegmentBackward() override { shared_->forget(this); }

  std::string name() const override { return "KintsugiSegmentBackward"; }

  // Autograd asks for these right before it calls them.
  std::vector<std::unique_ptr<autograd::FunctionPreHook>>& tensor_pre_hooks() noexcept override {
    if (!gate_) shared_->orderForHooks();
    return Node::tensor_pre_hooks();
  }

 protected:
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (maker_) shared_->arrive(*maker_, std::move(gradients));
    gradients.clear();
    return gate_ ? shared_->give(*gate_) : autograd::variable_list(num_outputs());
  }

 private:
  const std::shared_ptr<SegmentGradients> shared_;
  const std::optional<size_t> maker_, gate_;
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

// The nodes of the operators that give something out. Gates have the lowest numbers, so that all gradients
// are there when the first one runs; behind them there are numbers for all ranks. What looks at an input and
// stands before its users in the program comes behind the input's gate, as gradients are added up in order.
std::vector<NodePointer> makeNodes(uint64_t first, const std::shared_ptr<SegmentGradients>& shared,
                                   const GradNodeCode& code, std::span<const Value> inputs) {
  const NodePlan& plan = code.nodes();
  std::vector<NodePointer> makers;
  if (plan.isSingle()) {
    auto node = makeNode<SegmentBackward>(first + plan.makers[0].rank, shared, size_t{0}, size_t{0});
    node->set_next_edges(edgesTo(code.form(), plan.gates[0].gets, inputs));
    shared->addGate(0, node.get());
    makers.push_back(std::move(node));
    return makers;
  }
  std::vector<NodePointer> gates;
  for (size_t k = 0; k < plan.gates.size(); ++k) {
    const std::optional<uint32_t>& early = plan.gates[k].early;
    const uint64_t number = first + (early ? plan.lowNumbers() + *early : k);
    auto node = makeNode<SegmentBackward>(number, shared, std::nullopt, k);
    node->set_next_edges(edgesTo(code.form(), plan.gates[k].gets, inputs));
    node->add_input_metadata(autograd::Node::undefined_input());
    shared->addGate(k, node.get());
    gates.push_back(std::move(node));
  }
  for (size_t k = 0; k < plan.makers.size(); ++k) {
    const uint64_t number = first + plan.lowNumbers() + plan.makers[k].rank;
    auto node = makeNode<SegmentBackward>(number, shared, k, std::nullopt);
    uint64_t bits = 0;
    for (const uint32_t output : plan.makers[k].outputs) bits |= code.form().bitOf(output);
    autograd::edge_list edges;
    for (size_t gate = 0; gate < gates.size(); ++gate) {
      if ((plan.gates[gate].outputs & bits) != 0) edges.emplace_back(gates[gate], 0);
    }
    node->set_next_edges(std::move(edges));
    makers.push_back(std::move(node));
  }
  return makers;
}

uint64_t takeNumbers(const NodePlan& plan) {
  const uint64_t first = at::sequence_number::get_and_increment();
  const size_t count = plan.ranks + plan.lowNumbers();
  for (size_t k = 1; k < count; ++k) at::sequence_number::get_and_increment();
  return first;
}

}  // namespace

NodePlan::NodePlan(const GradNodeForm& form) : looks(form.lookedAt.size()) {
  addMakers(form);
  std::vector<Seen> seen;
  for (uint32_t k = 0; k < makers.size(); ++k) seen.push_back({form.madeAt[makers[k].outputs[0]], false, k});
  for (uint32_t k = 0; k < looks.size(); ++k) {
    seen.push_back({form.lookedAt[k], true, k});
    reorders = reorders || (!makers.empty() && form.lookedAt[k] < form.madeAt[makers.back().outputs[0]]);
  }
  std::ranges::stable_sort(seen, {}, &Seen::at);
  // Eager mode comes to what looks at a tensor in the middle before it has all gradients of inputs.
  const auto isInMiddle = [&](uint32_t look) {
    return look < form.madeAt[makers.front().outputs[0]] &&
           std::ranges::any_of(form.usedAt,
                               [&](const auto& uses) { return uses.empty() || uses.front().at < look; });
  };
  isSingle_ = makers.size() == 1 && std::ranges::none_of(form.lookedAt, isInMiddle);
  addGates(form, seen);
  rankAll(seen);
}

void NodePlan::addMakers(const GradNodeForm& form) {
  for (uint32_t k = 0; k < form.madeAt.size(); ++k) {
    const auto known = std::ranges::find_if(makers, [&](const Maker& maker) {
      return form.madeAt[k] != 0 && form.madeAt[maker.outputs[0]] == form.madeAt[k];
    });
    (known != makers.end() ? *known : makers.emplace_back()).outputs.push_back(k);
  }
  std::ranges::stable_sort(makers, {}, [&](const Maker& maker) { return form.madeAt[maker.outputs[0]]; });
}

// Until they have ranks, places are numbers of operators that eager mode comes to behind them.
void NodePlan::addGates(const GradNodeForm& form, const std::vector<Seen>& seen) {
  const auto placeOf = [&](uint32_t at) {
    return static_cast<uint32_t>(std::ranges::count_if(seen, [&](const Seen& each) { return each.at < at; }));
  };
  for (uint32_t k = 0; k < form.gets.size(); ++k) {
    Gate made;
    if (!isSingle_) {
      if (!form.feeds.empty()) made.outputs = form.feeds[k];
      for (const ir::KeptForm::Use& use : form.usedAt[k]) {
        const uint32_t place = placeOf(use.at);
        if (made.places.empty() || made.places.back().rank != place) made.places.push_back({0, place});
        made.places.back().outputs |= use.outputs;
      }
      for (size_t look = 0; look < looks.size(); ++look) {
        const bool comesBehind = form.lookedOf[look] == k && !made.places.empty() &&
                                 placeOf(form.lookedAt[look]) < made.places.front().rank;
        if (comesBehind) made.early = std::max(made.early.value_or(0), placeOf(form.lookedAt[look]) + 1);
      }
    }
    if (made.places.empty()) made.places.emplace_back();
    const auto known = std::ranges::find_if(gates, [&](const Gate& gate) {
      return gate.outputs == made.outputs && gate.places == made.places && gate.early == made.early;
    });
    (known != gates.end() ? *known : gates.emplace_back(std::move(made))).gets.push_back(k);
  }
  if (isSingle_ && gates.empty()) gates.emplace_back().places.emplace_back();
  std::ranges::stable_sort(gates, {}, [](const Gate& gate) { return gate.places.front().rank; });
}

void NodePlan::rankAll(const std::vector<Seen>& seen) {
  std::vector<std::vector<uint32_t*>> at(seen.size() + 1);  // ranks of gates, by their places
  uint32_t last = 0;
  for (Gate& gate : gates) {
    if (isSingle_) break;
    if (gate.early) at[*gate.early].push_back(&*gate.early);
    for (Place& place : gate.places) {
      last = std::max(last, place.rank);
      at[place.rank].push_back(&place.rank);
    }
  }
  for (uint32_t k = 0; k <= seen.size(); ++k) {
    for (uint32_t* rank : at[k]) *rank = ranks++;
    if (k == seen.size()) return;
    const Seen& each = seen[k];
    (each.isLook ? looks[each.index].rank : makers[each.index].rank) = ranks++;
    (each.isLook ? looks[each.index].hasGatesBefore : makers[each.index].hasGatesBefore) = last > k;
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
  std::vector<NodePointer> makers = makeNodes(first, shared, *code, inputs);
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
  for (size_t k = 0; k < makers.size(); ++k) {
    for (const uint32_t output : code->nodes().makers[k].outputs) {
      autograd::set_history(sharedTensor(followed[output]), makers[k]);
    }
    shared->addMaker(k, makers[k].get());
  }
  shared->kept().keepOutputs(outputs);
  shared->kept().keepOwn(own);
  return {shared, first};
}

LookOrder::LookOrder(const GradNodeCode& code, const AttachedNodes& nodes)
    : plan_(code.nodes()), nodes_(nodes), next_(at::sequence_number::peek()) {}

void LookOrder::end(std::span<const Value> inputs, std::span<const Value> looks) const {
#if KINTSUGI_TORCH_HAS_SEQUENCE_NUMBERS
  if (!plan_.reorders) return;
  std::vector<const autograd::Node*> others;
  for (const Value& input : inputs) {
    if (input.kind != ValueKind::kTensor) continue;
    others.push_back(autograd::impl::grad_fn_unsafe(sharedTensor(input.tensor)));
  }
  std::vector<size_t> order(looks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](size_t k) { return plan_.looks[k].rank; });
  const uint64_t first = nodes_.first + plan_.lowNumbers();
  for (const size_t k : order) {
    if (looks[k].kind != ValueKind::kTensor) continue;
    // With the nodes on the way that nobody sees.
    const auto& seen = sharedTensor(looks[k].tensor).grad_fn();
    std::vector<autograd::Node*> waiting{seen.get()};
    while (!waiting.empty()) {
      autograd::Node* node = waiting.back();
      waiting.pop_back();
      if (node == nullptr || node->sequence_nr() < next_ || std::ranges::find(others, node) != others.end() ||
          dynamic_cast<autograd::AccumulateGrad*>(node) != nullptr) {
        continue;
      }
      node->set_sequence_nr(first + plan_.looks[k].rank);
      for (const autograd::Edge& edge : node->next_edges()) waiting.push_back(edge.function.get());
    }
    if (seen && plan_.looks[k].hasGatesBefore) nodes_.shared->addLook(WeakNode(seen));
  }
#else
  (void)inputs, (void)looks;
#endif
}

GradModeOff::GradModeOff() : before_(c10::GradMode::is_enabled()) { c10::GradMode::set_enabled(false); }
GradModeOff::~GradModeOff() { c10::GradMode::set_enabled(before_); }

}  // namespace kintsugi::torchapi
