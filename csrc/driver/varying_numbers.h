// The numbers of a native plan that vary from run to run: sizes, and sums of them.
//
// Example: a graph over f32[s0,8] with a kernel over s0*8 elements. addTensor() makes the plan read s0 from
// the input when a run starts; indexOf(s0*8) gives the number's index and makes the plan compute it there.
//
// Ownership: borrows the table of sizes and writes into the plan, both of which outlive it. Threads: the
// builder's. No GIL.
#pragma once

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "passes/tensor_graph.h"
#include "runtime/native_plan.h"

namespace kintsugi::driver {

// A symbol is bound after the step that makes a tensor with that size; a sum is bound after the last of its
// symbols. Binding 0 is the start of the run, the others come after calls.
class VaryingNumbers {
 public:
  VaryingNumbers(const passes::SizeTable& table, runtime::NativePlan& plan) : table_(table), plan_(plan) {
    plan_.bindings.emplace_back();
  }

  // From binding `at` on, `slot` holds `node`: the binding reads the node's symbols from that tensor.
  void addTensor(uint32_t at, const passes::Node& node, uint32_t slot, ir::DType dtype) {
    runtime::NativeBinding::Tensor tensor;
    tensor.slot = slot;
    tensor.dtype = dtype;
    tensor.rank = static_cast<uint32_t>(node.sizes.size());
    tensor.contiguous = node.packed;
    for (uint32_t d = 0; d < node.sizes.size(); ++d) {
      tensor.loads.push_back(load(at, node.sizes[d], d, false));
      if (!node.packed && node.sizes[d] != 1) {
        tensor.loads.push_back(load(at, node.strides[d], d, true));
      }
    }
    plan_.bindings[at].tensors.push_back(std::move(tensor));
  }

  // The index of the number; kNone: it does not vary. Ask hasUnbound() when all tensors have been added.
  uint32_t indexOf(passes::Size size) {
    size = passes::folded(size);
    if (size.fixed()) {
      return ir::kNone;
    }
    const passes::SizeSum sum = table_.sumOf(size);
    if (sum.size() == 1 && sum[0].factor == 1 && sum[0].symbols.size() == 1) {
      return symbol(sum[0].symbols[0]).index;
    }
    const auto [it, inserted] = sums_.try_emplace(sum, 0);
    if (inserted) {
      it->second = plan_.sizeCount++;
      uint32_t binding = 0;
      runtime::NativeSum made = lower(sum, binding);
      plan_.bindings[binding].sums.emplace_back(it->second, std::move(made));
    }
    return it->second;
  }

  // Adds the checks that the sizes have to pass in each run. Where a check names a symbol that no tensor of
  // the plan has, the symbol is replaced by others, if an equation of the table allows it; else the check is
  // left out.
  void addChecks() {
    for (const passes::SizeCheck& check : table_.checks()) {
      const bool unbound = namesUnbound(check.difference);
      const passes::SizeSum difference = unbound ? table_.reduced(check.difference) : check.difference;
      if (unbound && difference.empty()) {
        continue;
      }
      uint32_t binding = 0;
      runtime::NativeBinding::Check made{lower(difference, binding), (check.signs & passes::kLess) != 0,
                                         (check.signs & passes::kZero) != 0,
                                         (check.signs & passes::kMore) != 0};
      plan_.bindings[binding].checks.push_back(std::move(made));
    }
  }

  // True: a number depends on a symbol that is the size of no tensor.
  bool hasUnbound() const { return unbound_; }

 private:
  struct SymbolSource {
    uint32_t index = 0;    // of the number
    uint32_t binding = 0;  // that reads it
  };

  runtime::NativeBinding::Load load(uint32_t at, passes::Size size, uint32_t dim, bool stride) {
    runtime::NativeBinding::Load load{dim, stride, runtime::NativeBinding::Load::kVaries, ir::kNone};
    if (size.fixed()) {
      load.expected = size.hint;
      return load;
    }
    load.to = static_cast<uint32_t>(plan_.sizeCount++);
    symbols_[table_.symbolOf(size)] = {load.to, at};
    return load;
  }

  bool namesUnbound(const passes::SizeSum& sum) const {
    return std::any_of(sum.begin(), sum.end(), [&](const passes::SizeTerm& term) {
      return std::any_of(term.symbols.begin(), term.symbols.end(),
                         [&](uint32_t symbol) { return !symbols_.contains(symbol); });
    });
  }

  SymbolSource symbol(uint32_t symbol) {
    const auto found = symbols_.find(symbol);
    unbound_ = unbound_ || found == symbols_.end();
    return found == symbols_.end() ? SymbolSource() : found->second;
  }

  runtime::NativeSum lower(const passes::SizeSum& sum, uint32_t& binding) {
    runtime::NativeSum out;
    for (const passes::SizeTerm& term : sum) {
      runtime::NativeSum::Term made{term.factor, {}};
      for (const uint32_t part : term.symbols) {
        const SymbolSource source = symbol(part);
        made.parts.push_back(source.index);
        binding = std::max(binding, source.binding);
      }
      out.terms.push_back(std::move(made));
    }
    return out;
  }

  const passes::SizeTable& table_;
  runtime::NativePlan& plan_;
  std::unordered_map<uint32_t, SymbolSource> symbols_;  // by symbol
  std::map<passes::SizeSum, uint32_t> sums_;
  bool unbound_ = false;
};

}  // namespace kintsugi::driver
