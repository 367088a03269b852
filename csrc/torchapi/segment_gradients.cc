#include "torchapi/segment_gradients.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ops/view_as_real.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <kintsugi_torch_features.h>

#include "support/check.h"
#include "torchapi/global_state.h"
#include "torchapi/native_tensors.h"
#include "torchapi/op_log.h"
#include "torchapi/taped_call.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace autograd = torch::autograd;

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

namespace {

constexpr uint64_t kAll = GradNodeForm::kAll;
// Backwards of one graph that are tracked at a time. One that has raised stays, because autograd does not
// report it. When there are more, the oldest is forgotten, and raises if it goes on after all.
constexpr size_t kMostRuns = 1024;

Value borrowed(const at::Tensor& tensor) {
  Value value;
  value.kind = ValueKind::kTensor;
  value.tensor = tensor.unsafeGetTensorImpl();
  return value;
}

// During its lifetime only autograd sees the operators of this thread: no modes, no transforms, no autocast.
class AutogradAlone {
  // detach() asks for modes, unless this key is excluded.
  c10::impl::ForceDispatchKeyGuard keys_{c10::default_included_set,
                                         c10::default_excluded_set.add(c10::DispatchKey::Python)};
};

// Missing gradients are replaced by zeros. 0 * infinity is NaN, where eager mode would compute nothing. So
// the results are summed, and if the sum is not finite, the segment is run again with autograd. (The sum
// may also overflow. That costs time, but the results stay right.)
bool areFinite(const autograd::variable_list& made) {
  return std::all_of(made.begin(), made.end(), [](const at::Tensor& gradient) {
    if (!gradient.defined()) return true;
    const at::Tensor reals = gradient.is_complex() ? at::view_as_real(gradient.resolve_conj()) : gradient;
    const bool small = reals.scalar_type() == at::kHalf || reals.scalar_type() == at::kBFloat16;
    return std::isfinite((small ? reals.sum(at::kFloat) : reals.sum()).item<double>());
  });
}

// Will the current backward of this thread run the node?
bool willRun(autograd::Node* node) {
  const auto* asked = autograd::get_current_graph_task_exec_info();
  if (asked != nullptr && !asked->empty()) {
    const auto info = asked->find(node);
    return info != asked->end() && info->second.should_execute();
  }
  const auto* nodes = autograd::get_current_graph_task_nodes_in_graph();
  return nodes != nullptr && nodes->contains(node);
}

bool hasHooks(autograd::Node& node) {
  return !node.autograd::Node::tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
         !node.post_hooks().empty();
}

bool isReached(const GradNodeForm::Node& node, uint64_t arrived, const std::vector<bool>& requested) {
  if ((node.outputs & arrived) == 0) return false;
  for (size_t k = 0; k < node.leads.size(); ++k) {
    if (node.leads[k] && requested[k]) return true;
  }
  return false;
}

}  // namespace

SegmentGradients::SegmentGradients(std::shared_ptr<const GradNodeCode> code, uint64_t forwardTime)
    : code_(std::move(code)),
      kept_(code_->form()),
      forwardTime_(forwardTime),
      outputNodes_(code_->nodes().outputNodes.size()),
      inputNodes_(code_->nodes().inputNodes.size()),
      metadata_(code_->form().madeAt.size()) {}

void SegmentGradients::keepInputs(std::span<const Value> inputs) {
  kept_.keepInputs(inputs);
  numbers_.assign(inputs.begin(), inputs.end());
}

void SegmentGradients::addOutputNode(size_t outputNode, autograd::Node* node) {
  outputNodes_[outputNode] = node;
  if (metadata_.size() == 1) return;  // its gradient is never missing
  const std::vector<uint32_t>& outputs = code_->nodes().outputNodes[outputNode].outputs;
  for (size_t k = 0; k < outputs.size(); ++k) metadata_[outputs[k]].emplace(node->input_metadata(k));
}

void SegmentGradients::addInputNode(size_t inputNode, autograd::Node* node) { inputNodes_[inputNode] = node; }

void SegmentGradients::forget(const autograd::Node* node) {
  const std::lock_guard<std::mutex> lock(nodesMutex_);
  std::ranges::replace(outputNodes_, const_cast<autograd::Node*>(node), nullptr);
  std::ranges::replace(inputNodes_, const_cast<autograd::Node*>(node), nullptr);
}

