// Rewrites a segment: see passes/own_writes.h.
#include <algorithm>

#include "ir/segments.h"
#include "ops/operator.h"
#include "passes/build_graph.h"
#include "passes/in_place.h"
#include "passes/own_writes.h"
#include "support/check.h"

namespace kintsugi::passes {

namespace {

using ir::Instruction;
using ir::Op;
using ir::Operand;
using ir::OperandKind;
using ir::TensorDesc;
using ir::Type;
using ir::TypeKind;
using ir::ValueId;
using ops::Operator;

// As many as kernels copy in one concatenation (passes/decompose_joins.cc).
constexpr size_t kMostPieces = 64;

class Rewriter {
 public:
  Rewriter(ir::Trace& trace, OperatorTraitsFn traits)
      : trace_(trace),
        own_(trace, traits,
             {[this](ValueId base, const OwnWrites::OwnTensor& own) { gather(base, own); },
              [this](ValueId value) { return valueNow(value); }}) {}

  void run() {
    code_ = std::move(trace_.code);
    trace_.code.clear();
    for (const Instruction& ins : code_) {
      if (ins.op == Op::kSegmentEnd) {
        own_.gatherAll();
        keep(ins);
      } else if (ins.op != Op::kAten) {
        keep(ins);
      } else {
        addOperator(ins);
      }
    }
  }

 private:
  void addOperator(const Instruction& ins) {
    const std::string name = trace_.opNames[ins.opName];
    const auto operands = trace_.operandsOf(ins);
    const OwnWrites::ViewOfBase* look =
        !operands.empty() && operands[0].isValue() ? own_.viewOfBase(operands[0].id) : nullptr;
    const bool view = look != nullptr && OwnWrites::isDeferredView(name);
    const bool rows = own_.canFunctionalizeRows(ins);
    const bool taken = rows || own_.canFunctionalize(ins);
    const ValueId base = look != nullptr ? look->base : ir::kNone;
    own_.add(ins);
    if (view) {
      return;  // the view is made again where it is read
    }
    if (!taken) {
      keep(ins);
    } else if (rows) {
      now_[base] = emit(ops::formOf(name), renamed(ins), trace_.values[base]);
    }
    // Views of a tensor that has been written to are taken of the concatenation.
    if (base != ir::kNone && ops::isInPlace(name)) {
      ++epoch_[base];
    }
  }

  std::vector<Operand> renamed(const Instruction& ins) {
    const auto operands = trace_.operandsOf(ins);
    std::vector<Operand> from(operands.begin(), operands.end()), to;
    std::transform(from.begin(), from.end(), std::back_inserter(to),
                   [this](const Operand& o) { return renamed(o); });
    return to;
  }
  Operand renamed(const Operand& o) {
    if (o.isValue()) {
      return Operand::value(valueNow(o.id));
    }
    if (o.kind != OperandKind::kList) {
      return o;
    }
    const auto list = trace_.listOf(o);
    std::vector<Operand> from(list.begin(), list.end()), to;
    std::transform(from.begin(), from.end(), std::back_inserter(to),
                   [this](const Operand& each) { return renamed(each); });
    return trace_.listOperand(to);
  }

  // Copies the instruction, with its operands replaced by their present values.
  void keep(Instruction ins) {
    const std::vector<Operand> operands = renamed(ins);
    ins.firstOperand = static_cast<uint32_t>(trace_.operands.size());
    trace_.operands.insert(trace_.operands.end(), operands.begin(), operands.end());
    trace_.code.push_back(ins);
  }

  ValueId emit(Operator op, const std::vector<Operand>& operands, Type type) {
    const size_t at = trace_.append(Op::kAten, operands, {&type, 1});
    trace_.code[at].opName = trace_.internOpName(op);
    return trace_.code[at].firstResult;
  }

  ValueId valueNow(ValueId value) {
    const OwnWrites::ViewOfBase* look = own_.viewOfBase(value);
    if (look == nullptr) {
      return value;
    }
    if (look->view == nullptr) {
      const auto found = now_.find(look->base);
      return found == now_.end() ? look->base : found->second;
    }
    const uint32_t epoch = epoch_[look->base];
    const ValueId first = look->view->firstResult;
    const auto made = views_.find(first);
    if (made == views_.end() || made->second.first != epoch) {
      Instruction ins = *look->view;
      const std::vector<Operand> operands = renamed(ins);
      std::vector<Type> types;
      for (uint32_t r = 0; r < ins.resultCount; ++r) {
        types.push_back(trace_.values[first + r]);
      }
      const size_t at = trace_.append(Op::kAten, operands, types);
      trace_.code[at].opName = ins.opName;
      views_[first] = {epoch, trace_.code[at].firstResult};
    }
    return views_[first].second + look->result;
  }

  // --- concatenations ---

  struct Piece {
    ValueId value;
    int64_t size;
  };

  Type typeOf(TensorDesc meta) {
    trace_.metas.push_back(std::move(meta));
    return {TypeKind::kTensor, static_cast<ir::MetaId>(trace_.metas.size() - 1)};
  }

