#include "passes/products.h"

#include <algorithm>
#include <array>
#include <limits>

#include "passes/move_reshapes.h"

namespace kintsugi::passes {

namespace {

constexpr auto kProducts = std::to_array<ProductOperator>({
    {"aten.linear.default", 0, 1, 2, true, 3},
    {"aten.addmm.default", 1, 2, 0, false, 3},
    {"aten.mm.default", 0, 1, -1, false, 2},
    {"aten.matmul.default", 0, 1, -1, false, 2},
});

bool fitsInt(int64_t number) { return number > 0 && number <= std::numeric_limits<int32_t>::max(); }

}  // namespace

const ProductOperator* findProduct(std::string_view name) {
  const auto* row =
      std::find_if(kProducts.begin(), kProducts.end(), [&](const auto& r) { return r.name == name; });
  return row == kProducts.end() ? nullptr : row;
}

std::optional<ProductForm> productForm(const Node& left, const Node& right, bool byRows) {
  if (left.elem != Elem::kF32 || right.elem != Elem::kF32 || left.sizes.size() < 2 ||
      right.sizes.size() != 2 || !allFixed(right.sizes) || !allFixed(right.strides)) {
    return std::nullopt;
  }
  ProductForm form;
  const size_t inner = byRows ? 1 : 0;  // of the matrix
  form.k = right.sizes[inner].hint;
  form.n = right.sizes[1 - inner].hint;
  const Size meets = left.sizes.back();
  if (meets != form.k && (meets.hint != form.k || !sizeTable().require(meets, form.k, kZero))) {
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

}  // namespace kintsugi::passes
