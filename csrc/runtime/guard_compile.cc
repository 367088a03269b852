// From a recording's sources and guards to blocks: trees in preorder and the layout of their words.

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "pyapi/plain.h"
#include "pyapi/types.h"
#include "runtime/compiled_trace.h"
#include "runtime/guard_block.h"
#include "support/check.h"

namespace kintsugi::runtime {

namespace {

using guard::GuardKind;
using guard::SourceKind;

torchapi::TensorCheck::Sizes sizesOf(const LocalGuard& guard) {
  using Sizes = torchapi::TensorCheck::Sizes;
  if (guard.kind != GuardKind::kTensor) return Sizes::kRank;
  return guard.info->isOpen() ? Sizes::kOpen : Sizes::kExact;
}

constexpr const char* kGuardParts[] = {
#define KTG_KIND(name, text, parts) parts,
    KINTSUGI_GUARDS(KTG_KIND)
#undef KTG_KIND
};
constexpr const char* kSourceParts[] = {
#define KTG_KIND(name, text, parts) parts,
    KINTSUGI_SOURCES(KTG_KIND)
#undef KTG_KIND
};

bool hasPart(const char* parts, char part) {
  return std::string_view(parts).find(part) != std::string_view::npos;
}

// The sources that anything in the trace refers to: only their slots have to be written.
class UsedSources {
 public:
  explicit UsedSources(const recording::Recording& recording)
      : used_(recording.document.sources.nodes.size(), false) {
    const ir::Trace& trace = recording.document.trace;
    addAll(trace.operands);
    addAll(trace.lists);
    addAll(trace.slots);
    for (const ir::Recipe& recipe : trace.recipes) {
      addAll(recipe.parts);
    }
    for (const ir::FrameState& state : trace.states) {
      add(state.function);
      add(state.replacement);
      add(state.handled);
    }
    if (trace.code.empty()) {
      used_.assign(used_.size(), true);  // a test of guards alone: all slots are asked for
    }
    const auto& nodes = recording.document.sources.nodes;
    for (const guard::SourceNode& node : nodes) {
      if (node.parent != ir::kNone && nodes[node.parent].block != node.block) {
        used_[node.parent] = true;
      }
    }
    for (const guard::Guard& g : recording.document.guards.guards) {
      for (guard::SourceId id : {g.source, g.other}) {
        if (id != ir::kNone && nodes[id].block != g.block) {
          used_[id] = true;
        }
      }
    }
  }

  bool contains(guard::SourceId id) const { return used_[id]; }

 private:
  void add(const ir::Operand& operand) {
    if (operand.kind == ir::OperandKind::kSource && operand.id < used_.size()) {
      used_[operand.id] = true;
    }
  }
  void addAll(const std::vector<ir::Operand>& operands) {
    for (const ir::Operand& operand : operands) {
      add(operand);
    }
  }

  std::vector<bool> used_;
};

// What belongs to one block, in order.
struct BlockMembers {
  std::vector<guard::SourceId> sources;
  std::vector<uint32_t> guards;
};

// A source's place in the tree of the block that is being compiled.
struct Links {
  guard::SourceId firstChild = ir::kNone;
  guard::SourceId lastChild = ir::kNone;
  guard::SourceId next = ir::kNone;
  NodeId node = kNoNode;
  bool included = false;
};

class BlockCompiler {
 public:
  // `links` has an entry for each source; it is left as it was found.
  BlockCompiler(const recording::Recording& recording, const UsedSources& used, const BlockMembers& members,
                const std::vector<uint32_t>& openAttributes, guard::BlockId id, std::vector<Links>& links)
      : recording_(recording),
        sources_(recording.document.sources.nodes),
        used_(used),
        members_(members),
        openAttributes_(openAttributes),
        id_(id),
        links_(links) {}
  ~BlockCompiler() {
    for (guard::SourceId source : included_) {
      links_[source].included = false;
    }
  }
  BlockCompiler(const BlockCompiler&) = delete;
  BlockCompiler& operator=(const BlockCompiler&) = delete;

