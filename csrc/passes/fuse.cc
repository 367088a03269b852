#include "passes/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "passes/attention.h"
#include "passes/products.h"
#include "passes/simplify_graph.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

constexpr uint32_t kNoGroup = ir::kNone;
constexpr size_t kMostMembers = 96;

struct Group {
  std::vector<NodeId> members;  // in order
  std::vector<Size> sizes;      // what it runs over
  uint32_t reduced = 0;         // how many dimensions it reduces; 0: nothing
  uint32_t behind = 0;          // how many dimensions stay behind those
  bool parts = false;           // some member is a part, which rows do not have
  bool product = false;         // one member is a product
  bool alone = false;           // attention, which nothing joins
  uint32_t level = 0;
  uint32_t firstUser = ir::kNone;  // the lowest level at which something outside takes what it makes
};

std::vector<Size> rowSizes(std::vector<Size> sizes, size_t reduced, size_t behind) {
  const auto end = sizes.end() - static_cast<std::ptrdiff_t>(behind);
  std::fill(end - static_cast<std::ptrdiff_t>(reduced), end, Size(1));
  return sizes;
}

// The strides of a node within a space that it is broadcast to.
std::vector<Size> stridesIn(const Node& node, size_t rank) {
  std::vector<Size> strides(rank, Size(0));
  const size_t shift = rank - node.sizes.size();
  for (size_t d = 0; d < node.sizes.size(); ++d) {
    strides[shift + d] = node.sizes[d] == 1 ? Size(0) : node.strides[d];
  }
  return strides;
}

// Is a row one run with one stride?
bool rowsJoin(const Node& node, const std::vector<Size>& space, size_t reduced, size_t behind) {
  const std::vector<Size> strides = stridesIn(node, space.size());
  Size step = 0;
  bool first = true;
  const size_t end = space.size() - behind;
  for (size_t d = end; d-- > end - reduced;) {
    if (space[d] == 1) {
      continue;
    }
    if (!first && strides[d] != step) {
      return false;
    }
    step = strides[d] * space[d];
    first = false;
  }
  return true;
}

class Grouper {
 public:
  explicit Grouper(const TensorGraph& graph)
      : graph_(graph), groupOf_(graph.nodes.size(), kNoGroup), callLevel_(graph.nodes.size(), 0) {}

