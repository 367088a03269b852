// One guard block, compiled: the sources as a tree in preorder, the guards hung on its nodes, and the memo's
// flat checks.
//
// Layout: node 0.. in preorder, so a subtree is a range [n, nodes[n].end). Each node owns a range of words
// (WordCheck): first those that prove that it is still the object at that place in its parent, then those
// about its own state. Words are therefore parents first, and a word may be dereferenced once all words
// before it have matched. See docs/internals/guards.md.
//
// Ownership: owned by a GuardProgram; borrows keys and expected objects from the Recording's constants;
// object pointers belong to the memo and are valid only as far as the walk has verified them. Threads: GIL.
// Invalidation: a failed walk marks its part of the memo as unusable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "guard/guard.h"
#include "pyapi/object_layout.h"
#include "runtime/guard_program.h"
#include "torchapi/tensor_guard.h"

namespace kintsugi::runtime {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = ir::kNone;

// Which words a node has, in this order.
enum WordFlags : uint16_t {
  kLinkWord = 1,      // the parent's field that holds this object
  kClosureWord = 2,   // closure elements only: the function's closure tuple (comes before the link)
  kTypeWord = 4,      // the object's type
  kVersionWord = 8,   // a dict's version tag
  kOrderWord = 16,    // an OrderedDict's order
  kBoundsWord = 32,   // number of elements of a list or tuple
  kItemsWord = 64,    // a list's array
  kLengthWord = 128,  // guard Length
  kCodeWord = 256,    // guard Function
  kNoDictWord = 512,  // guard NoDict: the slot of the instance dict
  kEmptyWord = 1024,  // guards EmptyMember, EmptyCell
};

// A guard on one object.
struct LocalGuard {
  guard::GuardKind kind;
  uint32_t index = 0;                    // into GuardSet::guards
  PyObject* key = nullptr;               // expected object, type, key or descriptor
  Py_hash_t hash = 0;                    // LacksKey, NoAttribute
  int64_t number = 0;                    // Length
  const ir::TensorDesc* info = nullptr;  // Tensor, TensorRank
  uint32_t tensor = ir::kNone;           // their place in Block::tensors; kNone: compared at once
};

struct Node {
  guard::SourceKind kind = guard::SourceKind::kArg;
  bool external = false;  // resolved by an earlier block: taken from the slots
  bool root = false;
  bool dynamic = false;  // under a computed descriptor: always walked, has no words
  bool keepsObject =
      false;               // compared by value: the memo must own it, so that its address can't be used again
  bool keyHashed = false;  // DictItem: `hash` is known
  bool slotUsed = false;   // the trace uses this object or one below it
  uint16_t words = 0;      // WordFlags
  guard::SourceId source = ir::kNone;
  NodeId parent = kNoNode;
  NodeId end = 0;
  uint32_t firstWord = 0;
  uint32_t firstGuard = 0;
  uint32_t guardCount = 0;
  PyObject* key = nullptr;
  Py_hash_t hash = 0;
  int64_t index = 0;
  // Memo
  PyTypeObject* type = nullptr;
  pyapi::Ref<> kept;
};

// Words are prefetched this far ahead of their turn; as many follow the last one. A word takes two loads and
// a compare, about a nanosecond: so many cover the 20 to 30 ns that the third cache takes. With fewer, each
// word waits; with more, the padding of each block grows, and lines come that are not asked for if a word
// differs.
inline constexpr uint32_t kWordsAhead = 24;

struct WordCheck {
  const pyapi::Word* address;
  pyapi::Word expected;
};

// The entries of a class's dict at one time, to find out later which have changed: addresses, which may be
// used again since, so this is no proof of anything.
using ClassEntries = std::vector<std::pair<const PyObject*, const PyObject*>>;

// Everything that attribute look-up on a type depends on. CPython also invalidates a type's version when
// nothing relevant has changed; then these are compared, and the new version is accepted.
struct TypeCheck {
  PyTypeObject* type = nullptr;
  uint32_t index = 0;  // into GuardSet::guards
  pyapi::Word version = 0;
  bool broken = false;  // changed before the program was made
  pyapi::Ref<> mro;
  std::vector<pyapi::Word> dictVersions;                     // of the types of `mro`
  std::vector<std::shared_ptr<const ClassEntries>> entries;  // likewise
};

// The dict of a class with entries that guards on classes leave out, and what the others were.
struct OpenDict {
  PyTypeObject* type = nullptr;
  std::vector<PyObject*> names;  // left out; the recording's constants hold them
  std::vector<std::pair<pyapi::Ref<>, pyapi::Ref<>>> entries;
  pyapi::Word version = 0;  // in which they were so last
};

// A root whose subtree has words, or a root alone, which is checked in every call.
struct Segment {
  NodeId node;
  bool leaf;
  uint32_t firstWord;
  uint32_t endWord;
};

struct SameCheck {
  NodeId a;
  NodeId b;
  bool same;
  uint32_t index;
};

// Where roots take their objects from, for one check.
struct Inputs {
  const pyapi::Arguments& args;
  PyObject* const* values;
  SlotArray slots;
};

struct Block {
  std::vector<Node> nodes;
  std::vector<PyObject*> objects;  // by NodeId: the memo's object
  std::vector<LocalGuard> guards;
  std::vector<WordCheck> words;
  std::vector<NodeId> wordNodes;  // by word
  std::vector<Segment> segments;  // leaves first: arguments fail sooner than what is behind `self`
  std::vector<TypeCheck> types;
  std::vector<OpenDict> openDicts;
  std::vector<torchapi::TensorCheck> tensors;
  std::vector<SameCheck> sames;
  std::vector<const torchapi::GlobalState*> states;
  std::vector<uint32_t> stateIndices;  // by state: into GuardSet::guards
  std::vector<NodeId> dynamics;        // roots of dynamic subtrees
  std::vector<NodeId> rechecks;        // nodes with guards that no word can stand for
  std::vector<std::pair<NodeId, guard::SourceId>> slotsUsed;
  std::vector<pyapi::Ref<>> retired;  // fresh objects of the last walk, dropped where finalizers do no harm
  NodeId pinnedEnd = 0;               // the nodes below pinned roots are [0, pinnedEnd)
  uint32_t leafCount = 0;             // of segments
  uint32_t changingSames = 0;         // the first of `sames`: about objects that every call brings anew
  bool onlyLeaves = false;            // nothing but leaf segments: most blocks after a step
  bool pinnedWalked = false;          // the pinned subtrees have words
  bool samesStale = true;             // an object of the memo has changed since all of `sames` held
  uint64_t hits = 0;                  // checks that passed without a walk
  uint64_t misses = 0;                // the others
  uint64_t walks = 0;

