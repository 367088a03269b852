// The memo of a block: its flat words, the loop over them, and the repair of what has changed since.

#include "pyapi/containers.h"
#include "pyapi/functions.h"
#include "pyapi/plain.h"
#include "runtime/guard_block.h"

namespace kintsugi::runtime {

namespace {

using guard::GuardKind;
using guard::SourceKind;
using pyapi::Word;
using pyapi::wordAt;
using pyapi::wordOf;

constexpr Word kZero = 0;
constexpr WordCheck kPasses{&kZero, 0};
constexpr WordCheck kPoison{&kZero, 1};

WordCheck seen(const Word* address) { return {address, *address}; }

// The parent's field that holds the object of `node`.
const Word* linkWord(const Node& node, PyObject* parent) {
  bool noneIfNull = false;
  switch (node.kind) {
    case SourceKind::kDict:
      return wordAt(pyapi::instanceDictSlot(parent));
    case SourceKind::kListItem:
      return pyapi::listItemWord(parent, node.index);
    case SourceKind::kTupleItem:
      return pyapi::tupleItemWord(parent, node.index);
    case SourceKind::kMember:
      return wordAt(pyapi::memberSlot(node.key, parent, &noneIfNull));
    case SourceKind::kCell:
      return pyapi::cellWord(parent);
    case SourceKind::kClosure:
      return pyapi::closureItemWord(parent, node.index);
    case SourceKind::kDefaults:
      return pyapi::defaultsWord(parent);
    case SourceKind::kKwDefaults:
      return pyapi::keywordDefaultsWord(parent);
    case SourceKind::kGlobals:
      return pyapi::globalsWord(parent);
    case SourceKind::kBuiltins:
      return pyapi::builtinsWord(parent);
    case SourceKind::kMethodFunction:
      return pyapi::methodFunctionWord(parent);
    case SourceKind::kMethodSelf:
      return pyapi::methodSelfWord(parent);
    case SourceKind::kPartial:
      return wordAt(pyapi::partialField(parent, node.index));
    case SourceKind::kReferent:
      return pyapi::referentWord(parent);
    case SourceKind::kArg:
    case SourceKind::kPinned:
    case SourceKind::kValue:
    case SourceKind::kType:
    case SourceKind::kDictItem:
    case SourceKind::kGetSet:
      break;
  }
  KINTSUGI_UNREACHABLE("a source of kind ", static_cast<int>(node.kind), " has no link");
}

const Word* emptyWord(const Block& block, const Node& node, PyObject* object) {
  for (const LocalGuard& g : block.guardsOf(node)) {
    if (g.kind == GuardKind::kEmptyMember) {
      bool noneIfNull = false;
      return wordAt(pyapi::memberSlot(g.key, object, &noneIfNull));
    }
  }
  return pyapi::cellWord(object);
}

// The index of the first word in [from, to) that differs, or `to`. The hot loop of the guards: two loads and
// a compare per word. Words do not depend on each other, so the processor overlaps their cache misses.
uint32_t firstDifference(const WordCheck* words, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; ++i) {
    __builtin_prefetch(words[i + kWordsAhead].address);
    if (*words[i].address != words[i].expected) [[unlikely]] {
      return i;
    }
  }
  return to;
}

// The position of a node's version word.
uint32_t versionWord(const Node& node) {
  constexpr uint16_t kBefore = kLinkWord | kClosureWord | kTypeWord;
  return node.firstWord + static_cast<uint32_t>(__builtin_popcount(node.words & kBefore));
}

// After a dict has changed: is the child still the same object, so that its own words are valid?
bool entryUnchanged(const Block& block, NodeId id, PyObject* value) {
  const Node& node = block.nodes[id];
  if (value != block.objects[id] || Py_TYPE(value) != node.type) {
    return false;
  }
  // Another object may have the address now: guards that no word repeats are checked again.
  for (const LocalGuard& g : block.guardsOf(node)) {
    if (g.tensor == ir::kNone && !holds(g, value)) {
      return false;
    }
  }
  return true;
}

// The dict of node `id` has another version: looks its entries up again, and walks only those that changed.
bool refreshDict(Block& block, const Inputs& in, NodeId id) {
  Node& node = block.nodes[id];
  PyObject* dict = block.objects[id];
  if (dict == nullptr || Py_TYPE(dict) != node.type) {
    return walk(block, in, id);
  }
  for (const LocalGuard& g : block.guardsOf(node)) {
    if (!holds(g, dict)) {
      return false;
    }
  }
  for (NodeId c = id + 1; c < node.end; c = block.nodes[c].end) {
    const Node& child = block.nodes[c];
    if (child.kind != SourceKind::kDictItem || child.dynamic) {
      continue;
    }
    pyapi::Ref<> none;
    PyObject* value = resolveNode(child, dict, in, none);
    if (value == nullptr) {
      return false;
    }
    if (!entryUnchanged(block, c, value) && !walk(block, in, c)) {
      return false;
    }
  }
  block.words[versionWord(node)] = seen(pyapi::dictVersionWord(dict));
  return true;
}

// Word `i` differs: decides whether the guards under it still hold. Returns the word to go on from, or kNone.
uint32_t repair(Block& block, const Inputs& in, uint32_t i) {
  const NodeId id = block.wordNodes[i];
  Node& node = block.nodes[id];
  const bool isVersion = (node.words & kVersionWord) != 0 && i == versionWord(node);
  if (isVersion && block.objects[id] != nullptr && Py_TYPE(block.objects[id]) == node.type) {
    return refreshDict(block, in, id) ? i + 1 : ir::kNone;
  }
  if (!walk(block, in, id)) {
    block.words[node.firstWord] = kPoison;  // whatever the state is next time, walk again
    return ir::kNone;
  }
  return block.endWord(node);
}

bool checkLeaf(Block& block, const Inputs& in, NodeId id) {
  const Node& node = block.nodes[id];
  PyObject* object = loadRoot(node, in);
  if (object == nullptr) {
    return false;
  }
  block.objects[id] = object;
  for (const LocalGuard& g : block.guardsOf(node)) {
    if (!holds(g, object)) {
      return false;
    }
  }
  return true;
}

bool checkWords(Block& block, const Inputs& in, uint32_t from, uint32_t to) {
  for (uint32_t i = from;;) {
    i = firstDifference(block.words.data(), i, to);
    if (i == to) {
      return true;
    }
    i = repair(block, in, i);
    if (i == ir::kNone) {
      return false;
    }
  }
}

bool checkLeaves(Block& block, const Inputs& in) {
  for (uint32_t s = 0; s < block.leafCount; ++s) {
    if (!checkLeaf(block, in, block.segments[s].node)) {
      return false;
    }
  }
  return true;
}

bool checkPinned(Block& block, const Inputs& in) {
  if (block.pinnedWalked) [[likely]] {
    const uint32_t end = block.pinnedEnd < block.nodes.size() ? block.nodes[block.pinnedEnd].firstWord
                                                              : static_cast<uint32_t>(block.wordNodes.size());
    return checkWords(block, in, 0, end);
  }
  for (NodeId n = 0; n < block.pinnedEnd; n = block.nodes[n].end) {
    if (!walk(block, in, n)) {
      return false;
    }
  }
  block.pinnedWalked = true;
  return true;
}

// Checks the trees below roots that may be other objects in each call: arguments, results of steps.
bool checkTrees(Block& block, const Inputs& in) {
  for (size_t s = block.leafCount; s < block.segments.size(); ++s) {
    const Segment& segment = block.segments[s];
    PyObject* object = loadRoot(block.nodes[segment.node], in);
    const bool same = object != nullptr && object == block.objects[segment.node];
    if (!(same ? checkWords(block, in, segment.firstWord, segment.endWord) : walk(block, in, segment.node))) {
      return false;
    }
  }
  return true;
}

bool samesHold(Block& block) {
  const size_t count = block.samesStale ? block.sames.size() : block.changingSames;
  for (size_t i = 0; i < count; ++i) {
    const SameCheck& check = block.sames[i];
    if ((block.objects[check.a] == block.objects[check.b]) != check.same) {
      return false;
    }
  }
  block.samesStale = false;
  return true;
}

bool checkRest(Block& block, const Inputs& in) {
  for (NodeId id : block.dynamics) {
    // Guards on identity are checked in every call, even if the memo has matched.
    --block.walks;
    const bool stale = block.samesStale;
    if (!walk(block, in, id)) {
      return false;
    }
    block.samesStale = stale;
  }
  for (NodeId id : block.rechecks) {
    for (const LocalGuard& g : block.guardsOf(block.nodes[id])) {
      if (g.tensor == ir::kNone && !holds(g, block.objects[id])) {
        return false;
      }
    }
  }
  if (torchapi::firstMismatch(block.tensors.data(), block.tensors.size()) != block.tensors.size()) {
    return false;
  }
  return samesHold(block);
}

bool typesHold(Block& block) {
  for (TypeCheck& check : block.types) {
    if ((*pyapi::typeVersionWord(check.type) != check.version || check.broken) && !typeHolds(block, check)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void writeWords(Block& block, NodeId id) {
  const Node& node = block.nodes[id];
  if (node.words == 0) {
    return;
  }
  PyObject* object = block.objects[id];
  PyObject* parent = node.root ? nullptr : block.objects[node.parent];
  WordCheck* word = block.words.data() + node.firstWord;
  auto add = [&](uint16_t flag, auto make) {
    if ((node.words & flag) != 0) {
      *word++ = make();
    }
  };
  // The word of the closure's tuple comes before that of the element in it.
  add(kClosureWord, [&] { return seen(pyapi::closureWord(parent)); });
  add(kLinkWord, [&] { return seen(linkWord(node, parent)); });
  add(kTypeWord, [&] { return seen(pyapi::typeWord(object)); });
  // Without a guard on its type the object may be anything; then its children do not resolve.
  const bool dict = PyDict_Check(object) != 0, list = PyList_Check(object) != 0;
  add(kVersionWord, [&] { return dict ? seen(pyapi::dictVersionWord(object)) : kPoison; });
  add(kOrderWord, [&] {
    if (!dict) {
      return kPoison;
    }
    const Word* order = pyapi::dictOrderWord(object);
    return order == nullptr ? kPasses : seen(order);
  });
  add(kBoundsWord, [&] { return list || PyTuple_Check(object) ? seen(pyapi::sizeWord(object)) : kPoison; });
  add(kItemsWord, [&] { return list ? seen(pyapi::listItemsWord(object)) : kPoison; });
  add(kLengthWord, [&] { return seen(pyapi::lengthWord(object)); });
  add(kCodeWord, [&] { return seen(pyapi::codeWord(object)); });
  add(kNoDictWord, [&] {
    PyObject** slot = pyapi::instanceDictSlot(object);
    return slot == nullptr ? kPasses : WordCheck{wordAt(slot), 0};  // an empty dict that is there may fill up
  });
  add(kEmptyWord, [&] { return seen(emptyWord(block, node, object)); });
}

bool checkBlock(Block& block, const Inputs& in) {
  if (!block.retired.empty()) [[unlikely]] {
    std::vector<pyapi::Ref<>> retired =
        std::move(block.retired);  // finalizers may run here, before anything is read
    block.retired.clear();
    retired.clear();
  }
  const uint64_t walks = block.walks;
  const bool rest = block.onlyLeaves || (globalStateHolds(block) && typesHold(block));
  if (!rest || !checkLeaves(block, in) ||
      (!block.onlyLeaves && !(checkPinned(block, in) && checkTrees(block, in) && checkRest(block, in)))) {
    ++block.misses;
    return false;
  }
  for (const auto& [node, source] : block.slotsUsed) {
    in.slots[source] = block.objects[node];
  }
  ++(block.walks == walks ? block.hits : block.misses);
  return true;
}

}  // namespace kintsugi::runtime