  Block compile() {
    collect();
    block_.nodes.reserve(included_.size());
    // Pinned objects are what they are: their subtrees come first, as one range of words.
    std::stable_partition(roots_.begin(), roots_.end(), [&](guard::SourceId id) { return isPinned(id); });
    for (guard::SourceId root : roots_) {
      place(root, kNoNode);
      if (isPinned(root)) {
        block_.pinnedEnd = static_cast<NodeId>(block_.nodes.size());
      }
    }
    openAttributes();
    attachGuards();
    for (NodeId n = 0; n < block_.nodes.size(); ++n) {
      markDynamic(n);
    }
    for (NodeId n = 0; n < block_.nodes.size(); ++n) {
      chooseWords(n);
    }
    layOut();
    checkLayout();
    return std::move(block_);
  }

 private:
  // Walks and words go by ranges of the preorder.
  void checkLayout() const {
    const size_t count = block_.nodes.size();
    for (NodeId n = 0; n < count; ++n) {
      const Node& node = block_.nodes[n];
      KINTSUGI_CHECK(node.end > n && node.end <= count, "node ", n, " ends at ", node.end, " of ", count);
      KINTSUGI_CHECK(node.parent == kNoNode || (node.parent < n && node.end <= block_.nodes[node.parent].end),
                     "node ", n, " is outside of its parent ", node.parent);
      KINTSUGI_CHECK(node.firstGuard + size_t{node.guardCount} <= block_.guards.size(), "node ", n,
                     " has guards from ", node.firstGuard);
    }
    for (const Segment& segment : block_.segments) {
      KINTSUGI_CHECK(segment.firstWord <= segment.endWord && segment.endWord <= block_.wordNodes.size(),
                     "words [", segment.firstWord, ", ", segment.endWord, ") of ", block_.wordNodes.size());
    }
    KINTSUGI_CHECK(block_.words.size() >= block_.wordNodes.size() + kWordsAhead, "words are not padded");
  }

  const std::vector<guard::Guard>& allGuards() const { return recording_.document.guards.guards; }
  PyObject* constant(ir::ConstId id) const {
    KINTSUGI_CHECK(id == ir::kNone || id < recording_.consts.size(), "a guard names constant #", id);
    return id == ir::kNone ? nullptr : recording_.consts[id].get();
  }

  // The sources of this block, and those of earlier blocks that it starts from, with their children.
  void collect() {
    for (guard::SourceId id : members_.sources) {
      include(id);
    }
    for (uint32_t index : members_.guards) {
      include(allGuards()[index].source);
      include(allGuards()[index].other);
    }
  }

  // The source and what it is reached through. Paths may be of any length, so nothing here recurs.
  void include(guard::SourceId id) {
    std::vector<guard::SourceId> path;
    while (id != ir::kNone && !links_[id].included) {
      const guard::SourceNode& source = sources_[id];
      KINTSUGI_CHECK(source.block <= id_, "source $", id, " is used before its block");
      KINTSUGI_CHECK(source.parent == ir::kNone || source.parent < id, "source $", id,
                     " comes before its parent");
      included_.push_back(id);
      links_[id] = Links{};
      links_[id].included = true;
      path.push_back(id);
      id = source.block != id_ ? ir::kNone : source.parent;
    }
    for (size_t i = path.size(); i-- > 0;) {
      addToParent(path[i]);
    }
  }

  void addToParent(guard::SourceId id) {
    const guard::SourceNode& source = sources_[id];
    if (source.block != id_ || source.parent == ir::kNone) {
      roots_.push_back(id);
      return;
    }
    Links& parent = links_[source.parent];
    (parent.lastChild == ir::kNone ? parent.firstChild : links_[parent.lastChild].next) = id;
    parent.lastChild = id;
  }

