// Attention with vectors along queries: see codegen/emit_attention.h.
#include <limits>
#include <map>

#include "codegen/attention_parts.h"
#include "codegen/vector_math.h"

namespace kintsugi::codegen {

namespace {

using llvm::Value;
using passes::Elem;
using passes::KernelAccess;

constexpr double kNever = -std::numeric_limits<double>::infinity();

class ManyQueries : public AttentionParts {
 public:
  ManyQueries(llvm::LLVMContext& context, const passes::Kernel& kernel, const std::string& name,
              const EmitOptions& options)
      : AttentionParts(context, kernel, name, options),
        lanes_(options.target.lanes),
        block_(options.target.attention.keysOfMany),
        side_(options.target.transposeSquare),
        most_(options.tile.vectors),
        rows_(options.tile.rows) {
    const auto columns = static_cast<int64_t>(most_ * lanes_);
    transposedQueries_ = room(form_.headSize * columns);
    sums_ = room(form_.valueSize * columns);
    scores_ = room((block_ + rows_) * columns);
    for (uint32_t a = 0; a < kernel.accesses.size(); ++a) {
      if (isAdded(a) && kernel.accesses[a].transposed) {
        transposedScores_[a] = room((block_ + lanes_) * columns);
      }
    }
    for (const uint32_t a : {1, 2}) {
      if (kernel.accesses[a].elem != Elem::kF32 && wide_ == nullptr) {
        wide_ = room(block_ * std::max(form_.headSize, form_.valueSize));
      }
    }
    for (unsigned v = 0; v < most_; ++v) {
      top_.push_back(variable(floats(lanes_)));
      total_.push_back(variable(floats(lanes_)));
    }
  }

  std::unique_ptr<llvm::Module> run() {
    Value* chunks = b_.CreateUDiv(b_.CreateAdd(queries_, integer(kChunk - 1)), integer(kChunk), "chunks");
    loop(begin_, end_, 1, [&](Value* piece) {
      Value* which = b_.CreateUDiv(piece, chunks);
      Value* batch = b_.CreateUDiv(which, heads_);
      Value* head = b_.CreateURem(which, heads_);
      Value* from = b_.CreateMul(b_.CreateURem(piece, chunks), integer(kChunk));
      Value* to = least(b_.CreateAdd(from, integer(kChunk)), queries_);
      matrices_.clear();
      for (uint32_t a = 0; a < accesses_.size(); ++a) {
        const bool shared = a == 1 || a == 2;
        matrices_.push_back(rowsOf(a, batch, shared ? b_.CreateUDiv(head, group_) : head));
      }
      const unsigned columns = most_ * lanes_;
      loop(from, to, columns, [&](Value* query) {
        first_ = query;
        Value* width = b_.CreateSub(to, query);
        if (most_ == 1) {
          emitQueries(1);
          return;
        }
        choose(
            b_.CreateICmpSGT(width, integer((most_ - 1) * lanes_)), [&] { emitQueries(most_); },
            [&] { emitQueries(most_ - 1); });
      });
    });
    b_.CreateRetVoid();
    return std::move(module_);
  }

 private:
  static constexpr int64_t kChunk = passes::KernelAttention::kChunk;

  bool isAdded(uint32_t access) const { return access > 2 && access != out_; }
  unsigned columns() const { return vectors_ * lanes_; }
  uint64_t vectorBytes() const { return std::min<uint64_t>(64, 4 * lanes_); }
  // An element of memory whose rows have all columns.
  Value* cell(Value* base, Value* row, Value* column) {
    return at(base, place(row, integer(columns()), column));
  }
  Value* loadCell(Value* base, Value* row, unsigned v) {
    return load(lanes_, cell(base, row, integer(v * lanes_)), vectorBytes());
  }
  void storeCell(Value* x, Value* base, Value* row, unsigned v) {
    store(x, cell(base, row, integer(v * lanes_)), vectorBytes());
  }

