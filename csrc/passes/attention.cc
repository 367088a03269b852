#include "passes/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "passes/broadcast_strides.h"
#include "passes/move_reshapes.h"
#include "support/check.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

// Strides by batch, head, row and element; an outer stride is 0 where all share the memory. Nothing: the
// elements of a row are not contiguous.
std::optional<std::vector<Size>> matrixStrides(const Node& node, const std::vector<Size>& batches) {
  const size_t rank = node.sizes.size();
  if (rank < 2 || rank > 4 || (node.strides[rank - 1] != 1 && node.sizes[rank - 1] != 1)) {
    return std::nullopt;
  }
  std::vector<Size> strides(4, Size(0));
  const size_t shift = 4 - rank;
  for (size_t d = 0; d < rank; ++d) {
    const bool outer = d + 2 < rank;
    if (outer && node.sizes[d] != 1 && node.sizes[d] != batches[d + shift] &&
        (node.sizes[d].hint != batches[d + shift].hint ||
         !sizeTable().require(node.sizes[d], batches[d + shift], kZero))) {
      return std::nullopt;
    }
    strides[d + shift] = node.sizes[d] == 1 ? Size(0) : node.strides[d];
  }
  strides[3] = 1;
  return strides;
}

bool isLoadable(Elem elem) {
  return elem == Elem::kF32 || elem == Elem::kBF16 || elem == Elem::kF16 || elem == Elem::kBool;
}

// The sizes with ones in front, so that there are at least four.
std::vector<Size> padded(const std::vector<Size>& sizes) {
  std::vector<Size> out(4 - std::min<size_t>(4, sizes.size()), Size(1));
  out.insert(out.end(), sizes.begin(), sizes.end());
  return out;
}

}  // namespace

bool unify(Size a, Size b) { return a == b || (a.hint == b.hint && sizeTable().require(a, b, kZero)); }

AttentionMaker::AttentionMaker(const TensorGraph& graph, Size batch, Size heads, Size queries, Size keys)
    : graph_(graph) {
  kernel_.sizes = {batch, heads, queries, Size(0)};
  kernel_.attention.emplace();
  kernel_.attention->keys = keys;
  kernel_.accesses.resize(3);
}

uint32_t AttentionMaker::append(KernelOp op) {
  kernel_.ops.push_back(std::move(op));
  return static_cast<uint32_t>(kernel_.ops.size() - 1);
}

uint32_t AttentionMaker::score() {
  KernelOp op;
  op.kind = KernelOpKind::kScore;
  return append(std::move(op));
}

uint32_t AttentionMaker::constant(double number, Elem elem) {
  KernelOp op;
  op.kind = KernelOpKind::kConst;
  op.elem = elem;
  op.number = number;
  op.integer = isFloat(elem) ? 0 : static_cast<int64_t>(number);
  return append(std::move(op));
}

uint32_t AttentionMaker::point(Core op, Elem elem, std::vector<uint32_t> args) {
  KernelOp made;
  made.op = op;
  made.elem = elem;
  made.args = std::move(args);
  return append(std::move(made));
}

uint32_t AttentionMaker::load(NodeId node, std::vector<Size> strides) {
  KernelAccess access;
  access.elem = graph_.nodes[node].elem;
  access.strides = std::move(strides);
  KernelOp op;
  op.kind = KernelOpKind::kLoad;
  op.elem = access.elem;
  op.access = static_cast<uint32_t>(kernel_.accesses.size());
  kernel_.accesses.push_back(std::move(access));
  added_.push_back(node);
  return append(std::move(op));
}

std::optional<Node> AttentionMaker::finish(const AttentionOperand& query, const AttentionOperand& key,
                                           const AttentionOperand& value, uint32_t scores,
                                           const Settings& settings, Node result) {
  KernelAttention& form = *kernel_.attention;
  form.headSize = settings.headSize;
  form.valueSize = settings.valueSize;
  form.group = settings.group;
  form.causal = settings.causal;
  form.emptyZero = settings.emptyZero;
  constexpr int64_t kMost = KernelAttention::kMaxSize;
  const auto fits = [](int64_t size) { return size > 0 && size <= kMost; };
  const bool none = elementCount(result.sizes).hint == 0 || form.keys.hint == 0;
  if (none || !fits(form.headSize) || !fits(form.valueSize) || kernel_.ops[scores].elem != Elem::kF32) {
    return std::nullopt;
  }
  result.kind = NodeKind::kAttention;
  size_t at = 0;
  for (const AttentionOperand* operand : {&query, &key, &value}) {
    KernelAccess& access = kernel_.accesses[at++];
    access.elem = graph_.nodes[operand->node].elem;
    access.strides = operand->strides;
    if (access.elem != result.elem) {
      return std::nullopt;
    }
    result.args.push_back(operand->node);
  }
  result.args.insert(result.args.end(), added_.begin(), added_.end());
  const bool loadable = std::all_of(added_.begin(), added_.end(),
                                    [&](NodeId node) { return isLoadable(graph_.nodes[node].elem); });
  if (!loadable || result.elem == Elem::kBool || !isLoadable(result.elem) ||
      !isDense(result.sizes, result.strides)) {
    return std::nullopt;
  }
  kernel_.sizes.back() = form.valueSize;
  const Size queries = folded(kernel_.sizes[2]);
  form.few = queries.fixed() && queries.hint < target().attention.fewQueries;
  if (form.few && form.group != 1) {
    kernel_.sizes[1] = Size(kernel_.sizes[1].hint / form.group);
  }
  for (size_t a = 3; a < kernel_.accesses.size(); ++a) {
    KernelAccess& access = kernel_.accesses[a];
    access.uniform = access.strides[2] == 0;
    access.inner = access.strides[3] == 1   ? Inner::kUnit
                   : access.strides[3] == 0 ? Inner::kZero
                                            : Inner::kStrided;
    access.transposed = !form.few && !access.uniform && access.inner == Inner::kUnit;
  }
  kernel_.stores.push_back({scores, static_cast<uint32_t>(kernel_.accesses.size())});
  KernelAccess out;
  out.elem = result.elem;
  out.store = true;
  kernel_.accesses.push_back(std::move(out));
  result.attention = std::make_shared<const Kernel>(std::move(kernel_));
  return result;
}

