#include "torchapi/operator_graph.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "torchapi/node_ownership.h"

namespace kintsugi::torchapi {

namespace autograd = torch::autograd;

namespace {

constexpr int kNobody = -1;

// Notes the backward that frees the node behind the hook.
class NoteRelease final : public autograd::FunctionPostHook {
 public:
  explicit NoteRelease(std::shared_ptr<std::atomic<int>> by) : by_(std::move(by)) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list&) override {
    int expected = kNobody;
    if (!autograd::get_current_graph_task_keep_graph()) {
      by_->compare_exchange_strong(expected, autograd::get_current_graph_task_id());
    }
    return outputs;
  }

 private:
  const std::shared_ptr<std::atomic<int>> by_;
};

autograd::variable_list callAll(autograd::Node& node, autograd::variable_list gradients) {
  const auto& hooks = node.autograd::Node::tensor_pre_hooks();
  for (size_t k = 0; k < hooks.size(); ++k) gradients = (*hooks[k])(gradients);  // they may add others
  return gradients;
}

class HooksWithWaiting final : public autograd::FunctionPreHook {
 public:
  HooksWithWaiting(autograd::Node* node, std::shared_ptr<WaitingGradients> waiting)
      : node_(node), waiting_(std::move(waiting)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    const int task = autograd::get_current_graph_task_id();
    waiting_->lastRun = task;
    autograd::variable_list all = gradients;
    if (waiting_->task == task) {
      for (size_t k = 0; k < all.size(); ++k) {
        const at::Tensor& other = waiting_->gradients[k];
        if (other.defined()) all[k] = all[k].defined() ? at::add(all[k], other) : other;
      }
      waiting_->task = kNobody;
      waiting_->gradients.clear();
    }
    return callAll(*node_, std::move(all));
  }

 private:
  autograd::Node* const node_;  // owns this
  const std::shared_ptr<WaitingGradients> waiting_;
};

// Counts a call during its lifetime.
class CountedCall {
 public:
  explicit CountedCall(std::atomic<int>& calls) : calls_(calls) { ++calls_; }
  ~CountedCall() { --calls_; }
  CountedCall(const CountedCall&) = delete;

 private:
  std::atomic<int>& calls_;
};

// Of an operator's node: has the hooks of the segment's node see what comes here.
class CallOthersHooks final : public autograd::FunctionPreHook {
 public:
  CallOthersHooks(WeakNode maker, std::vector<size_t> places, std::shared_ptr<WaitingGradients> waiting,
                  std::shared_ptr<const std::atomic<int>> calls)
      : maker_(std::move(maker)),
        places_(std::move(places)),
        waiting_(std::move(waiting)),
        calls_(std::move(calls)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (calls_->load() != 0) return gradients;
    const auto maker = maker_.lock();
    if (!maker) return gradients;
    const auto& keeps = maker->retains_grad_hooks();
    if (maker->autograd::Node::tensor_pre_hooks().empty() && keeps.empty()) return gradients;
    autograd::variable_list seen, given = gradients;
    for (const size_t place : places_) seen.push_back(std::exchange(given[place], at::Tensor()));
    const int task = autograd::get_current_graph_task_id();
    if (waiting_->lastRun != task && willRun(maker.get())) {
      waiting_->task = task;
      waiting_->gradients = std::move(seen);
      return given;
    }
    seen = callAll(*maker, std::move(seen));
    for (const auto& [place, keep] : keeps) seen = (*keep)(seen);
    for (size_t k = 0; k < places_.size(); ++k) given[places_[k]] = std::move(seen[k]);
    return given;
  }

 private:
  const WeakNode maker_;
  const std::vector<size_t> places_;  // by input of the segment's node: the input of this one
  const std::shared_ptr<WaitingGradients> waiting_;
  const std::shared_ptr<const std::atomic<int>> calls_;
};

}  // namespace

std::unique_ptr<autograd::FunctionPreHook> hooksWithWaiting(autograd::Node* node,
                                                            std::shared_ptr<WaitingGradients> waiting) {
  return std::make_unique<HooksWithWaiting>(node, std::move(waiting));
}

std::shared_ptr<WaitingGradients> OperatorGraph::callHooksOf(autograd::Node* maker,
                                                             const std::vector<uint32_t>& outputs) {
  NodePointer node;
  std::vector<size_t> places;
  for (const uint32_t output : outputs) {
    const at::Tensor& tensor = outputs_[output];
    if (!tensor.defined() || !tensor.requires_grad()) return nullptr;
    const autograd::Edge edge = autograd::impl::gradient_edge(tensor);
    if (node && node != edge.function) return nullptr;
    node = edge.function;
    places.push_back(edge.input_nr);
  }
  if (!node || placeOf(node.get()) == kNone) return nullptr;
  auto waiting = std::make_shared<WaitingGradients>();
  node->add_tensor_pre_hook(
      std::make_unique<CallOthersHooks>(weakNode(maker), std::move(places), waiting, calls_));
  return waiting;
}

bool willRun(autograd::Node* node) {
  const auto* asked = autograd::get_current_graph_task_exec_info();
  if (asked != nullptr && !asked->empty()) {
    const auto info = asked->find(node);
    return info != asked->end() && info->second.should_execute();
  }
  const auto* nodes = autograd::get_current_graph_task_nodes_in_graph();
  return nodes != nullptr && nodes->contains(node);
}