  // A subtree, in preorder.
  void place(guard::SourceId root, NodeId parent) {
    struct Open {
      NodeId node;
      guard::SourceId nextChild;
    };
    std::vector<Open> open = {{placeNode(root, parent), links_[root].firstChild}};
    while (!open.empty()) {
      const Open top = open.back();
      if (top.nextChild != ir::kNone) {
        open.back().nextChild = links_[top.nextChild].next;
        open.push_back({placeNode(top.nextChild, top.node), links_[top.nextChild].firstChild});
        continue;
      }
      open.pop_back();
      block_.nodes[top.node].end = static_cast<NodeId>(block_.nodes.size());
      if (!open.empty() && block_.nodes[top.node].slotUsed) {
        block_.nodes[open.back().node].slotUsed = true;
      }
    }
  }

  NodeId placeNode(guard::SourceId id, NodeId parent) {
    const guard::SourceNode& source = sources_[id];
    const NodeId n = static_cast<NodeId>(block_.nodes.size());
    Node& node = block_.nodes.emplace_back();
    links_[id].node = n;
    node.kind = source.kind;
    // A pinned source needs no earlier block to resolve it. (The parent of a side trace may have left before
    // that block.)
    node.external = source.block != id_ && source.kind != guard::SourceKind::kPinned;
    node.root = parent == kNoNode;
    node.source = id;
    node.parent = parent;
    node.index = source.index;
    node.key = constant(source.key);
    KINTSUGI_CHECK(node.key != nullptr || !hasPart(kSourceParts[static_cast<size_t>(node.kind)], 'k'),
                   "source $", id, " lacks its constant");
    node.keyHashed = node.kind == SourceKind::kDictItem && pyapi::plainHash(node.key, &node.hash);
    node.slotUsed = used_.contains(id);
    if (!node.external && node.slotUsed) {
      block_.slotsUsed.emplace_back(n, id);
    }
    return n;
  }

  // Open attributes hold for the whole trace, so those of all blocks are collected. In a side trace only its
  // own count: rows of the parent belong to the parent's blocks.
  void openAttributes() {
    for (const uint32_t index : openAttributes_) {
      const guard::Guard& g = allGuards()[index];
      PyObject* pair = constant(g.key);
      KINTSUGI_CHECK(pair != nullptr && PyTuple_CheckExact(pair) && PyTuple_GET_SIZE(pair) == 2 &&
                         PyType_Check(PyTuple_GET_ITEM(pair, 0)) &&
                         PyUnicode_CheckExact(PyTuple_GET_ITEM(pair, 1)),
                     "openattr of #", g.key, ", which is no pair of class and name");
      auto* type = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(pair, 0));
      auto dict = std::find_if(block_.openDicts.begin(), block_.openDicts.end(),
                               [type](const OpenDict& known) { return known.type == type; });
      if (dict == block_.openDicts.end()) {
        dict = block_.openDicts.emplace(dict);
        dict->type = type;
      }
      dict->names.push_back(PyTuple_GET_ITEM(pair, 1));
    }
    for (OpenDict& dict : block_.openDicts) setDictBaseline(dict);
  }

  void attachGuards() {
    std::vector<LocalGuard> locals;
    std::vector<NodeId> owners;
    for (uint32_t index : members_.guards) {
      const guard::Guard& g = allGuards()[index];
      switch (g.kind) {
        case GuardKind::kTypeVersion:
          addTypeCheck(g, index);
          break;
        case GuardKind::kOpenAttribute:
          break;  // see openAttributes()
        case GuardKind::kGlobalState:
          block_.states.push_back(&recording_.globalStates.at(static_cast<size_t>(g.number)));
          block_.stateIndices.push_back(index);
          break;
        case GuardKind::kSame:
        case GuardKind::kNotSame:
          block_.sames.push_back(
              {links_[g.source].node, links_[g.other].node, g.kind == GuardKind::kSame, index});
          break;
        default:
          locals.push_back(localGuard(g, index));
          owners.push_back(links_[g.source].node);
          ++block_.nodes[owners.back()].guardCount;
      }
    }
    // Sorted by node, in recorded order within each.
    uint32_t first = 0;
    for (Node& node : block_.nodes) {
      node.firstGuard = first;
      first += std::exchange(node.guardCount, 0);
    }
    block_.guards.resize(locals.size());
    for (size_t i = 0; i < locals.size(); ++i) {
      Node& node = block_.nodes[owners[i]];
      block_.guards[node.firstGuard + node.guardCount++] = locals[i];
    }
  }

