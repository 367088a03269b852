// Kernels of attention compiled and run, compared with the same computed here in doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "codegen/kernel_cache.h"
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

struct Sizes {
  int64_t batch, heads, queries, keys, head, value;
  int64_t group = 1;
  bool causal = false, few = false, masked = false;
};

KernelAccess access(std::vector<int64_t> strides) {
  KernelAccess out;
  out.strides = passes::fixedSizes(strides);
  return out;
}

// Contiguous tensors; the mask is by query and key.
Kernel kernelOf(const Sizes& s) {
  const int64_t shared = s.heads / s.group;
  Kernel kernel;
  kernel.sizes = passes::fixedSizes({s.batch, s.few ? shared : s.heads, s.queries, s.value});
  kernel.accesses = {access({s.heads * s.queries * s.head, s.queries * s.head, s.head, 1}),
                     access({shared * s.keys * s.head, s.keys * s.head, s.head, 1}),
                     access({shared * s.keys * s.value, s.keys * s.value, s.value, 1})};
  kernel.attention.emplace();
  kernel.attention->headSize = s.head;
  kernel.attention->valueSize = s.value;
  kernel.attention->keys = s.keys;
  kernel.attention->group = s.group;
  kernel.attention->causal = s.causal;
  kernel.attention->few = s.few;
  KernelOp score, mask, add;
  score.kind = KernelOpKind::kScore;
  kernel.ops = {score};
  if (s.masked) {
    kernel.accesses.push_back(access({0, 0, s.keys, 1}));
    kernel.accesses.back().transposed = !s.few;
    mask.kind = KernelOpKind::kLoad;
    mask.access = 3;
    add.op = Core::kAdd;
    add.args = {0, 1};
    kernel.ops.push_back(mask);
    kernel.ops.push_back(add);
  }
  kernel.stores = {
      {static_cast<uint32_t>(kernel.ops.size() - 1), static_cast<uint32_t>(kernel.accesses.size())}};
  kernel.accesses.push_back(access({s.heads * s.queries * s.value, s.queries * s.value, s.value, 1}));
  kernel.accesses.back().store = true;
  return kernel;
}

std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) {
    seed = seed * 1664525U + 1013904223U;
    x = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
  }
  return out;
}

struct Data {
  std::vector<float> q, k, v, mask;
};

double expected(const Sizes& s, const Data& data, int64_t batch, int64_t head, int64_t query, int64_t d) {
  const int64_t shared = batch * (s.heads / s.group) + head / s.group;
  const float* q = data.q.data() + ((batch * s.heads + head) * s.queries + query) * s.head;
  const float* k = data.k.data() + shared * s.keys * s.head;
  const float* v = data.v.data() + shared * s.keys * s.value;
  std::vector<double> scores;
  double top = -std::numeric_limits<double>::infinity(), total = 0, sum = 0;
  for (int64_t j = 0; j < (s.causal ? std::min(s.keys, query + 1) : s.keys); ++j) {
    double score = s.masked ? data.mask[static_cast<size_t>(query * s.keys + j)] : 0;
    for (int64_t p = 0; p < s.head; ++p) {
      score += static_cast<double>(q[p]) * k[j * s.head + p];
    }
    scores.push_back(score);
    top = std::max(top, score);
  }
  for (size_t j = 0; j < scores.size(); ++j) {
    const double power = std::exp(scores[j] - top);
    total += power;
    sum += power * v[static_cast<int64_t>(j) * s.value + d];
  }
  return sum / total;
}

void compare(const Sizes& s) {
  std::string reason;
  const Kernel kernel = kernelOf(s);
  const auto code = compileKernel(kernel, false, reason);
  ASSERT_NE(code, nullptr) << reason;
  std::vector<passes::Size> sizes = {kernel.sizes.back()};
  sizes.insert(sizes.end(), kernel.sizes.begin(), kernel.sizes.end() - 1);
  for (const KernelAccess& a : kernel.accesses) {
    sizes.insert(sizes.end(), a.strides.begin(), a.strides.end());
  }
  sizes.insert(sizes.end(), {passes::Size(s.keys), passes::Size(s.group)});
  const std::vector<int64_t> arguments = passes::hintsOf(sizes);
  const int64_t shared = s.heads / s.group;
  Data data{numbers(s.batch * s.heads * s.queries * s.head, 1),
            numbers(s.batch * shared * s.keys * s.head, 2), numbers(s.batch * shared * s.keys * s.value, 3),
            numbers(s.queries * s.keys, 4)};
  const auto count = static_cast<size_t>(s.batch * s.heads * s.queries * s.value);
  std::vector<float> out(count + 2, -7.0F);
  std::vector<void*> memory = {data.q.data(), data.k.data(), data.v.data()};
  if (s.masked) {
    memory.push_back(data.mask.data());
  }
  memory.push_back(out.data() + 1);
  constexpr int64_t kChunk = passes::KernelAttention::kChunk;
  const int64_t pieces = s.batch * (s.few ? shared : s.heads) * ((s.queries + kChunk - 1) / kChunk);
  for (int64_t piece = pieces; piece-- > 0;) {  // in any order
    code->function(memory.data(), arguments.data(), piece, piece + 1);
  }
  EXPECT_EQ(out.front(), -7.0F);
  EXPECT_EQ(out.back(), -7.0F);
  size_t at = 1;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < s.queries; ++i) {
        for (int64_t d = 0; d < s.value; ++d) {
          ASSERT_NEAR(out[at], expected(s, data, b, h, i, d), 2e-6) << b << " " << h << " " << i << " " << d;
          ++at;
        }
      }
    }
  }
}

class AttentionCode : public EachLevel {};
KTG_EACH_LEVEL(AttentionCode);

TEST_P(AttentionCode, ManyQueries) {
  compare({1, 2, 70, 40, 16, 16});
  compare({2, 1, 33, 97, 16, 16});
  compare({1, 1, 1, 1, 16, 16});
  compare({1, 1, 130, 200, 13, 21});
  compare({1, 4, 17, 11, 16, 16, 2});
}

TEST_P(AttentionCode, FewQueries) {
  compare({1, 2, 1, 300, 16, 16, 1, false, true});
  compare({2, 1, 3, 7, 16, 16, 1, false, true});
  compare({1, 1, 2, 129, 13, 21, 1, false, true});
  compare({1, 6, 2, 150, 16, 16, 3, false, true});
  compare({1, 1, 70, 140, 16, 150, 1, false, true});
}

TEST_P(AttentionCode, MasksAndCausal) {
  for (const bool few : {false, true}) {
    compare({1, 1, 40, 103, 16, 16, 1, true, few});
    compare({1, 1, 103, 40, 16, 16, 1, true, few});
    compare({1, 2, 21, 103, 16, 16, 1, false, few, true});
    compare({1, 2, 21, 30, 16, 16, 1, true, few, true});
  }
}

}  // namespace
}  // namespace kintsugi::codegen
