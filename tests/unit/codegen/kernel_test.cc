// Kernels compiled and run, compared with the same computed here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <vector>

#include "codegen/kernel_cache.h"
#include "ops/operator.h"
#include "unit/codegen/each_level.h"

namespace kintsugi::codegen {
namespace {

using passes::Core;
using passes::Elem;
using passes::Inner;
using passes::Kernel;
using passes::KernelAccess;
using passes::KernelOp;
using passes::KernelOpKind;

KernelAccess access(bool store, Inner inner, const std::vector<int64_t>& strides, Elem elem = Elem::kF32) {
  KernelAccess out;
  out.store = store;
  out.inner = inner;
  out.strides = passes::fixedSizes(strides);
  out.elem = elem;
  return out;
}

KernelOp load(uint32_t at, Elem elem = Elem::kF32) {
  KernelOp op;
  op.kind = KernelOpKind::kLoad;
  op.access = at;
  op.elem = elem;
  return op;
}

KernelOp point(Core core, std::vector<uint32_t> args, Elem elem = Elem::kF32) {
  KernelOp op;
  op.kind = passes::isReduce(core) ? KernelOpKind::kReduce : KernelOpKind::kPoint;
  op.op = core;
  op.args = std::move(args);
  op.elem = elem;
  return op;
}

std::vector<int64_t> numbersOf(const Kernel& kernel) {
  std::vector<passes::Size> out = {kernel.sizes.back()};
  out.insert(out.end(), kernel.sizes.begin(), kernel.sizes.end() - 1);
  for (const KernelAccess& a : kernel.accesses) {
    out.insert(out.end(), a.strides.begin(), a.strides.end());
  }
  if (kernel.product) {
    const passes::KernelProduct& p = *kernel.product;
    out.insert(out.end(), {p.k, p.leftStride, p.rightStride, p.chunk, p.depth});
  }
  return passes::hintsOf(out);
}

void run(const Kernel& kernel, std::vector<void*> memory, int64_t count, int64_t split = 0) {
  std::string reason;
  const auto code = compileKernel(kernel, false, reason);
  ASSERT_NE(code, nullptr) << reason;
  const std::vector<int64_t> numbers = numbersOf(kernel);
  code->function(memory.data(), numbers.data(), 0, split);
  code->function(memory.data(), numbers.data(), split, count);
}

Kernel unary(Core core, int64_t count) {
  Kernel kernel;
  kernel.sizes = {count};
  kernel.accesses = {access(false, Inner::kUnit, {1}), access(true, Inner::kUnit, {1})};
  kernel.ops = {load(0), point(core, {0})};
  kernel.stores = {{1, 1}};
  return kernel;
}

double ulps(float got, double wanted) {
  if (std::isnan(wanted) || std::isinf(static_cast<float>(wanted))) {
    return std::isnan(got) == std::isnan(wanted) && (std::isnan(got) || got == static_cast<float>(wanted))
               ? 0
               : 1e9;
  }
  const auto near = static_cast<float>(wanted);
  const float unit = std::nextafter(std::abs(near), std::numeric_limits<float>::infinity()) - std::abs(near);
  return std::abs(got - wanted) / unit;
}

struct Function {
  Core core;
  double (*reference)(double);
  std::string_view name;  // in ops/operators.def
};

double boundOf(std::string_view name) {
  for (const ops::Accuracy& row : ops::accuracies()) {
    if (row.name == name) {
      return row.ulp;
    }
  }
  ADD_FAILURE() << name << " has no bound";
  return 0;
}

class VectorMath : public EachLevel {};
KTG_EACH_LEVEL(VectorMath);

TEST_P(VectorMath, IsCloseToTheTrueValue) {
  const Function functions[] = {
      {Core::kExp, std::exp, "aten.exp.default"},
      {Core::kLog, std::log, "aten.log.default"},
      {Core::kTanh, std::tanh, "aten.tanh.default"},
      {Core::kErf, std::erf, "aten.erf.default"},
  };
  std::vector<float> x = {0.0f,    -0.0f, INFINITY, -INFINITY, NAN,    1e-40f,
                          -1e-40f, 88.7f, 88.8f,    -103.0f,   -104.5f};
  for (uint32_t bits = 0; bits < 0xffffff00u; bits += 65521) {
    float f;
    std::memcpy(&f, &bits, sizeof(f));
    x.push_back(f);
  }
  for (int k = -20000; k <= 20000; ++k) {
    x.push_back(static_cast<float>(k) * 5e-4f);
  }
  for (const Function& f : functions) {
    std::vector<float> y(x.size());
    run(unary(f.core, static_cast<int64_t>(x.size())), {x.data(), y.data()}, static_cast<int64_t>(x.size()));
    double worst = 0;
    float where = 0;
    for (size_t k = 0; k < x.size(); ++k) {
      const double error = ulps(y[k], f.reference(x[k]));
      if (error > worst) {
        worst = error;
        where = x[k];
      }
    }
    EXPECT_LE(worst, boundOf(f.name)) << passes::coreInfo(f.core).text << " at " << where;
  }
}

class KernelCode : public EachLevel {};
KTG_EACH_LEVEL(KernelCode);

TEST_P(KernelCode, TailsAndRangesWriteNothingElse) {
  for (int64_t count : {1, 2, 15, 16, 17, 31, 33, 100}) {
    std::vector<float> x(static_cast<size_t>(count)), y(static_cast<size_t>(count) + 2, -7.0f);
    for (int64_t k = 0; k < count; ++k) {
      x[static_cast<size_t>(k)] = static_cast<float>(k) - 8.0f;
    }
    run(unary(Core::kAbs, count), {x.data(), y.data() + 1}, count, count / 3);
    EXPECT_EQ(y.front(), -7.0f);
    EXPECT_EQ(y.back(), -7.0f);
    for (int64_t k = 0; k < count; ++k) {
      EXPECT_EQ(y[static_cast<size_t>(k) + 1], std::abs(x[static_cast<size_t>(k)]));
    }
  }
}

TEST_P(KernelCode, StridesAndBroadcasts) {
  // out[i, j] = x[j, i] + w[j], 5 x 19
  Kernel kernel;
  kernel.sizes = {5, 19};
  kernel.accesses = {access(false, Inner::kStrided, {1, 5}), access(false, Inner::kUnit, {0, 1}),
                     access(true, Inner::kUnit, {19, 1})};
  kernel.ops = {load(0), load(1), point(Core::kAdd, {0, 1})};
  kernel.stores = {{2, 2}};
  std::vector<float> x(95), w(19), out(95);
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = static_cast<float>(k);
  }
  for (size_t k = 0; k < w.size(); ++k) {
    w[k] = static_cast<float>(1000 * k);
  }
  run(kernel, {x.data(), w.data(), out.data()}, 5, 2);
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 19; ++j) {
      EXPECT_EQ(out[i * 19 + j], x[j * 5 + i] + w[j]);
    }
  }
}

