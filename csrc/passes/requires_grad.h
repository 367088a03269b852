// Was the value recorded as a tensor that requires a gradient? A tensor without metadata was not.
//
//   requiresGrad(trace, ins.firstResult)
//
// Pure function, no GIL.
#pragma once

#include "ir/trace.h"

namespace kintsugi::passes {

inline bool requiresGrad(const ir::Trace& trace, ir::ValueId value) {
  const ir::Type& type = trace.values[value];
  return type.kind == ir::TypeKind::kTensor && type.meta != ir::kNone && trace.metas[type.meta].requiresGrad;
}

}  // namespace kintsugi::passes
