// Attention with vectors along the elements of keys and values: see codegen/emit_attention.h.
#include <algorithm>
#include <limits>

#include "codegen/attention_parts.h"
#include "codegen/vector_math.h"

namespace kintsugi::codegen {

namespace {

using llvm::Value;
using passes::Elem;
using passes::Inner;

constexpr double kNever = -std::numeric_limits<double>::infinity();

class FewQueries : public AttentionParts {
 public:
  FewQueries(llvm::LLVMContext& context, const passes::Kernel& kernel, const std::string& name,
             const EmitOptions& options)
      : AttentionParts(context, kernel, name, options),
        lanes_(options.target.attention.fewLanes),
        block_(options.target.attention.keysOfFew),
        padded_((form_.valueSize + lanes_ - 1) / lanes_ * lanes_) {
    Value* rows = b_.CreateMul(group_, least(queries_, integer(kChunk)));
    sums_ = room(b_.CreateMul(rows, integer(padded_)));
    tops_ = room(rows);
    totals_ = room(rows);
    scores_ = room(block_ + lanes_);
    top_ = variable(floats(lanes_));
    total_ = variable(floats(lanes_));
  }

  std::unique_ptr<llvm::Module> run() {
    Value* chunks = b_.CreateUDiv(b_.CreateAdd(queries_, integer(kChunk - 1)), integer(kChunk));
    loop(begin_, end_, 1, [&](Value* piece) {
      Value* which = b_.CreateUDiv(piece, chunks);
      batch_ = b_.CreateUDiv(which, heads_);
      head_ = b_.CreateURem(which, heads_);
      from_ = b_.CreateMul(b_.CreateURem(piece, chunks), integer(kChunk));
      to_ = least(b_.CreateAdd(from_, integer(kChunk)), queries_);
      keyRows_ = rowsOf(1, batch_, head_);
      valueRows_ = rowsOf(2, batch_, head_);
      forEachRow([&](Value* row, Value*, Value*) {
        store(llvm::ConstantFP::get(b_.getFloatTy(), kNever), at(tops_, row));
        store(llvm::ConstantFP::get(b_.getFloatTy(), 0), at(totals_, row));
        loop(integer(0), integer(padded_), lanes_,
             [&](Value* d) { store(number(0, lanes_), cell(row, d), 4 * lanes_); });
      });
      Value* seen = form_.causal ? least(keys_, to_) : keys_;
      loop(integer(0), seen, block_, [&](Value* key) {
        Value* count = least(b_.CreateSub(seen, key), integer(block_));
        forEachRow([&](Value* row, Value* head, Value* query) { emitKeys(row, head, query, key, count); });
      });
      forEachRow([&](Value* row, Value* head, Value* query) { storeRow(row, head, query); });
    });
    b_.CreateRetVoid();
    return std::move(module_);
  }

 private:
  static constexpr int64_t kChunk = passes::KernelAttention::kChunk;
  // Vectors of sums that are kept in registers: half of the sixteen that a level has at least, as keys and
  // scores need the others. More would be spilled; with fewer, keys are loaded more often.
  static constexpr int64_t kAtOnce = 8;

  // Visits each query of each head that uses the current keys.
  void forEachRow(const std::function<void(Value* row, Value* head, Value* query)>& visit) {
    Value* count = b_.CreateSub(to_, from_);
    loop(integer(0), group_, 1, [&](Value* g) {
      Value* head = place(head_, group_, g);
      loop(from_, to_, 1,
           [&](Value* query) { visit(place(g, count, b_.CreateSub(query, from_)), head, query); });
    });
  }

  Value* cell(Value* row, Value* d) { return at(sums_, place(row, integer(padded_), d)); }
  Value* rowOf(uint32_t access, Value* head, Value* row) {
    auto* type = memoryType(b_, accesses_[access].elem, 1);
    return b_.CreateGEP(type, rowsOf(access, batch_, head), b_.CreateMul(row, accesses_[access].row));
  }

  // A vector of elements of a row that has `size` elements. It begins at element p, a multiple of lanes_.
  Value* part(uint32_t access, Value* row, Value* p, bool whole, int64_t size) {
    const Elem elem = accesses_[access].elem;
    Value* from = b_.CreateGEP(memoryType(b_, elem, 1), row, p);
    return loadFloats(elem, lanes_, from, whole ? nullptr : firstLanes(b_, lanes_, integer(size % lanes_)));
  }

