#include "passes/kernel.h"

#include <algorithm>

#include "ir/text.h"
#include "passes/attention.h"
#include "passes/fuse.h"
#include "passes/kernel_text.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

std::string opText(const KernelOp& op) {
  std::string out;
  if (op.kind == KernelOpKind::kLoad) {
    out = "load " + std::to_string(op.access);
  } else if (op.kind == KernelOpKind::kConst) {
    out = "const ";
    isFloat(op.elem) ? ir::appendFloat(out, op.number) : ir::appendInt(out, op.integer);
  } else if (op.kind == KernelOpKind::kProduct) {
    out = "product";
  } else if (op.kind == KernelOpKind::kScore) {
    out = "score";
  } else {
    out = coreInfo(op.op).text;
    for (const uint32_t arg : op.args) {
      out += " " + std::to_string(arg);
    }
    for (const PartBound& bound : op.bounds) {
      out += " dim" + std::to_string(bound.dim);
    }
    out += op.indexed.wraps ? " wraps" : "";
  }
  return out + " " + std::string(elemName(op.elem));
}

}  // namespace

bool Kernel::checks() const {
  return std::any_of(ops.begin(), ops.end(), [](const KernelOp& op) {
    return op.kind == KernelOpKind::kPoint && op.op == Core::kTake;
  });
}

void Kernel::checkForm() const {
  KINTSUGI_CHECK(!sizes.empty(), "a kernel without dimensions");
  for (const KernelAccess& access : accesses) {
    KINTSUGI_CHECK(access.strides.size() == sizes.size() || attention, "an access with ",
                   access.strides.size(), " strides in a kernel of ", sizes.size(), " dimensions");
  }
  for (size_t k = 0; k < ops.size(); ++k) {
    KINTSUGI_CHECK(ops[k].kind != KernelOpKind::kLoad || ops[k].access < accesses.size(), "op ", k, " loads ",
                   ops[k].access);
    for (const uint32_t arg : ops[k].args) {
      KINTSUGI_CHECK(arg < k, "op ", k, " takes op ", arg);
    }
  }
  for (const KernelStore& store : stores) {
    KINTSUGI_CHECK(store.op < ops.size() && store.access < accesses.size() && accesses[store.access].store,
                   "a store of op ", store.op, " to access ", store.access);
  }
}

size_t Kernel::numberCount() const {
  size_t count = sizes.size();
  for (const KernelAccess& access : accesses) {
    count += access.strides.size();
  }
  for (const KernelOp& op : ops) {
    const bool takes = op.kind == KernelOpKind::kPoint && op.op == Core::kTake;
    count += 2 * op.bounds.size() + (takes ? 2 : 0);
  }
  return count + (product ? 5 : 0) + (attention ? 2 : 0);
}

std::string Kernel::key() const {
  constexpr std::string_view kInner[] = {"unit", "zero", "strided"};
  std::string out = columns         ? "columns"
                    : hasReductions ? "rows"
                    : product       ? "product"
                    : attention     ? attentionText(*attention)
                                    : "points";
  out += product && product->rightByColumns ? " by columns" : "";
  out += product && product->batched ? " batched" : "";
  out += over ? " over" : "";
  out += (longRows ? " long outer=" : " outer=") + std::to_string(outerRank()) + "\n";
  for (const KernelAccess& access : accesses) {
    out += std::string(access.store ? "out " : "in ") + std::string(elemName(access.elem)) + " " +
           std::string(kInner[static_cast<size_t>(access.inner)]) +
           ((columns || attention) && access.uniform ? " uniform" : "") +
           (access.transposed ? " turned" : "") +
           (access.repeat != 1 ? " repeat=" + std::to_string(access.repeat) : "") + "\n";
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    out += std::to_string(i) + " = " + opText(ops[i]) + "\n";
  }
  for (const KernelStore& store : stores) {
    out += "store " + std::to_string(store.op) + " to " + std::to_string(store.access) + "\n";
  }
  return out;
}

std::string print(const NativeProgram& program, const TensorGraph& graph, const ir::Trace& trace) {
  std::string out;
  for (const NativeStep& step : program.steps) {
    if (step.kind == StepKind::kKernel) {
      appendKernel(out, program.kernels[step.kernel]);
      out += "\n";
      continue;
    }
    const Node& node = graph.nodes[step.node];
    out += step.kind == StepKind::kView
               ? "view %" + std::to_string(step.node)
               : (node.product ? "product " : "call ") + callName(trace, trace.code[node.instruction]);
    for (const NodeId arg : node.args) {
      out += " %" + std::to_string(arg);
    }
    out += "\n";
  }
  return out;
}

}  // namespace kintsugi::passes
