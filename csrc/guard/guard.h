// Guards: what has to hold for a trace to be valid, as data. See docs/internals/guards.md.
//
// A guard names a source and what it was seen to be. Guards of block 0 are checked at entry, those of block k
// right after the k-th opaque step. The runtime compiles a GuardSet into a structural program and a memo of
// it. Plain data, constant after recording. Text form (one line a guard):
//   guards 0 {
//     type $0 #3
//     equals $4 #7
//     tensor $9 12
//   }
#pragma once

#include <cstdint>
#include <vector>

#include "guard/source.h"

namespace kintsugi::guard {

// clang-format off
// KINTSUGI_GUARD(Name, "text", parts): s source, k constant, n number, m tensor metadata, t second source
#define KINTSUGI_GUARDS(X)                                                                    \
  X(Type, "type", "sk")            /* Py_TYPE(source) is k */                                 \
  X(TypeVersion, "typeversion", "k") /* nothing that attribute look-up on type k sees has changed */ \
  X(OpenAttribute, "openattr", "k") /* says nothing, but that typeversion leaves out the entry of a class's dict: k is a pair of class and name */ \
  X(Is, "is", "sk")                /* source is k */                                          \
  X(Equals, "equals", "sk")        /* same type and same value: int, float (bitwise), str, bytes, bool, None ... */ \
  X(Fits, "fits", "s")             /* an int of at most 64 bits */                            \
  X(Length, "length", "sn")        /* list, tuple, dict, set, str: exactly n elements */      \
  X(LacksKey, "lacks", "sk")       /* dict source has no key k */                             \
  X(Keys, "keys", "sk")            /* dict source has exactly the keys of tuple k, in that order */ \
  X(SetEquals, "set", "sk")        /* set or frozenset source equals k (elements are plain constants) */ \
  X(Element, "element", "sk")      /* set or frozenset source holds k */                      \
  X(NoElement, "noelement", "sk")  /* set or frozenset source does not hold k */              \
  X(NoDict, "nodict", "s")         /* source has no instance dict (yet) */                    \
  X(NoAttribute, "noattr", "sk")   /* source has no attribute k of its own: it has no instance dict, or one without k */ \
  X(EmptyMember, "nomember", "sk") /* the slot k of source is unset */                        \
  X(EmptyCell, "nocell", "s")      /* the cell is empty */                                    \
  X(Function, "function", "sk")    /* source is a function with code k */                      \
  X(Same, "same", "st")            /* source is the same object as t */                       \
  X(NotSame, "notsame", "st")      /* source is another object than t */                      \
  X(Tensor, "tensor", "sm")        /* type, dispatch keys, dtype, device, requires_grad, fixed sizes and strides */ \
  X(TensorRank, "tensorrank", "sm") /* the same without the sizes and strides */              \
  X(DimRange, "dimrange", "sk")    /* k is (dimension, least, most): a tensor's size there is between them */ \
  X(GlobalState, "globalstate", "n") /* grad mode, autocast, default dtype, modes: the n-th packed state */
// clang-format on

enum class GuardKind : uint8_t {
#define KTG_KIND(name, text, parts) k##name,
  KINTSUGI_GUARDS(KTG_KIND)
#undef KTG_KIND
};

struct Guard {
  GuardKind kind = GuardKind::kType;
  BlockId block = 0;
  SourceId source = ir::kNone;
  SourceId other = ir::kNone;
  ConstId key = ir::kNone;
  int64_t number = 0;  // length, metadata number, state number
  bool operator==(const Guard&) const = default;
};

struct GuardSet {
  std::vector<Guard> guards;  // in the order of recording: a guard on a child follows those on its parents
  BlockId blockCount = 1;
};

}  // namespace kintsugi::guard