// Softmax: three loops over a row, with the exponentials kept in between.
TEST_P(KernelCode, RowsWithSeveralReductions) {
  Kernel kernel;
  kernel.hasReductions = true;
  kernel.sizes = {3, 37};
  kernel.accesses = {access(false, Inner::kUnit, {37, 1}), access(true, Inner::kUnit, {37, 1})};
  kernel.ops = {load(0),
                point(Core::kReduceMax, {0}),
                point(Core::kSub, {0, 1}),
                point(Core::kExp, {2}),
                point(Core::kReduceSum, {3}),
                point(Core::kDiv, {3, 4})};
  kernel.stores = {{5, 1}};
  std::vector<float> x(111), y(111);
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = std::sin(static_cast<float>(k)) * 10;
  }
  run(kernel, {x.data(), y.data()}, 3, 1);
  for (size_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (size_t k = 0; k < 37; ++k) {
      sum += std::exp(static_cast<double>(x[row * 37 + k]));
    }
    for (size_t k = 0; k < 37; ++k) {
      EXPECT_NEAR(y[row * 37 + k], std::exp(static_cast<double>(x[row * 37 + k])) / sum, 1e-6);
    }
  }
}

TEST_P(KernelCode, BFloat16RoundsToNearestEven) {
  Kernel kernel = unary(Core::kCast, 4);
  kernel.accesses[1].elem = Elem::kBF16;
  kernel.ops[1].elem = Elem::kBF16;
  std::vector<float> x = {1.0f, 1.00390625f, 1.01171875f, NAN};
  std::vector<uint16_t> y(4);
  run(kernel, {x.data(), y.data()}, 4);
  EXPECT_EQ(y[0], 0x3f80);
  EXPECT_EQ(y[1], 0x3f80);  // half way: to even
  EXPECT_EQ(y[2], 0x3f82);
  EXPECT_EQ(y[3] & 0x7fc0, 0x7fc0);
}

// relu(x * w + b) with x [m,k], w [k,n]: by rows, or by columns.
Kernel productKernel(int64_t m, int64_t n, int64_t k, bool byColumns) {
  Kernel kernel;
  kernel.sizes = {m, n};
  kernel.accesses = {access(false, Inner::kZero, {0, 0}), access(false, Inner::kZero, {0, 0}),
                     access(false, Inner::kUnit, {0, 1}), access(true, Inner::kUnit, {n, 1})};
  kernel.product = {.left = 0,
                    .right = 1,
                    .rightByColumns = byColumns,
                    .k = k,
                    .leftStride = k,
                    .rightStride = byColumns ? k : n,
                    .chunk = 24,
                    .depth = 24};
  KernelOp product;
  product.kind = KernelOpKind::kProduct;
  KernelOp zero;
  zero.kind = KernelOpKind::kConst;
  kernel.ops = {product, load(2), point(Core::kAdd, {0, 1}), zero, point(Core::kMax, {2, 3})};
  kernel.stores = {{4, 3}};
  return kernel;
}

