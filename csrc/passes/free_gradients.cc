#include "passes/free_gradients.h"

#include <algorithm>

#include "ir/segments.h"
#include "passes/kept_by_eager.h"
#include "passes/requires_grad.h"
#include "passes/view_strides.h"

namespace kintsugi::passes {

using ir::Instruction;
using ir::ValueId;

namespace {

class FreePath {
 public:
  FreePath(const GradientGraph& graph, const std::vector<uint32_t>& gets)
      : graph_(graph), gets_(gets), trace_(graph.recompute), isOnPath_(trace_.values.size(), false) {}

  std::optional<FreeGradients> find() {
    const std::vector<ValueId> inputs = valuesOf(trace_.code.front()), all = valuesOf(trace_.code.back());
    for (const uint32_t get : gets_) isOnPath_[inputs[get]] = true;
    const std::vector<uint32_t> code = findCode();
    std::vector<ValueId> outputs;
    bool leads = false;
    for (size_t k = 0; k < all.size(); ++k) {
      if (graph_.incoming[k] == ir::kNone) continue;
      outputs.push_back(all[k]);
      leads = leads || isOnPath_[all[k]];
    }
    if (!leads) return std::nullopt;
    FreeGradients found;
    std::vector<ValueId> taken = findInputs(code, outputs);
    for (const ValueId value : taken) {
      const ir::Type& type = trace_.values[value];
      if (type.kind != ir::TypeKind::kTensor || type.meta == ir::kNone || !trace_.hasFixedSizes(type)) {
        return std::nullopt;
      }
      found.inputs.push_back(trace_.metas[type.meta]);
      found.inputs.back().strides = stridesOf(trace_.metas[type.meta]);
    }
    for (const uint32_t get : gets_) {
      const auto at = std::ranges::find(taken, inputs[get]);
      found.leaves.push_back(at == taken.end() ? ir::kNone : static_cast<uint32_t>(at - taken.begin()));
    }
    found.segment = segmentOf(trace_, taken, code, outputs);
    return found;
  }

 private:
  std::vector<ValueId> valuesOf(const Instruction& ins) const {
    std::vector<ValueId> values;
    ir::collectValues(trace_, trace_.operandsOf(ins), values);
    return values;
  }

  // The operators of the path: they save nothing, and take an input or a result of one of them.
  std::vector<uint32_t> findCode() {
    std::vector<uint32_t> code;
    for (uint32_t at = 1; at + 1 < trace_.code.size(); ++at) {
      const Instruction& ins = trace_.code[at];
      if (ins.op != ir::Op::kAten || keepsAny(trace_, ins)) continue;
      const std::vector<ValueId> values = valuesOf(ins);
      if (std::ranges::none_of(values, [&](ValueId value) { return isOnPath_[value]; })) continue;
      bool follows = false;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        const ValueId result = ins.firstResult + r;
        isOnPath_[result] = requiresGrad(trace_, result);
        follows = follows || isOnPath_[result];
      }
      if (follows) code.push_back(at);
    }
    return code;
  }

  // The values that the operators take and none of them makes.
  std::vector<ValueId> findInputs(const std::vector<uint32_t>& code,
                                  const std::vector<ValueId>& outputs) const {
    std::vector<bool> known(trace_.values.size(), false);
    std::vector<ValueId> taken;
    const auto take = [&](const std::vector<ValueId>& values) {
      for (const ValueId value : values) {
        if (!known[value]) taken.push_back(value);
        known[value] = true;
      }
    };
    for (const uint32_t at : code) {
      take(valuesOf(trace_.code[at]));
      const Instruction& ins = trace_.code[at];
      for (uint32_t r = 0; r < ins.resultCount; ++r) known[ins.firstResult + r] = true;
    }
    take(outputs);
    return taken;
  }

  const GradientGraph& graph_;
  const std::vector<uint32_t>& gets_;
  const ir::Trace& trace_;
  std::vector<bool> isOnPath_;  // by value: its gradient reaches an input without saved tensors
};

}  // namespace

std::optional<FreeGradients> freeGradients(const GradientGraph& graph, const std::vector<uint32_t>& gets) {
  return FreePath(graph, gets).find();
}

}  // namespace kintsugi::passes