  LocalGuard localGuard(const guard::Guard& g, uint32_t index) const {
    LocalGuard local{.kind = g.kind, .index = index, .key = constant(g.key), .number = g.number};
    const bool needsKey = hasPart(kGuardParts[static_cast<size_t>(g.kind)], 'k');
    KINTSUGI_CHECK(!needsKey || local.key != nullptr, "guard ", index, " lacks its constant");
    const bool hashed = g.kind == GuardKind::kLacksKey || g.kind == GuardKind::kNoAttribute;
    if (hashed && !pyapi::plainHash(local.key, &local.hash)) {
      local.key = nullptr;  // comparing would run Python code: never holds
    }
    if (g.kind == GuardKind::kTensor || g.kind == GuardKind::kTensorRank) {
      local.info = &recording_.document.trace.metas.at(static_cast<size_t>(g.number));
    }
    return local;
  }

  void addTypeCheck(const guard::Guard& g, uint32_t index) {
    auto* type = reinterpret_cast<PyTypeObject*>(constant(g.key));
    KINTSUGI_CHECK(type != nullptr && PyType_Check(constant(g.key)), "typeversion of #", g.key,
                   ", which is no type");
    for (const TypeCheck& check : block_.types) {
      if (check.type == type) {
        return;
      }
    }
    TypeCheck& check = block_.types.emplace_back();
    check.type = type;
    check.index = index;
    check.broken = g.number != 0;  // the recorded call has changed it since
    setTypeBaseline(check);
  }

  const LocalGuard* guardOf(const Node& node, GuardKind kind) const {
    for (const LocalGuard& g : block_.guardsOf(node)) {
      if (g.kind == kind) {
        return &g;
      }
    }
    return nullptr;
  }
  PyTypeObject* guardedType(const Node& node) const {
    const LocalGuard* g = guardOf(node, GuardKind::kType);
    return g == nullptr ? nullptr : reinterpret_cast<PyTypeObject*>(g->key);
  }
  bool isPinned(guard::SourceId id) const {
    return sources_[id].kind == SourceKind::kPinned && sources_[id].block == id_;
  }
  bool isLeafRoot(const Node& node, NodeId id) const {
    return node.root && node.end == id + 1 && id >= block_.pinnedEnd;
  }

  void markDynamic(NodeId id) {
    Node& node = block_.nodes[id];
    const bool parentDynamic = !node.root && block_.nodes[node.parent].dynamic;
    const bool computed =
        !node.external && (node.kind == SourceKind::kGetSet ||
                           (node.kind == SourceKind::kMember && !pyapi::isObjectMember(node.key)));
    node.dynamic = parentDynamic || computed;
    if (computed && !parentDynamic) {
      block_.dynamics.push_back(id);
    }
  }

  // The words that prove this object's own state, as far as its children are read from it.
  uint16_t wordsForChildren(const Node& node, NodeId id) const {
    uint16_t words = 0;
    for (NodeId c = id + 1; c < node.end; c = block_.nodes[c].end) {
      const Node& child = block_.nodes[c];
      if (child.dynamic) {
        words |= kTypeWord;
        continue;
      }
      switch (child.kind) {
        case SourceKind::kDictItem:
          words |= kTypeWord | kVersionWord;
          break;
        case SourceKind::kListItem:
          words |= kTypeWord | kBoundsWord | kItemsWord;
          break;
        case SourceKind::kTupleItem:
          words |= kTypeWord | kBoundsWord;
          break;
        default:
          words |= kTypeWord;
      }
    }
    return words;
  }