void SegmentGradients::orderForHooks() {
#if KINTSUGI_TORCH_HAS_SEQUENCE_NUMBERS
  const NodePlan& plan = code_->nodes();
  if (autograd::get_current_graph_task_id() < 0) return;
  const std::lock_guard<std::mutex> lock(nodesMutex_);
  bool maySee = false;
  std::optional<uint64_t> first;  // the number of the lowest rank
  for (size_t k = 0; k < outputNodes_.size(); ++k) {
    if (outputNodes_[k] == nullptr) continue;
    maySee = maySee || (plan.outputNodes[k].runsAfterInputs && hasHooks(*outputNodes_[k]));
    first = outputNodes_[k]->sequence_nr() - plan.outputNodes[k].rank;
  }
  for (const WeakNode& each : epilogueNodes_) {
    const auto node = each.lock();
    maySee = maySee || (node && hasHooks(*node));
  }
  if (!maySee || !first) return;
  uint64_t expected = 0;  // outputs whose gradients come
  for (size_t k = 0; k < outputNodes_.size(); ++k) {
    if (outputNodes_[k] == nullptr || !willRun(outputNodes_[k])) continue;
    for (const uint32_t output : plan.outputNodes[k].outputs) expected |= code_->form().bitOf(output);
  }
  // No input node is in the engine's queue yet, which stays sorted.
  for (size_t k = 0; k < inputNodes_.size(); ++k) {
    if (inputNodes_[k] == nullptr) continue;
    const std::vector<NodePlan::RankIf>& ranks = plan.inputNodes[k].ranks;
    const auto place = std::ranges::find_if(
        ranks, [&](const NodePlan::RankIf& each) { return (each.outputs & expected) != 0; });
    inputNodes_[k]->set_sequence_nr(*first + (place != ranks.end() ? *place : ranks.front()).rank);
  }
#endif
}

SegmentGradients::Run& SegmentGradients::runOf(int task) {
  const auto known = std::ranges::find(runs_, task, &Run::task);
  if (known != runs_.end()) return *known;
  if (runs_.size() == kMostRuns) {
    forgotten_.insert(runs_.front().task);
    runs_.erase(runs_.begin());
  }
  Run& run = runs_.emplace_back();
  run.task = task;
  run.gradients.resize(metadata_.size());
  run.hasRun.resize(outputNodes_.size());
  run.waits.resize(inputNodes_.size());
  return run;
}

uint64_t SegmentGradients::allOutputs() const {
  const size_t count = metadata_.size();
  return !code_->form().isByOutput || count == 64 ? kAll : (uint64_t{1} << count) - 1;
}

// It is an error if a backward reaches an operator whose saved tensors eager mode has freed.
void SegmentGradients::checkFreed(uint64_t arrived, const std::vector<bool>& requested) const {
  if (freedCount_ == 0) return;
  const std::vector<GradNodeForm::Node>& holders = code_->form().holders;
  for (size_t k = 0; k < holders.size(); ++k) {
    TORCH_CHECK(!freed_[k] || !isReached(holders[k], arrived, requested), autograd::ERR_BACKWARD_TWICE);
  }
}

void SegmentGradients::arrive(size_t outputNode, autograd::variable_list&& gradients) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const NodePlan& plan = code_->nodes();
  const std::vector<uint32_t>& outputs = plan.outputNodes[outputNode].outputs;
  uint64_t made = 0, arrived = 0;
  for (size_t k = 0; k < outputs.size(); ++k) {
    made |= code_->form().bitOf(outputs[k]);
    arrived |= gradients[k].defined() ? code_->form().bitOf(outputs[k]) : 0;
  }
  if (freedCount_ != 0) checkFreed(arrived, findRequested());
  const int task = autograd::get_current_graph_task_id();
  if (task < 0 && !plan.isSingle()) return;  // called by itself, outside of a backward
  Run& run = runOf(task);
  run.hasRun[outputNode] = true;
  run.arrived |= arrived;
  for (size_t k = 0; k < outputs.size(); ++k) run.gradients[outputs[k]] = std::move(gradients[k]);
  const std::lock_guard<std::mutex> nodesLock(nodesMutex_);
  for (size_t k = 0; k < inputNodes_.size(); ++k) {
    if ((plan.inputNodes[k].outputs & made) == 0 || inputNodes_[k] == nullptr) continue;
    run.waits[k] = run.waits[k] || plan.isSingle() || willRun(inputNodes_[k]);
  }
}

autograd::variable_list SegmentGradients::give(size_t inputNode) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const NodePlan::InputNode& plan = code_->nodes().inputNodes[inputNode];
  autograd::variable_list given(plan.gets.size());
  const int task = autograd::get_current_graph_task_id();
  const auto known = std::ranges::find(runs_, task, &Run::task);
  TORCH_CHECK(known != runs_.end() || !forgotten_.contains(task), "more than ", kMostRuns,
              " backwards of one graph go on at a time");
  if (known == runs_.end()) return given;
  Run& run = *known;
  if ((run.arrived & plan.outputs) != (run.used & plan.outputs)) compute(run);
  const std::vector<uint64_t>& feeds = code_->form().feeds;
  for (size_t k = 0; k < given.size() && run.used != 0; ++k) {
    const uint32_t get = plan.gets[k];
    if (!feeds.empty() && (feeds[get] & run.used) == 0) continue;
    const autograd::Edge& edge = inputNodes_[inputNode]->next_edge(k);
    given[k] = std::move(run.made[get]);
    separate(given[k], edge);
    if (given[k].defined() && run.layouts && (*run.layouts)[get]) {
      given[k] = layOut(std::move(given[k]), *(*run.layouts)[get], edge);
    }
  }
  finish(run, inputNode);
  return given;
}

