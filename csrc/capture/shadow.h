// Provenance: what the recorder knows beside each real value. See docs/internals/capture.md.
//
// The real heap only ever holds real values. Each stack slot and local has a Shadow. Objects that the trace
// has made are Virtuals: they know the shadows of their parts and are built only where they escape.
//
// Ownership: shadows are small values; Virtuals are owned by the Recorder and hold their real object, so that
// no address is used twice in one recording. Thread: the recording one, with the GIL. Invalidation: the end
// of the recording.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/interpreter.h"
#include "capture/shadow_pool.h"
#include "ir/trace.h"
#include "pyapi/ref.h"
#include "support/check.h"

namespace kintsugi::capture {

enum class ShadowKind : uint8_t {
  kNull,     // no object: an unbound local or the NULL under a call
  kConst,    // the real object itself: immutable and pinned, or pinned by identity
  kSource,   // reached by a path; guarded when it is read
  kValue,    // a trace value: a tensor, or a number that is known only at run time
  kVirtual,  // made in this trace
};

class Shadow {
 public:
  Shadow() = default;
  static Shadow null() { return {}; }
  static Shadow constant() { return {ShadowKind::kConst, 0}; }
  static Shadow source(ir::SourceId id) { return {ShadowKind::kSource, id}; }
  static Shadow value(ir::ValueId id) { return {ShadowKind::kValue, id}; }
  static Shadow virt(uint32_t id) { return {ShadowKind::kVirtual, id}; }
  // For decoding: a shadow of any kind.
  static Shadow of(ShadowKind kind, uint32_t id) { return {kind, id}; }

  ShadowKind kind() const { return kind_; }
  bool isNull() const { return kind_ == ShadowKind::kNull; }
  bool isConst() const { return kind_ == ShadowKind::kConst; }
  bool isSource() const { return kind_ == ShadowKind::kSource; }
  bool isValue() const { return kind_ == ShadowKind::kValue; }
  bool isVirtual() const { return kind_ == ShadowKind::kVirtual; }
  // Each checks the kind: numbers of different kinds mean different things.
  ir::SourceId sourceId() const { return checked(ShadowKind::kSource); }
  ir::ValueId valueId() const { return checked(ShadowKind::kValue); }
  uint32_t virtualId() const { return checked(ShadowKind::kVirtual); }
  uint32_t anyId() const { return id_; }
  bool operator==(const Shadow&) const = default;

 private:
  Shadow(ShadowKind kind, uint32_t id) : kind_(kind), id_(id) {}
  uint32_t checked(ShadowKind kind) const {
    KINTSUGI_CHECK(kind_ == kind, "a shadow of kind ", static_cast<int>(kind_), " is taken for one of kind ",
                   static_cast<int>(kind));
    return id_;
  }