TEST_P(KernelCode, ProductsOfAnySizesAndWhatIsMadeOfThem) {
  struct Case {
    int64_t m, n, k;
  };
  for (const Case& c :
       {Case{1, 1, 1}, Case{6, 16, 8}, Case{23, 17, 70}, Case{49, 130, 24}, Case{27, 64, 49}}) {
    for (const bool byColumns : {false, true}) {
      std::vector<float> x(c.m * c.k), w(c.k * c.n), b(c.n), y(c.m * c.n, -1.0f);
      for (std::vector<float>* v : {&x, &w, &b}) {
        for (size_t i = 0; i < v->size(); ++i) {
          (*v)[i] = std::sin(static_cast<float>(i + v->size()));
        }
      }
      const Kernel kernel = productKernel(c.m, c.n, c.k, byColumns);
      constexpr int64_t kStrip = passes::KernelProduct::kStrip;
      const int64_t chunk = kernel.product->chunk;
      const int64_t pieces = (c.m + chunk - 1) / chunk * ((c.n + kStrip - 1) / kStrip);
      run(kernel, {x.data(), w.data(), b.data(), y.data()}, pieces, pieces / 2);
      for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.n; ++j) {
          double sum = b[j];
          for (int64_t q = 0; q < c.k; ++q) {
            sum += double{x[i * c.k + q]} * w[byColumns ? j * c.k + q : q * c.n + j];
          }
          ASSERT_NEAR(y[i * c.n + j], std::max(sum, 0.0), 1e-4) << c.m << " " << c.n << " " << c.k;
        }
      }
    }
  }
}

TEST(KernelCache, EqualStructuresCompileOnceAndDamagedFilesAreIgnored) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::temp_directory_path() / ("kintsugi-kernels-" + std::to_string(getpid()));
  setDiskCache(directory.string(), 1 << 20);
  clearCache(true);
  std::string reason;
  const CacheCounters before = cacheCounters();
  ASSERT_NE(compileKernel(unary(Core::kNeg, 8), false, reason), nullptr);
  ASSERT_NE(compileKernel(unary(Core::kNeg, 9), false, reason), nullptr);  // another size
  EXPECT_EQ(cacheCounters().compiled, before.compiled + 1);
  clearCache(false);
  ASSERT_NE(compileKernel(unary(Core::kNeg, 8), false, reason), nullptr);
  EXPECT_EQ(cacheCounters().loaded, before.loaded + 1);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200);
    file.put('!');
  }
  clearCache(false);
  std::vector<float> x = {1, 2}, y(2);
  run(unary(Core::kNeg, 2), {x.data(), y.data()}, 2);
  EXPECT_EQ(y[1], -2.0f);
  EXPECT_EQ(cacheCounters().rejected, before.rejected + 1);
  setDiskCache("", 0);
  fs::remove_all(directory);
}

TEST(KernelCache, IdleKernelsGoWhenThereAreMany) {
  clearCache(false);
  setMostKernels(4);
  std::string reason;
  const auto held = compileKernel(unary(Core::kNeg, 8), false, reason);
  for (const Core op : {Core::kAbs, Core::kExp, Core::kTanh, Core::kSqrt, Core::kFloor, Core::kCeil}) {
    ASSERT_NE(compileKernel(unary(op, 8), false, reason), nullptr) << reason;
    EXPECT_LE(cacheCounters().kernels, 4u);
  }
  const uint64_t compiled = cacheCounters().compiled;
  ASSERT_EQ(compileKernel(unary(Core::kNeg, 8), false, reason), held);      // somebody holds it: it stayed
  ASSERT_NE(compileKernel(unary(Core::kCeil, 8), false, reason), nullptr);  // the last one
  EXPECT_EQ(cacheCounters().compiled, compiled);
  ASSERT_NE(compileKernel(unary(Core::kAbs, 8), false, reason), nullptr);  // the first one
  EXPECT_EQ(cacheCounters().compiled, compiled + 1);
  std::vector<float> x = {1, -2}, y(2);
  run(unary(Core::kAbs, 2), {x.data(), y.data()}, 2);
  EXPECT_EQ(y[1], 2.0f);
  setMostKernels(2048);
}

}  // namespace
}  // namespace kintsugi::codegen
