#include "driver/native_overwrites.h"

#include <algorithm>
#include <set>
#include <span>

#include "codegen/plan_kernel.h"

namespace kintsugi::driver {

namespace {

using passes::Kernel;
using passes::KernelAccess;
using passes::KernelOp;
using passes::KernelOpKind;

// Ops that the op is computed of.
std::vector<bool> sourcesOf(const Kernel& kernel, uint32_t op) {
  std::vector<bool> sources(kernel.ops.size(), false);
  sources[op] = true;
  for (size_t at = op + 1; at-- > 0;) {
    for (const uint32_t arg : kernel.ops[at].args) {
      sources[arg] = sources[arg] || sources[at];
    }
  }
  return sources;
}

// Reads its argument at other places, or not everywhere.
bool readsElsewhere(const KernelOp& op) {
  return op.kind == KernelOpKind::kPoint && (op.op == passes::Core::kTake || !op.bounds.empty());
}

}  // namespace

std::vector<uint32_t> overwritable(const Kernel& kernel, const passes::KernelStore& store) {
  std::vector<uint32_t> found;
  const KernelAccess& to = kernel.accesses[store.access];
  const codegen::Plan plan = codegen::planKernel(kernel);
  const bool last = plan.stage[store.op] + 1 == plan.stages;
  if (kernel.product || kernel.attention || !last || to.uniform || to.offset != 0) {
    return found;
  }
  const std::vector<bool> sources = sourcesOf(kernel, store.op);
  const auto isFine = [&](const KernelAccess& access, uint32_t at) {
    const bool same = !access.store && access.offset == 0 && access.elem == to.elem && !access.transposed &&
                      access.repeat == 1 && access.strides == to.strides;
    for (size_t op = 0; same && op < kernel.ops.size(); ++op) {
      const KernelOp& load = kernel.ops[op];
      if (load.kind == KernelOpKind::kLoad && load.access == at && !sources[op]) {
        return false;
      }
      const bool direct = std::any_of(load.args.begin(), load.args.end(), [&](uint32_t arg) {
        return kernel.ops[arg].kind == KernelOpKind::kLoad && kernel.ops[arg].access == at;
      });
      if (direct && readsElsewhere(load)) {
        return false;
      }
    }
    return same;
  };
  for (uint32_t at = 0; at < kernel.accesses.size(); ++at) {
    const passes::NodeId node = kernel.accesses[at].node;
    bool fine = !kernel.accesses[at].store;
    for (uint32_t other = 0; fine && other < kernel.accesses.size(); ++other) {
      fine = kernel.accesses[other].node != node || isFine(kernel.accesses[other], other);
    }
    if (fine) {
      found.push_back(at);
    }
  }
  return found;
}

void overwrite(runtime::NativePlan& plan, const std::vector<Overwrite>& candidates) {
  for (const runtime::NativePlanStep& step : plan.steps) {
    if (step.kind != runtime::NativeStepKind::kKernel) {
      continue;
    }
    const auto drops = std::span(plan.drops).subspan(step.firstDrop, step.dropCount);
    std::set<uint32_t> taken;
    for (const Overwrite& candidate : candidates) {
      if (candidate.kernel != step.index || taken.contains(candidate.from) ||
          std::find(drops.begin(), drops.end(), candidate.from) == drops.end()) {
        continue;
      }
      for (runtime::NativeMade& made : plan.kernels[step.index].made) {
        if (made.slot == candidate.to && made.place == ir::kNone && made.over == ir::kNone) {
          made.over = candidate.from;
          taken.insert(candidate.from);
        }
      }
    }
  }
}

}  // namespace kintsugi::driver
