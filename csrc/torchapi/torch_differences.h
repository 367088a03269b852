// Inside torchapi only: what differs between the releases of torch that Kintsugi is built for, under one
// name.
//
// cmake/TorchFeatures.cmake compiles a few lines for each feature when the build is configured and writes
// what it found as macros, 0 or 1. They are asked in this header and in those that need more of torch
// (node_ownership.h), and nobody asks for a version number: a patched torch has the features that it has. How
// to add one: docs/howto/add-a-torch-version.md.
#pragma once

#include <ATen/Context.h>

#include <kintsugi_torch_features.h>

namespace kintsugi::torchapi {

// Whether an operation on numbers of 32 bits computes with 32 bits, not with fewer.
inline bool isFullPrecision(at::Float32Precision precision) {
#if KINTSUGI_TORCH_HAS_FLOAT32_PRECISION_DEFAULT
  if (precision == at::Float32Precision::DEFAULT) {
    return true;
  }
#endif
  return precision == at::Float32Precision::NONE || precision == at::Float32Precision::IEEE;
}

}  // namespace kintsugi::torchapi