  // Computes queries [first_, first_ + columns). Past the end, the last query is computed again, with the
  // same result.
  void emitQueries(unsigned vectors) {
    vectors_ = vectors;
    transposeQueries();
    for (unsigned v = 0; v < vectors_; ++v) {
      b_.CreateStore(number(kNever, lanes_), top_[v]);
      b_.CreateStore(number(0, lanes_), total_[v]);
    }
    loop(integer(0), integer(form_.valueSize), 1, [&](Value* d) {
      for (unsigned v = 0; v < vectors_; ++v) {
        storeCell(number(0, lanes_), sums_, d, v);
      }
    });
    Value* last = least(b_.CreateAdd(first_, integer(columns())), queries_);
    Value* seen = form_.causal ? least(keys_, last) : keys_;
    loop(integer(0), seen, block_,
         [&](Value* from) { emitKeys(from, least(b_.CreateSub(seen, from), integer(block_))); });
    storeSums();
  }

  // Visits groups of side_ queries, with the column of the first one and the numbers of all.
  void forEachGroup(const std::function<void(Value* column, const std::vector<Value*>& index)>& visit) {
    Value* last = b_.CreateSub(queries_, integer(1));
    loop(integer(0), integer(columns()), side_, [&](Value* column) {
      std::vector<Value*> index;
      for (unsigned k = 0; k < side_; ++k) {
        index.push_back(least(b_.CreateAdd(b_.CreateAdd(first_, column), integer(k)), last));
      }
      visit(column, index);
    });
  }

  // transposedQueries_[p][query] = queries[query][p]
  void transposeQueries() {
    const Access& from = accesses_[0];
    auto* type = memoryType(b_, from.elem, 1);
    const int64_t squares = form_.headSize / side_ * side_;
    forEachGroup([&](Value* column, const std::vector<Value*>& index) {
      std::vector<Value*> rows;
      for (Value* query : index) {
        rows.push_back(b_.CreateGEP(type, matrices_[0], b_.CreateMul(query, from.row)));
      }
      loop(integer(0), integer(squares), side_, [&](Value* p) {
        std::vector<Value*> square;
        for (Value* row : rows) {
          square.push_back(loadFloats(from.elem, side_, b_.CreateGEP(type, row, p)));
        }
        transposeSquare(b_, square);
        for (unsigned k = 0; k < side_; ++k) {
          store(square[k], cell(transposedQueries_, b_.CreateAdd(p, integer(k)), column), 4 * side_);
        }
      });
      loop(integer(squares), integer(form_.headSize), 1, [&](Value* p) {
        for (unsigned k = 0; k < side_; ++k) {
          Value* x = loadFloats(from.elem, 1, b_.CreateGEP(type, rows[k], p));
          store(x, cell(transposedQueries_, p, b_.CreateAdd(column, integer(k))));
        }
      });
    });
  }

  // For the current queries: keys [from, from + count).
  void emitKeys(Value* from, Value* count) {
    Value* stride = nullptr;
    Value* keys = widened(1, from, count, form_.headSize, stride);
    emitProducts(keys, stride, count);
    for (const auto& [access, room] : transposedScores_) {
      transposeScores(access, room, from, count);
    }
    std::vector<Value*> before, tops;
    for (unsigned v = 0; v < vectors_; ++v) {
      before.push_back(b_.CreateLoad(floats(lanes_), top_[v]));
    }
    loop(integer(0), count, 1, [&](Value* key) { finishScores(from, key); });
    std::vector<Value*> shrink;
    for (unsigned v = 0; v < vectors_; ++v) {
      tops.push_back(finiteTop(b_.CreateLoad(floats(lanes_), top_[v])));
      shrink.push_back(emitExpOfNegative(b_, b_.CreateFSub(before[v], tops[v])));
      Value* total = b_.CreateFMul(b_.CreateLoad(floats(lanes_), total_[v]), shrink[v]);
      b_.CreateStore(total, total_[v]);
    }
    loop(integer(0), count, 1, [&](Value* key) {
      for (unsigned v = 0; v < vectors_; ++v) {
        Value* power = emitExpOfNegative(b_, b_.CreateFSub(loadCell(scores_, key, v), tops[v]));
        storeCell(power, scores_, key, v);
        b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(floats(lanes_), total_[v]), power), total_[v]);
      }
    });
    Value* values = widened(2, from, count, form_.valueSize, stride);
    emitSums(values, stride, count, shrink);
  }

