// Matrix products as torch itself computes them, without its dispatcher: the BLAS inside torch's library.
//
// Ownership: none. Threads: any; torch's number of threads holds. GIL: not needed. Invalidation: none.
#pragma once

#include <cstdint>

namespace kintsugi::torchapi {

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t leftStride = 0;
  int64_t rightStride = 0;
  int64_t resultStride = 0;
  bool rightByColumns = false;
};

// True if there is such a BLAS, and torch would compute products of floats with it in full precision.
bool hasFloatProducts();
// result[m,n] = left[m,k] * right[k,n], all stored by rows; `rightByColumns`: `right` is stored by columns.
// Strides go from row to row, or from column to column. No extent may be 0.
void multiplyFloats(const ProductShape& shape, const float* left, const float* right, float* result);

}  // namespace kintsugi::torchapi