  uint16_t wordsForGuards(const Node& node, NodeId id) {
    uint16_t words = 0;
    PyTypeObject* type = guardedType(node);
    for (const LocalGuard& g : block_.guardsOf(node)) {
      switch (g.kind) {
        case GuardKind::kType:
          words |= kTypeWord;
          break;
        case GuardKind::kLength:
          words |= kTypeWord | kLengthWord;
          break;
        case GuardKind::kLacksKey:
          words |= kTypeWord | kVersionWord;
          break;
        case GuardKind::kKeys:
          words |= kTypeWord | kVersionWord;
          if (type == nullptr || PyType_IsSubtype(type, &PyODict_Type)) {
            words |= kOrderWord;
          }
          break;
        case GuardKind::kNoDict:
          // An inline attribute can be added without a change of any pointer that is compared.
          if (type != nullptr && !pyapi::hasManagedDict(type)) {
            words |= kTypeWord | kNoDictWord;
          } else {
            words |= kTypeWord;
            addRecheck(id);
          }
          break;
        case GuardKind::kEmptyMember:
        case GuardKind::kEmptyCell:
          if ((words & kEmptyWord) != 0) {
            addRecheck(id);  // the word covers the first guard only
          }
          words |= kTypeWord | kEmptyWord;
          break;
        case GuardKind::kFunction:
          words |= kTypeWord | kCodeWord;
          break;
        case GuardKind::kNoAttribute:  // most objects have no dict whose version could be compared
        case GuardKind::kSetEquals:
        case GuardKind::kElement:
        case GuardKind::kNoElement:
        case GuardKind::kFits:
        case GuardKind::kDimRange:
          words |= kTypeWord;
          addRecheck(id);
          break;
        case GuardKind::kIs:
        case GuardKind::kEquals:
        case GuardKind::kTensor:
        case GuardKind::kTensorRank:
        case GuardKind::kTypeVersion:
        case GuardKind::kOpenAttribute:
        case GuardKind::kSame:
        case GuardKind::kNotSame:
        case GuardKind::kGlobalState:
          break;
      }
    }
    return words;
  }

  void addRecheck(NodeId id) {
    if (block_.rechecks.empty() || block_.rechecks.back() != id) {
      block_.rechecks.push_back(id);
    }
  }

  static uint16_t linkWords(const Node& node) {
    if (node.root) {
      return 0;
    }
    switch (node.kind) {
      case SourceKind::kDictItem:  // the parent's version answers for it
      case SourceKind::kType:      // the parent's type word
        return 0;
      case SourceKind::kClosure:
        return kClosureWord | kLinkWord;
      default:
        return kLinkWord;
    }
  }

  // An object that is known to be the same one (its holder's version is unchanged, or we own it) keeps its
  // type if that type allows no `__class__` assignment. An instance dict is always a dict, and its version
  // tells whether it is the same.
  bool typeIsImplied(const Node& node, uint16_t words) const {
    if (!node.root && node.kind == SourceKind::kDict && (words & kVersionWord) != 0) {
      PyTypeObject* type = guardedType(node);
      return type == nullptr || pyapi::hasFixedInstances(type);
    }
    const bool identityProven =
        !node.external && (node.kind == SourceKind::kDictItem || node.kind == SourceKind::kPinned);
    PyTypeObject* type =
        node.kind == SourceKind::kPinned && !node.external ? Py_TYPE(node.key) : guardedType(node);
    return identityProven && type != nullptr && pyapi::hasFixedInstances(type);
  }

  void chooseWords(NodeId id) {
    Node& node = block_.nodes[id];
    const bool leafRoot = isLeafRoot(node, id);
    for (uint32_t g = node.firstGuard; g < node.firstGuard + node.guardCount; ++g) {
      LocalGuard& local = block_.guards[g];
      if (local.info != nullptr && !leafRoot && !node.dynamic) {
        local.tensor = static_cast<uint32_t>(block_.tensors.size());
        block_.tensors.push_back({.info = local.info, .sizes = sizesOf(local)});
      }
    }
    if (leafRoot || node.dynamic) {
      return;  // compared in every call
    }
    uint16_t words = linkWords(node) | wordsForChildren(node, id) | wordsForGuards(node, id);
    if ((words & kLengthWord) != 0) {
      words &= static_cast<uint16_t>(~kBoundsWord);
    }
    const LocalGuard* tensor = guardOf(node, GuardKind::kTensor);
    const bool comparedAsTensor = tensor != nullptr && tensor->info->pyType == guardedType(node);
    if (typeIsImplied(node, words) ||
        (comparedAsTensor && (words & ~(kTypeWord | linkWords(node))) == 0 && node.end == id + 1)) {
      words &= static_cast<uint16_t>(~kTypeWord);
    }
    node.words = words;
    const bool heldElsewhere = node.kind == SourceKind::kDictItem || node.kind == SourceKind::kPinned;
    node.keepsObject = guardOf(node, GuardKind::kEquals) != nullptr && (node.external || !heldElsewhere);
  }