  // Rows of keys or values as floats: in their own memory, or a copy.
  Value* widened(uint32_t access, Value* from, Value* count, int64_t size, Value*& stride) {
    const Access& rows = accesses_[access];
    auto* type = memoryType(b_, rows.elem, 1);
    Value* base = b_.CreateGEP(type, matrices_[access], b_.CreateMul(from, rows.row));
    if (rows.elem == Elem::kF32) {
      stride = rows.row;
      return base;
    }
    stride = integer(size);
    const int64_t whole = size / lanes_ * lanes_;
    loop(integer(0), count, 1, [&](Value* row) {
      Value* source = b_.CreateGEP(type, base, b_.CreateMul(row, rows.row));
      Value* target = at(wide_, b_.CreateMul(row, stride));
      for (int64_t p = 0; p < size; p += lanes_) {
        const auto lanes = static_cast<unsigned>(p < whole ? lanes_ : size - whole);
        store(loadFloats(rows.elem, lanes, b_.CreateGEP(type, source, integer(p))), at(target, integer(p)));
      }
    });
    return wide_;
  }

  // scores_[key][query] = sum of keys[key][p] * transposedQueries_[p][query]. Past the end, the last key is
  // used again.
  void emitProducts(Value* keys, Value* stride, Value* count) {
    loop(integer(0), count, rows_, [&](Value* key) {
      Value* rest = b_.CreateSub(count, key);
      const auto tile = [&](unsigned rows) { emitProductTile(keys, stride, key, rest, rows); };
      if (vectors_ == 1 && most_ > 1) {
        tile(rows_);  // the last queries are not worth more code
        return;
      }
      const unsigned second = rows_ * 2 / 3, third = rows_ / 3;
      choose(
          b_.CreateICmpSGT(rest, integer(second)), [&] { tile(rows_); },
          [&] {
            choose(
                b_.CreateICmpSGT(rest, integer(third)), [&] { tile(second); }, [&] { tile(third); });
          });
    });
  }

  void emitProductTile(Value* keys, Value* stride, Value* key, Value* rest, unsigned rows) {
    std::vector<Value*> left;
    Value* last = b_.CreateSub(rest, integer(1));
    for (unsigned r = 0; r < rows; ++r) {
      left.push_back(at(keys, b_.CreateMul(b_.CreateAdd(key, least(integer(r), last)), stride)));
    }
    const std::vector<Value*> sums =
        multiply(std::vector<Value*>(rows * vectors_, number(0, lanes_)), integer(form_.headSize),
                 transposedQueries_, [&](Value* p, unsigned r) { return load(1, at(left[r], p)); });
    for (unsigned r = 0; r < rows; ++r) {
      for (unsigned v = 0; v < vectors_; ++v) {
        storeCell(sums[r * vectors_ + v], scores_, b_.CreateAdd(key, integer(r)), v);
      }
    }
  }

  // Multiplies a tile: sums[r][v] + sum over p < length of element(p, r) * right[p][v].
  std::vector<Value*> multiply(std::vector<Value*> sums, Value* length, Value* right,
                               const std::function<Value*(Value* p, unsigned r)>& element) {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::BasicBlock* head = block("multiply");
    llvm::BasicBlock* after = block("multiplied");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* p = b_.CreatePHI(b_.getInt64Ty(), 2);
    p->addIncoming(integer(0), before);
    std::vector<llvm::PHINode*> running;
    for (Value* sum : sums) {
      running.push_back(b_.CreatePHI(floats(lanes_), 2));
      running.back()->addIncoming(sum, before);
    }
    std::vector<Value*> columns;
    for (unsigned v = 0; v < vectors_; ++v) {
      columns.push_back(loadCell(right, p, v));
    }
    for (unsigned r = 0; r < sums.size() / vectors_; ++r) {
      Value* x = b_.CreateVectorSplat(lanes_, element(p, r));
      for (unsigned v = 0; v < vectors_; ++v) {
        sums[r * vectors_ + v] = fused(x, columns[v], running[r * vectors_ + v]);
      }
    }
    Value* next = b_.CreateAdd(p, integer(1), "", true, true);
    p->addIncoming(next, head);
    for (size_t k = 0; k < sums.size(); ++k) {
      running[k]->addIncoming(sums[k], head);
    }
    b_.CreateCondBr(b_.CreateICmpSLT(next, length), head, after);
    b_.SetInsertPoint(after);
    return sums;
  }

