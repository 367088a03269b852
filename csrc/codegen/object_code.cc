#include "codegen/object_code.h"

#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/TargetSelect.h>

#include <mutex>

#include "codegen/target_machine.h"

namespace kintsugi::codegen {

namespace {

// Code made by another version of the emitter is not used: the build passes a hash of its sources.
constexpr std::string_view kFormat = "kintsugi-kernel " KINTSUGI_EMITTER_VERSION " llvm-" LLVM_VERSION_STRING;

std::string textOf(llvm::Error error) { return llvm::toString(std::move(error)); }

// Protects LLVM's session, which has locks of its own. If one thread drops code while another forks, the
// child must not get these locks in a locked state.
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
  std::string key;
  uint64_t libraries = 0;

  void start(const Target& target) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    const MachineNames names = namesOf(target);
    key = std::string(kFormat) + " " + targetKey(target) + " " + names.triple + " " + names.processor + " " +
          names.features;
    machine = makeMachine(names, problem);
    if (machine == nullptr) {
      return;
    }
    // Only code that is compiled already is loaded, so the session needs no more than the machine's object
    // format.
    auto made =
        llvm::orc::LLJITBuilder()
            .setJITTargetMachineBuilder(llvm::orc::JITTargetMachineBuilder(machine->getTargetTriple()))
            .create();
    if (!made) {
      problem = textOf(made.takeError());
      return;
    }
    jit = std::move(*made);
  }
};

ObjectCompiler::ObjectCompiler(const Target& target) : impl_(std::make_unique<Impl>()) {
  impl_->start(target);
}
ObjectCompiler::~ObjectCompiler() = default;

bool ObjectCompiler::ready(std::string& reason) const {
  reason = impl_->problem;
  return impl_->problem.empty();
}
const std::string& ObjectCompiler::key() const { return impl_->key; }
void ObjectCompiler::prepareFork() { sessionMutex().lock(); }
void ObjectCompiler::afterFork() { sessionMutex().unlock(); }

std::string ObjectCompiler::compile(llvm::Module& module, std::string& reason) {
  return writeModule(module, *impl_->machine, llvm::CodeGenFileType::ObjectFile, reason);
}

std::shared_ptr<CompiledKernel> ObjectCompiler::load(const std::string& object, const std::string& symbol,
                                                     std::string& reason) {
  auto code = std::make_shared<LoadedCode>();
  const std::lock_guard lock(sessionMutex());  // released before `code` is destroyed, which takes it
  code->jit = impl_->jit;
  // Each kernel gets a library of its own, so names never clash. Symbols that it needs are looked up in the
  // process.
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
