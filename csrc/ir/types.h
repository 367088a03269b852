// Types of trace values, and the operands that instructions refer to them by.
//
// Plain data: no Python, no torch. Thread-safe as long as no thread writes.
#pragma once

#include <cstdint>

#include "ir/tensor_desc.h"

namespace kintsugi::ir {

using ValueId = uint32_t;
using SourceId = uint32_t;
using ConstId = uint32_t;
using RecipeId = uint32_t;
using StateId = uint32_t;
using MetaId = uint32_t;
inline constexpr uint32_t kNone = 0xffffffffu;

enum class TypeKind : uint8_t { kNone, kTensor, kInt, kFloat, kBool, kObject };

// What a value is. `meta` indexes Trace::metas for tensors whose metadata is known, perhaps but for sizes;
// kNone: known only at run time.
struct Type {
  TypeKind kind = TypeKind::kNone;
  MetaId meta = kNone;
  bool operator==(const Type&) const = default;
};

enum class OperandKind : uint8_t {
  kNone,    // none
  kValue,   // %3
  kSource,  // $3   an object reached by a path, resolved by the guards
  kConst,   // #3   a pinned Python object
  kRecipe,  // @3   an object to be built here
  kInt,
  kFloat,
  kBool,
  kStr,           // "..."; index into Trace::strings
  kComplex,       // two doubles in Trace::complexes
  kDtype,         // dtype:6      the number is torch's ScalarType; printed with its name
  kDevice,        // device:"cpu"; index into Trace::strings
  kLayout,        // layout:0
  kMemoryFormat,  // memfmt:0
  kList,          // [a, b]; a range of Trace::lists
  kNull,          // null: an empty stack slot or an unbound local
};

struct Operand {
  OperandKind kind = OperandKind::kNone;
  uint32_t count = 0;  // kList: number of elements
  union {
    int64_t i;
    double f;
    uint32_t id;  // value, source, const, recipe, string; kList: first element
  };
  Operand() : i(0) {}
  static Operand none() { return {}; }
  static Operand null() { return make(OperandKind::kNull, 0); }
  static Operand value(ValueId v) { return make(OperandKind::kValue, v); }
  static Operand source(SourceId s) { return make(OperandKind::kSource, s); }
  static Operand constant(ConstId c) { return make(OperandKind::kConst, c); }
  static Operand recipe(RecipeId r) { return make(OperandKind::kRecipe, r); }
  static Operand integer(int64_t v) { return make(OperandKind::kInt, v); }
  static Operand boolean(bool v) { return make(OperandKind::kBool, v ? 1 : 0); }
  static Operand number(double v) {
    Operand o;
    o.kind = OperandKind::kFloat;
    o.f = v;
    return o;
  }
  static Operand make(OperandKind kind, int64_t payload, uint32_t count = 0) {
    Operand o;
    o.kind = kind;
    o.count = count;
    o.i = payload;
    return o;
  }
  bool isValue() const { return kind == OperandKind::kValue; }
};

}  // namespace kintsugi::ir
