#include "passes/make_kernel.h"

#include <algorithm>
#include <unordered_map>

#include "passes/attention.h"
#include "passes/products.h"
#include "support/check.h"
#include "support/target.h"

namespace kintsugi::passes {

namespace {

// Makes the kernel of one group.
class KernelMaker {
 public:
  KernelMaker(const TensorGraph& graph, const Group& group, const std::vector<bool>& stored)
      : graph_(graph), group_(group), stored_(stored) {}

  Kernel run() {
    KINTSUGI_CHECK(!group_.members.empty(), "a group without nodes");
    kernel_.hasReductions = group_.reduced != 0;
    for (const NodeId id : group_.members) {
      addOp(id);
    }
    for (const NodeId id : group_.members) {
      if (stored_[id]) {
        addStore(id);
      }
    }
    kernel_.sizes = group_.sizes;
    if (group_.reduced == 0 && !kernel_.product) {
      orderByMemory();
    } else if (group_.reduced != 0) {
      moveRowsLast();
    }
    collapse();
    if (group_.reduced != 0) {
      chooseVectors();
      measureRows();
    } else if (!kernel_.product) {
      transposeLoads();
    }
    for (KernelAccess& access : kernel_.accesses) {
      KINTSUGI_CHECK(access.strides.size() > (kernel_.columns ? 1U : 0U), "an access with ",
                     access.strides.size(), " dimensions");
      const Size inner = access.strides[access.strides.size() - (kernel_.columns ? 2 : 1)];
      access.inner = inner == 1 || access.transposed ? Inner::kUnit
                     : inner == 0                    ? Inner::kZero
                                                     : Inner::kStrided;
      access.uniform = access.strides.back() == 0;
    }
    kernel_.over = readsWhatItStores();
    return std::move(kernel_);
  }

 private:
  // The memory of inputs.
  bool readsWhatItStores() const {
    return std::any_of(kernel_.stores.begin(), kernel_.stores.end(), [&](const KernelStore& store) {
      const NodeId to = kernel_.accesses[store.access].node;
      return graph_.nodes[to].kind == NodeKind::kInput &&
             std::any_of(kernel_.accesses.begin(), kernel_.accesses.end(),
                         [&](const KernelAccess& access) { return !access.store && access.node == to; });
    });
  }

  uint32_t append(KernelOp op) {
    kernel_.ops.push_back(std::move(op));
    return static_cast<uint32_t>(kernel_.ops.size() - 1);
  }

  void addOp(NodeId id) {
    const Node& node = graph_.nodes[id];
    KernelOp op;
    op.kind = node.kind == NodeKind::kReduce ? KernelOpKind::kReduce : KernelOpKind::kPoint;
    if (node.kind == NodeKind::kProduct) {
      addProduct(node, op);
      opOf_[id] = append(std::move(op));
      return;
    }
    op.op = node.op;
    op.elem = node.elem;
    op.bounds = node.bounds;
    op.indexed = node.indexed;
    for (const NodeId arg : node.args) {
      if (node.op == Core::kTake && node.kind == NodeKind::kPoint && op.args.empty()) {
        op.args.push_back(makeLeaf(arg));  // a load of its own: it is read at other places
        continue;
      }
      const auto found = opOf_.find(arg);
      op.args.push_back(found != opOf_.end() ? found->second : addLeaf(arg));
    }
    KINTSUGI_CHECK(op.args.size() == node.args.size(), "node ", id, " has ", node.args.size(), " arguments");
    opOf_[id] = append(std::move(op));
  }

  void addProduct(const Node& node, KernelOp& op) {
    op.kind = KernelOpKind::kProduct;
    op.elem = node.elem;
    const auto form =
        productForm(graph_.nodes[node.args[0]], graph_.nodes[node.args[1]], node.byRows).value();
    KernelProduct product{.rightByColumns = form.rightByColumns,
                          .batched = form.batched,
                          .k = form.k,
                          .leftStride = form.leftStride,
                          .rightStride = form.rightStride,
                          .chunk = chunkOf(form),
                          .depth = depthOf(form)};
    for (uint32_t* access : {&product.left, &product.right}) {
      const NodeId arg = node.args[access == &product.left ? 0 : 1];
      const MemoryPlace place = tensorOf(graph_, arg);
      *access = static_cast<uint32_t>(kernel_.accesses.size());
      KernelAccess made;
      made.node = place.base;
      made.elem = graph_.nodes[arg].elem;
      made.offset = place.offset;
      made.strides = access == &product.left ? form.leftBatch : form.rightBatch;
      made.strides.resize(group_.sizes.size(), Size(0));
      kernel_.accesses.push_back(std::move(made));
    }
    kernel_.product = product;
  }

  uint32_t addLeaf(NodeId id) { return opOf_[id] = makeLeaf(id); }

