// Sources: how an object that is older than the trace is reached from the entry, as a path that can be walked
// again without running any Python code.
//
// Plain data. A SourceTable is written by the recorder and constant afterwards. `$n` in traces and guards is
// an index into it; parents come before children. Example: self.layers (a ModuleList in `_modules`) is
//   $0 = arg 0 · $1 = dict $0 · $2 = item $1 #4 ("_modules") · $3 = item $2 #5 ("layers")
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/types.h"

namespace kintsugi::guard {

using ir::ConstId;
using ir::SourceId;
using BlockId = uint32_t;

// clang-format off
// KINTSUGI_SOURCE(Name, "text", parts): p parent source, k constant key, i index, v trace value
#define KINTSUGI_SOURCES(X)                                                             \
  X(Arg, "arg", "i")            /* the i-th argument of the call, keywords last */      \
  X(Pinned, "pinned", "k")      /* an object known by identity */                       \
  X(Value, "value", "v")        /* the result of an opaque step */                      \
  X(Type, "type", "p")          /* type(parent) */                                      \
  X(Dict, "dict", "p")          /* the instance or module dict of parent */             \
  X(DictItem, "item", "pk")     /* parent, a dict (or subclass): the raw entry at key */ \
  X(ListItem, "list", "pi")     /* parent, a list (or subclass): element i */           \
  X(TupleItem, "tuple", "pi")   /* parent, a tuple (or subclass): element i */          \
  X(Member, "member", "pk")     /* a slot: the C member descriptor k applied to parent */ \
  X(GetSet, "getset", "pk")     /* a C getset descriptor k, without side effects, applied to parent */ \
  X(Cell, "cell", "p")          /* contents of parent, a cell */                        \
  X(Closure, "closure", "pi")   /* parent, a function: its i-th closure cell */         \
  X(Defaults, "defaults", "p")  /* parent, a function: its tuple of defaults */         \
  X(KwDefaults, "kwdefaults", "p") /* parent, a function: its dict of keyword defaults */ \
  X(Globals, "globals", "p")    /* parent, a function: its globals dict */              \
  X(Builtins, "builtins", "p")  /* parent, a function: its builtins dict */             \
  X(MethodFunction, "func", "p") /* parent, a bound method */                           \
  X(MethodSelf, "self", "p")    /* parent, a bound method */                            \
  X(Partial, "partial", "pi")   /* parent, a functools.partial: 0 func, 1 args, 2 keywords */ \
  X(Referent, "referent", "p")  /* parent, a weakref.ref: what it refers to; None: that has ended */
// clang-format on

enum class SourceKind : uint8_t {
#define KTG_KIND(name, text, parts) k##name,
  KINTSUGI_SOURCES(KTG_KIND)
#undef KTG_KIND
};

struct SourceNode {
  SourceKind kind = SourceKind::kArg;
  SourceId parent = ir::kNone;
  ConstId key = ir::kNone;  // constant key or descriptor
  int64_t index = 0;        // argument number, element, or value id
  BlockId block = 0;        // the guard block that resolves it: 0 at entry, k after the k-th opaque step
};

struct SourceTable {
  std::vector<SourceNode> nodes;
  std::vector<std::string> argNames;  // of the entry's arguments, for people; may be empty
  std::string path(SourceId id,
                   const std::vector<std::string>& constTexts) const;  // for people: self.layers[0]
};

}  // namespace kintsugi::guard