  // room[key][query] = the access's value for query and key, as a float; true is 1.
  void transposeScores(uint32_t access, Value* room, Value* from, Value* count) {
    const Access& source = accesses_[access];
    auto* type = memoryType(b_, source.elem, 1);
    const auto floatsAt = [&](Value* address, unsigned lanes, Value* mask) {
      Value* x = loadFloats(source.elem, lanes, address, mask);
      return source.elem == Elem::kBool ? b_.CreateUIToFP(x, floats(lanes)) : x;
    };
    forEachGroup([&](Value* column, const std::vector<Value*>& index) {
      std::vector<Value*> rows;
      for (Value* query : index) {
        rows.push_back(b_.CreateGEP(type, matrices_[access], place(query, source.row, from)));
      }
      const auto move = [&](Value* key, Value* mask) {
        std::vector<Value*> square;
        for (Value* row : rows) {
          square.push_back(floatsAt(b_.CreateGEP(type, row, key), side_, mask));
        }
        transposeSquare(b_, square);
        for (unsigned k = 0; k < side_; ++k) {
          store(square[k], cell(room, b_.CreateAdd(key, integer(k)), column), 4 * side_);
        }
      };
      Value* whole = b_.CreateAnd(count, integer(-int64_t{side_}));
      loop(integer(0), whole, side_, [&](Value* key) { move(key, nullptr); });
      loop(whole, count, side_,
           [&](Value* key) { move(key, firstLanes(b_, side_, b_.CreateSub(count, key))); });
    });
  }

  // Turns the products of a key into scores, and keeps the largest ones.
  void finishScores(Value* from, Value* key) {
    Value* which = b_.CreateAdd(from, key);
    for (unsigned v = 0; v < vectors_; ++v) {
      Value* score = scoreOf(loadCell(scores_, key, v), lanes_,
                             [&](uint32_t access) { return addedFor(access, which, key, v); });
      if (form_.causal) {
        Value* hidden = b_.CreateICmpSGT(b_.CreateVectorSplat(lanes_, which), queryNumbers(v));
        score = b_.CreateSelect(hidden, number(kNever, lanes_), score);
      }
      storeCell(score, scores_, key, v);
      b_.CreateStore(larger(score, b_.CreateLoad(floats(lanes_), top_[v])), top_[v]);
    }
  }

