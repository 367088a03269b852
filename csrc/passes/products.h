// Matrix products that run without the dispatcher: which operators they are, and how their operands lie.
//
//   aten.linear.default %x, %w, %b    =>    %p = product %x, %w;  %y = add %p, %b
//
// What is added is an operation of its own, which is fused with what comes next. f32 only; the second operand
// is a matrix of fixed sizes, and the first any tensor whose last dimension has as many elements as the
// matrix has rows; or both are batches of as many matrices of fixed sizes. Pure functions, no GIL.
#pragma once

#include "passes/tensor_graph.h"

namespace kintsugi::passes {

// rows[m,k] times a matrix [k,n]: numbers that BLAS takes.
struct ProductForm {
  Size m;
  int64_t n = 0;
  int64_t k = 0;
  int64_t leftStride = 0;   // from row to row
  int64_t rightStride = 0;  // from row to row, or from column to column
  bool rightByColumns = false;
  // Many products: the strides of the dimensions before the last two, of kernels only.
  bool batched = false;
  std::vector<Size> leftBatch, rightBatch;
};
// Nothing if the strides do not fit a matrix. That two sizes are equal may become a requirement on each run.
std::optional<ProductForm> productForm(const Node& left, const Node& right, bool byRows);

// Of target(): is a kernel of our own (Kernel::product) better than BLAS?
bool isTilingProfitable(const ProductForm& form);
// Rows that share the packing of the second operand; how much of k is packed at once.
int64_t chunkOf(const ProductForm& form);
int64_t depthOf(const ProductForm& form);

}  // namespace kintsugi::passes
