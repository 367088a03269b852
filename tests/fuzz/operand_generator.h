// The parts of random documents: texts, numbers, tables, sources and operands. See document_generator.h.
//
// The same seed gives the same parts everywhere (no std distributions). Header only, one user, no GIL.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "guard/document.h"
#include "guard/kinds.h"

namespace kintsugi::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}

  uint64_t bits() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Below `count`, which is not 0.
  uint32_t below(size_t count) { return static_cast<uint32_t>(bits() % count); }
  bool oneIn(size_t count) { return below(count) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  uint64_t state_;
};

class OperandGenerator {
 protected:
  explicit OperandGenerator(uint64_t seed) : random_(seed) {}

  ir::Trace& trace() { return document_.trace; }

  std::string text() {
    static const std::vector<std::string> kTexts = {"",
                                                    "a",
                                                    "weight",
                                                    "_modules",
                                                    "'quoted'",
                                                    "with space",
                                                    "semi;colon",
                                                    "tab\t\"q\" \\",
                                                    "caf\xc3\xa9",
                                                    "\xff\xfe",
                                                    std::string("nul\0nul", 7),
                                                    "line\nline",
                                                    "%0",
                                                    "none",
                                                    "}"};
    return random_.pick(kTexts);
  }

  std::string name() {
    static const std::vector<std::string> kNames = {
        "f",    "model.py", "<stdin>", "f.<locals>.<lambda>", "a b", "C:x", "", "dir/f-1.py", "\xe4\xb8\xad",
        "snap", "x\"y"};
    return random_.pick(kNames);
  }

  uint32_t anyId() {
    static const std::vector<uint32_t> kIds = {0, 1, 2, 7, 1000, 0xfffffffeu, ir::kNone};
    return random_.pick(kIds);
  }

  int64_t number() {
    static const std::vector<int64_t> kNumbers = {0, 1, -1, 2, 32, 768, INT64_MAX, INT64_MIN};
    return random_.oneIn(8) ? static_cast<int64_t>(random_.bits()) : random_.pick(kNumbers);
  }

  double real() {
    static const std::vector<double> kReals = {0.0, -0.0, 1.0, 0.1, -1e300, 5e-324, 1e-5};
    return random_.oneIn(3) ? std::bit_cast<double>(random_.bits()) : random_.pick(kReals);
  }

  void tables() {
    trace().constCount = 1 + random_.below(6);
    for (uint32_t i = random_.below(trace().constCount + 1); i > 0; --i) {
      trace().constTexts.push_back(text());
    }
    for (size_t i = 1 + random_.below(3); i > 0; --i) {
      ir::TensorDesc meta;
      meta.dtype = static_cast<ir::DType>(random_.below(46));
      meta.device = {static_cast<int8_t>(random_.below(21)), static_cast<int16_t>(random_.below(3) - 1)};
      for (size_t rank = random_.below(4); rank > 0; --rank) {
        meta.sizes.push_back(number());
        if (random_.oneIn(2)) {
          meta.strides.push_back(number());
        }
      }
      if (meta.strides.empty() && meta.isFixed()) {
        meta.strides = ir::packedStrides(meta.sizes);
      }
      meta.requiresGrad = random_.oneIn(2);
      meta.isParam = random_.oneIn(2);
      trace().internMeta(meta);
    }
  }

  uint32_t constant() { return random_.below(trace().constCount); }

  // A source of `block`, below one that is known by then.
  void moreSources(size_t count, guard::BlockId block) {
    for (; count > 0; --count) {
      guard::SourceNode node;
      const uint32_t kinds = static_cast<uint32_t>(guard::SourceKind::kPartial) + 1;
      do {
        node.kind =
            sources_.empty() ? guard::SourceKind::kArg : static_cast<guard::SourceKind>(random_.below(kinds));
      } while (node.kind == guard::SourceKind::kValue);
      const guard::KindInfo& info = guard::kindInfo(node.kind);
      node.parent = info.has('p') ? random_.pick(sources_) : ir::kNone;
      node.key = info.has('k') ? constant() : ir::kNone;
      node.index = info.has('i') ? random_.below(5) : 0;
      node.block = block;
      addSource(node);
    }
  }

  void addSource(const guard::SourceNode& node) {
    sources_.push_back(static_cast<ir::SourceId>(document_.sources.nodes.size()));
    document_.sources.nodes.push_back(node);
  }

  ir::Operand operand(int depth) {
    switch (random_.below(16)) {
      case 0:
        return ir::Operand::null();
      case 1:
      case 2:
        return ir::Operand::source(random_.pick(sources_));
      case 3:
        return ir::Operand::constant(constant());
      case 4:
        return depth > 0 ? ir::Operand::recipe(recipe(depth - 1)) : ir::Operand::none();
      case 5:
        return ir::Operand::integer(number());
      case 6:
        return ir::Operand::number(real());
      case 7:
        return ir::Operand::boolean(random_.oneIn(2));
      case 8:
        return trace().stringOperand(text());
      case 9:
        trace().complexes.emplace_back(real(), real());
        return ir::Operand::make(ir::OperandKind::kComplex,
                                 static_cast<int64_t>(trace().complexes.size() - 1));
      case 10:
        return ir::Operand::make(ir::OperandKind::kDtype, random_.below(60));
      case 11:
        return ir::Operand::make(ir::OperandKind::kDevice, trace().internString(text()));
      case 12:
        return ir::Operand::make(random_.oneIn(2) ? ir::OperandKind::kLayout : ir::OperandKind::kMemoryFormat,
                                 random_.below(5));
      case 13:
        return depth > 0 ? trace().listOperand(some(depth - 1)) : ir::Operand::none();
      default:
        return values_.empty() ? ir::Operand::none() : ir::Operand::value(random_.pick(values_));
    }
  }

  ir::Operand wildOperand() {
    static const std::vector<ir::OperandKind> kKinds = {ir::OperandKind::kValue, ir::OperandKind::kSource,
                                                        ir::OperandKind::kConst, ir::OperandKind::kRecipe,
                                                        ir::OperandKind::kNull,  ir::OperandKind::kInt};
    return ir::Operand::make(random_.pick(kKinds), anyId());
  }

  std::vector<ir::Operand> some(int depth) {
    std::vector<ir::Operand> operands(random_.below(4));
    for (ir::Operand& o : operands) {
      o = operand(depth);
    }
    return operands;
  }

  ir::RecipeId recipe(int depth) {
    if (!trace().recipes.empty() && random_.oneIn(3)) {
      return random_.below(trace().recipes.size());
    }
    ir::Recipe recipe;
    recipe.kind = static_cast<ir::RecipeKind>(random_.below(static_cast<size_t>(ir::RecipeKind::kCall) + 1));
    recipe.type = random_.oneIn(2) ? constant() : ir::kNone;
    recipe.parts = some(depth);
    const ir::RecipeId id = trace().addRecipe(std::move(recipe));
    if (random_.oneIn(8)) {
      trace().recipes[id].parts.push_back(ir::Operand::recipe(id));  // an object that holds itself
    }
    return id;
  }

  Random random_;
  guard::Document document_;
  guard::BlockId block_ = 0;
  std::vector<ir::ValueId> values_;    // defined so far
  std::vector<ir::SourceId> sources_;  // resolved so far
};

}  // namespace kintsugi::fuzz