  Value* queryNumbers(unsigned v) {
    Value* numbers = b_.CreateVectorSplat(lanes_, b_.CreateAdd(first_, integer(v * lanes_)));
    Value* lanes = b_.CreateZExt(laneNumbers(b_, lanes_), registerType(b_, Elem::kI64, lanes_));
    Value* last = b_.CreateVectorSplat(lanes_, b_.CreateSub(queries_, integer(1)));
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(numbers, lanes), last);
  }

  // What the access adds for key number `which`, which is row `key` of the block.
  Value* addedFor(uint32_t access, Value* which, Value* key, unsigned v) {
    const Access& source = accesses_[access];
    auto* type = memoryType(b_, source.elem, 1);
    Value* base = b_.CreateGEP(type, matrices_[access], b_.CreateMul(which, source.element));
    if (kernel_.accesses[access].uniform) {
      Value* one = loadFloats(source.elem, 1, base);
      return b_.CreateVectorSplat(lanes_, one);
    }
    if (kernel_.accesses[access].transposed) {
      Value* x = loadCell(transposedScores_.at(access), key, v);
      return source.elem == Elem::kBool ? b_.CreateFCmpUNE(x, number(0, lanes_)) : x;
    }
    Value* rows = b_.CreateMul(queryNumbers(v), b_.CreateVectorSplat(lanes_, source.row));
    const llvm::Align align(static_cast<uint64_t>(passes::elemSize(source.elem)));
    return fromMemory(
        b_, source.elem,
        b_.CreateMaskedGather(memoryType(b_, source.elem, lanes_), b_.CreateGEP(type, base, rows), align));
  }

  // sums_[d][query] = sums_[d][query] * shrink[query] + sum over keys of values[key][d] * scores_[key][query]
  void emitSums(Value* values, Value* stride, Value* count, const std::vector<Value*>& shrink) {
    const int64_t whole = form_.valueSize / rows_ * rows_;
    const auto tile = [&](Value* d, unsigned rows) {
      std::vector<Value*> sums;
      for (unsigned r = 0; r < rows; ++r) {
        for (unsigned v = 0; v < vectors_; ++v) {
          Value* sum = loadCell(sums_, b_.CreateAdd(d, integer(r)), v);
          sums.push_back(b_.CreateFMul(sum, shrink[v]));
        }
      }
      Value* column = at(values, d);
      sums = multiply(std::move(sums), count, scores_, [&](Value* key, unsigned r) {
        return load(1, at(at(column, b_.CreateMul(key, stride)), integer(r)));
      });
      for (unsigned r = 0; r < rows; ++r) {
        for (unsigned v = 0; v < vectors_; ++v) {
          storeCell(sums[r * vectors_ + v], sums_, b_.CreateAdd(d, integer(r)), v);
        }
      }
    };
    loop(integer(0), integer(whole), rows_, [&](Value* d) { tile(d, rows_); });
    if (whole != form_.valueSize) {
      tile(integer(whole), static_cast<unsigned>(form_.valueSize - whole));
    }
  }

  // out[query][d] = sums_[d][query] / total[query]
  void storeSums() {
    const Access& out = accesses_[out_];
    auto* type = memoryType(b_, out.elem, 1);
    for (unsigned v = 0; v < vectors_; ++v) {
      Value* total = b_.CreateLoad(floats(lanes_), total_[v]);
      if (form_.emptyZero) {
        Value* none = b_.CreateFCmpOEQ(total, number(0, lanes_));
        total = b_.CreateSelect(none, number(1, lanes_), total);
      }
      storeCell(b_.CreateFDiv(number(1, lanes_), total), scores_, integer(0), v);
    }
    const int64_t squares = form_.valueSize / side_ * side_;
    forEachGroup([&](Value* column, const std::vector<Value*>& index) {
      Value* factor = load(side_, cell(scores_, integer(0), column), 4 * side_);
      std::vector<Value*> rows;
      for (Value* query : index) {
        rows.push_back(b_.CreateGEP(type, matrices_[out_], b_.CreateMul(query, out.row)));
      }
      loop(integer(0), integer(squares), side_, [&](Value* d) {
        std::vector<Value*> square;
        for (unsigned k = 0; k < side_; ++k) {
          Value* sum = load(side_, cell(sums_, b_.CreateAdd(d, integer(k)), column), 4 * side_);
          square.push_back(b_.CreateFMul(sum, factor));
        }
        transposeSquare(b_, square);
        for (unsigned k = 0; k < side_; ++k) {
          storeFloats(out.elem, square[k], b_.CreateGEP(type, rows[k], d));
        }
      });
      loop(integer(squares), integer(form_.valueSize), 1, [&](Value* d) {
        for (unsigned k = 0; k < side_; ++k) {
          Value* sum = load(1, cell(sums_, d, b_.CreateAdd(column, integer(k))));
          Value* x = b_.CreateFMul(sum, b_.CreateExtractElement(factor, uint64_t{k}));
          storeFloats(out.elem, x, b_.CreateGEP(type, rows[k], d));
        }
      });
    });
  }

  const unsigned lanes_;
  const int64_t block_;  // keys in a block
  const unsigned side_;  // side of the squares that are transposed at once
  const unsigned most_;  // the most vectors of queries
  const unsigned rows_;  // rows of a tile
  Value* transposedQueries_ = nullptr;
  Value* sums_ = nullptr;
  Value* scores_ = nullptr;
  Value* wide_ = nullptr;                        // keys or values of a block as floats
  std::map<uint32_t, Value*> transposedScores_;  // by access
  std::vector<llvm::AllocaInst*> top_, total_;
  // The head and queries that are being computed.
  std::vector<Value*> matrices_;
  unsigned vectors_ = 1;
  Value* first_ = nullptr;
};

}  // namespace

std::unique_ptr<llvm::Module> emitManyQueries(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                              const std::string& name, const EmitOptions& options) {
  return ManyQueries(context, kernel, name, options).run();
}

}  // namespace kintsugi::codegen
