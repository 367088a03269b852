// A hash of memory in which every byte counts at every place: tells whether tensors still have the contents
// that something was made of (torchapi/folded_convolution.h). Not for files, nor against an adversary.
//
// The function is compiled for each level of vectors; target() says which one runs, and all give the same.
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
