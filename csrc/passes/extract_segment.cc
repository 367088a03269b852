#include "passes/extract_segment.h"

#include <vector>

#include "support/check.h"

namespace kintsugi::passes {

namespace {

using ir::Operand;
using ir::OperandKind;
using ir::ValueId;

class Extractor {
 public:
  Extractor(const ir::Trace& from, std::span<const ir::Type> types)
      : from_(from), types_(types), number_(from.values.size(), ir::kNone) {
    to_.file = from.file;
    to_.function = from.function;
    to_.line = from.line;
    to_.metas = from.metas;
  }

  ir::Trace run(const ir::SegmentRange& range) {
    KINTSUGI_CHECK(range.begin < range.end && range.end < from_.code.size() &&
                       from_.code[range.begin].op == ir::Op::kSegment &&
                       from_.code[range.end].op == ir::Op::kSegmentEnd,
                   "[", range.begin, ", ", range.end, "] is no segment");
    KINTSUGI_CHECK(types_.size() == from_.values.size(), types_.size(), " types for ", from_.values.size(),
                   " values");
    std::vector<ValueId> inputs;
    ir::collectValues(from_, from_.operandsOf(from_.code[range.begin]), inputs);
    for (const ValueId value : inputs) {
      number_[value] = to_.addValue(types_[value]);
    }
    mark(from_.code[range.begin]);
    for (uint32_t i = range.begin + 1; i < range.end; ++i) {
      if (ir::isInGraph(from_.code[i])) {
        copy(from_.code[i]);
      }
    }
    mark(from_.code[range.end]);
    return std::move(to_);
  }

 private:
  void mark(const ir::Instruction& ins) {
    const Operand list = operand(from_.operandsOf(ins)[0]);
    to_.append(ins.op, {&list, 1}, {});
  }

  void copy(const ir::Instruction& ins) {
    std::vector<Operand> operands;
    for (const Operand& o : from_.operandsOf(ins)) {
      operands.push_back(operand(o));
    }
    std::vector<ir::Type> types;
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      types.push_back(types_[ins.firstResult + r]);
    }
    const size_t index = to_.append(ins.op, operands, types);
    if (ins.opName != ir::kNone) {
      to_.code[index].opName = to_.internOpName(from_.opNames[ins.opName]);
    }
    for (uint32_t r = 0; r < ins.resultCount; ++r) {
      number_[ins.firstResult + r] = to_.code[index].firstResult + r;
    }
  }

  Operand operand(const Operand& o) {
    switch (o.kind) {
      case OperandKind::kValue:
        // An undefined tensor is no input: it has no value to take over.
        return number_[o.id] == ir::kNone ? Operand::none() : Operand::value(number_[o.id]);
      case OperandKind::kList: {
        std::vector<Operand> elements;
        for (const Operand& element : from_.listOf(o)) {
          elements.push_back(operand(element));
        }
        return to_.listOperand(elements);
      }
      case OperandKind::kStr:
      case OperandKind::kDevice:
        return Operand::make(o.kind, to_.internString(from_.strings[o.id]));
      case OperandKind::kComplex:
        to_.complexes.push_back(from_.complexes[o.id]);
        return Operand::make(o.kind, static_cast<int64_t>(to_.complexes.size()) - 1);
      default:
        return o;
    }
  }

  const ir::Trace& from_;
  const std::span<const ir::Type> types_;
  ir::Trace to_;
  std::vector<ValueId> number_;  // by old number
};

}  // namespace

ir::Trace extractSegment(const ir::Trace& trace, const ir::SegmentRange& range,
                         std::span<const ir::Type> types) {
  return Extractor(trace, types).run(range);
}

}  // namespace kintsugi::passes
