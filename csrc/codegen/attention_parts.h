// Inside codegen only: the code that both forms of attention (codegen/emit_attention.h) share.
//
// Ownership: values belong to the function under construction. Threads: as the builder's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/emit_kernel.h"
#include "codegen/emit_ops.h"

namespace kintsugi::codegen {

// A function under construction with its arguments, and shorthands for the code in it.
class AttentionParts {
 public:
  AttentionParts(llvm::LLVMContext& context, const passes::Kernel& kernel, const std::string& name,
                 const EmitOptions& options);

 protected:
  using Value = llvm::Value;
  using Number = std::function<void(Value*)>;

  // The base address and the strides of an access, in elements.
  struct Access {
    Value* base = nullptr;
    Value* batch = nullptr;
    Value* head = nullptr;
    Value* row = nullptr;
    Value* element = nullptr;
    passes::Elem elem = passes::Elem::kF32;
  };

  Value* integer(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  llvm::FixedVectorType* floats(unsigned lanes) { return llvm::FixedVectorType::get(b_.getFloatTy(), lanes); }
  Value* number(double v, unsigned lanes) { return llvm::ConstantFP::get(floats(lanes), v); }
  Value* most(Value* a, Value* b) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, b); }
  Value* least(Value* a, Value* b) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b); }
  // a * b + c: place() for indices, fused() for floats.
  Value* place(Value* a, Value* b, Value* c) { return b_.CreateAdd(b_.CreateMul(a, b), c); }
  Value* fused(Value* a, Value* b, Value* c);
  // The larger value. A NaN is never larger.
  Value* larger(Value* a, Value* b) { return b_.CreateSelect(b_.CreateFCmpOGT(a, b), a, b); }
  // The value that is subtracted from scores: the largest score, but finite, so that -infinity stays below
  // it.
  Value* finiteTop(Value* top);
  Value* at(Value* base, Value* index) { return b_.CreateGEP(b_.getFloatTy(), base, index); }
  Value* load(unsigned lanes, Value* from, uint64_t align = 4) {
    return b_.CreateAlignedLoad(lanes == 1 ? b_.getFloatTy() : static_cast<llvm::Type*>(floats(lanes)), from,
                                llvm::Align(align));
  }
  void store(Value* x, Value* to, uint64_t align = 4) { b_.CreateAlignedStore(x, to, llvm::Align(align)); }
  // Elements of an access, as floats in registers. `mask`: the lanes that exist; null: all.
  Value* elementAt(const Access& access, Value* index);
  Value* loadFloats(passes::Elem elem, unsigned lanes, Value* from, Value* mask = nullptr);
  void storeFloats(passes::Elem elem, Value* x, Value* to, Value* mask = nullptr);
  Value* slice(Value* x, unsigned from, unsigned count);

  llvm::AllocaInst* room(int64_t count) { return room(integer(count)); }
  llvm::AllocaInst* room(Value* count);
  llvm::AllocaInst* variable(llvm::Type* type);
  llvm::BasicBlock* block(const char* name);
  void loop(Value* from, Value* to, int64_t step, const Number& body);
  void choose(Value* condition, const std::function<void()>& yes, const std::function<void()>& no);

  // Applies the kernel's ops to products; `loaded` gives values of accesses.
  Value* scoreOf(Value* product, unsigned lanes, const std::function<Value*(uint32_t access)>& loaded);

  // The first row of head (batch, head) of an access.
  Value* rowsOf(uint32_t access, Value* batch, Value* head);

  const passes::Kernel& kernel_;
  const passes::KernelAttention& form_;
  std::unique_ptr<llvm::Module> module_;
  Builder b_;
  llvm::Function* function_ = nullptr;
  Value* begin_ = nullptr;
  Value* end_ = nullptr;
  Value* heads_ = nullptr;  // heads that are computed as separate pieces
  Value* queries_ = nullptr;
  Value* keys_ = nullptr;
  Value* group_ = nullptr;
  std::vector<Access> accesses_;
  uint32_t out_ = 0;  // access
};

std::unique_ptr<llvm::Module> emitManyQueries(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                              const std::string& name, const EmitOptions& options);
std::unique_ptr<llvm::Module> emitFewQueries(llvm::LLVMContext& context, const passes::Kernel& kernel,
                                             const std::string& name, const EmitOptions& options);

}  // namespace kintsugi::codegen
