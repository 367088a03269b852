#include "passes/products.h"

#include <algorithm>
#include <array>
#include <limits>

#include "passes/kernel.h"
#include "passes/move_reshapes.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

// The last two dimensions, for many products at once. Nothing: there are not as many on both sides.
struct Matrices {
  Node left, right;
  std::vector<Size> leftBatch, rightBatch;
};
std::optional<Matrices> matricesOf(const Node& left, const Node& right) {
  const size_t rank = right.sizes.size();
  if (left.sizes.size() != rank || !allFixed(left.sizes) || !allFixed(left.strides)) {
    return std::nullopt;
  }
  Matrices out{left, right, {}, {}};
  for (size_t d = 0; d + 2 < rank; ++d) {
    if (left.sizes[d] != right.sizes[d]) {
      return std::nullopt;
    }
    out.leftBatch.push_back(left.sizes[d] == 1 ? Size(0) : left.strides[d]);
    out.rightBatch.push_back(left.sizes[d] == 1 ? Size(0) : right.strides[d]);
  }
  for (Node* node : {&out.left, &out.right}) {
    node->sizes.erase(node->sizes.begin(), node->sizes.end() - 2);
    node->strides.erase(node->strides.begin(), node->strides.end() - 2);
  }
  return out;
}

bool fitsInt(int64_t number) { return number > 0 && number <= std::numeric_limits<int32_t>::max(); }

}  // namespace

std::optional<ProductForm> productForm(const Node& left, const Node& right, bool byRows) {
  if (left.elem != Elem::kF32 || right.elem != Elem::kF32 || left.sizes.size() < 2 ||
      right.sizes.size() < 2 || !allFixed(right.sizes) || !allFixed(right.strides)) {
    return std::nullopt;
  }
  if (right.sizes.size() > 2) {
    const auto matrices = byRows ? std::nullopt : matricesOf(left, right);
    auto form = matrices ? productForm(matrices->left, matrices->right, false) : std::nullopt;
    if (form) {
      form->batched = true;
      form->leftBatch = matrices->leftBatch;
      form->rightBatch = matrices->rightBatch;
    }
    return form;
  }
  ProductForm form;
  const size_t inner = byRows ? 1 : 0;  // of the matrix
  form.k = right.sizes[inner].hint;
  form.n = right.sizes[1 - inner].hint;
  const Size summed = left.sizes.back();
  if (summed != form.k && (summed.hint != form.k || !sizeTable().require(summed, form.k, kZero))) {
    return std::nullopt;
  }
  form.m = elementCount(std::vector<Size>(left.sizes.begin(), left.sizes.end() - 1));
  const auto strides = stridesInShape(left.sizes, left.strides, {form.m, form.k});
  if (!strides || !fitsInt(form.m.hint) || !fitsInt(form.n) || !fitsInt(form.k)) {
    return std::nullopt;
  }
  const Size rows = form.m == 1 ? Size(form.k) : (*strides)[0];
  const bool unit = form.k == 1 || (*strides)[1] == 1;
  if (!unit || !rows.fixed() || rows.hint < form.k || !fitsInt(rows.hint)) {
    return std::nullopt;
  }
  form.leftStride = rows.hint;
  // [n,k] by rows is [k,n] by columns.
  for (const bool byColumns : {true, false}) {
    const size_t along = byColumns ? inner : 1 - inner;
    const int64_t length = right.sizes[along].hint, count = right.sizes[1 - along].hint;
    const int64_t step = count == 1 ? length : right.strides[1 - along].hint;
    if ((length == 1 || right.strides[along] == 1) && step >= length && fitsInt(step)) {
      form.rightStride = step;
      form.rightByColumns = byColumns;
      return form;
    }
  }
  return std::nullopt;
}

// The second operand is packed for every run, which takes about as long as a few rows do; a product of fewer
// rows, or of a narrow matrix, is bound by memory in any case.
bool isTilingProfitable(const ProductForm& form) {
  // Sums are stored after so many steps, which take as long as that. Less deep products are bound by their
  // stores with tiles or without; with a larger bound, those that gain go to BLAS, which takes a call.
  constexpr int64_t kLeastDepth = 8;
  const Target::Products& least = target().products;
  return form.m.hint >= least.fewestRows && form.n >= least.fewestColumns && form.k >= kLeastDepth;
}

// Chunks of about the same size, no larger than the target's.
int64_t chunkOf(const ProductForm& form) {
  const Target::Products& most = target().products;
  const int64_t chunks = (form.m.hint + most.rows - 1) / most.rows;
  return (form.m.hint / chunks / most.rowStep + 1) * most.rowStep;
}

int64_t depthOf(const ProductForm& form) {
  // Parts of k are packed in squares of at most 16 by 16, of which the rest is packed element by element.
  // Smaller steps: longer rests. Larger ones: parts of more different lengths.
  constexpr int64_t kStep = 8;
  const int64_t most = target().products.depth;
  const int64_t parts = (form.k + most - 1) / most;
  return ((form.k + parts - 1) / parts + kStep - 1) / kStep * kStep;
}

}  // namespace kintsugi::passes
