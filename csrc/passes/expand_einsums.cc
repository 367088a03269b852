#include "passes/expand_einsums.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/operator.h"
#include "passes/tensor_graph.h"
#include "passes/view_strides.h"

namespace kintsugi::passes {

namespace {

using ir::Operand;
using ir::OperandKind;
using ir::TensorDesc;
using ir::ValueId;
using ops::Operator;

using Labels = std::string;

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }

bool areDistinctLetters(const Labels& labels) {
  Labels sorted = labels;
  std::sort(sorted.begin(), sorted.end());
  const auto isLetter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return std::all_of(labels.begin(), labels.end(), isLetter) &&
         std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

constexpr std::string_view kEllipsis = "...";

// Letters in place of the ellipsis of an operand that has `rank` dimensions.
bool nameEllipsis(std::string& text, const std::string& letters, size_t rank) {
  const size_t at = text.find(kEllipsis);
  if (at == std::string::npos) return true;
  const size_t named = text.size() - kEllipsis.size();
  if (rank != named + letters.size()) return false;
  text.replace(at, kEllipsis.size(), letters);
  return true;
}

// Nothing: it is no equation of distinct letters for operands of these ranks.
std::optional<Equation> parse(std::string_view given, const std::vector<size_t>& ranks) {
  std::string text(given);
  std::erase(text, ' ');
  Equation equation;
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  for (size_t comma = left.find(','); comma != std::string::npos; comma = left.find(',')) {
    equation.operands.push_back(left.substr(0, comma));
    left.erase(0, comma + 1);
  }
  equation.operands.push_back(left);
  if (equation.operands.size() != ranks.size()) return std::nullopt;
  const Labels all = std::accumulate(equation.operands.begin(), equation.operands.end(), Labels());
  if (arrow != std::string::npos) {
    equation.result = text.substr(arrow + 2);
  } else {  // the ellipsis, then the labels that are there once, in alphabetical order
    std::copy_if(all.begin(), all.end(), std::back_inserter(equation.result),
                 [&](char c) { return c != '.' && std::count(all.begin(), all.end(), c) == 1; });
    std::sort(equation.result.begin(), equation.result.end());
    if (has(all, '.')) equation.result.insert(0, kEllipsis);
  }
  std::string letters;  // for the dimensions that the ellipsis stands for: as many in each operand
  for (size_t k = 0; k < ranks.size() && letters.empty(); ++k) {
    const std::string& operand = equation.operands[k];
    if (operand.find(kEllipsis) == std::string::npos || ranks[k] + kEllipsis.size() < operand.size())
      continue;
    const size_t count = ranks[k] + kEllipsis.size() - operand.size();
    for (char c = 'a'; c <= 'z' && letters.size() < count; ++c) {
      if (!has(text, c)) letters += c;
    }
  }
  bool fine =
      nameEllipsis(equation.result, letters, equation.result.size() + letters.size() - kEllipsis.size());
  for (size_t k = 0; k < ranks.size(); ++k) {
    fine = fine && nameEllipsis(equation.operands[k], letters, ranks[k]) &&
           areDistinctLetters(equation.operands[k]);
  }
  const Labels named = std::accumulate(equation.operands.begin(), equation.operands.end(), Labels());
  fine = fine && areDistinctLetters(equation.result) &&
         std::all_of(equation.result.begin(), equation.result.end(), [&](char c) { return has(named, c); }) &&
         std::all_of(letters.begin(), letters.end(), [&](char c) { return has(equation.result, c); });
  return fine ? std::optional(equation) : std::nullopt;
}

// A tensor whose dimensions have labels.
struct Labelled {
  ValueId value = ir::kNone;
  Labels labels;
};

class Expansion {
 public:
  // `ins`: one result, of fixed sizes.
  Expansion(ir::Trace& trace, const ir::Instruction& ins)
      : trace_(trace), ins_(ins), result_(trace.metas[trace.values[ins.firstResult].meta]) {}

  // Appends what the einsum becomes, the last of which gives its value. False: it stays, and nothing has been
  // appended.
  bool run() {
    const size_t values = trace_.values.size();
    if (read() && contractAll() && finish()) return true;
    trace_.code.resize(before_);
    trace_.values.resize(values);
    return false;
  }

 private:
  const TensorDesc& meta(ValueId value) const { return trace_.metas[trace_.values[value].meta]; }
  int64_t sizeOf(const Labelled& tensor, char label) const {
    return meta(tensor.value).sizes[tensor.labels.find(label)];
  }
  int64_t sizeOf(const Labelled& tensor, const Labels& labels) const {
    int64_t size = 1;
    for (const char label : labels) size *= sizeOf(tensor, label);
    return size;
  }

  bool read() {
    const auto operands = trace_.operandsOf(ins_);
    if (operands.size() != 3 || operands[0].kind != OperandKind::kStr ||
        operands[1].kind != OperandKind::kList || operands[2].kind != OperandKind::kNone) {
      return false;
    }
    const auto list = trace_.listOf(operands[1]);
    std::vector<size_t> ranks;
    for (const Operand& operand : list) {
      if (!operand.isValue() || !trace_.hasFixedSizes(trace_.values[operand.id])) return false;
      ranks.push_back(meta(operand.id).sizes.size());
    }
    const std::optional<Equation> equation = parse(trace_.strings[operands[0].id], ranks);
    if (!equation) return false;
    wanted_ = equation->result;
    for (size_t k = 0; k < list.size(); ++k) {
      const TensorDesc& desc = meta(list[k].id);
      const Labels& labels = equation->operands[k];
      const bool fits = desc.sizes.size() == labels.size() && desc.dtype == result_.dtype && desc.plain &&
                        !desc.isConj && !desc.isNeg && compilesFor(desc.device);
      if (!fits) return false;
      tensors_.push_back({list[k].id, labels});
      std::copy_if(labels.begin(), labels.end(), std::back_inserter(labels_),
                   [&](char label) { return !has(labels_, label); });
    }
    labels_ = ordered(labels_);
    return sizesAgree();
  }

  // No size is 0, and nothing is broadcast.
  bool sizesAgree() const {
    for (const Labelled& tensor : tensors_) {
      for (const char label : tensor.labels) {
        const int64_t size = sizeOf(tensor, label);
        const bool same = std::all_of(tensors_.begin(), tensors_.end(), [&](const Labelled& other) {
          return !has(other.labels, label) || sizeOf(other, label) == size;
        });
        // ATen takes a label of size 1 for one that is not there.
        if (!same || size < 2) return false;
      }
    }
    return true;
  }

  bool contractAll() {
    Labelled all = tensors_.front();
    for (size_t k = 1; k < tensors_.size(); ++k) {
      const auto isWanted = [&](char label) {
        return has(wanted_, label) ||
               std::any_of(tensors_.begin() + static_cast<ptrdiff_t>(k) + 1, tensors_.end(),
                           [&](const Labelled& later) { return has(later.labels, label); });
      };
      const bool last = k + 1 == tensors_.size();
      if (!contract(all, tensors_[k], isWanted, last)) return false;
    }
    tensors_ = {all};
    return true;
  }

  // The order of all labels: those of the result, then the others, capitals first.
  Labels ordered(Labels labels) const {
    const auto rank = [this](char label) {
      const size_t at = wanted_.find(label);
      return at != Labels::npos ? at : wanted_.size() + static_cast<size_t>(label);
    };
    std::sort(labels.begin(), labels.end(), [&](char a, char b) { return rank(a) < rank(b); });
    return labels;
  }

  // Contracts `left` with `right`, into `left`.
  bool contract(Labelled& left, Labelled right, const std::function<bool(char)>& isWanted, bool last) {
    sumLone(left, right, isWanted);
    sumLone(right, left, isWanted);
    if (isTurned(left, right, isWanted)) std::swap(left, right);
    Labels both, summed, lefts, rights;
    for (const char label : left.labels) {
      (!has(right.labels, label) ? lefts : isWanted(label) ? both : summed) += label;
    }
    std::copy_if(right.labels.begin(), right.labels.end(), std::back_inserter(rights),
                 [&](char label) { return !has(left.labels, label); });
    both = ordered(both), summed = ordered(summed), lefts = ordered(lefts), rights = ordered(rights);
    if (summed.empty()) return multiply(left, right, both + lefts + rights, last);
    const int64_t matrices = sizeOf(left, both), rows = sizeOf(left, lefts), columns = sizeOf(right, rights),
                  inner = sizeOf(left, summed);
    std::vector<int64_t> sizes;
    for (const char label : both + lefts) sizes.push_back(sizeOf(left, label));
    for (const char label : rights) sizes.push_back(sizeOf(right, label));
    const ValueId a = reshape(permute(left, both + lefts + summed).value, {matrices, rows, inner});
    const ValueId b = reshape(permute(right, both + summed + rights).value, {matrices, inner, columns});
    const ValueId product =
        make(Operator::kBmm, {Operand::value(a), Operand::value(b)}, {matrices, rows, columns},
             {rows * columns, columns, 1}, follows(a) || follows(b));
    left = {view(product, std::move(sizes)), both + lefts + rights};
    return true;
  }

  // ATen takes the operands the other way round where all labels that are not the left one's alone come
  // first. It counts those that neither has among them.
  bool isTurned(const Labelled& left, const Labelled& right,
                const std::function<bool(char)>& isWanted) const {
    Labels lefts, others;
    for (const char label : labels_) {
      const bool inLeft = has(left.labels, label), inRight = has(right.labels, label);
      if (inLeft && !inRight) {
        lefts += label;
      } else if (!inLeft && (!inRight || isWanted(label))) {
        others += label;
      }
    }
    return !lefts.empty() && !others.empty() && labels_.find(others.back()) < labels_.find(lefts.front());
  }

  // Sums over the labels that only `tensor` has and that are not wanted.
  void sumLone(Labelled& tensor, const Labelled& other, const std::function<bool(char)>& isWanted) {
    Labels lone;
    std::copy_if(tensor.labels.begin(), tensor.labels.end(), std::back_inserter(lone),
                 [&](char label) { return !has(other.labels, label) && !isWanted(label); });
    if (!lone.empty()) tensor = sum(tensor, ordered(lone));
  }

  Labelled sum(const Labelled& tensor, const Labels& over) {
    std::vector<int64_t> dims, sizes;
    Labels kept;
    for (size_t d = 0; d < tensor.labels.size(); ++d) {
      if (has(over, tensor.labels[d])) {
        dims.push_back(static_cast<int64_t>(d));
      } else {
        sizes.push_back(meta(tensor.value).sizes[d]);
        kept += tensor.labels[d];
      }
    }
    std::vector<int64_t> strides = ir::packedStrides(sizes);
    return {make(Operator::kSumDimIntList,
                 {Operand::value(tensor.value), list(dims), Operand::boolean(false), Operand::none()},
                 std::move(sizes), std::move(strides), follows(tensor.value)),
            kept};
  }

  // With dimensions of size 1 for labels that only the other one has.
  bool multiply(Labelled& left, const Labelled& right, const Labels& labels, bool last) {
    if (!last || ordered(labels) != wanted_) return false;
    const auto widened = [&](const Labelled& tensor) {
      Labels own;
      std::vector<int64_t> sizes;
      for (const char label : wanted_) {
        own += has(tensor.labels, label) ? std::string(1, label) : "";
        sizes.push_back(has(tensor.labels, label) ? sizeOf(tensor, label) : 1);
      }
      return reshape(permute(tensor, own).value, sizes);
    };
    const ValueId a = widened(left), b = widened(right);
    ValueId product = make(Operator::kMulTensor, {Operand::value(a), Operand::value(b)}, result_.sizes,
                           ir::packedStrides(result_.sizes), follows(a) || follows(b));
    // ATen drops the dimensions of labels that it has summed before.
    if (labels_.size() != wanted_.size()) product = view(product, result_.sizes);
    left = {product, wanted_};
    return true;
  }

  // What is left is summed and brought in order. False: it would lie otherwise in memory.
  bool finish() {
    Labelled all = tensors_.front();
    Labels rest;
    std::copy_if(all.labels.begin(), all.labels.end(), std::back_inserter(rest),
                 [&](char label) { return !has(wanted_, label); });
    if (!rest.empty()) all = sum(permute(all, wanted_ + ordered(rest)), rest);
    all = permute(all, wanted_);
    const bool made = trace_.code.size() > before_ && trace_.code.back().firstResult == all.value;
    if (!made || meta(all.value).sizes != result_.sizes || stridesOf(meta(all.value)) != stridesOf(result_))
      return false;
    trace_.code.back().firstResult = ins_.firstResult;
    return true;
  }

  Labelled permute(const Labelled& tensor, const Labels& to) {
    if (tensor.labels == to) return tensor;
    std::vector<int64_t> dims, sizes, strides;
    const std::vector<int64_t> from = stridesOf(meta(tensor.value));
    for (const char label : to) {
      const size_t d = tensor.labels.find(label);
      dims.push_back(static_cast<int64_t>(d));
      sizes.push_back(meta(tensor.value).sizes[d]);
      strides.push_back(from[d]);
    }
    return {make(Operator::kPermute, {Operand::value(tensor.value), list(dims)}, std::move(sizes),
                 std::move(strides), follows(tensor.value)),
            to};
  }

  // Of a new tensor. Also where the sizes are what they were: ATen's result is a view then as well.
  ValueId view(ValueId value, std::vector<int64_t> sizes) {
    std::vector<int64_t> strides = ir::packedStrides(sizes);
    const Operand shape = list(sizes);
    return make(Operator::kView, {Operand::value(value), shape}, std::move(sizes), std::move(strides),
                follows(value));
  }

  ValueId reshape(ValueId value, std::vector<int64_t> sizes) {
    if (meta(value).sizes == sizes) return value;
    std::vector<int64_t> strides =
        viewStrides({meta(value).sizes, stridesOf(meta(value))}, sizes).value_or(ir::packedStrides(sizes));
    const Operand shape = list(sizes);
    return make(Operator::kReshape, {Operand::value(value), shape}, std::move(sizes), std::move(strides),
                follows(value));
  }

  // Does autograd follow what is made of it?
  bool follows(ValueId value) const { return result_.requiresGrad && meta(value).requiresGrad; }

  ValueId make(Operator op, std::initializer_list<Operand> operands, std::vector<int64_t> sizes,
               std::vector<int64_t> strides, bool requiresGrad) {
    TensorDesc desc = result_;
    desc.sizes = std::move(sizes);
    desc.strides = std::move(strides);
    desc.requiresGrad = requiresGrad;
    desc.isLeaf = !requiresGrad;
    desc.isParam = false;
    const ir::Type type{ir::TypeKind::kTensor, trace_.internMeta(std::move(desc))};
    const size_t at = trace_.append(ir::Op::kAten, std::span(operands.begin(), operands.size()), {&type, 1});
    trace_.code[at].opName = trace_.internOpName(op);
    return trace_.code[at].firstResult;
  }

  Operand list(const std::vector<int64_t>& numbers) {
    std::vector<Operand> elements;
    std::transform(numbers.begin(), numbers.end(), std::back_inserter(elements),
                   [](int64_t number) { return Operand::integer(number); });
    return trace_.listOperand(elements);
  }

  ir::Trace& trace_;
  const size_t before_ = trace_.code.size();  // instructions
  const ir::Instruction ins_;
  const TensorDesc result_;  // a copy: the table grows
  Labels wanted_;            // of the result
  Labels labels_;            // all, in their order
  std::vector<Labelled> tensors_;
};

}  // namespace

bool expandEinsums(ir::Trace& segment) {
  const auto isEinsum = [&](const ir::Instruction& ins) {
    return segment.operatorOf(ins) == Operator::kEinsum;
  };
  if (std::none_of(segment.code.begin(), segment.code.end(), isEinsum)) return false;
  const std::vector<ir::Instruction> code = std::move(segment.code);
  segment.code.clear();
  bool changed = false;
  for (const ir::Instruction& ins : code) {
    const bool fits =
        isEinsum(ins) && ins.resultCount == 1 && segment.hasFixedSizes(segment.values[ins.firstResult]);
    if (fits && Expansion(segment, ins).run()) {
      changed = true;
    } else {
      segment.code.push_back(ins);
    }
  }
  return changed;
}

}  // namespace kintsugi::passes