  std::span<const LocalGuard> guardsOf(const Node& n) const {
    return {guards.data() + n.firstGuard, n.guardCount};
  }
  uint32_t endWord(const Node& n) const {
    return n.end < nodes.size() ? nodes[n.end].firstWord : static_cast<uint32_t>(wordNodes.size());
  }
};

// Compilation (guard_compile.cc).
std::vector<Block> compileBlocks(const recording::Recording& recording, const GuardChoice& chosen);

// Structural part (guard_resolve.cc). None of these runs Python code or leaves an exception.
PyObject* loadRoot(const Node& root, const Inputs& in);
// The object of a node whose parent's object is known; null: there is none. `fresh` takes a computed object.
PyObject* resolveNode(const Node& node, PyObject* parent, const Inputs& in, pyapi::Ref<>& fresh);
bool holds(const LocalGuard& guard, PyObject* object);
bool setTypeBaseline(TypeCheck& check);
void setDictBaseline(OpenDict& dict);
bool typeHolds(Block& block, TypeCheck& check);
bool globalStateHolds(const Block& block);
// Resolves and checks the subtree of `id`, whose parent's object is known to be right, and rewrites its
// words.
bool walk(Block& block, const Inputs& in, NodeId id);

// Memo (guard_memo.cc).
void writeWords(Block& block, NodeId id);
bool checkBlock(Block& block, const Inputs& in);

}  // namespace kintsugi::runtime