  Type typeLike(ValueId base, int64_t dim, int64_t size, bool view) {
    const ir::MetaId id = trace_.values[base].meta;
    TensorDesc meta = trace_.metas[id];
    const std::vector<int64_t> whole = meta.sizes;
    meta.sizes[static_cast<size_t>(dim)] = size;
    meta.strides = ir::packedStrides(view ? whole : meta.sizes);
    return typeOf(std::move(meta));
  }

  // The elements between the parts are those that the tensor had before.
  std::vector<Piece> piecesOf(ValueId base, const OwnWrites::OwnTensor& own) {
    std::vector<OwnWrites::Part> parts = own.parts;
    std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.low < b.low; });
    const int64_t size = trace_.metas[trace_.values[base].meta].sizes[static_cast<size_t>(own.dim)];
    const ValueId old = valueNow(base);
    std::vector<Piece> pieces;
    const auto fill = [&](int64_t low, int64_t high) {
      if (low < high) {
        const Type type = typeLike(base, own.dim, high - low, true);
        pieces.push_back({emit(Operator::kSliceTensor,
                               {Operand::value(old), Operand::integer(own.dim), Operand::integer(low),
                                Operand::integer(high), Operand::integer(1)},
                               type),
                          high - low});
      }
    };
    int64_t end = 0;
    for (const OwnWrites::Part& part : parts) {
      fill(end, part.low);
      pieces.push_back({part.captured, part.high - part.low});
      if (own.stacked && !isAllParts(own, size)) {
        pieces.back().value =
            emit(Operator::kUnsqueeze, {Operand::value(part.captured), Operand::integer(own.dim)},
                 unsqueezed(part.captured, own.dim));
      }
      end = part.high;
    }
    fill(end, size);
    return pieces;
  }

  static bool isAllParts(const OwnWrites::OwnTensor& own, int64_t size) {
    return own.stacked && own.parts.size() == static_cast<size_t>(size);
  }

  Type unsqueezed(ValueId value, int64_t dim) {
    TensorDesc meta = trace_.metas[trace_.values[value].meta];
    std::vector<int64_t> strides = strideHints(meta);
    const auto at = static_cast<size_t>(dim);
    const int64_t stride = at < meta.sizes.size() ? meta.sizes[at] * strides[at] : 1;
    meta.sizes.insert(meta.sizes.begin() + dim, 1);
    strides.insert(strides.begin() + dim, stride);
    meta.strides = std::move(strides);
    return typeOf(std::move(meta));
  }

  ValueId join(Operator op, std::span<const Piece> pieces, int64_t dim, Type type) {
    std::vector<Operand> list;
    for (const Piece& piece : pieces) {
      list.push_back(Operand::value(piece.value));
    }
    return emit(op, {trace_.listOperand(list), Operand::integer(dim)}, type);
  }

  void gather(ValueId base, const OwnWrites::OwnTensor& own) {
    const int64_t size = trace_.metas[trace_.values[base].meta].sizes[static_cast<size_t>(own.dim)];
    std::vector<Piece> pieces = piecesOf(base, own);
    Operator op = isAllParts(own, size) ? Operator::kStack : Operator::kCat;
    while (pieces.size() > kMostPieces) {
      std::vector<Piece> groups;
      for (size_t k = 0; k < pieces.size(); k += kMostPieces) {
        const auto group = std::span(pieces).subspan(k, std::min(kMostPieces, pieces.size() - k));
        int64_t length = 0;
        for (const Piece& piece : group) {
          length += piece.size;
        }
        groups.push_back({join(op, group, own.dim, typeLike(base, own.dim, length, false)), length});
      }
      pieces = std::move(groups);
      op = Operator::kCat;
    }
    // Also with a single part: the result is another tensor than the part's source.
    now_[base] = join(op, pieces, own.dim, trace_.values[base]);
    ++epoch_[base];
  }

  ir::Trace& trace_;
  std::vector<Instruction> code_;  // as it was
  OwnWrites own_;
  std::unordered_map<ValueId, ValueId> now_;     // by tensor: the value with its present content
  std::unordered_map<ValueId, uint32_t> epoch_;  // by tensor: how often it was replaced
  std::unordered_map<ValueId, std::pair<uint32_t, ValueId>>
      views_;  // by first result of a view: the epoch that it is of, and the view
};

bool hasAny(const ir::Trace& segment, OperatorTraitsFn traits) {
  OwnWrites own(segment, traits);
  bool any = false;
  for (const Instruction& ins : segment.code) {
    any = any || own.canFunctionalize(ins);
    own.add(ins);
  }
  return any;
}

}  // namespace

bool gatherOwnWrites(ir::Trace& segment, OperatorTraitsFn traits) {
  if (!hasAny(segment, traits)) {
    return false;
  }
  Rewriter(segment, traits).run();
  return true;
}

}  // namespace kintsugi::passes