  ShadowKind kind_ = ShadowKind::kNull;
  uint32_t id_ = 0;
};

enum class VirtualKind : uint8_t {
  kTuple,      // parts: elements (named tuples and struct sequences too)
  kList,       // parts: elements
  kDict,       // entries
  kDeque,      // parts: elements; index: its maximal length plus 1 (0: none)
  kSet,        // an (almost) constant set: elements are constants
  kSlice,      // parts: start, stop, step
  kInstance,   // attrs; entries as well when the class is a dict subclass
  kCell,       // parts: the content
  kFunction,   // parts: defaults tuple, kwdefaults dict, closure cells...; attrs: its dict; entries: slots
  kMethod,     // parts: function, self
  kSuper,      // parts: type, object
  kDictView,   // parts: the dict; index: 0 keys, 1 values, 2 items
  kIterator,   // parts: the container; index: position
  kRange,      // a range or range iterator of constants: the object says all
  kEnumerate,  // parts: inner iterator; index: next number
  kZip,        // parts: inner iterators
  kMap,        // parts: function, inner iterators (of a map or filter)
  kPartial,    // parts: (of a partial the function and) positional arguments; entries: keywords; see isGetter
  kGenerator,  // parts: the function; frame: the shadow frame while suspended
  kException,  // parts: the arguments; attrs; see exceptions.h
  kTraceback,  // the object says all
  kClass,      // parts: bases, the cell `__class__` (or null); entries: the namespace; see classes.h
  kOpaque,     // made here, but it can't be rebuilt
};

// A virtual object that a recipe or a frame state names, and the recipe by which it names it.
struct NamedRecipe {
  uint32_t virtualId = 0;
  ir::RecipeId recipe = ir::kNone;
};

using Shadows = PooledVector<Shadow>;
using Refs = PooledVector<pyapi::Ref<>>;

struct ShadowFrame;
struct Virtual : Pooled {
  VirtualKind kind = VirtualKind::kOpaque;
  pyapi::Ref<> object;
  Shadows parts;
  Refs partObjects;  // the real parts, where the object itself does not hold them in this order
  int64_t index = 0;
  pyapi::Ref<> attrs;    // dict: name -> encoded shadow
  pyapi::Ref<> entries;  // dict: key -> encoded shadow, in the order of the real dict
  std::unique_ptr<ShadowFrame> frame;
  ir::ValueId value = ir::kNone;    // where it was built, if it has escaped
  ir::RecipeId recipe = ir::kNone;  // cached; known to be valid in `recipeEpoch`, see Recipes::isCurrent
  uint64_t recipeEpoch = 0;
  uint64_t changed = 0;            // the epoch of its own last change
  std::vector<NamedRecipe> named;  // by its recipe
  bool shared = false;             // it is the dict of an instance (parts), not an object of its own
  bool forgotten = false;          // unknown code may have changed it: see Objects::current
  bool sized = false;              // kIterator: its container has the same size in each run when it is made
  bool unpinned = false;  // kIterator: unknown code may have changed its container: see Objects::pinAgain
  bool building = false;  // its recipe is being made
  bool looped = false;    // its recipe, or one below it, is part of a cycle
  bool exposed = false;   // kFunction, kClass: unknown code may have changed its attributes
  bool renamed = false;   // kFunction: its name, module or documentation was set
};

// An iterator or a deque: whoever is given it may move it on or change it.
inline bool isConsumed(const Virtual& v) {
  return v.kind == VirtualKind::kIterator || v.kind == VirtualKind::kEnumerate ||
         v.kind == VirtualKind::kZip || v.kind == VirtualKind::kMap || v.kind == VirtualKind::kGenerator ||
         v.kind == VirtualKind::kDeque;
}

// How a caller's frame goes on when the call under way in it returns. The state is made when an inner frame
// needs it, and made again if a virtual object that it names has changed since.
struct CallSite {
  const Instr* instr = nullptr;  // null: the entry frame, or a call by C code
  size_t popped = 0;             // stack slots that the call takes
  Shadows extra;                 // what the instruction pushes before the result (only nulls and values)
  ir::ReturnAction action = ir::ReturnAction::kPush;
  Shadow replacement;  // see ir::ReturnAction
  pyapi::Ref<> replacementObject;
  ir::StateId state = ir::kNone;  // cached; known to be valid in `epoch`
  uint64_t epoch = 0;
  std::vector<NamedRecipe> named;  // by the state, its parents left out
  bool rebuildable = true;         // the caller's frame was, when the state was made
  bool complete = false;           // everything that the state names could be described
};

struct ShadowFrame;
// The value stack of a frame as it was when the current instruction began.
struct StackBefore {
  const ShadowFrame* frame = nullptr;
  Shadows shadows;
  Refs objects;
};

// The recorder's view of one observed frame.
struct ShadowFrame : Pooled {
  Activation* act = nullptr;
  ShadowFrame* caller = nullptr;
  PyCodeObject* code = nullptr;
  pyapi::Ref<> function;
  Shadow functionShadow;
  Shadows locals;
  Shadows stack;
  CallSite site;            // how the caller waits for this frame's result
  bool pinResult = false;   // C code converts the result, so it has to be a constant
  bool rebuildable = true;  // this frame and its callers can be rebuilt on an exit
  bool transform = false;   // runs a function under a functorch transform: see calls/transforms.cc
  Shadow handled;           // the exception being handled (PUSH_EXC_INFO without POP_EXCEPT)
  pyapi::Ref<> handledObject;
  std::vector<ir::SourceId> heldByHandled;  // held by frames that the exception has passed: see exceptions.h
  size_t handledOver =
      0;  // the stack slot that keeps what is handled outside of the frame; its shadow is null

  // Entry `n` from the top of the stack. Checked in every build: only recording comes here, and a wrong entry
  // would be a wrong trace.
  Shadow& top(int n = 1) {
    checkDepth(static_cast<size_t>(n));
    return stack[stack.size() - n];
  }
  void push(Shadow s) { stack.push_back(s); }
  Shadow pop() {
    checkDepth(1);
    Shadow s = stack.back();
    stack.pop_back();
    return s;
  }
  void drop(size_t n) {
    checkDepth(n);
    stack.resize(stack.size() - n);
  }
  void checkDepth(size_t n) const {
    KINTSUGI_CHECK(n <= stack.size(), "entry ", n, " of a shadow stack of ", stack.size());
  }
};

}  // namespace kintsugi::capture
