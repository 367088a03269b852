// The file tests of generated code: a kernel as text in, LLVM IR or assembly out (filetests/runner.h).
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <optional>

#include "codegen/emit_kernel.h"
#include "codegen/plan_kernel.h"
#include "codegen/target_machine.h"
#include "filetests/runner.h"
#include "passes/kernel_text.h"

namespace kintsugi::filetests {
namespace {

// Of caches that every machine may have, so that the code is the same wherever the tests run.
codegen::EmitOptions optionsFor(VectorLevel level, const passes::Kernel& kernel, bool contract) {
  codegen::EmitOptions options;
  options.target = describeTarget({.level = level});
  options.tile = codegen::tileFor(kernel, options.target, false);
  options.contract = contract;
  return options;
}

// The kernel, or why it can't be read.
std::optional<passes::Kernel> readAll(std::string_view input, std::string& problem) {
  ir::Cursor cursor(input);
  passes::Kernel kernel = passes::readKernel(cursor);
  if (cursor.failed()) {
    problem = unexpected(syntaxError(cursor.diagnostic()));
    return std::nullopt;
  }
  return kernel;
}

// `ARGUMENT`: a level of vectors, avx2 if there is none. `contract`: products and sums may be one.
std::string runLlvm(std::string_view argument, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  std::string problem;
  const std::optional<passes::Kernel> kernel = readAll(input, problem);
  if (!kernel) {
    return problem;
  }
  const bool contract = argument == "contract";
  const std::optional<VectorLevel> level =
      contract || argument.empty() ? VectorLevel::kAvx2 : levelNamed(argument);
  if (!level) {
    return unexpected("there is no such level of vectors");
  }
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module =
      codegen::emitKernel(context, *kernel, "kernel", optionsFor(*level, *kernel, contract));
  std::string out, problems;
  llvm::raw_string_ostream text(out), wrong(problems);
  if (llvm::verifyModule(*module, &wrong)) {
    return unexpected(problems);
  }
  module->print(text, nullptr);
  return out;
}

// `ARGUMENT`: a level of vectors. Assembly for the smallest machine that has it, whatever this one is.
std::string runAssembly(std::string_view argument, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  std::string problem;
  const std::optional<passes::Kernel> kernel = readAll(input, problem);
  const std::optional<VectorLevel> level = levelNamed(argument);
  if (!kernel || !level) {
    return kernel ? unexpected("there is no such level of vectors") : problem;
  }
  const auto machine = codegen::makeMachine(codegen::namesOf(levelInfo(*level)), problem);
  if (machine == nullptr) {
    return unexpected(problem);
  }
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module =
      codegen::emitKernel(context, *kernel, "kernel", optionsFor(*level, *kernel, false));
  const std::string text =
      codegen::writeModule(*module, *machine, llvm::CodeGenFileType::AssemblyFile, problem);
  return text.empty() ? unexpected(problem) : text;
}

constexpr ModeRow kModes[] = {{"llvm", runLlvm}, {"assembly", runAssembly}};

}  // namespace
}  // namespace kintsugi::filetests

int main(int argc, char** argv) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
  return kintsugi::filetests::runFileTests(argc, argv, KINTSUGI_FILETESTS_DIR, kintsugi::filetests::kModes);
}