  uint32_t makeLeaf(NodeId id) {
    const Node& node = graph_.nodes[id];
    KernelOp op;
    op.elem = node.elem;
    if (node.kind == NodeKind::kConst) {
      op.kind = KernelOpKind::kConst;
      op.number = node.number;
      op.integer = node.integer;
    } else {
      op.kind = KernelOpKind::kLoad;
      op.access = static_cast<uint32_t>(kernel_.accesses.size());
      const MemoryPlace place = tensorOf(graph_, id);
      KernelAccess access;
      access.node = place.base;
      access.elem = node.elem;
      access.offset = place.offset;
      access.strides = stridesIn(node, group_.sizes.size());
      kernel_.accesses.push_back(std::move(access));
    }
    return append(std::move(op));
  }

  void addStore(NodeId id) {
    const Node& node = graph_.nodes[id];
    const MemoryPlace place = tensorOf(graph_, id);
    KernelAccess access;
    access.node = place.base;
    access.elem = node.elem;
    access.offset = place.offset;
    access.store = true;
    access.strides = stridesIn(node, group_.sizes.size());
    kernel_.stores.push_back({opOf_.at(id), static_cast<uint32_t>(kernel_.accesses.size())});
    kernel_.accesses.push_back(std::move(access));
  }

  // The inner loop runs along the memory of the first result.
  void orderByMemory() {
    const std::vector<Size> along = kernel_.accesses[kernel_.stores.front().access].strides;
    std::vector<size_t> order(kernel_.sizes.size());
    for (size_t d = 0; d < order.size(); ++d) {
      order[d] = d;
    }
    // Dimensions of size 1 have stride 0 here, and are dropped later.
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return along[a].hint > along[b].hint; });
    permute(order);
  }

  void permute(const std::vector<size_t>& order) {
    auto apply = [&order](std::vector<Size>& numbers) {
      std::vector<Size> out;
      for (const size_t d : order) {
        out.push_back(numbers[d]);
      }
      numbers = std::move(out);
    };
    for (PartBound* bound : bounds()) {
      bound->dim = static_cast<uint32_t>(std::find(order.begin(), order.end(), bound->dim) - order.begin());
    }
    apply(kernel_.sizes);
    for (KernelAccess& access : kernel_.accesses) {
      apply(access.strides);
    }
  }

  // What stays after the rows comes before them.
  void moveRowsLast() {
    const size_t rank = kernel_.sizes.size(), end = rank - group_.trailing, begin = end - group_.reduced;
    std::vector<size_t> order;
    for (size_t d = 0; d < rank; ++d) {
      const size_t from = d < begin ? d : d + group_.reduced;
      order.push_back(from < rank ? from : from - rank + begin);
    }
    permute(order);
  }

  // Along which dimension does most memory lie? Where it is not the row, vectors hold elements of many rows.
  void chooseVectors() {
    const int64_t fewest = target().costs.fewestRows;
    const size_t rank = kernel_.sizes.size();
    auto count = [&](size_t d) {
      return std::count_if(kernel_.accesses.begin(), kernel_.accesses.end(), [&](const KernelAccess& access) {
        return access.strides.back() != 0 && access.strides[d] == 1;
      });
    };
    size_t best = rank - 1;
    for (size_t d = rank - 1; d-- > 0;) {
      best = kernel_.sizes[d].hint >= fewest && count(d) > count(best) ? d : best;
    }
    if (best == rank - 1) {
      return;
    }
    kernel_.columns = true;
    std::vector<size_t> order;
    for (size_t d = 0; d < rank; ++d) {
      order.push_back(d < best ? d : d + 2 < rank ? d + 1 : d + 2 == rank ? best : d);
    }
    permute(order);
  }

  // Some loads are contiguous along an outer dimension instead of the inner one: that dimension becomes the
  // last of the outer ones, so that blocks can be transposed.
  void transposeLoads() {
    // The squares of two operands fit into the registers. A third one would be spilled; with one, the other
    // operand is read an element at a time.
    constexpr size_t kMost = 2;
    const int64_t fewest = target().transposeSquare;
    const size_t rank = kernel_.sizes.size();
    if (rank < 2 || kernel_.sizes.back().hint < fewest || !bounds().empty() || kernel_.checks()) {
      return;
    }
    const auto fits = [&](const KernelAccess& access, size_t d) {
      const Size inner = access.strides.back();
      return !access.store && access.elem == Elem::kF32 && access.repeat == 1 && inner.hint > 1 &&
             access.strides[d] == 1;
    };
    size_t best = rank, found = 0;
    for (size_t d = 0; d + 1 < rank; ++d) {
      const auto count =
          static_cast<size_t>(std::count_if(kernel_.accesses.begin(), kernel_.accesses.end(),
                                            [&](const KernelAccess& access) { return fits(access, d); }));
      if (count > found && kernel_.sizes[d].hint >= fewest) {
        best = d;
        found = count;
      }
    }
    if (found == 0) {
      return;
    }
    std::vector<size_t> order;
    for (size_t d = 0; d < rank; ++d) {
      order.push_back(d < best ? d : d + 2 < rank ? d + 1 : d + 2 == rank ? best : d);
    }
    permute(order);
    size_t transposed = 0;
    for (KernelAccess& access : kernel_.accesses) {
      access.transposed = transposed < kMost && fits(access, rank - 2);
      transposed += access.transposed ? 1 : 0;
    }
  }