  void layOut() {
    for (NodeId n = 0; n < block_.nodes.size(); ++n) {
      Node& node = block_.nodes[n];
      node.firstWord = static_cast<uint32_t>(block_.wordNodes.size());
      block_.wordNodes.insert(block_.wordNodes.end(), static_cast<size_t>(std::popcount(node.words)), n);
    }
    static constexpr pyapi::Word kNothing = 0;
    block_.words.assign(block_.wordNodes.size() + kWordsAhead, WordCheck{&kNothing, 0});
    block_.objects.assign(block_.nodes.size(), nullptr);
    for (NodeId n = block_.pinnedEnd; n < block_.nodes.size(); n = block_.nodes[n].end) {
      const Node& node = block_.nodes[n];
      block_.segments.push_back({n, isLeafRoot(node, n), node.firstWord, block_.endWord(node)});
    }
    auto firstTree = std::stable_partition(block_.segments.begin(), block_.segments.end(),
                                           [](const Segment& s) { return s.leaf; });
    block_.leafCount = static_cast<uint32_t>(firstTree - block_.segments.begin());
    auto changes = [&](NodeId n) { return isLeafRoot(block_.nodes[n], n) || block_.nodes[n].dynamic; };
    auto firstStable =
        std::stable_partition(block_.sames.begin(), block_.sames.end(),
                              [&](const SameCheck& s) { return changes(s.a) || changes(s.b); });
    block_.changingSames = static_cast<uint32_t>(firstStable - block_.sames.begin());
    block_.onlyLeaves = block_.leafCount == block_.nodes.size() && block_.types.empty() &&
                        block_.states.empty() && block_.sames.empty();
  }

  const recording::Recording& recording_;
  const std::vector<guard::SourceNode>& sources_;
  const UsedSources& used_;
  const BlockMembers& members_;
  const std::vector<uint32_t>& openAttributes_;
  guard::BlockId id_;
  std::vector<Links>& links_;
  std::vector<guard::SourceId> included_;
  std::vector<guard::SourceId> roots_;
  Block block_;
};

}  // namespace

std::vector<Block> compileBlocks(const recording::Recording& recording, const GuardChoice& chosen) {
  const auto& sources = recording.document.sources.nodes;
  const auto& guards = recording.document.guards.guards;
  std::vector<BlockMembers> members(std::max<guard::BlockId>(recording.document.guards.blockCount, 1));
  auto membersOf = [&](guard::BlockId block) -> BlockMembers& {
    if (block >= members.size()) {
      members.resize(block + 1);
    }
    return members[block];
  };
  for (guard::SourceId id = 0; id < sources.size(); ++id) {
    membersOf(sources[id].block).sources.push_back(id);
  }
  for (uint32_t index = 0; index < guards.size(); ++index) {
    if (!chosen || chosen(guards[index])) membersOf(guards[index].block).guards.push_back(index);
  }
  std::vector<uint32_t> openAttributes;
  for (uint32_t index = 0; index < guards.size(); ++index) {
    const guard::Guard& g = guards[index];
    if (g.kind == GuardKind::kOpenAttribute && g.block >= recording.firstBlock)
      openAttributes.push_back(index);
  }
  const UsedSources used(recording);
  std::vector<Links> links(sources.size());
  std::vector<Block> blocks;
  blocks.reserve(members.size());
  for (guard::BlockId id = 0; id < members.size(); ++id) {
    if (id < recording.firstBlock) {
      blocks.emplace_back();  // its parent has run it
      continue;
    }
    blocks.push_back(BlockCompiler(recording, used, members[id], openAttributes, id, links).compile());
  }
  return blocks;
}

}  // namespace kintsugi::runtime
