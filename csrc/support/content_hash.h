// A fast hash of all bytes of a block of memory. It detects whether a tensor's contents have changed since
// something was computed from them (torchapi/folded_convolution.h). Not for files, nor against an adversary.
//
// The function is compiled for each vector level; target() chooses the one that runs. All give the same hash.
// Ownership: none. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/target.h"

namespace kintsugi {

uint64_t hashContent(const void* data, size_t bytes);
// By the code for a level, which this machine must have.
uint64_t hashContent(const void* data, size_t bytes, VectorLevel level);

}  // namespace kintsugi