  void run() {
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.nodes[id];
      if (isCore(node)) {
        place(id);
      } else if (node.kind == NodeKind::kCall) {
        for (const NodeId arg : node.args) {
          callLevel_[id] = std::max(callLevel_[id], levelOf(arg) + 1);
        }
        noteUser(node, callLevel_[id], kNoGroup);
      }
    }
  }

  const std::vector<uint32_t>& groupOf() const { return groupOf_; }
  const std::vector<Group>& groups() const { return groups_; }

 private:
  uint32_t levelOf(NodeId id) const {
    const Node& node = graph_.nodes[id];
    switch (node.kind) {
      case NodeKind::kPoint:
      case NodeKind::kReduce:
      case NodeKind::kProduct:
      case NodeKind::kAttention:
        return groups_[groupOf_[id]].level;
      case NodeKind::kView:
      case NodeKind::kResult:
        return levelOf(node.args[0]);
      case NodeKind::kCall:
        return callLevel_[id];
      case NodeKind::kInput:
      case NodeKind::kConst:
        break;
    }
    return 0;
  }

  // Something at `level` takes what groups other than `own` make: those can't be moved behind it any more.
  void noteUser(const Node& node, uint32_t level, uint32_t own) {
    for (const NodeId arg : node.args) {
      const uint32_t group = groupOf_[memoryOf(graph_, arg).base];
      if (group != kNoGroup && group != own) {
        groups_[group].firstUser = std::min(groups_[group].firstUser, level);
      }
    }
  }

  // The level of a group that holds `node` and the groups `joined`.
  uint32_t levelWith(const Node& node, const std::vector<uint32_t>& joined) const {
    uint32_t level = 0;
    for (const NodeId arg : node.args) {
      const uint32_t group = groupOf_[arg];
      if (group != kNoGroup && std::find(joined.begin(), joined.end(), group) != joined.end()) {
        level = std::max(level, groups_[group].level);
      } else if (graph_.nodes[arg].kind != NodeKind::kConst) {
        level = std::max(level, levelOf(arg) + 1);
      }
    }
    return level;
  }

  // The groups of the arguments that can be one with the node: at a level that each of them can be moved to.
  std::vector<uint32_t> choose(const Node& node) const {
    std::vector<uint32_t> joined;
    for (const NodeId arg : node.args) {
      const uint32_t group = groupOf_[arg];
      if (group != kNoGroup && std::find(joined.begin(), joined.end(), group) == joined.end() &&
          !looksInto(node, group) && mayJoin(node, groups_[group]) &&
          (joined.empty() || mayMerge(groups_[joined.front()], groups_[group]))) {
        joined.push_back(group);
      }
    }
    while (!joined.empty()) {
      const uint32_t level = levelWith(node, joined);
      const auto stuck = std::find_if(joined.begin(), joined.end(), [&](uint32_t group) {
        return groups_[group].level < level && groups_[group].firstUser <= level;
      });
      if (stuck == joined.end()) {
        break;
      }
      joined.erase(stuck);
    }
    return joined;
  }

  // Through a view, at elements that the group may not have computed yet.
  bool looksInto(const Node& node, uint32_t group) const {
    return std::any_of(node.args.begin(), node.args.end(), [&](NodeId arg) {
      return graph_.nodes[arg].kind == NodeKind::kView && groupOf_[memoryOf(graph_, arg).base] == group;
    });
  }

  void place(NodeId id) {
    const Node& node = graph_.nodes[id];
    const std::vector<uint32_t> joined = node.kind == NodeKind::kProduct || node.kind == NodeKind::kAttention
                                             ? std::vector<uint32_t>()
                                             : choose(node);
    const uint32_t level = levelWith(node, joined);
    uint32_t at = static_cast<uint32_t>(groups_.size());
    if (joined.empty()) {
      Group group;
      group.sizes = node.kind == NodeKind::kReduce ? graph_.nodes[node.args[0]].sizes : node.sizes;
      groups_.push_back(std::move(group));
    } else {
      at = joined.front();
      for (size_t k = 1; k < joined.size(); ++k) {
        merge(at, joined[k]);
      }
    }
    Group& group = groups_[at];
    group.level = level;
    group.members.push_back(id);
    if (node.kind == NodeKind::kReduce) {
      group.reduced = node.reduced;
      group.behind = node.behind;
    }
    group.parts = group.parts || !node.bounds.empty();
    group.product = group.product || node.kind == NodeKind::kProduct;
    group.alone = node.kind == NodeKind::kAttention;
    groupOf_[id] = at;
    noteUser(node, level, at);
  }

  void merge(uint32_t into, uint32_t from) {
    Group& to = groups_[into];
    Group& gone = groups_[from];
    for (const NodeId id : gone.members) {
      groupOf_[id] = into;
    }
    std::vector<NodeId> members;
    std::merge(to.members.begin(), to.members.end(), gone.members.begin(), gone.members.end(),
               std::back_inserter(members));
    to.members = std::move(members);
    to.behind = to.reduced != 0 ? to.behind : gone.behind;
    to.reduced = std::max(to.reduced, gone.reduced);
    to.parts = to.parts || gone.parts;
    to.product = to.product || gone.product;
    to.firstUser = std::min(to.firstUser, gone.firstUser);
    gone.members.clear();
  }

  // A product is computed in strips of its columns: there are no rows, and nothing else to reduce.
  static bool mayFollowProduct(const Group& group) {
    return !group.product && group.reduced == 0 && !group.parts;
  }

  bool mayMerge(const Group& a, const Group& b) const {
    const Group& rows = a.reduced != 0 ? a : b;
    const bool sameRows =
        a.reduced == 0 || b.reduced == 0 || (a.reduced == b.reduced && a.behind == b.behind);
    const bool noParts = rows.reduced == 0 || !(a.parts || b.parts);
    if ((a.product && !mayFollowProduct(b)) || (b.product && !mayFollowProduct(a))) {
      return false;
    }
    return a.sizes == b.sizes && sameRows && noParts && a.members.size() + b.members.size() < kMostMembers &&
           allRowsJoin(a, rows.reduced, rows.behind) && allRowsJoin(b, rows.reduced, rows.behind);
  }

  bool mayJoin(const Node& node, const Group& group) const {
    const bool part = group.parts && node.kind == NodeKind::kReduce;
    if (group.alone || (group.product && (node.kind == NodeKind::kReduce || !node.bounds.empty()))) {
      return false;
    }
    if (group.members.size() >= kMostMembers || part || (group.reduced != 0 && !node.bounds.empty())) {
      return false;
    }
    if (node.kind == NodeKind::kReduce) {
      const bool sameRows =
          group.reduced == 0 || (group.reduced == node.reduced && group.behind == node.behind);
      return sameRows && graph_.nodes[node.args[0]].sizes == group.sizes &&
             (group.reduced != 0 || allRowsJoin(group, node.reduced, node.behind));
    }
    const bool full = node.sizes == group.sizes;
    const bool row = group.reduced != 0 && node.sizes == rowSizes(group.sizes, group.reduced, group.behind);
    return (full || row) && (group.reduced < 2 || argumentsJoin(node, group));
  }

  bool argumentsJoin(const Node& node, const Group& group) const {
    return std::all_of(node.args.begin(), node.args.end(),
                       [&](NodeId arg) {
                         const Node& from = graph_.nodes[arg];
                         return from.kind == NodeKind::kConst ||
                                rowsJoin(from, group.sizes, group.reduced, group.behind);
                       }) &&
           rowsJoin(node, group.sizes, group.reduced, group.behind);
  }

  bool allRowsJoin(const Group& group, uint32_t reduced, uint32_t behind) const {
    Group wanted;
    wanted.sizes = group.sizes;
    wanted.reduced = reduced;
    wanted.behind = behind;
    return reduced < 2 || std::all_of(group.members.begin(), group.members.end(),
                                      [&](NodeId id) { return argumentsJoin(graph_.nodes[id], wanted); });
  }

  const TensorGraph& graph_;
  std::vector<uint32_t> groupOf_;
  std::vector<uint32_t> callLevel_;  // of calls
  std::vector<Group> groups_;
};

