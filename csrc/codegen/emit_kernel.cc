#include "codegen/emit_kernel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "codegen/emit_ops.h"
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

// What is known about the ops before code is made.
struct Plan {
  std::vector<bool> uniform;    // the same all along a row
  std::vector<uint32_t> stage;  // the loop in which it can be computed; of a reduction: the one after its own
  std::vector<bool> kept;       // costly, and needed in later loops: stored for the row
  uint32_t stages = 1;
};

class Planner {
 public:
  explicit Planner(const Kernel& kernel) : kernel_(kernel) {}

  Plan run() {
    plan_.kept.assign(kernel_.ops.size(), false);
    for (const KernelOp& op : kernel_.ops) {
      addOp(op);
    }
    for (uint32_t s = 1; s < plan_.stages; ++s) {
      forEachTarget(kernel_, plan_, s, [&](uint32_t op) { visit(op, s); });
    }
    return std::move(plan_);
  }

  // The values that loop `s` exists for: arguments of its reductions, and what is stored in it.
  static void forEachTarget(const Kernel& kernel, const Plan& plan, uint32_t s,
                            const std::function<void(uint32_t)>& visit) {
    for (const KernelOp& op : kernel.ops) {
      if (op.kind == KernelOpKind::kReduce && plan.stage[op.args[0]] == s) {
        visit(op.args[0]);
      }
    }
    for (const passes::KernelStore& store : kernel.stores) {
      if (plan.stage[store.op] == s && kernel.accesses[store.access].inner != Inner::kZero) {
        visit(store.op);
      }
    }
  }

 private:
  void addOp(const KernelOp& op) {
    bool uniform = op.kind != KernelOpKind::kLoad || kernel_.accesses[op.access].inner == Inner::kZero;
    uint32_t stage = 0;
    for (const uint32_t arg : op.args) {
      uniform = uniform && plan_.uniform[arg];
      stage = std::max(stage, plan_.stage[arg]);
    }
    if (op.kind == KernelOpKind::kReduce) {
      uniform = true;
      ++stage;
    }
    plan_.uniform.push_back(uniform);
    plan_.stage.push_back(stage);
    plan_.stages = std::max(plan_.stages, stage + 1);
  }

  void visit(uint32_t at, uint32_t loop) {
    const KernelOp& op = kernel_.ops[at];
    if (plan_.uniform[at] || plan_.kept[at]) {
      return;
    }
    const bool floats = passes::isSmallFloat(op.elem) || op.elem == Elem::kF32;
    if (op.kind == KernelOpKind::kPoint && plan_.stage[at] < loop && floats &&
        passes::coreInfo(op.op).cost == passes::CoreCost::kCostly) {
      plan_.kept[at] = true;
      return;
    }
    for (const uint32_t arg : op.args) {
      visit(arg, loop);
    }
  }

  const Kernel& kernel_;
  Plan plan_;
};

class Emitter {
 public:
  Emitter(llvm::LLVMContext& context, const Kernel& kernel, const std::string& name,
          const EmitOptions& options)
      : kernel_(kernel),
        plan_(Planner(kernel).run()),
        lanes_(options.lanes),
        module_(std::make_unique<llvm::Module>(name, context)),
        b_(context) {
    llvm::FastMathFlags flags;
    flags.setAllowContract(options.contract);
    b_.setFastMathFlags(flags);
    begin(name);
  }

  std::unique_ptr<llvm::Module> run() {
    const bool flat = kernel_.outerRank() == 0 && !kernel_.hasReductions;
    if (flat) {
      setRow({});
      emitRow(begin_, end_);
    } else {
      emitRows();
    }
    b_.CreateRetVoid();
    return std::move(module_);
  }

