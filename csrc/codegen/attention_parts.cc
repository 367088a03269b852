#include "codegen/attention_parts.h"

#include <limits>

#include "codegen/emit_attention.h"
#include "codegen/emit_product.h"
#include "support/check.h"
#include "support/target.h"

namespace kintsugi::codegen {

using llvm::BasicBlock;
using llvm::Value;
using passes::Elem;
using passes::Kernel;
using passes::KernelOp;
using passes::KernelOpKind;

AttentionParts::AttentionParts(llvm::LLVMContext& context, const Kernel& kernel, const std::string& name,
                               const EmitOptions& options)
    : kernel_(kernel),
      form_(*kernel.attention),
      module_(std::make_unique<llvm::Module>(name, context)),
      b_(context),
      out_(kernel.stores.front().access) {
  llvm::FastMathFlags flags;
  flags.setAllowContract(options.contract);
  b_.setFastMathFlags(flags);
  auto* type = llvm::FunctionType::get(
      b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty(), b_.getInt64Ty()}, false);
  function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, *module_);
  function_->setDoesNotThrow();
  b_.SetInsertPoint(BasicBlock::Create(context, "entry", function_));
  Value* memory = function_->getArg(0);
  Value* numbers = function_->getArg(1);
  begin_ = function_->getArg(2);
  end_ = function_->getArg(3);
  size_t next = 1;  // skips the size of a value, which is a constant
  auto read = [&] {
    return b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), numbers, next++));
  };
  KINTSUGI_CHECK(kernel.outerRank() == 3, "attention over other dimensions than batch, head and query");
  read();  // the number of batches is not needed
  heads_ = read();
  queries_ = read();
  for (size_t a = 0; a < kernel.accesses.size(); ++a) {
    Access access;
    access.elem = kernel.accesses[a].elem;
    access.base = b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), memory, a));
    for (Value** stride : {&access.batch, &access.head, &access.row, &access.element}) {
      *stride = read();
    }
    accesses_.push_back(access);
  }
  keys_ = read();
  group_ = read();
}

Value* AttentionParts::fused(Value* a, Value* b, Value* c) {
  return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, b, c});
}

Value* AttentionParts::finiteTop(Value* top) {
  Value* never = llvm::ConstantFP::get(top->getType(), -std::numeric_limits<double>::infinity());
  Value* zero = llvm::Constant::getNullValue(top->getType());
  return b_.CreateSelect(b_.CreateFCmpOEQ(top, never), zero, top);
}

Value* AttentionParts::elementAt(const Access& access, Value* index) {
  return b_.CreateGEP(memoryType(b_, access.elem, 1), access.base, index);
}

Value* AttentionParts::loadFloats(Elem elem, unsigned lanes, Value* from, Value* mask) {
  auto* type = memoryType(b_, elem, lanes);
  const llvm::Align align(static_cast<uint64_t>(passes::elemSize(elem)));
  Value* x = mask != nullptr ? static_cast<Value*>(b_.CreateMaskedLoad(type, from, align, mask,
                                                                       llvm::Constant::getNullValue(type)))
                             : b_.CreateAlignedLoad(type, from, align);
  return fromMemory(b_, elem, x);
}

void AttentionParts::storeFloats(Elem elem, Value* x, Value* to, Value* mask) {
  x = toMemory(b_, elem, x);
  const llvm::Align align(static_cast<uint64_t>(passes::elemSize(elem)));
  if (mask != nullptr) {
    b_.CreateMaskedStore(x, to, align, mask);
  } else {
    b_.CreateAlignedStore(x, to, align);
  }
}

Value* AttentionParts::slice(Value* x, unsigned from, unsigned count) {
  std::vector<int> lanes;
  for (unsigned k = 0; k < count; ++k) {
    lanes.push_back(static_cast<int>(from + k));
  }
  return b_.CreateShuffleVector(x, lanes);
}

llvm::AllocaInst* AttentionParts::room(Value* count) {
  llvm::AllocaInst* made = b_.CreateAlloca(b_.getFloatTy(), count);
  made->setAlignment(lineAlignment(target().lanes));
  return made;
}

llvm::AllocaInst* AttentionParts::variable(llvm::Type* type) {
  BasicBlock& entry = function_->getEntryBlock();
  Builder first(&entry, entry.begin());
  return first.CreateAlloca(type);
}

BasicBlock* AttentionParts::block(const char* name) {
  return BasicBlock::Create(b_.getContext(), name, function_);
}

void AttentionParts::loop(Value* from, Value* to, int64_t step, const Number& body) {
  emitLoop(b_, function_, from, to, step, body);
}

void AttentionParts::choose(Value* condition, const std::function<void()>& yes,
                            const std::function<void()>& no) {
  BasicBlock* first = block("yes");
  BasicBlock* second = block("no");
  BasicBlock* after = block("chosen");
  b_.CreateCondBr(condition, first, second);
  b_.SetInsertPoint(first);
  yes();
  b_.CreateBr(after);
  b_.SetInsertPoint(second);
  no();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

Value* AttentionParts::scoreOf(Value* product, unsigned lanes,
                               const std::function<Value*(uint32_t access)>& loaded) {
  std::vector<Value*> values;
  for (const KernelOp& op : kernel_.ops) {
    if (op.kind == KernelOpKind::kScore) {
      values.push_back(product);
    } else if (op.kind == KernelOpKind::kLoad) {
      values.push_back(loaded(op.access));
    } else if (op.kind == KernelOpKind::kConst) {
      values.push_back(b_.CreateVectorSplat(lanes, emitConstant(b_, op.elem, op.number, op.integer)));
    } else {
      KINTSUGI_CHECK(op.kind == KernelOpKind::kPoint, "scores are made element by element");
      std::vector<Value*> args;
      for (const uint32_t arg : op.args) {
        args.push_back(values[arg]);
      }
      const Elem from = kernel_.ops[op.args[0]].elem;
      values.push_back(emitCore(b_, op.op, op.elem, from, args));
    }
  }
  return values[kernel_.stores.front().op];
}

Value* AttentionParts::rowsOf(uint32_t access, Value* batch, Value* head) {
  const Access& from = accesses_[access];
  return elementAt(from, place(head, from.head, b_.CreateMul(batch, from.batch)));
}

std::unique_ptr<llvm::Module> emitAttention(llvm::LLVMContext& context, const Kernel& kernel,
                                            const std::string& name, const EmitOptions& options) {
  return kernel.attention->few ? emitFewQueries(context, kernel, name, options)
                               : emitManyQueries(context, kernel, name, options);
}

}  // namespace kintsugi::codegen