OperatorGraph::OperatorGraph(autograd::variable_list inputs, autograd::variable_list outputs,
                             const std::vector<uint32_t>& gets)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), gets_(gets) {
  for (const uint32_t input : gets_) {
    targets_.push_back(inputs_[input].defined() && inputs_[input].requires_grad()
                           ? autograd::impl::gradient_edge(inputs_[input])
                           : autograd::Edge());
  }
  for (const at::Tensor& output : outputs_) {
    if (output.defined() && output.requires_grad()) collect(autograd::impl::gradient_edge(output).function);
  }
  for (Place& place : places_) {
    place.releasedBy = std::make_shared<std::atomic<int>>(kNobody);
    place.node->add_post_hook(std::make_unique<NoteRelease>(place.releasedBy));
  }
}

size_t OperatorGraph::placeOf(const autograd::Node* node) const {
  const auto at = std::ranges::find_if(places_, [&](const Place& place) { return place.node.get() == node; });
  return at == places_.end() ? kNone : static_cast<size_t>(at - places_.begin());
}

// Adds what the node leads to, then the node. Graphs may be deep, so there is no recursion.
void OperatorGraph::collect(const NodePointer& root) {
  const auto isTarget = [&](const autograd::Edge& edge, size_t k) {
    return targets_[k].function == edge.function && targets_[k].input_nr == edge.input_nr;
  };
  std::unordered_map<const autograd::Node*, size_t> known;
  for (size_t k = 0; k < places_.size(); ++k) known.emplace(places_[k].node.get(), k);
  const auto isInput = [&](const NodePointer& node) {
    return std::ranges::any_of(targets_,
                               [&](const autograd::Edge& target) { return target.function == node; });
  };
  std::vector<std::pair<NodePointer, size_t>> waiting;  // with the next edge to look at
  if (root && !known.contains(root.get()) && !isInput(root)) waiting.emplace_back(root, 0);
  while (!waiting.empty()) {
    auto& [node, edge] = waiting.back();
    if (edge < node->num_outputs()) {
      const NodePointer next = node->next_edge(edge++).function;
      if (next && !known.contains(next.get()) && !isInput(next)) waiting.emplace_back(next, 0);
      continue;
    }
    const NodePointer done = std::move(node);
    waiting.pop_back();
    if (!known.emplace(done.get(), places_.size()).second) continue;
    Place place{done, {}, {}, nullptr};
    for (const autograd::Edge& each : done->next_edges()) {
      if (!each.is_valid()) continue;
      for (size_t k = 0; k < targets_.size(); ++k) {
        if (isTarget(each, k)) place.gets.push_back(k);
      }
      const auto at = known.find(each.function.get());
      if (at != known.end()) place.next.push_back(at->second);
    }
    places_.push_back(std::move(place));
  }
}

template <typename Arrived>
std::vector<bool> OperatorGraph::between(const Arrived& hasArrived,
                                         const std::vector<bool>& requested) const {
  std::vector<bool> leads(places_.size(), false), reached(places_.size(), false);
  for (size_t k = 0; k < places_.size(); ++k) {
    leads[k] = std::ranges::any_of(places_[k].gets, [&](size_t get) { return requested[get]; }) ||
               std::ranges::any_of(places_[k].next, [&](size_t next) { return leads[next]; });
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (!hasArrived(k) || !outputs_[k].defined() || !outputs_[k].requires_grad()) continue;
    const size_t at = placeOf(autograd::impl::gradient_edge(outputs_[k]).function.get());
    if (at != kNone) reached[at] = true;
  }
  for (size_t k = places_.size(); k-- > 0;) {
    for (const size_t next : places_[k].next) reached[next] = reached[next] || (reached[k] && leads[k]);
    reached[k] = reached[k] && leads[k];
  }
  return reached;
}

autograd::variable_list OperatorGraph::differentiate(const autograd::variable_list& arrived,
                                                     const std::vector<bool>& requested, bool create) const {
  autograd::variable_list followed, arriving, targets, made(gets_.size());
  for (size_t k = 0; k < outputs_.size(); ++k) {
    if (!arrived[k].defined() || !outputs_[k].defined() || !outputs_[k].requires_grad()) continue;
    followed.push_back(outputs_[k]);
    arriving.push_back(arrived[k]);
  }
  std::vector<size_t> places;
  for (size_t k = 0; k < gets_.size(); ++k) {
    if (!requested[k] || !targets_[k].is_valid()) continue;
    places.push_back(k);
    targets.push_back(inputs_[gets_[k]]);
  }
  if (followed.empty() || targets.empty()) return made;
  const CountedCall call(*calls_);
  autograd::variable_list found =
      autograd::grad(followed, targets, arriving, /*retain_graph=*/true, create, /*allow_unused=*/true);
  for (size_t k = 0; k < places.size(); ++k) made[places[k]] = std::move(found[k]);
  return made;
}

bool OperatorGraph::isReleased(const autograd::variable_list& arrived, const std::vector<bool>& requested,
                               int task) const {
  const auto isByOther = [&](const Place& place) {
    const int by = place.releasedBy->load();
    return by != kNobody && by != task;
  };
  if (std::ranges::none_of(places_, isByOther)) return false;
  const std::vector<bool> reached = between([&](size_t k) { return arrived[k].defined(); }, requested);
  for (size_t k = 0; k < places_.size(); ++k) {
    if (reached[k] && isByOther(places_[k])) return true;
  }
  return false;
}

void OperatorGraph::release(uint64_t outputs, const std::vector<bool>& requested) const {
  const std::vector<bool> reached =
      between([&](size_t k) { return k >= 64 || (outputs >> k & 1) != 0; }, requested);
  for (size_t k = 0; k < places_.size(); ++k) {
    if (reached[k] && !willRun(places_[k].node.get())) places_[k].node->release_variables();
  }
}

}  // namespace kintsugi::torchapi
