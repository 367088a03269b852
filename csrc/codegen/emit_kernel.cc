#include "codegen/emit_kernel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "codegen/emit_accesses.h"
#include "codegen/emit_attention.h"
#include "codegen/emit_fold.h"
#include "codegen/emit_ops.h"
#include "codegen/emit_product.h"
#include "codegen/emit_take.h"
#include "codegen/emit_transpose.h"
#include "codegen/plan_kernel.h"
#include "support/check.h"

namespace kintsugi::codegen {

namespace {

using llvm::BasicBlock;
using llvm::Value;
using passes::Core;
using passes::Elem;
using passes::Inner;
using passes::Kernel;
using passes::KernelAccess;
using passes::KernelOp;
using passes::KernelOpKind;

// Kernels whose vectors run across rows read narrow columns of long rows. Wider vectors may pay there.
unsigned lanesFor(const Kernel& kernel, const Target& target) {
  const bool cheap = std::all_of(kernel.ops.begin(), kernel.ops.end(), [](const KernelOp& op) {
    return op.kind != KernelOpKind::kPoint || passes::coreInfo(op.op).cost == passes::CoreCost::kCheap;
  });
  return kernel.columns && cheap ? target.columnLanes : target.lanes;
}

class Emitter : private AccessEmitter {
 public:
  Emitter(llvm::LLVMContext& context, const Kernel& kernel, const std::string& name,
          const EmitOptions& options)
      : AccessEmitter(context, kernel, lanesFor(kernel, options.target)),
        plan_(planKernel(kernel)),
        target_(options.target),
        tile_{options.tile.rows, options.tile.vectors, lanes_, options.target.square},
        module_(std::make_unique<llvm::Module>(name, context)) {
    llvm::FastMathFlags flags;
    flags.setAllowContract(options.contract);
    b_.setFastMathFlags(flags);
    begin(name);
  }

  std::unique_ptr<llvm::Module> run() {
    const bool flat = kernel_.outerRank() == 0 && !kernel_.hasReductions;
    if (kernel_.product) {
      emitProduct();
    } else if (flat) {
      setRow({});
      emitRow(begin_, end_);
    } else {
      walkRows(begin_, end_, [this](Value* row, const std::vector<Value*>& at) -> Value* {
        if (!transposedBlocks_.empty()) {
          return emitTransposed(at, b_.CreateSub(end_, row));
        }
        if (kernel_.columns) {
          return emitColumns(at.back(), b_.CreateSub(end_, row));
        }
        emitRow(integer(0), inner_);
        return integer(1);
      });
    }
    reportOutside();
    b_.CreateRetVoid();
    return std::move(module_);
  }

 private:
  llvm::LLVMContext& context() { return b_.getContext(); }