// Are there output nodes that have not run yet in this backward?
bool SegmentGradients::isOutputNodeExpected(const Run& run) {
  if (outputNodes_.size() == 1) return false;
  const std::lock_guard<std::mutex> lock(nodesMutex_);
  for (size_t k = 0; k < outputNodes_.size(); ++k) {
    if (!run.hasRun[k] && outputNodes_[k] != nullptr && willRun(outputNodes_[k])) return true;
  }
  return false;
}

// Frees the saved tensors when all gradients have been computed, and the gradients when they have been passed
// on.
void SegmentGradients::finish(Run& run, size_t inputNode) {
  run.waits[inputNode] = false;
  if (isOutputNodeExpected(run)) return;
  if (run.used == run.arrived) run.gradients.assign(run.gradients.size(), at::Tensor());
  if (run.used == run.arrived && run.used != 0 && !autograd::get_current_graph_task_keep_graph()) {
    free(run);
  }
  if (std::ranges::find(run.waits, true) == run.waits.end()) {
    runs_.erase(runs_.begin() + (&run - runs_.data()));
  }
}

void SegmentGradients::free(const Run& run) {
  const std::vector<GradNodeForm::Node>& holders = code_->form().holders;
  const bool all = run.used == allOutputs() && std::ranges::find(run.requested, false) == run.requested.end();
  freed_.resize(holders.size());
  for (size_t k = 0; k < holders.size(); ++k) {
    if (freed_[k] || !(all || isReached(holders[k], run.used, run.requested))) continue;
    freed_[k] = true;
    ++freedCount_;
  }
  if (freedCount_ == holders.size()) kept_.clear();
}

// A leaf keeps its gradient tensor and may write to it later. So gradients must not share memory, except
// those that autograd itself returns.
void SegmentGradients::separate(at::Tensor& made, const autograd::Edge& edge) const {
  if (c10::GradMode::is_enabled() || !made.defined() || !made.has_storage()) return;
  const bool leaf = code_->isAutograd()
                        ? accumulatingLeaf(edge) != nullptr
                        : dynamic_cast<autograd::AccumulateGrad*>(edge.function.get()) != nullptr;
  if (leaf && made.storage().use_count() > 1) made = made.clone();
}

at::Tensor SegmentGradients::gradientFor(const Run& run, size_t output) const {
  const at::Tensor& gradient = run.gradients[output];
  if (code_->isAutograd()) return gradient;
  return gradient.defined() ? gradient.contiguous() : metadata_[output]->zeros_like();
}

// Finds or learns the strides that the gradients have in eager mode. If the segment can't be run again, they
// are not known.
void SegmentGradients::learnLayouts(Run& run) {
  GradientLayouts& layouts = code_->layouts();
  const GradientLayouts::Arriving arriving = GradientLayouts::arriving(run.gradients);
  run.layouts = layouts.find(arriving);
  if (run.layouts || !layouts.hasRoom()) return;
  if (code_->isAutograd()) {
    if (std::ranges::find(run.requested, false) == run.requested.end()) layouts.learn(arriving, run.made);
    return;
  }
  if (!kept_.mayRecompute(run.arrived)) return;
  try {
    layouts.learn(arriving, runAgain(run));
  } catch (const InternalError&) {  // an error of ours, not of an operator
    throw;
  } catch (const std::exception&) {
    return;  // the gradients are there
  }
  run.layouts = layouts.find(arriving);
}

// By result of the backward: is it asked for?
std::vector<bool> SegmentGradients::findRequested() {
  std::vector<bool> requested(code_->form().gets.size(), false);
  const std::lock_guard<std::mutex> lock(nodesMutex_);
  for (size_t k = 0; k < inputNodes_.size(); ++k) {
    const std::vector<uint32_t>& gets = code_->nodes().inputNodes[k].gets;
    for (size_t edge = 0; edge < gets.size() && inputNodes_[k] != nullptr; ++edge) {
      requested[gets[edge]] = inputNodes_[k]->task_should_compute_output(edge);
    }
  }
  return requested;
}