  // For one query: the keys [from, from + count).
  void emitKeys(Value* row, Value* head, Value* query, Value* from, Value* count) {
    if (form_.causal) {
      count = least(count, b_.CreateSub(b_.CreateAdd(query, integer(1)), from));
    }
    b_.CreateStore(number(kNever, lanes_), top_);
    Value* queryRow = rowOf(0, head, query);
    loop(integer(0), count, lanes_, [&](Value* key) {
      Value* there = firstLanes(b_, lanes_, least(b_.CreateSub(count, key), integer(lanes_)));
      Value* score = scoreOf(
          products(queryRow, b_.CreateAdd(from, key), b_.CreateSub(count, key)), lanes_,
          [&](uint32_t access) { return added(access, head, query, b_.CreateAdd(from, key), there); });
      score = b_.CreateSelect(there, score, number(kNever, lanes_));
      store(score, at(scores_, key), 4 * lanes_);
      b_.CreateStore(larger(score, b_.CreateLoad(floats(lanes_), top_)), top_);
    });
    Value* before = load(1, at(tops_, row));
    Value* top = larger(fold(b_.CreateLoad(floats(lanes_), top_), &FewQueries::larger), before);
    store(top, at(tops_, row));
    top = finiteTop(top);
    Value* shrink = emitExpOfNegative(b_, b_.CreateFSub(before, top));
    b_.CreateStore(number(0, lanes_), total_);
    loop(integer(0), count, lanes_, [&](Value* key) {
      Value* score = load(lanes_, at(scores_, key), 4 * lanes_);
      Value* power = emitExpOfNegative(b_, b_.CreateFSub(score, b_.CreateVectorSplat(lanes_, top)));
      store(power, at(scores_, key), 4 * lanes_);
      b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(floats(lanes_), total_), power), total_);
    });
    Value* total = fold(b_.CreateLoad(floats(lanes_), total_), &FewQueries::plus);
    store(fused(load(1, at(totals_, row)), shrink, total), at(totals_, row));
    for (int64_t d = 0; d < padded_; d += kAtOnce * lanes_) {
      emitSums(row, from, count, shrink, d);
    }
  }

  // Products of the query with keys [key, key + lanes). Only `left` of these exist; the last one is repeated.
  Value* products(Value* query, Value* key, Value* left) {
    std::vector<Value*> rows, sums;
    auto* type = memoryType(b_, accesses_[1].elem, 1);
    Value* last = b_.CreateSub(left, integer(1));
    for (unsigned r = 0; r < lanes_; ++r) {
      Value* which = b_.CreateAdd(key, least(integer(r), last));
      rows.push_back(b_.CreateGEP(type, keyRows_, b_.CreateMul(which, accesses_[1].row)));
      sums.push_back(number(0, lanes_));
    }
    const int64_t whole = form_.headSize / lanes_ * lanes_;
    for (int64_t p = 0; p < form_.headSize; p += lanes_) {
      Value* x = part(0, query, integer(p), p < whole, form_.headSize);
      for (unsigned r = 0; r < lanes_; ++r) {
        sums[r] = fused(x, part(1, rows[r], integer(p), p < whole, form_.headSize), sums[r]);
      }
    }
    return addUp(std::move(sums));
  }

  // Lane r of the result is the sum of vector r. Each step halves the number of vectors and the width that is
  // left to add.
  Value* addUp(std::vector<Value*> vectors) {
    for (size_t half = vectors.size() / 2, width = lanes_ / 2; half > 0; half /= 2, width /= 2) {
      for (size_t k = 0; k < half; ++k) {
        std::vector<int> low, high;
        for (unsigned from = 0; from < lanes_; from += 2 * static_cast<unsigned>(width)) {
          for (const unsigned other : {0U, lanes_}) {
            for (unsigned lane = 0; lane < width; ++lane) {
              low.push_back(static_cast<int>(other + from + lane));
              high.push_back(static_cast<int>(other + from + width + lane));
            }
          }
        }
        vectors[k] = b_.CreateFAdd(b_.CreateShuffleVector(vectors[k], vectors[k + half], low),
                                   b_.CreateShuffleVector(vectors[k], vectors[k + half], high));
      }
      vectors.resize(half);
    }
    return vectors[0];
  }

  Value* larger(Value* a, Value* b) { return AttentionParts::larger(a, b); }
  Value* plus(Value* a, Value* b) { return b_.CreateFAdd(a, b); }
  Value* fold(Value* x, Value* (FewQueries::*combine)(Value*, Value*)) {
    for (unsigned width = lanes_ / 2; width > 0; width /= 2) {
      x = (this->*combine)(slice(x, 0, width), slice(x, width, width));
    }
    return b_.CreateExtractElement(x, uint64_t{0});
  }

  Value* added(uint32_t access, Value* head, Value* query, Value* key, Value* there) {
    const Access& from = accesses_[access];
    auto* type = memoryType(b_, from.elem, 1);
    Value* base = b_.CreateGEP(type, rowOf(access, head, query), b_.CreateMul(key, from.element));
    switch (kernel_.accesses[access].inner) {
      case Inner::kUnit:
        return loadFloats(from.elem, lanes_, base, there);
      case Inner::kZero:
        return b_.CreateVectorSplat(lanes_, loadFloats(from.elem, 1, base));
      case Inner::kStrided:
        break;
    }
    Value* lanes = b_.CreateZExt(laneNumbers(b_, lanes_), registerType(b_, Elem::kI64, lanes_));
    auto* vectors = memoryType(b_, from.elem, lanes_);
    Value* places = b_.CreateGEP(type, base, b_.CreateMul(lanes, b_.CreateVectorSplat(lanes_, from.element)));
    const llvm::Align align(static_cast<uint64_t>(passes::elemSize(from.elem)));
    return fromMemory(
        b_, from.elem,
        b_.CreateMaskedGather(vectors, places, align, there, llvm::Constant::getNullValue(vectors)));
  }