  // Each element of some loads is taken for `count` neighbours: the two inner dimensions are one
  // nevertheless.
  void foldRepeats() {
    const size_t rank = kernel_.sizes.size();
    // Threads that share the inner dimension could begin between neighbours.
    if (rank < 3 || group_.reduced != 0 || kernel_.product || !bounds().empty() || kernel_.checks()) {
      return;
    }
    const Size count = folded(kernel_.sizes.back());
    const bool power = count.fixed() && count.hint > 1 && count.hint <= target().costs.mostRepeats &&
                       (count.hint & (count.hint - 1)) == 0;
    const auto one = [&](const KernelAccess& access) {
      return access.strides[rank - 2] == access.strides.back() * kernel_.sizes.back();
    };
    const auto many = [](const KernelAccess& access) { return !access.store && access.strides.back() == 0; };
    if (!power || !std::all_of(kernel_.accesses.begin(), kernel_.accesses.end(),
                               [&](const KernelAccess& a) { return one(a) || many(a); })) {
      return;
    }
    for (KernelAccess& access : kernel_.accesses) {
      access.repeat = one(access) ? 1 : static_cast<uint32_t>(count.hint);
      access.strides[rank - 2] = one(access) ? access.strides.back() : access.strides[rank - 2];
    }
    kernel_.sizes[rank - 2] *= kernel_.sizes.back();
    erase(rank - 1);
  }

  // Values of a row are kept on the stack. Where its length varies, a run checks it.
  void measureRows() {
    const Target::Costs& costs = target().costs;
    const int64_t most = kernel_.columns ? costs.longestColumn : costs.longestRow;
    const Size row = folded(kernel_.sizes.back());
    kernel_.longRows = row.hint > most || (!row.fixed() && !sizeTable().require(row, most, kLess | kZero));
  }

  std::vector<PartBound*> bounds() {
    std::vector<PartBound*> out;
    for (KernelOp& op : kernel_.ops) {
      for (PartBound& bound : op.bounds) {
        out.push_back(&bound);
      }
    }
    return out;
  }

  bool joins(size_t d, const std::vector<Size>& sizes) {
    const std::vector<PartBound*> all = bounds();
    const bool bounded = std::any_of(all.begin(), all.end(),
                                     [d](const PartBound* b) { return b->dim == d || b->dim == d - 1; });
    return !bounded &&
           std::all_of(kernel_.accesses.begin(), kernel_.accesses.end(), [&](const KernelAccess& access) {
             return (access.repeat == 1 || d + 1 < sizes.size()) &&
                    access.strides[d - 1] == access.strides[d] * sizes[d];
           });
  }

  void erase(size_t d) {
    for (PartBound* bound : bounds()) {
      bound->dim -= bound->dim > d ? 1 : 0;
    }
    kernel_.sizes.erase(kernel_.sizes.begin() + static_cast<std::ptrdiff_t>(d));
    for (KernelAccess& access : kernel_.accesses) {
      access.strides.erase(access.strides.begin() + static_cast<std::ptrdiff_t>(d));
    }
  }

  void insertInner() {
    kernel_.sizes.emplace_back(1);
    for (KernelAccess& access : kernel_.accesses) {
      access.strides.emplace_back(0);
    }
  }

  // Drops dimensions of size 1 and merges neighbours that are contiguous in all accesses. The row is never
  // merged with outer dimensions.
  void collapse() {
    const bool bordered = group_.reduced != 0 || kernel_.product;
    size_t rows = kernel_.sizes.size() - (kernel_.product ? 1 : group_.reduced);  // dimensions before the row
    for (size_t d = kernel_.sizes.size(); d-- > 0;) {
      if (kernel_.sizes[d] == 1) {
        erase(d);
        rows -= d < rows ? 1 : 0;
      }
    }
    const bool noRow = bordered && rows == kernel_.sizes.size();
    if (kernel_.sizes.empty() || noRow) {
      insertInner();
    }
    foldRepeats();
    for (size_t d = kernel_.sizes.size() - 1; d > 0; --d) {
      const bool border =
          bordered && (d == rows || (kernel_.product && kernel_.product->batched && d + 1 == rows));
      if (!border && joins(d, kernel_.sizes)) {
        const Size inner = kernel_.sizes[d];
        kernel_.sizes[d - 1] *= inner;
        for (KernelAccess& access : kernel_.accesses) {
          access.strides[d - 1] = access.strides[d];
        }
        erase(d);
        rows -= d < rows ? 1 : 0;
      }
    }
    KINTSUGI_CHECK(!bordered || kernel_.sizes.size() == rows + 1, "a row that is no run");
  }

  const TensorGraph& graph_;
  const Group& group_;
  const std::vector<bool>& stored_;
  Kernel kernel_;
  std::unordered_map<NodeId, uint32_t> opOf_;
};
}  // namespace

Kernel makeKernel(const TensorGraph& graph, const Group& group, const std::vector<bool>& stored) {
  return group.alone ? attentionKernel(graph, group.members.front())
                     : KernelMaker(graph, group, stored).run();
}

}  // namespace kintsugi::passes