std::optional<Node> makeAttention(const TensorGraph& graph, const AttentionCall& call, Node result) {
  const Node& query = graph.nodes[call.query];
  const Node& key = graph.nodes[call.key];
  const Node& value = graph.nodes[call.value];
  const size_t rank = query.sizes.size();
  if (rank < 2 || rank > 4 || key.sizes.size() != rank || value.sizes.size() != rank) {
    return std::nullopt;
  }
  const std::vector<Size> of = padded(query.sizes), keys = padded(key.sizes), values = padded(value.sizes);
  AttentionMaker::Settings settings;
  settings.headSize = of[3].hint;
  settings.valueSize = values[3].hint;
  settings.causal = call.causal;
  settings.emptyZero = true;
  std::vector<Size> shared = of;
  if (call.grouped && rank == 4 && of[1].fixed() && keys[1].fixed() && keys[1].hint > 0) {
    settings.group = of[1].hint / keys[1].hint;
    shared[1] = keys[1];
    if (settings.group * keys[1].hint != of[1].hint || keys[1] != values[1]) {
      return std::nullopt;
    }
  }
  // Sizes of heads are constants of the code, whatever the program lets vary.
  const bool fits = unify(of[3], of[3].hint) && unify(values[3], values[3].hint) && unify(of[3], keys[3]) &&
                    unify(keys[2], values[2]);
  const auto q = matrixStrides(query, of);
  const auto k = matrixStrides(key, shared), v = matrixStrides(value, shared);
  if (!fits || !q || !k || !v) {
    return std::nullopt;
  }
  AttentionMaker maker(graph, of[0], of[1], of[2], keys[2]);
  const double scale = call.scale.value_or(1.0 / std::sqrt(static_cast<double>(of[3].hint)));
  uint32_t scores = maker.point(Core::kMul, Elem::kF32, {maker.score(), maker.constant(scale)});
  if (call.mask != ir::kNone) {
    const Node& mask = graph.nodes[call.mask];
    const auto strides = broadcastStrides(mask, {of[0], of[1], of[2], keys[2]}, unify);
    if (!strides) {
      return std::nullopt;
    }
    uint32_t added = maker.load(call.mask, *strides);
    if (mask.elem == Elem::kBool) {
      const uint32_t never = maker.constant(-std::numeric_limits<double>::infinity());
      scores = maker.point(Core::kSelect, Elem::kF32, {added, scores, never});
    } else {
      added = mask.elem == Elem::kF32 ? added : maker.point(Core::kCast, Elem::kF32, {added});
      scores = maker.point(Core::kAdd, Elem::kF32, {scores, added});
    }
  }
  return maker.finish({call.query, *q}, {call.key, *k}, {call.value, *v}, scores, settings,
                      std::move(result));
}

Kernel attentionKernel(const TensorGraph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  Kernel kernel = *node.attention;
  for (size_t a = 0; a < kernel.accesses.size(); ++a) {
    KernelAccess& access = kernel.accesses[a];
    const MemoryPlace place = a < node.args.size() ? tensorOf(graph, node.args[a]) : MemoryPlace{id, 0};
    access.node = place.base;
    access.offset = place.offset;
  }
  std::vector<Size> sizes = kernel.sizes;
  if (kernel.attention->few) {
    sizes[1] = kernel.attention->group == 1 ? sizes[1] : Size(sizes[1].hint * kernel.attention->group);
  }
  const auto strides = stridesInShape(node.sizes, node.strides, sizes);
  KINTSUGI_CHECK(strides, "a result of attention that is no view of its heads");
  kernel.accesses.back().strides = *strides;
  return kernel;
}

std::string attentionText(const KernelAttention& attention) {
  return "attention " + std::to_string(attention.headSize) + " " + std::to_string(attention.valueSize) +
         (attention.few ? " few" : "") + (attention.causal ? " causal" : "") +
         (attention.emptyZero ? " zeros" : "");
}

}  // namespace kintsugi::passes
