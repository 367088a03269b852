#include "codegen/object_code.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <mutex>

namespace kintsugi::codegen {

namespace {

// Code made by another version of the emitter is not used: the build passes a hash of its sources.
constexpr std::string_view kFormat = "kintsugi-kernel " KINTSUGI_EMITTER_VERSION " llvm-" LLVM_VERSION_STRING;

std::string textOf(llvm::Error error) { return llvm::toString(std::move(error)); }

// Of LLVM's session, which has locks of its own: a thread drops code while another one forks, and the child
// must not find them taken.
std::mutex& sessionMutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

struct LoadedCode final : CompiledKernel {
  std::shared_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::JITDylib* library = nullptr;
  ~LoadedCode() override {
    if (library != nullptr) {
      const std::lock_guard lock(sessionMutex());
      llvm::consumeError(jit->getExecutionSession().removeJITDylib(*library));
    }
  }
};

}  // namespace

struct ObjectCompiler::Impl {
  std::unique_ptr<llvm::TargetMachine> machine;
  std::shared_ptr<llvm::orc::LLJIT> jit;
  std::string problem;
  std::string target;
  unsigned lanes = 8;
  Tile tall{6, 1}, wide{3, 2};  // as many sums
  bool manyRegisters = false;   // 32 of 64 bytes
  uint64_t libraries = 0;

  void start() {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
    if (!builder) {
      problem = textOf(builder.takeError());
      return;
    }
    builder->setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
    builder->setRelocationModel(llvm::Reloc::PIC_);
    builder->setCodeModel(llvm::CodeModel::Small);
    const std::string features = builder->getFeatures().getString();
    lanes = features.find("+avx2") != std::string::npos ? 16 : 8;
    manyRegisters = features.find("+avx512f") != std::string::npos;
    if (manyRegisters) {
      tall = {12, 2};
      wide = {6, 4};
    } else if (builder->getTargetTriple().isAArch64()) {
      tall = {12, 1};
      wide = {6, 2};
    }
    target = std::string(kFormat) + " " + builder->getTargetTriple().str() + " " + builder->getCPU() + " " +
             features;
    auto made = builder->createTargetMachine();
    if (!made) {
      problem = textOf(made.takeError());
      return;
    }
    machine = std::move(*made);
    auto jitMade = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(*builder).create();
    if (!jitMade) {
      problem = textOf(jitMade.takeError());
      return;
    }
    jit = std::move(*jitMade);
  }

  void optimize(llvm::Module& module) {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager calls;
    llvm::ModuleAnalysisManager modules;
    llvm::PipelineTuningOptions tuning;
    tuning.LoopVectorization = false;  // the loops are vectors already
    tuning.SLPVectorization = false;
    tuning.LoopUnrolling = false;
    llvm::PassBuilder builder(machine.get(), tuning);
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(calls);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, calls, modules);
    llvm::FunctionPassManager passes = builder.buildFunctionSimplificationPipeline(
        llvm::OptimizationLevel::O2, llvm::ThinOrFullLTOPhase::None);
    for (llvm::Function& function : module) {
      if (!function.isDeclaration()) {
        passes.run(function, functions);
      }
    }
  }
};

ObjectCompiler::ObjectCompiler() : impl_(std::make_unique<Impl>()) { impl_->start(); }
ObjectCompiler::~ObjectCompiler() = default;

bool ObjectCompiler::ready(std::string& reason) const {
  reason = impl_->problem;
  return impl_->problem.empty();
}
unsigned ObjectCompiler::lanes() const { return impl_->lanes; }
unsigned ObjectCompiler::square() const { return impl_->manyRegisters ? 16 : 8; }

// Rows of the first operand of a product are read where they lie. Where they are 4096 bytes apart, as in many
// models, those of a tile share a set of the first cache, which holds eight lines: twelve rows throw each
// other out (93 instead of 105 GFLOP/s), six do not. So a wide tile is the usual one, unless it computes a
// twentieth more columns for nothing than the tall one does.
Tile ObjectCompiler::tileOf(const passes::Kernel& kernel, bool other) const {
  const auto wasted = [&](const Tile& tile) {
    const auto columns = static_cast<int64_t>(tile.vectors * impl_->lanes);
    const int64_t n = kernel.sizes.back().hint;
    return (columns - n % columns) % columns;
  };
  const bool wide = kernel.product && impl_->manyRegisters &&
                    (wasted(impl_->wide) - wasted(impl_->tall)) * 20 <= kernel.sizes.back().hint;
  return wide != other ? impl_->wide : impl_->tall;
}
const std::string& ObjectCompiler::target() const { return impl_->target; }
void ObjectCompiler::prepareFork() { sessionMutex().lock(); }
void ObjectCompiler::afterFork() { sessionMutex().unlock(); }

std::string ObjectCompiler::compile(llvm::Module& module, std::string& reason) {
  module.setDataLayout(impl_->machine->createDataLayout());
  module.setTargetTriple(impl_->machine->getTargetTriple().str());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) {
      function.addFnAttr("target-cpu", impl_->machine->getTargetCPU());
      function.addFnAttr("target-features", impl_->machine->getTargetFeatureString());
    }
  }
  llvm::raw_string_ostream problems(reason);
  if (llvm::verifyModule(module, &problems)) {
    return {};
  }
  impl_->optimize(module);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  if (impl_->machine->addPassesToEmitFile(passes, out, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    reason = "the target can't write object files";
    return {};
  }
  passes.run(module);
  return {bytes.data(), bytes.size()};
}

std::shared_ptr<CompiledKernel> ObjectCompiler::load(const std::string& object, const std::string& symbol,
                                                     std::string& reason) {
  auto code = std::make_shared<LoadedCode>();
  const std::lock_guard lock(sessionMutex());  // given back before `code` goes, which takes it
  code->jit = impl_->jit;
  // A library of its own for each: names never clash, and what it needs is looked up in the process.
  auto library = impl_->jit->createJITDylib("kernel" + std::to_string(impl_->libraries++));
  if (!library) {
    reason = textOf(library.takeError());
    return nullptr;
  }
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      impl_->jit->getDataLayout().getGlobalPrefix());
  if (process) {
    library->addGenerator(std::move(*process));
  } else {
    llvm::consumeError(process.takeError());
  }
  code->library = &*library;
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, symbol);
  if (llvm::Error error = impl_->jit->addObjectFile(*library, std::move(buffer))) {
    reason = textOf(std::move(error));
    return nullptr;
  }
  auto found = impl_->jit->lookup(*library, symbol);
  if (!found) {
    reason = textOf(found.takeError());
    return nullptr;
  }
  code->function = found->toPtr<KernelFunction>();
  return code;
}

}  // namespace kintsugi::codegen
