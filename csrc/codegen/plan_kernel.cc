#include "codegen/plan_kernel.h"

#include <algorithm>

namespace kintsugi::codegen {

using passes::Elem;
using passes::Kernel;
using passes::KernelOp;
using passes::KernelOpKind;

namespace {

class Planner {
 public:
  explicit Planner(const Kernel& kernel) : kernel_(kernel) {}

  Plan run() {
    plan_.kept.assign(kernel_.ops.size(), false);
    for (const KernelOp& op : kernel_.ops) {
      addOp(op);
    }
    for (uint32_t s = 1; s < plan_.stages; ++s) {
      forEachTarget(kernel_, plan_, s, [&](uint32_t op) { visit(op, s); });
    }
    return std::move(plan_);
  }

 private:
  void addOp(const KernelOp& op) {
    bool uniform = op.kind == KernelOpKind::kLoad      ? kernel_.accesses[op.access].uniform
                   : op.kind == KernelOpKind::kProduct ? false
                                                       : op.bounds.empty();
    uint32_t stage = 0;
    for (const uint32_t arg : op.args) {
      uniform = uniform && plan_.uniform[arg];
      stage = std::max(stage, plan_.stage[arg]);
    }
    if (op.kind == KernelOpKind::kReduce) {
      uniform = true;
      ++stage;
    }
    // A load under a part must not read outside of the part's bounds, so it is not hoisted out of the loop.
    if (!op.bounds.empty() && kernel_.ops[op.args[0]].kind == KernelOpKind::kLoad) {
      plan_.uniform[op.args[0]] = false;
    }
    // The same holds for a load of which single elements are gathered.
    if (op.kind == KernelOpKind::kPoint && op.op == passes::Core::kTake) {
      plan_.uniform[op.args[0]] = false;
    }
    plan_.uniform.push_back(uniform);
    plan_.stage.push_back(stage);
    plan_.stages = std::max(plan_.stages, stage + 1);
  }

  void visit(uint32_t at, uint32_t loop) {
    const KernelOp& op = kernel_.ops[at];
    if (plan_.uniform[at] || plan_.kept[at]) {
      return;
    }
    const bool floats = passes::isSmallFloat(op.elem) || op.elem == Elem::kF32;
    if (op.kind == KernelOpKind::kPoint && plan_.stage[at] < loop && floats && !kernel_.longRows &&
        passes::coreInfo(op.op).cost == passes::CoreCost::kCostly) {
      plan_.kept[at] = true;
      return;
    }
    for (const uint32_t arg : op.args) {
      visit(arg, loop);
    }
  }

  const Kernel& kernel_;
  Plan plan_;
};

}  // namespace

Plan planKernel(const Kernel& kernel) { return Planner(kernel).run(); }

void forEachTarget(const Kernel& kernel, const Plan& plan, uint32_t s,
                   const std::function<void(uint32_t)>& visit) {
  for (const KernelOp& op : kernel.ops) {
    if (op.kind == KernelOpKind::kReduce && plan.stage[op.args[0]] == s) {
      visit(op.args[0]);
    }
  }
  for (const passes::KernelStore& store : kernel.stores) {
    if (plan.stage[store.op] == s && !kernel.accesses[store.access].uniform) {
      visit(store.op);
    }
  }
}

// The wide tile is used if the target prefers it, unless it would waste five percent more columns than the
// tall one.
ProductTile tileFor(const Kernel& kernel, const Target& target, bool swapped) {
  const Target::Products& p = target.products;
  const auto wasted = [&](const ProductTile& tile) {
    const auto columns = static_cast<int64_t>(tile.vectors * target.lanes);
    const int64_t n = kernel.sizes.back().hint;
    return (columns - n % columns) % columns;
  };
  // The wide tile may waste a twentieth of the columns more than the tall one: about what its better use of
  // the first cache gains.
  const bool wide =
      kernel.product && p.preferWide && (wasted(p.wide) - wasted(p.tall)) * 20 <= kernel.sizes.back().hint;
  return wide != swapped ? p.wide : p.tall;
}

}  // namespace kintsugi::codegen
