#include "torchapi/row_updates.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "support/check.h"
#include "support/target.h"
#include "torchapi/native_tensors.h"
#include "torchapi/tensor_access.h"

namespace kintsugi::torchapi {

namespace {

// The tensor is seen as [outer][places][inner], and what is written as [outer][count][inner].
struct Shape {
  int64_t outer = 1, places = 1, count = 1, inner = 1;
};

bool isPlain(const void* impl, c10::ScalarType dtype) {
  const auto& tensor = *static_cast<const at::TensorImpl*>(impl);
  return isOrdinary(impl) && tensor.is_contiguous() && c10::typeMetaToScalarType(tensor.dtype()) == dtype;
}

std::optional<Shape> shapeOf(const RowUpdate& update, const at::TensorImpl& target,
                             const at::TensorImpl& written) {
  const int64_t rank = target.dim(), dim = update.dim < 0 ? update.dim + rank : update.dim;
  if (rank == 0 || written.dim() != rank || dim < 0 || dim >= rank) {
    return std::nullopt;
  }
  Shape shape;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != dim && target.size(d) != written.size(d)) {
      return std::nullopt;
    }
    shape.outer *= d < dim ? target.size(d) : 1;
    shape.inner *= d > dim ? target.size(d) : 1;
  }
  shape.places = target.size(dim);
  shape.count = written.size(dim);
  return shape;
}

template <class T>
struct Assign {
  void operator()(T& to, T from) const { to = from; }
};
template <class T>
struct Add {
  void operator()(T& to, T from) const { to += from; }
};

// For one index for all outer positions (index_add, index_copy). The inner dimension is divided among
// threads.
template <class T, class Write>
bool updateWhole(const Shape& shape, T* target, const int64_t* index, const T* source) {
  std::atomic<bool> fine{true};
  const int64_t rows = std::max<int64_t>(1, shape.outer * shape.count);
  at::parallel_for(0, shape.inner, std::max<int64_t>(16, kintsugi::target().costs.updateGrain / rows),
                   [&](int64_t from, int64_t to) {
                     for (int64_t row = 0; row < shape.outer * shape.count; ++row) {
                       const int64_t at = index[row % shape.count];
                       if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(shape.places)) {
                         fine.store(false, std::memory_order_relaxed);
                         continue;
                       }
                       T* const __restrict into =
                           target + (row / shape.count * shape.places + at) * shape.inner;
                       const T* const __restrict of = source + row * shape.inner;
                       for (int64_t k = from; k < to; ++k) {
                         Write()(into[k], of[k]);
                       }
                     }
                   });
  return fine.load(std::memory_order_relaxed);
}

template <class T, class Write, class Source>
bool updateRun(const Shape& shape, T* into, const int64_t* index, Source source, int64_t first) {
  const auto places = static_cast<uint64_t>(shape.places);
  bool inside = true;
  for (int64_t element = first; element < first + shape.count; ++element) {
    const auto at = static_cast<uint64_t>(index[element]);
    if (at >= places) {
      inside = false;
      continue;
    }
    Write()(into[at], source(element));
  }
  return inside;
}

template <class T, class Write, class Source>
bool updateRuns(const Shape& shape, T* into, const int64_t* index, Source source, int64_t element) {
  bool inside = true;
  for (int64_t j = 0; j < shape.count; ++j) {
    for (int64_t k = 0; k < shape.inner; ++k, ++element) {
      const int64_t at = index[element];
      if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(shape.places)) {
        inside = false;
        continue;
      }
      Write()(into[at * shape.inner + k], source(element));
    }
  }
  return inside;
}

// For an index for each element (scatter, scatter_add). The outer dimension is divided among threads.
template <class T, class Write, class Source>
bool updateEach(const Shape& shape, T* target, const int64_t* index, Source source) {
  std::atomic<bool> fine{true};
  const int64_t size = shape.count * shape.inner;
  at::parallel_for(
      0, shape.outer, std::max<int64_t>(1, kintsugi::target().costs.updateGrain / std::max<int64_t>(1, size)),
      [&](int64_t from, int64_t to) {
        bool inside = true;
        for (int64_t o = from; o < to; ++o) {
          T* const into = target + o * shape.places * shape.inner;
          inside = (shape.inner == 1 ? updateRun<T, Write>(shape, into, index, source, o * size)
                                     : updateRuns<T, Write>(shape, into, index, source, o * size)) &&
                   inside;
        }
        if (!inside) {
          fine.store(false, std::memory_order_relaxed);
        }
      });
  return fine.load(std::memory_order_relaxed);
}

template <class T>
bool updateTyped(const RowUpdate& update, const Shape& shape, void* target, const int64_t* index,
                 const void* source) {
  T* const to = static_cast<T*>(target);
  const T* const from = static_cast<const T*>(source);
  const auto each = [from](int64_t k) { return from[k]; };
  switch (update.kind) {
    case RowUpdateKind::kAddRows:
      return updateWhole<T, Add<T>>(shape, to, index, from);
    case RowUpdateKind::kCopyRows:
      return updateWhole<T, Assign<T>>(shape, to, index, from);
    case RowUpdateKind::kScatter:
      return updateEach<T, Assign<T>>(shape, to, index, each);
    case RowUpdateKind::kScatterAdd:
      return updateEach<T, Add<T>>(shape, to, index, each);
    case RowUpdateKind::kScatterNumber:
      return updateEach<T, Assign<T>>(shape, to, index,
                                      [number = static_cast<T>(update.number)](int64_t) { return number; });
    case RowUpdateKind::kNone:
    case RowUpdateKind::kOther:
      break;
  }
  return false;
}

}  // namespace

RowUpdateStatus updateRows(const RowUpdate& update, void* target, void* index, void* source) {
  const bool rows = update.kind == RowUpdateKind::kAddRows || update.kind == RowUpdateKind::kCopyRows;
  const bool number = update.kind == RowUpdateKind::kScatterNumber;
  KINTSUGI_CHECK(target != nullptr && index != nullptr && (source != nullptr || number), "rows of no tensor");
  KINTSUGI_CHECK(update.kind != RowUpdateKind::kNone && update.kind != RowUpdateKind::kOther,
                 "an update of kind ", static_cast<int>(update.kind));
  const at::TensorImpl& to = *implOf(target);
  const at::TensorImpl& places = *implOf(index);
  const auto dtype = c10::typeMetaToScalarType(to.dtype());
  const bool known = dtype == c10::kFloat || dtype == c10::kDouble;
  if (!known || !isPlain(target, dtype) || !isPlain(index, c10::kLong) ||
      (!number && !isPlain(source, dtype))) {
    return RowUpdateStatus::kOther;
  }
  const at::TensorImpl& written = rows ? *implOf(source) : places;
  const std::optional<Shape> shape = shapeOf(update, to, written);
  const bool fits = shape && (rows ? places.dim() == 1 && places.numel() == shape->count
                                   : number || implOf(source)->sizes() == places.sizes());
  if (!fits) {
    return RowUpdateStatus::kOther;
  }
  const auto* at = static_cast<const int64_t*>(dataPointer(index));
  const void* from = number ? nullptr : dataPointer(source);
  const bool fine = dtype == c10::kFloat ? updateTyped<float>(update, *shape, dataPointer(target), at, from)
                                         : updateTyped<double>(update, *shape, dataPointer(target), at, from);
  return fine ? RowUpdateStatus::kDone : RowUpdateStatus::kFailed;
}

}  // namespace kintsugi::torchapi