  void begin(const std::string& name) {
    auto* type = llvm::FunctionType::get(
        b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, *module_);
    function_->setDoesNotThrow();
    b_.SetInsertPoint(BasicBlock::Create(context(), "entry", function_));
    Value* memory = function_->getArg(0);
    Value* numbers = function_->getArg(1);
    begin_ = function_->getArg(2);
    end_ = function_->getArg(3);
    size_t next = 0;
    auto number = [&] {
      return b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), numbers, next++));
    };
    inner_ = number();
    for (size_t d = 0; d < kernel_.outerRank(); ++d) {
      extents_.push_back(number());
    }
    for (size_t a = 0; a < kernel_.accesses.size(); ++a) {
      base_.push_back(b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), memory, a)));
      outerStrides_.emplace_back();
      for (size_t d = 0; d < kernel_.outerRank(); ++d) {
        outerStrides_.back().push_back(number());
      }
      innerStride_.push_back(number());
    }
    for (uint32_t op = 0; op < kernel_.ops.size(); ++op) {
      for (size_t k = 0; k < kernel_.ops[op].bounds.size(); ++k) {
        Value* low = number();
        bounds_[op].emplace_back(low, number());
      }
      if (kernel_.ops[op].kind == KernelOpKind::kPoint && kernel_.ops[op].op == Core::kTake) {
        Value* step = number();
        taken_[op] = {step, number()};
      }
    }
    if (kernel_.checks()) {
      report_ = b_.CreateLoad(b_.getPtrTy(),
                              b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), memory, kernel_.accesses.size()));
      outside_ = b_.CreateAlloca(b_.getInt1Ty());
      b_.CreateStore(b_.getFalse(), outside_);
    }
    if (kernel_.product) {
      const passes::KernelProduct& from = *kernel_.product;
      product_ = {.left = base_[from.left],
                  .right = base_[from.right],
                  .n = inner_,
                  .rightByColumns = from.rightByColumns};
      for (Value** value :
           {&product_.k, &product_.leftStride, &product_.rightStride, &chunk_, &product_.depth}) {
        *value = number();
      }
    }
    KINTSUGI_CHECK(next == kernel_.numberCount(), "the code takes ", next, " numbers, the kernel has ",
                   kernel_.numberCount());
    for (uint32_t a = 0; a < kernel_.accesses.size(); ++a) {
      if (kernel_.accesses[a].transposed) {
        llvm::AllocaInst* room =
            b_.CreateAlloca(b_.getFloatTy(), integer(target_.transposeRows * target_.transposeColumns));
        room->setAlignment(lineAlignment(target_.lanes));
        transposedBlocks_.emplace_back(a, room);
      }
    }
    for (size_t op = 0; op < kernel_.ops.size(); ++op) {
      if (plan_.kept[op]) {
        Value* room =
            kernel_.columns ? b_.CreateMul(inner_, integer(lanes_)) : b_.CreateAdd(inner_, integer(lanes_));
        kept_[static_cast<uint32_t>(op)] = b_.CreateAlloca(b_.getFloatTy(), room);
      }
    }
  }

  // Reports an index out of range to the caller.
  void reportOutside() {
    if (outside_ == nullptr) {
      return;
    }
    BasicBlock* tell = BasicBlock::Create(context(), "tell", function_);
    BasicBlock* after = BasicBlock::Create(context(), "told", function_);
    b_.CreateCondBr(b_.CreateLoad(b_.getInt1Ty(), outside_), tell, after);
    b_.SetInsertPoint(tell);
    b_.CreateStore(b_.getInt8(1), report_);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  llvm::AllocaInst* local(llvm::Type* type) {
    BasicBlock& entry = function_->getEntryBlock();
    Builder at(&entry, entry.begin());
    return at.CreateAlloca(type);
  }

  void loop(Value* from, Value* to, int64_t step, const std::function<void(Value*)>& body) {
    codegen::emitLoop(b_, function_, from, to, step, body);
  }

  // A matrix product. The operations on its elements run while a panel of sums is in the cache.
  void emitProduct() {
    const bool batched = kernel_.product->batched;
    constexpr int64_t kStrip = passes::KernelProduct::kStrip;
    Value* rows = integer(1);  // rows of one product
    for (size_t d = batched ? extents_.size() - 1 : 0; d < extents_.size(); ++d) {
      rows = b_.CreateMul(rows, extents_[d]);
    }
    Value* strips = b_.CreateUDiv(b_.CreateAdd(inner_, integer(kStrip - 1)), integer(kStrip));
    Value* chunks = b_.CreateUDiv(b_.CreateSub(b_.CreateAdd(rows, chunk_), integer(1)), chunk_);
    ProductEmitter panels(b_, function_, tile_, product_, chunk_);
    sums_ = panels.sums();
    loop(begin_, end_, 1, [&](Value* piece) {
      Value* which = b_.CreateUDiv(piece, strips);
      Value* batch = b_.CreateUDiv(which, chunks);
      if (batched) {
        setRow(placeOf(batch));
        panels.setMatrices(row_[kernel_.product->left], row_[kernel_.product->right]);
      }
      Value* first = b_.CreateMul(b_.CreateURem(which, chunks), chunk_);
      Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(rows, first), chunk_);
      Value* from = b_.CreateMul(b_.CreateURem(piece, strips), integer(kStrip));
      Value* to =
          b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateAdd(from, integer(kStrip)), inner_);
      loop(from, to, tile_.columns(), [&](Value* column) {
        panels.emitPanel(first, count, column);
        emitSums(b_.CreateAdd(b_.CreateMul(batch, rows), first), count, column);
      });
    });
  }

  // The place of the first row of product number `batch`.
  std::vector<Value*> placeOf(Value* batch) {
    std::vector<Value*> at(extents_.size(), integer(0));
    for (size_t d = extents_.size() - 1; d-- > 0;) {
      at[d] = b_.CreateURem(batch, extents_[d]);
      batch = b_.CreateUDiv(batch, extents_[d]);
    }
    return at;
  }

  // Emits what is computed from a panel of sums.
  void emitSums(Value* first, Value* count, Value* column) {
    Value* width = b_.CreateSub(inner_, column);
    auto rows = [&](bool part) {
      walkRows(first, b_.CreateAdd(first, count), [&](Value* row, const std::vector<Value*>&) {
        uniform_.assign(kernel_.ops.size(), nullptr);
        emitUniform(0);
        for (unsigned v = 0; v < tile_.vectors; ++v) {
          Value* place = integer(v * lanes_);
          Value* left =
              b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b_.CreateSub(width, place), integer(0));
          Value* index =
              b_.CreateAdd(b_.CreateMul(b_.CreateSub(row, first), integer(tile_.columns())), place);
          sum_ = b_.CreateAlignedLoad(floats(), b_.CreateGEP(b_.getFloatTy(), sums_, index),
                                      llvm::Align(4 * lanes_));
          emitBody(0, b_.CreateAdd(column, place), part ? firstLanes(b_, lanes_, left) : nullptr);
        }
        return integer(1);
      });
    };
    BasicBlock* whole = BasicBlock::Create(context(), "whole", function_);
    BasicBlock* part = BasicBlock::Create(context(), "part", function_);
    BasicBlock* after = BasicBlock::Create(context(), "stored", function_);
    b_.CreateCondBr(b_.CreateICmpSGE(width, integer(tile_.columns())), whole, part);
    b_.SetInsertPoint(whole);
    rows(false);
    b_.CreateBr(after);
    b_.SetInsertPoint(part);
    rows(true);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  }

  // Visits rows [from, to); `visit` returns the number of rows that it has done. The place of a row in the
  // outer dimensions is found by division once, and counted on from there.
  void walkRows(Value* from, Value* to,
                const std::function<Value*(Value* row, const std::vector<Value*>& at)>& visit) {
    const size_t rank = kernel_.outerRank();
    std::vector<llvm::AllocaInst*> place;
    Value* rest = from;
    for (size_t d = 0; d < rank; ++d) {
      place.push_back(local(b_.getInt64Ty()));
    }
    for (size_t d = rank; d-- > 0;) {
      // A dimension of extent 0 has no rows, but must not be a divisor.
      Value* extent = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, extents_[d], integer(1));
      b_.CreateStore(d == 0 ? rest : b_.CreateURem(rest, extent), place[d]);
      rest = d == 0 ? rest : b_.CreateUDiv(rest, extent);
    }
    llvm::AllocaInst* done = local(b_.getInt64Ty());
    b_.CreateStore(from, done);
    BasicBlock* head = BasicBlock::Create(context(), "rows", function_);
    BasicBlock* body = BasicBlock::Create(context(), "next", function_);
    BasicBlock* after = BasicBlock::Create(context(), "done", function_);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    Value* row = b_.CreateLoad(b_.getInt64Ty(), done);
    b_.CreateCondBr(b_.CreateICmpSLT(row, to), body, after);
    b_.SetInsertPoint(body);
    std::vector<Value*> at;
    for (llvm::AllocaInst* p : place) {
      at.push_back(b_.CreateLoad(b_.getInt64Ty(), p));
    }
    setRow(at);
    Value* step = visit(row, at);
    b_.CreateStore(b_.CreateAdd(row, step), done);
    Value* carry = step;
    for (size_t d = rank; d-- > 0;) {
      Value* next = b_.CreateAdd(at[d], carry);
      Value* wraps = d == 0 ? b_.getFalse() : b_.CreateICmpEQ(next, extents_[d]);
      b_.CreateStore(b_.CreateSelect(wraps, integer(0), next), place[d]);
      carry = b_.CreateZExt(wraps, b_.getInt64Ty());
    }
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }

  // Emits a block of rows and returns their number, which is smaller at the end of the dimension or the
  // range. Loads that are contiguous along the rows' dimension are transposed, part by part, so that they are
  // contiguous along a row.
  Value* emitTransposed(const std::vector<Value*>& at, Value* most) {
    Value* count =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(extents_.back(), at.back()), most);
    count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, integer(target_.transposeRows));
    const std::vector<Value*> block = row_;
    loop(integer(0), inner_, target_.transposeColumns, [&](Value* from) {
      Value* to = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                           b_.CreateAdd(from, integer(target_.transposeColumns)), inner_);
      for (const auto& [access, room] : transposedBlocks_) {
        emitTranspose(b_, function_, target_, {block[access], innerStride_[access], room}, from, to, count);
      }
      loop(integer(0), count, 1, [&](Value* r) {
        std::vector<Value*> place = at;
        place.back() = b_.CreateAdd(place.back(), r);
        setRow(place);
        Value* shift = b_.CreateSub(b_.CreateMul(r, integer(target_.transposeColumns)), from);
        for (const auto& [access, room] : transposedBlocks_) {
          row_[access] = b_.CreateGEP(b_.getFloatTy(), room, shift);
        }
        emitRow(from, to);
      });
    });
    return count;
  }

  // Emits a vector of rows and returns their number, which is smaller at the end of the dimension or the
  // range.
  Value* emitColumns(Value* at, Value* most) {
    Value* left = b_.CreateSub(extents_.back(), at);
    Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, most);
    count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, integer(lanes_));
    BasicBlock* whole = BasicBlock::Create(context(), "whole", function_);
    BasicBlock* part = BasicBlock::Create(context(), "part", function_);
    BasicBlock* after = BasicBlock::Create(context(), "columns", function_);
    b_.CreateCondBr(b_.CreateICmpEQ(count, integer(lanes_)), whole, part);
    b_.SetInsertPoint(whole);
    block_ = nullptr;
    emitRow(integer(0), inner_);
    b_.CreateBr(after);
    b_.SetInsertPoint(part);
    block_ = maskOf(count);
    emitRow(integer(0), inner_);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    return count;
  }

  void setRow(const std::vector<Value*>& at) {
    row_.clear();
    place_ = at;
    for (size_t a = 0; a < kernel_.accesses.size(); ++a) {
      Value* offset = integer(0);
      for (size_t d = 0; d < at.size(); ++d) {
        offset = b_.CreateAdd(offset, b_.CreateMul(at[d], outerStrides_[a][d]));
      }
      row_.push_back(element(kernel_.accesses[a], base_[a], offset));
    }
  }

  // Emits all stages of one row, for elements [low, high).
  void emitRow(Value* low, Value* high) {
    uniform_.assign(kernel_.ops.size(), nullptr);
    for (uint32_t s = 0; s < plan_.stages; ++s) {
      emitUniform(s);
      emitLoop(s, low, high);
    }
  }

  void emitUniform(uint32_t s) {
    for (uint32_t at = 0; at < kernel_.ops.size(); ++at) {
      const KernelOp& op = kernel_.ops[at];
      if (!plan_.uniform[at] || plan_.stage[at] != s || op.kind == KernelOpKind::kReduce) {
        continue;
      }
      if (op.kind == KernelOpKind::kLoad && kernel_.columns) {
        mask_ = block_;
        uniform_[at] = emitLoad(op.access);
      } else if (op.kind == KernelOpKind::kLoad) {
        const KernelAccess& access = kernel_.accesses[op.access];
        auto* type = memoryType(b_, access.elem, 1);
        const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
        uniform_[at] = fromMemory(b_, access.elem, b_.CreateAlignedLoad(type, row_[op.access], align));
      } else if (op.kind == KernelOpKind::kConst) {
        uniform_[at] = spread(emitConstant(b_, op.elem, op.number, op.integer));
      } else if (op.op == Core::kTake) {
        mask_ = block_;
        uniform_[at] = emitTake(at);
      } else {
        std::vector<Value*> args;
        for (const uint32_t arg : op.args) {
          args.push_back(uniform_[arg]);
        }
        uniform_[at] = compute(op, args);
      }
    }
    for (const passes::KernelStore& store : kernel_.stores) {
      const KernelAccess& access = kernel_.accesses[store.access];
      if (access.uniform && plan_.stage[store.op] == s) {
        KINTSUGI_CHECK(plan_.uniform[store.op], "a row result that varies along the row");
        if (kernel_.columns) {
          mask_ = block_;
          storeVector(store.access, uniform_[store.op]);
          continue;
        }
        const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
        b_.CreateAlignedStore(toMemory(b_, access.elem, uniform_[store.op]), row_[store.access], align);
      }
    }
  }

  Value* compute(const KernelOp& op, std::vector<Value*> args) {
    const KernelOp& last = kernel_.ops[op.args.back()];
    // A small float is rounded to its type before it is converted, as if it had been stored.
    if (op.op == Core::kCast && passes::isSmallFloat(last.elem) && last.kind == KernelOpKind::kPoint) {
      args[0] = fromMemory(b_, last.elem, toMemory(b_, last.elem, args[0]));
    }
    return emitCore(b_, op.op, op.elem, last.elem, args);
  }

  void emitLoop(uint32_t s, Value* low, Value* high) {
    bool empty = true;
    forEachTarget(kernel_, plan_, s, [&](uint32_t) { empty = false; });
    if (empty) {
      return;
    }
    startReductions(s);
    if (kernel_.columns) {
      emitParts(low, high, 1, [&](Value* i) { emitBody(s, i, block_); });
    } else {
      Value* count = b_.CreateSub(high, low);
      Value* tail = b_.CreateAnd(count, integer(lanes_ - 1));
      Value* middle = b_.CreateSub(high, tail);
      emitParts(low, middle, lanes_, [&](Value* i) { emitBody(s, i, nullptr); });
      BasicBlock* rest = BasicBlock::Create(context(), "tail", function_);
      BasicBlock* after = BasicBlock::Create(context(), "row", function_);
      b_.CreateCondBr(b_.CreateICmpSGT(tail, integer(0)), rest, after);
      b_.SetInsertPoint(rest);
      emitBody(s, middle, maskOf(tail));
      b_.CreateBr(after);
      b_.SetInsertPoint(after);
    }
    for (const auto& [at, sum] : accumulators_) {
      uniform_[at] = finish(kernel_.ops[at].op, sum);
    }
  }

  llvm::Type* floats() { return llvm::FixedVectorType::get(b_.getFloatTy(), lanes_); }
  llvm::Type* places() { return llvm::FixedVectorType::get(b_.getInt32Ty(), lanes_); }
  Value* identity(Core op) { return b_.CreateVectorSplat(lanes_, reduceIdentity(b_, op)); }

  // The state of a reduction in a loop.
  struct Accumulator {
    llvm::AllocaInst* value = nullptr;
    llvm::AllocaInst* place = nullptr;  // for argmax and the like: the place of the value
    llvm::AllocaInst* total = nullptr;  // for sums: the total of earlier parts of a long row
  };

  void startReductions(uint32_t s) {
    accumulators_.clear();
    for (uint32_t at = 0; at < kernel_.ops.size(); ++at) {
      const KernelOp& op = kernel_.ops[at];
      if (op.kind != KernelOpKind::kReduce || plan_.stage[op.args[0]] != s) {
        continue;
      }
      Accumulator& sum = accumulators_[at];
      sum.value = local(floats());
      b_.CreateStore(identity(op.op), sum.value);
      if (passes::isArgReduce(op.op)) {
        sum.place = local(places());
        b_.CreateStore(kernel_.columns ? llvm::Constant::getNullValue(places()) : laneNumbers(), sum.place);
      }
      if ((kernel_.longRows || kernel_.columns) && op.op == Core::kReduceSum) {
        sum.total = local(floats());
        b_.CreateStore(identity(op.op), sum.total);
      }
    }
  }

  // The rounding error of a sum grows with the number of terms that are added one after the other. That
  // matters for long rows, and for columns, which one lane sums alone. So each part of a long row has a sum
  // of its own.
  void emitParts(Value* low, Value* high, int64_t step, const std::function<void(Value*)>& body) {
    // The error grows with the length of a part and with the number of parts, so for rows of some thousands
    // it is least near the root of the length. Longer parts lose digits; shorter ones cost a store each.
    constexpr int64_t kPart = 64;
    const bool parts = std::any_of(accumulators_.begin(), accumulators_.end(),
                                   [](const auto& entry) { return entry.second.total != nullptr; });
    if (!parts) {
      loop(low, high, step, body);
      return;
    }
    loop(low, high, kPart * step, [&](Value* from) {
      Value* end = b_.CreateAdd(from, integer(kPart * step));
      loop(from, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, high), step, body);
      for (const auto& [at, sum] : accumulators_) {
        if (sum.total != nullptr) {
          Value* part = b_.CreateLoad(floats(), sum.value);
          b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(floats(), sum.total), part), sum.total);
          b_.CreateStore(identity(Core::kReduceSum), sum.value);
        }
      }
    });
  }

  void accumulate(const KernelOp& op, const Accumulator& sum, Value* x, Value* mask) {
    Value* before = b_.CreateLoad(floats(), sum.value);
    if (sum.place != nullptr) {
      Value* better = isBetter(b_, op.op, x, before);
      better = mask != nullptr ? b_.CreateAnd(better, mask) : better;
      Value* at = b_.CreateVectorSplat(lanes_, b_.CreateTrunc(index_, b_.getInt32Ty()));
      at = kernel_.columns ? at : b_.CreateAdd(at, laneNumbers());
      b_.CreateStore(b_.CreateSelect(better, x, before), sum.value);
      b_.CreateStore(b_.CreateSelect(better, at, b_.CreateLoad(places(), sum.place)), sum.place);
      return;
    }
    x = mask != nullptr ? b_.CreateSelect(mask, x, identity(op.op)) : x;
    b_.CreateStore(combine(b_, op.op, before, x), sum.value);
  }

  // The result of a row: a scalar, or a vector with a result for each of `lanes_` rows.
  Value* finish(Core op, const Accumulator& sum) {
    Value* value = b_.CreateLoad(floats(), sum.value);
    value = sum.total != nullptr ? b_.CreateFAdd(b_.CreateLoad(floats(), sum.total), value) : value;
    if (sum.place == nullptr) {
      return kernel_.columns ? value : foldLanes(b_, op, value);
    }
    Value* place = b_.CreateLoad(places(), sum.place);
    place = kernel_.columns ? place : foldIndices(b_, op, value, place);
    return b_.CreateZExt(place, registerType(b_, Elem::kI64, kernel_.columns ? lanes_ : 1));
  }

  Value* maskOf(Value* count) { return firstLanes(b_, lanes_, count); }

  // `mask`: the lanes that exist; null for a whole vector.
  void emitBody(uint32_t s, Value* i, Value* mask) {
    loop_ = s;
    index_ = i;
    mask_ = mask;
    varying_.assign(kernel_.ops.size(), nullptr);
    for (uint32_t at = 0; at < kernel_.ops.size(); ++at) {
      if (plan_.kept[at] && plan_.stage[at] == s) {
        b_.CreateAlignedStore(value(at), keptPlace(at), llvm::Align(4));
      }
    }
    for (const auto& [at, sum] : accumulators_) {
      const KernelOp& op = kernel_.ops[at];
      accumulate(op, sum, value(op.args[0]), mask);
    }
    for (const passes::KernelStore& store : kernel_.stores) {
      if (kernel_.over && plan_.stage[store.op] == s && !kernel_.accesses[store.access].uniform) {
        value(store.op);  // is kept, so that nothing is read from here on
      }
    }
    for (const passes::KernelStore& store : kernel_.stores) {
      if (plan_.stage[store.op] == s && !kernel_.accesses[store.access].uniform) {
        storeVector(store.access, value(store.op));
      }
    }
  }

  // The scalar in all lanes, as uniform values are held.
  Value* spread(Value* scalar) { return kernel_.columns ? b_.CreateVectorSplat(lanes_, scalar) : scalar; }

  Value* keptPlace(uint32_t at) {
    Value* index = kernel_.columns ? b_.CreateMul(index_, integer(lanes_)) : index_;
    return b_.CreateGEP(b_.getFloatTy(), kept_[at], index);
  }

  // A vector of the op's values at the current place.
  Value* value(uint32_t at) {
    if (varying_[at] != nullptr) {
      return varying_[at];
    }
    const KernelOp& op = kernel_.ops[at];
    if (plan_.uniform[at]) {
      return varying_[at] = kernel_.columns ? uniform_[at] : b_.CreateVectorSplat(lanes_, uniform_[at]);
    }
    if (plan_.kept[at] && plan_.stage[at] < loop_) {
      return varying_[at] = b_.CreateAlignedLoad(floats(), keptPlace(at), llvm::Align(4));
    }
    if (op.kind == KernelOpKind::kProduct) {
      return varying_[at] = sum_;
    }
    if (op.kind == KernelOpKind::kLoad) {
      return varying_[at] = emitLoad(op.access);
    }
    if (!op.bounds.empty()) {
      return varying_[at] = emitPart(at);
    }
    if (op.op == Core::kTake && op.kind == KernelOpKind::kPoint) {
      return varying_[at] = emitTake(at);
    }
    std::vector<Value*> args;
    for (const uint32_t arg : op.args) {
      args.push_back(value(arg));
    }
    return varying_[at] = compute(op, args);
  }

  // If the index is the same for the whole row, the elements are contiguous and are read as a vector.
  Value* emitTake(uint32_t at) {
    const KernelOp& op = kernel_.ops[at];
    const uint32_t index = op.args[1], from = kernel_.ops[op.args[0]].access;
    const auto [step, count] = taken_[at];
    Value* shift = emitLookup(b_, {.places = plan_.uniform[index] ? uniform_[index] : value(index),
                                   .step = step,
                                   .count = count,
                                   .wraps = op.indexed.wraps,
                                   .mask = mask_,
                                   .outside = outside_});
    if (!plan_.uniform[at] || kernel_.columns) {
      return emitLoad(from, shift);
    }
    const KernelAccess& access = kernel_.accesses[from];
    const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
    Value* place = element(access, row_[from], shift);
    return fromMemory(b_, access.elem, b_.CreateAlignedLoad(memoryType(b_, access.elem, 1), place, align));
  }

  Value* emitPart(uint32_t at) {
    const KernelOp& op = kernel_.ops[at];
    Value* other = value(op.args[1]);
    Value* inside = boundsMask(at);
    const KernelOp& from = kernel_.ops[op.args[0]];
    if (from.kind != KernelOpKind::kLoad) {
      return b_.CreateSelect(inside, value(op.args[0]), other);
    }
    Value* outer = mask_;
    mask_ = outer != nullptr ? b_.CreateAnd(inside, outer) : inside;
    Value* x = emitLoad(from.access);
    mask_ = outer;
    return b_.CreateSelect(inside, x, other);
  }

  // Which lanes are within the bounds of a part.
  Value* boundsMask(uint32_t at) {
    const std::vector<passes::PartBound>& bounds = kernel_.ops[at].bounds;
    Value* mask = nullptr;
    for (size_t k = 0; k < bounds.size(); ++k) {
      const auto [low, high] = bounds_[at][k];
      const bool inner = bounds[k].dim == kernel_.outerRank();
      Value* from =
          b_.CreateTrunc(b_.CreateSub(inner ? index_ : place_[bounds[k].dim], low), b_.getInt32Ty());
      Value* count = b_.CreateTrunc(b_.CreateSub(high, low), b_.getInt32Ty());
      Value* places = b_.CreateVectorSplat(lanes_, from);
      places = inner ? b_.CreateAdd(places, laneNumbers()) : places;
      // As unsigned numbers, so that a place before the first one is out of bounds too.
      Value* inside = b_.CreateICmpULT(places, b_.CreateVectorSplat(lanes_, count));
      mask = mask == nullptr ? inside : b_.CreateAnd(mask, inside);
    }
    return mask;
  }

  const Plan plan_;
  const Target target_;
  const TileShape tile_;
  std::unique_ptr<llvm::Module> module_;
  llvm::Function* function_ = nullptr;
  Value* begin_ = nullptr;
  Value* end_ = nullptr;
  Value* inner_ = nullptr;
  std::vector<Value*> extents_;
  std::vector<Value*> base_;         // by access: its memory
  std::map<uint32_t, Value*> kept_;  // by op: the row's values
  std::vector<std::pair<uint32_t, Value*>>
      transposedBlocks_;         // accesses, and the memory of their transposed blocks
  std::vector<Value*> uniform_;  // by op: scalars of the current row
  std::map<uint32_t, Accumulator> accumulators_;
  std::map<uint32_t, std::vector<std::pair<Value*, Value*>>> bounds_;  // by op: bounds of its parts
  std::map<uint32_t, std::pair<Value*, Value*>> taken_;                // by op: step and count of its lookup
  Value* outside_ = nullptr;                                           // true if an index was out of range
  Value* report_ = nullptr;
  std::vector<Value*> place_;  // of the current row, by outer dimension
  Value* block_ = nullptr;     // which lanes have a row; null: all
  ProductOperands product_;
  Value* chunk_ = nullptr;  // rows of a product that are computed together
  Value* sums_ = nullptr;   // of the current panel
  Value* sum_ = nullptr;    // the current vector of these sums
  // The current place in a loop.
  uint32_t loop_ = 0;
  std::vector<Value*> varying_;
};

}  // namespace

std::unique_ptr<llvm::Module> emitKernel(llvm::LLVMContext& context, const Kernel& kernel,
                                         const std::string& name, const EmitOptions& options) {
  kernel.checkForm();
  const TargetScope scope(options.target);  // for functions that work on single values and have no options
  return kernel.attention ? emitAttention(context, kernel, name, options)
                          : Emitter(context, kernel, name, options).run();
}

}  // namespace kintsugi::codegen