// Makes the kernel of one group.
class KernelMaker {
 public:
  KernelMaker(const TensorGraph& graph, const Group& group, const std::vector<bool>& stored)
      : graph_(graph), group_(group), stored_(stored) {}

  Kernel run() {
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
      turnLoads();
    }
    for (KernelAccess& access : kernel_.accesses) {
      const Size inner = access.strides[access.strides.size() - (kernel_.columns ? 2 : 1)];
      access.inner = inner == 1 || access.turned ? Inner::kUnit : inner == 0 ? Inner::kZero : Inner::kStrided;
      access.still = access.strides.back() == 0;
    }
    return std::move(kernel_);
  }

 private:
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
    op.taken = node.taken;
    for (const NodeId arg : node.args) {
      if (node.op == Core::kTake && node.kind == NodeKind::kPoint && op.args.empty()) {
        op.args.push_back(makeLeaf(arg));  // a load of its own: it is read at other places
        continue;
      }
      const auto found = opOf_.find(arg);
      op.args.push_back(found != opOf_.end() ? found->second : addLeaf(arg));
    }
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
      const MemoryPlace place = memoryOf(graph_, arg);
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
      const MemoryPlace place = memoryOf(graph_, id);
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
    KernelAccess access;
    access.node = id;
    access.elem = node.elem;
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
    // Dimensions of size 1, whose stride is 0 here, go anyway.
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

  // What stays behind the rows comes before them.
  void moveRowsLast() {
    const size_t rank = kernel_.sizes.size(), end = rank - group_.behind, begin = end - group_.reduced;
    std::vector<size_t> order;
    for (size_t d = 0; d < rank; ++d) {
      const size_t from = d < begin ? d : d + group_.reduced;
      order.push_back(from < rank ? from : from - rank + begin);
    }
    permute(order);
  }

  // Along which dimension does most memory lie? Where it is not the row, vectors hold elements of many rows.
  void chooseVectors() {
    constexpr int64_t kFewestLanes = 4;
    const size_t rank = kernel_.sizes.size();
    auto count = [&](size_t d) {
      return std::count_if(kernel_.accesses.begin(), kernel_.accesses.end(), [&](const KernelAccess& access) {
        return access.strides.back() != 0 && access.strides[d] == 1;
      });
    };
    size_t best = rank - 1;
    for (size_t d = rank - 1; d-- > 0;) {
      best = kernel_.sizes[d].hint >= kFewestLanes && count(d) > count(best) ? d : best;
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

  // Loads that have no order along the inner dimension, but along an outer one: that comes last of these.
  void turnLoads() {
    constexpr size_t kMost = 2;
    constexpr int64_t kFewest = 8;
    const size_t rank = kernel_.sizes.size();
    if (rank < 2 || kernel_.sizes.back().hint < kFewest || !bounds().empty() || kernel_.checks()) {
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
      if (count > found && kernel_.sizes[d].hint >= kFewest) {
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
    size_t turned = 0;
    for (KernelAccess& access : kernel_.accesses) {
      access.turned = turned < kMost && fits(access, rank - 2);
      turned += access.turned ? 1 : 0;
    }
  }

  // Each element of some loads is taken for `count` neighbours: the two inner dimensions are one
  // nevertheless.
  void foldRepeats() {
    constexpr int64_t kMostRepeats = 8;
    const size_t rank = kernel_.sizes.size();
    // Threads that share the inner dimension could begin between neighbours.
    if (rank < 3 || group_.reduced != 0 || kernel_.product || !bounds().empty() || kernel_.checks()) {
      return;
    }
    const Size count = settled(kernel_.sizes.back());
    const bool power =
        count.fixed() && count.hint > 1 && count.hint <= kMostRepeats && (count.hint & (count.hint - 1)) == 0;
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
    constexpr int64_t kLongestRow = 16384, kLongestColumn = 1024;
    const int64_t most = kernel_.columns ? kLongestColumn : kLongestRow;
    const Size row = settled(kernel_.sizes.back());
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

  // Dimensions of size 1 go, neighbours that are one run become one. The row stays apart from the rest.
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

class Scheduler {
 public:
  Scheduler(const TensorGraph& graph, const Grouper& grouper)
      : graph_(graph),
        groupOf_(grouper.groupOf()),
        groups_(grouper.groups()),
        done_(graph.nodes.size()),
        groupDone_(groups_.size()) {}

  NativeProgram run() {
    findStored();
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      if (graph_.nodes[id].kind == NodeKind::kCall) {
        need(id);
      }
    }
    for (const NodeId id : graph_.outputs) {
      if (id != ir::kNone) {
        need(id);
      }
    }
    return std::move(program_);
  }

 private:
  // What has to be in memory: what another group, a call or the outside uses, through views or not.
  void findStored() {
    stored_ = escapingNodes(graph_);
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      for (const NodeId arg : graph_.nodes[id].args) {
        if (!isCore(graph_.nodes[id]) || groupOf_[arg] != groupOf_[id]) {
          stored_[memoryOf(graph_, arg).base] = true;
        }
      }
    }
  }

  // A tensor of the node has to be there.
  void need(NodeId id) {
    if (done_[id]) {
      return;
    }
    const Node& node = graph_.nodes[id];
    if (isCore(node)) {
      needGroup(groupOf_[id]);
      return;
    }
    done_[id] = true;
    for (const NodeId arg : node.args) {
      need(arg);
    }
    if (node.kind == NodeKind::kCall || node.kind == NodeKind::kView) {
      program_.steps.push_back({node.kind == NodeKind::kCall ? StepKind::kCall : StepKind::kView, 0, id});
    }
  }

  void needGroup(uint32_t at) {
    if (groupDone_[at]) {
      return;
    }
    groupDone_[at] = true;
    const Group& group = groups_[at];
    for (const NodeId member : group.members) {
      for (const NodeId arg : graph_.nodes[member].args) {
        // Views are looked through: their memory is enough.
        const NodeId base = memoryOf(graph_, arg).base;
        if (graph_.nodes[base].kind != NodeKind::kConst && groupOf_[base] != at) {
          need(base);
        }
      }
    }
    program_.steps.push_back({StepKind::kKernel, static_cast<uint32_t>(program_.kernels.size()), ir::kNone});
    program_.kernels.push_back(group.alone ? attentionKernel(graph_, group.members.front())
                                           : KernelMaker(graph_, group, stored_).run());
  }

  const TensorGraph& graph_;
  const std::vector<uint32_t>& groupOf_;
  const std::vector<Group>& groups_;
  std::vector<bool> stored_;
  std::vector<bool> done_;
  std::vector<bool> groupDone_;
  NativeProgram program_;
};

}  // namespace

NativeProgram fuse(const TensorGraph& graph) {
  Grouper grouper(graph);
  grouper.run();
  return Scheduler(graph, grouper).run();
}

}  // namespace kintsugi::passes