 private:
  llvm::LLVMContext& context() { return b_.getContext(); }
  Value* integer(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }

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
    for (size_t op = 0; op < kernel_.ops.size(); ++op) {
      if (plan_.kept[op]) {
        Value* room = b_.CreateAdd(inner_, integer(lanes_));
        kept_[static_cast<uint32_t>(op)] = b_.CreateAlloca(b_.getFloatTy(), room);
      }
    }
  }

  llvm::AllocaInst* local(llvm::Type* type) {
    BasicBlock& entry = function_->getEntryBlock();
    Builder at(&entry, entry.begin());
    return at.CreateAlloca(type);
  }

  // for (i = from; i < to; i += step) body(i)
  void loop(Value* from, Value* to, int64_t step, const std::function<void(Value*)>& body) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* head = BasicBlock::Create(context(), "loop", function_);
    BasicBlock* after = BasicBlock::Create(context(), "after", function_);
    b_.CreateCondBr(b_.CreateICmpSLT(from, to), head, after);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(from, before);
    body(i);
    Value* next = b_.CreateAdd(i, integer(step), "", true, true);
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, to), head, after);
    b_.SetInsertPoint(after);
  }

  // Where in the outer dimensions a row is: divided out once, then counted on.
  void emitRows() {
    const size_t rank = kernel_.outerRank();
    std::vector<llvm::AllocaInst*> place;
    Value* rest = begin_;
    for (size_t d = 0; d < rank; ++d) {
      place.push_back(local(b_.getInt64Ty()));
    }
    for (size_t d = rank; d-- > 0;) {
      // An extent of 0 has no rows, but must not be divided by.
      Value* extent = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, extents_[d], integer(1));
      b_.CreateStore(d == 0 ? rest : b_.CreateURem(rest, extent), place[d]);
      rest = d == 0 ? rest : b_.CreateUDiv(rest, extent);
    }
    loop(begin_, end_, 1, [&](Value*) {
      std::vector<Value*> at;
      for (llvm::AllocaInst* p : place) {
        at.push_back(b_.CreateLoad(b_.getInt64Ty(), p));
      }
      setRow(at);
      emitRow(integer(0), inner_);
      Value* carry = integer(1);
      for (size_t d = rank; d-- > 0;) {
        Value* next = b_.CreateAdd(at[d], carry);
        Value* wraps = d == 0 ? b_.getFalse() : b_.CreateICmpEQ(next, extents_[d]);
        b_.CreateStore(b_.CreateSelect(wraps, integer(0), next), place[d]);
        carry = b_.CreateZExt(wraps, b_.getInt64Ty());
      }
    });
  }

  void setRow(const std::vector<Value*>& at) {
    row_.clear();
    for (size_t a = 0; a < kernel_.accesses.size(); ++a) {
      Value* offset = integer(0);
      for (size_t d = 0; d < at.size(); ++d) {
        offset = b_.CreateAdd(offset, b_.CreateMul(at[d], outerStrides_[a][d]));
      }
      row_.push_back(element(kernel_.accesses[a], base_[a], offset));
    }
  }

  Value* element(const KernelAccess& access, Value* from, Value* index) {
    return b_.CreateGEP(memoryType(b_, access.elem, 1), from, index);
  }

  // All stages of one row, from element `low` to `high`.
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
      if (op.kind == KernelOpKind::kLoad) {
        const KernelAccess& access = kernel_.accesses[op.access];
        auto* type = memoryType(b_, access.elem, 1);
        const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
        uniform_[at] = fromMemory(b_, access.elem, b_.CreateAlignedLoad(type, row_[op.access], align));
      } else if (op.kind == KernelOpKind::kConst) {
        uniform_[at] = emitConstant(b_, op.elem, op.number, op.integer);
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
      if (access.inner == Inner::kZero && plan_.stage[store.op] == s) {
        KINTSUGI_CHECK(plan_.uniform[store.op], "a row result that varies along the row");
        const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
        b_.CreateAlignedStore(toMemory(b_, access.elem, uniform_[store.op]), row_[store.access], align);
      }
    }
  }

  Value* compute(const KernelOp& op, std::vector<Value*> args) {
    const KernelOp& last = kernel_.ops[op.args.back()];
    // A small float that leaves its type is what it would have been in memory.
    if (op.op == Core::kCast && passes::isSmallFloat(last.elem) && last.kind == KernelOpKind::kPoint) {
      args[0] = fromMemory(b_, last.elem, toMemory(b_, last.elem, args[0]));
    }
    return emitCore(b_, op.op, op.elem, last.elem, args);
  }

  void emitLoop(uint32_t s, Value* low, Value* high) {
    bool empty = true;
    Planner::forEachTarget(kernel_, plan_, s, [&](uint32_t) { empty = false; });
    if (empty) {
      return;
    }
    accumulators_.clear();
    auto* vector = llvm::FixedVectorType::get(b_.getFloatTy(), lanes_);
    for (uint32_t at = 0; at < kernel_.ops.size(); ++at) {
      const KernelOp& op = kernel_.ops[at];
      if (op.kind == KernelOpKind::kReduce && plan_.stage[op.args[0]] == s) {
        llvm::AllocaInst* sum = local(vector);
        b_.CreateStore(b_.CreateVectorSplat(lanes_, reduceIdentity(b_, op.op)), sum);
        accumulators_[at] = sum;
      }
    }
    Value* count = b_.CreateSub(high, low);
    Value* tail = b_.CreateAnd(count, integer(lanes_ - 1));
    Value* middle = b_.CreateSub(high, tail);
    loop(low, middle, lanes_, [&](Value* i) { emitBody(s, i, nullptr); });
    BasicBlock* rest = BasicBlock::Create(context(), "tail", function_);
    BasicBlock* after = BasicBlock::Create(context(), "row", function_);
    b_.CreateCondBr(b_.CreateICmpSGT(tail, integer(0)), rest, after);
    b_.SetInsertPoint(rest);
    emitBody(s, middle, maskOf(tail));
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    for (const auto& [at, sum] : accumulators_) {
      uniform_[at] = fold(kernel_.ops[at].op, b_.CreateLoad(vector, sum));
    }
  }

  Value* maskOf(Value* count) {
    std::vector<uint32_t> numbers(lanes_);
    for (uint32_t k = 0; k < lanes_; ++k) {
      numbers[k] = k;
    }
    Value* lane = llvm::ConstantDataVector::get(context(), numbers);
    return b_.CreateICmpULT(lane, b_.CreateVectorSplat(lanes_, b_.CreateTrunc(count, b_.getInt32Ty())));
  }

  // In halves: the order is always the same.
  Value* fold(Core op, Value* vector) {
    for (unsigned width = lanes_; width > 1; width /= 2) {
      std::vector<int> low, high;
      for (unsigned k = 0; k < width / 2; ++k) {
        low.push_back(static_cast<int>(k));
        high.push_back(static_cast<int>(k + width / 2));
      }
      vector = combine(b_, op, b_.CreateShuffleVector(vector, low), b_.CreateShuffleVector(vector, high));
    }
    return b_.CreateExtractElement(vector, uint64_t{0});
  }

  // `mask`: null for a whole vector.
  void emitBody(uint32_t s, Value* i, Value* mask) {
    loop_ = s;
    index_ = i;
    mask_ = mask;
    varying_.assign(kernel_.ops.size(), nullptr);
    for (uint32_t at = 0; at < kernel_.ops.size(); ++at) {
      if (plan_.kept[at] && plan_.stage[at] == s) {
        Value* to = b_.CreateGEP(b_.getFloatTy(), kept_[at], i);
        b_.CreateAlignedStore(value(at), to, llvm::Align(4));
      }
    }
    for (const auto& [at, sum] : accumulators_) {
      const KernelOp& op = kernel_.ops[at];
      Value* x = value(op.args[0]);
      if (mask != nullptr) {
        x = b_.CreateSelect(mask, x, b_.CreateVectorSplat(lanes_, reduceIdentity(b_, op.op)));
      }
      b_.CreateStore(combine(b_, op.op, b_.CreateLoad(x->getType(), sum), x), sum);
    }
    for (const passes::KernelStore& store : kernel_.stores) {
      if (plan_.stage[store.op] == s && kernel_.accesses[store.access].inner != Inner::kZero) {
        emitStore(store);
      }
    }
  }

  // A vector of the op's values at the present place.
  Value* value(uint32_t at) {
    if (varying_[at] != nullptr) {
      return varying_[at];
    }
    const KernelOp& op = kernel_.ops[at];
    if (plan_.uniform[at]) {
      return varying_[at] = b_.CreateVectorSplat(lanes_, uniform_[at]);
    }
    if (plan_.kept[at] && plan_.stage[at] < loop_) {
      auto* type = llvm::FixedVectorType::get(b_.getFloatTy(), lanes_);
      Value* from = b_.CreateGEP(b_.getFloatTy(), kept_[at], index_);
      return varying_[at] = b_.CreateAlignedLoad(type, from, llvm::Align(4));
    }
    if (op.kind == KernelOpKind::kLoad) {
      return varying_[at] = emitLoad(op.access);
    }
    std::vector<Value*> args;
    for (const uint32_t arg : op.args) {
      args.push_back(value(arg));
    }
    return varying_[at] = compute(op, args);
  }

  Value* pointers(uint32_t access) {
    std::vector<uint64_t> numbers(lanes_);
    for (uint32_t k = 0; k < lanes_; ++k) {
      numbers[k] = k;
    }
    Value* lane = llvm::ConstantDataVector::get(context(), numbers);
    Value* at = b_.CreateAdd(b_.CreateVectorSplat(lanes_, index_), lane);
    Value* offsets = b_.CreateMul(at, b_.CreateVectorSplat(lanes_, innerStride_[access]));
    return element(kernel_.accesses[access], row_[access], offsets);
  }

  Value* fullMask() { return mask_ != nullptr ? mask_ : b_.CreateVectorSplat(lanes_, b_.getTrue()); }

  Value* emitLoad(uint32_t at) {
    const KernelAccess& access = kernel_.accesses[at];
    auto* type = memoryType(b_, access.elem, lanes_);
    const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
    Value* zero = llvm::Constant::getNullValue(type);
    Value* loaded = nullptr;
    if (access.inner == Inner::kStrided) {
      loaded = b_.CreateMaskedGather(type, pointers(at), align, fullMask(), zero);
    } else {
      Value* from = element(access, row_[at], index_);
      loaded = mask_ != nullptr ? static_cast<Value*>(b_.CreateMaskedLoad(type, from, align, mask_, zero))
                                : b_.CreateAlignedLoad(type, from, align);
    }
    return fromMemory(b_, access.elem, loaded);
  }

  void emitStore(const passes::KernelStore& store) {
    const KernelAccess& access = kernel_.accesses[store.access];
    Value* x = toMemory(b_, access.elem, value(store.op));
    const llvm::Align align(static_cast<uint64_t>(passes::elemSize(access.elem)));
    if (access.inner == Inner::kStrided) {
      b_.CreateMaskedScatter(x, pointers(store.access), align, fullMask());
      return;
    }
    Value* to = element(access, row_[store.access], index_);
    if (mask_ != nullptr) {
      b_.CreateMaskedStore(x, to, align, mask_);
    } else {
      b_.CreateAlignedStore(x, to, align);
    }
  }

  const Kernel& kernel_;
  const Plan plan_;
  const unsigned lanes_;
  std::unique_ptr<llvm::Module> module_;
  Builder b_;
  llvm::Function* function_ = nullptr;
  Value* begin_ = nullptr;
  Value* end_ = nullptr;
  Value* inner_ = nullptr;
  std::vector<Value*> extents_;
  std::vector<Value*> base_;  // by access
  std::vector<std::vector<Value*>> outerStrides_;
  std::vector<Value*> innerStride_;
  std::map<uint32_t, Value*> kept_;  // by op: the row's values
  std::vector<Value*> row_;          // by access: the present row
  std::vector<Value*> uniform_;      // by op: scalars of the present row
  std::map<uint32_t, llvm::AllocaInst*> accumulators_;
  // The present place in a loop.
  uint32_t loop_ = 0;
  Value* index_ = nullptr;
  Value* mask_ = nullptr;
  std::vector<Value*> varying_;
};

}  // namespace

std::unique_ptr<llvm::Module> emitKernel(llvm::LLVMContext& context, const Kernel& kernel,
                                         const std::string& name, const EmitOptions& options) {
  return Emitter(context, kernel, name, options).run();
}

}  // namespace kintsugi::codegen