GradNodeCode::Requested SegmentGradients::findRequestedTapes(const Run& run, std::vector<bool> gets) const {
  const GradNodeForm& form = code_->form();
  const bool arrived = (run.arrived & allOutputs()) == allOutputs();
  if (arrived && std::ranges::find(gets, false) == gets.end()) return {};
  GradNodeCode::Requested asked;
  for (const GradNodeForm::Node& tape : form.tapes) asked.tapes.push_back(isReached(tape, run.arrived, gets));
  asked.gets = std::move(gets);
  return asked;
}

void SegmentGradients::compute(Run& run) {
  const GradNodeForm& form = code_->form();
  bool all = true, ordinary = true;
  for (const at::Tensor& gradient : run.gradients) {
    all = all && gradient.defined();
    ordinary = ordinary && (!gradient.defined() || isOrdinary(gradient.unsafeGetTensorImpl()));
  }
  run.requested = findRequested();
  checkFreed(run.arrived, run.requested);
  if (!kept_.isCleared()) kept_.check(run.arrived, run.requested);
  const c10::impl::ExcludeDispatchKeyGuard noAutocast(c10::autocast_dispatch_keyset);
  run.made.clear();
  run.layouts.reset();
  // If a mode or transform sees the backward's operators, it has to see those of eager mode.
  ordinary = ordinary && mayUseOwnKernels();
  if (kept_.isCleared()) {
    run.made = runFree(run);
  } else if (!ordinary || c10::GradMode::is_enabled() || !runCode(run, all) ||
             (!all && !areFinite(run.made) && kept_.mayRecompute(run.arrived))) {
    run.made = runAgain(run);
  } else {
    learnLayouts(run);
  }
  run.made.resize(form.gets.size());
  run.used = run.arrived;
}

bool SegmentGradients::runCode(Run& run, bool all) {
  autograd::variable_list tensors;
  if (!kept_.take(tensors)) return false;
  for (size_t k = 0; k < run.gradients.size(); ++k) {
    tensors.push_back(gradientFor(run, k));
  }
  std::vector<Value> values;
  for (const at::Tensor& tensor : tensors) {
    values.push_back(tensor.defined() ? borrowed(tensor) : Value());
  }
  OwnValues results(code_->form().gets.size());
  takeTapeError();
  if (!code_->run(values, results.all(), std::exchange(forwardTime_, 0),
                  findRequestedTapes(run, run.requested))) {
    // If gradients are missing, the error may come from a part that eager mode would not compute.
    const std::exception_ptr error = takeTapeError();
    if (error && (all || code_->isAutograd())) std::rethrow_exception(error);
    return false;
  }
  for (size_t k = 0; k < results.all().size(); ++k) {
    run.made.push_back(results.take(k));
  }
  return true;
}

void SegmentGradients::forwardAgain(autograd::variable_list& aliases, OwnValues& outputs, bool create) {
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

// After the saved tensors have been freed: the gradients that need none (passes/free_gradients.h).
autograd::variable_list SegmentGradients::runFree(const Run& run) {
  const bool create = c10::GradMode::is_enabled();
  const c10::AutoGradMode on(true);
  const GradNodeForm& form = code_->form();
  OwnValues leaves(form.gets.size()), outputs(run.gradients.size());
  {
    const AutogradAlone scope;
    TORCH_CHECK(code_->runFree(leaves.all(), outputs.all()), autograd::ERR_BACKWARD_TWICE);
  }
  autograd::variable_list followed, arriving, targets, made(form.gets.size());
  for (size_t k = 0; k < run.gradients.size(); ++k) {
    at::Tensor output = outputs.take(k);
    if (!run.gradients[k].defined() || !output.requires_grad()) continue;
    followed.push_back(std::move(output));
    arriving.push_back(run.gradients[k]);
  }
  std::vector<size_t> ranks;
  for (size_t k = 0; k < form.gets.size(); ++k) {
    if (leaves.all()[k].kind != ValueKind::kTensor) continue;
    ranks.push_back(k);
    targets.push_back(leaves.take(k));
  }
  if (followed.empty()) return made;
  autograd::variable_list found = autograd::grad(followed, targets, arriving, /*retain_graph=*/create, create,
                                                 /*allow_unused=*/true);
  for (size_t k = 0; k < ranks.size(); ++k) made[ranks[k]] = std::move(found[k]);
  return made;
}

// Runs the segment again with autograd, on aliases of its inputs. With the inputs themselves, autograd
// would also differentiate the path by which one input was computed from another.
autograd::variable_list SegmentGradients::runAgain(const Run& run) {
  const bool create = c10::GradMode::is_enabled();
  kept_.checkRecompute(run.arrived);
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
      const at::Tensor& gradient = run.gradients[next++];
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

}  // namespace kintsugi::torchapi