  // Adds to the sums of elements [first, first + kAtOnce vectors).
  void emitSums(Value* row, Value* from, Value* count, Value* shrink, int64_t first) {
    const int64_t whole = form_.valueSize / lanes_ * lanes_;
    const int64_t end = std::min(padded_, first + kAtOnce * lanes_);
    std::vector<Value*> sums;
    Value* scale = b_.CreateVectorSplat(lanes_, shrink);
    for (int64_t d = first; d < end; d += lanes_) {
      sums.push_back(b_.CreateFMul(load(lanes_, cell(row, integer(d)), 4 * lanes_), scale));
    }
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* head = block("values");
    llvm::BasicBlock* after = block("summed");
    b_.CreateCondBr(b_.CreateICmpSGT(count, integer(0)), head, after);
    b_.SetInsertPoint(head);
    llvm::PHINode* key = b_.CreatePHI(b_.getInt64Ty(), 2);
    key->addIncoming(integer(0), before);
    std::vector<llvm::PHINode*> running;
    for (Value* sum : sums) {
      running.push_back(b_.CreatePHI(floats(lanes_), 2));
      running.back()->addIncoming(sum, before);
    }
    auto* type = memoryType(b_, accesses_[2].elem, 1);
    Value* values = b_.CreateGEP(type, valueRows_, b_.CreateMul(b_.CreateAdd(from, key), accesses_[2].row));
    Value* power = b_.CreateVectorSplat(lanes_, load(1, at(scores_, key)));
    std::vector<Value*> made;
    for (size_t k = 0; k < sums.size(); ++k) {
      const int64_t d = first + static_cast<int64_t>(k * lanes_);
      made.push_back(fused(power, part(2, values, integer(d), d < whole, form_.valueSize), running[k]));
      running[k]->addIncoming(made[k], head);
    }
    Value* next = b_.CreateAdd(key, integer(1), "", true, true);
    key->addIncoming(next, head);
    b_.CreateCondBr(b_.CreateICmpSLT(next, count), head, after);
    b_.SetInsertPoint(after);
    for (size_t k = 0; k < sums.size(); ++k) {
      llvm::PHINode* total = b_.CreatePHI(floats(lanes_), 2);
      total->addIncoming(sums[k], before);
      total->addIncoming(made[k], head);
      sums[k] = total;
    }
    for (size_t k = 0; k < sums.size(); ++k) {
      store(sums[k], cell(row, integer(first + static_cast<int64_t>(k * lanes_))), 4 * lanes_);
    }
  }

  void storeRow(Value* row, Value* head, Value* query) {
    const Elem elem = accesses_[out_].elem;
    Value* total = load(1, at(totals_, row));
    if (form_.emptyZero) {
      Value* none = b_.CreateFCmpOEQ(total, llvm::ConstantFP::get(b_.getFloatTy(), 0));
      total = b_.CreateSelect(none, llvm::ConstantFP::get(b_.getFloatTy(), 1), total);
    }
    Value* factor = b_.CreateFDiv(llvm::ConstantFP::get(b_.getFloatTy(), 1), total);
    factor = b_.CreateVectorSplat(lanes_, factor);
    Value* out = rowOf(out_, head, query);
    const int64_t whole = form_.valueSize / lanes_ * lanes_;
    for (int64_t d = 0; d < form_.valueSize; d += lanes_) {
      Value* x = b_.CreateFMul(load(lanes_, cell(row, integer(d)), 4 * lanes_), factor);
      storeFloats(elem, x, b_.CreateGEP(memoryType(b_, elem, 1), out, integer(d)),
                  d < whole ? nullptr : firstLanes(b_, lanes_, integer(form_.valueSize % lanes_)));
    }
  }

  const unsigned lanes_;
  const int64_t block_;   // keys in a block
  const int64_t padded_;  // the size of a value, rounded up to whole vectors
  Value* sums_ = nullptr;
  Value* tops_ = nullptr;
  Value* totals_ = nullptr;
  Value* scores_ = nullptr;
  llvm::AllocaInst* top_ = nullptr;
  llvm::AllocaInst* total_ = nullptr;
  // The piece that is being computed.
  Value* batch_ = nullptr;
  Value* head_ = nullptr;  // the head of the keys
  Value* from_ = nullptr;
  Value* to_ = nullptr;
  Value* keyRows_ = nullptr;
  Value* valueRows_ = nullptr;
};

}  // namespace

std::unique_ptr<llvm::Module> emitFewQueries(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                             const std::string& name, const EmitOptions& options) {
  return FewQueries(context, kernel, name, options).run();
}

}  // namespace kintsugi::codegen
