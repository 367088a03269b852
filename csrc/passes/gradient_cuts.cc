#include "passes/gradient_cuts.h"

#include <utility>

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::ValueId;

// Bytes of a parameter that autograd follows; 0 of anything else.
int64_t bytesOf(const ir::Trace& trace, const ir::Type& type) {
  if (type.kind != ir::TypeKind::kTensor || type.meta == ir::kNone) {
    return 0;
  }
  const ir::TensorDesc& meta = trace.metas[type.meta];
  const Elem elem = elemOf(meta.dtype);
  if (!meta.isParam || !meta.requiresGrad || !meta.isFixed() || elem == Elem::kOther) {
    return 0;
  }
  int64_t bytes = elemSize(elem);
  for (const int64_t size : meta.sizes) {
    bytes *= size;
  }
  return bytes;
}

}  // namespace

std::vector<bool> gradientCuts(const ir::Trace& trace, uint32_t start, ir::GradientLimits limits) {
  std::vector<bool> cuts(trace.code.size());
  if (limits.rest <= 0) {
    return cuts;
  }
  std::vector<int64_t> bytes(trace.values.size());
  for (const Instruction& ins : trace.code) {
    if (ins.op == Op::kInput) {
      bytes[ins.firstResult] = bytesOf(trace, trace.values[ins.firstResult]);
    }
  }
  std::vector<int64_t> atFirstUse(trace.code.size());
  std::vector<ValueId> used;
  for (size_t i = start; i < trace.code.size(); ++i) {
    if (trace.code[i].op != Op::kAten) {
      continue;
    }
    used.clear();
    ir::collectValues(trace, trace.operandsOf(trace.code[i]), used);
    for (const ValueId value : used) {
      atFirstUse[i] += std::exchange(bytes[value], 0);
    }
  }
  int64_t limit = limits.first > 0 ? limits.first : limits.rest;
  int64_t open = 0;
  for (size_t i = trace.code.size(); i-- > start;) {
    open += atFirstUse[i];
    if (open >= limit) {
      cuts[i] = true;
      open = 0;
      limit = limits.rest;
    }
  }
  return cuts;
}

}  // namespace kintsugi::passes
