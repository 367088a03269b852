// Scatter updates: writes to indexed places of a tensor, as index_add_, index_copy_, scatter_ and
// scatter_add_ do: for contiguous tensors, in plain loops. ATen's own go through an iterator for each row, or
// for each element.
//
// Ownership: none. Threads: any; work is shared by torch's threads, such that what falls into one place is
// written by one of them, in order. GIL: not needed. Invalidation: none.
#pragma once

#include <cstdint>

#include "ops/operator.h"

namespace kintsugi::torchapi {

using ops::RowUpdateKind;

struct RowUpdate {
  RowUpdateKind kind = RowUpdateKind::kAddRows;
  int64_t dim = 0;
  double number = 0;  // kScatterNumber
  bool operator==(const RowUpdate&) const = default;
};

enum class RowUpdateStatus : uint8_t {
  kDone,
  kOther,   // tensors of other types or layouts; nothing has been written
  kFailed,  // a place is not there; some of the others have been written
};
// `source`: unused by kScatterNumber. `target` is nobody else's.
RowUpdateStatus updateRows(const RowUpdate& update, void* target, void* index, void* source);

}  // namespace kintsugi::torchapi
