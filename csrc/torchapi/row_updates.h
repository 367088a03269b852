// Scatter updates: writes to indexed places of a tensor, as index_add_, index_copy_, scatter_ and
// scatter_add_ do. For contiguous tensors they run in plain loops, whereas ATen uses an iterator for each row
// or element.
//
// Ownership: none. Threads: any. torch's threads share the work; all writes to one place are made by one
// thread, in order. GIL: not needed. Invalidation: none.
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
  kFailed,  // an index is out of range; some of the writes have been made
};
// `source` is not used by kScatterNumber. The caller holds the only reference to `target`.
RowUpdateStatus updateRows(const RowUpdate& update, void* target, void* index, void* source);

}  // namespace kintsugi::torchapi
