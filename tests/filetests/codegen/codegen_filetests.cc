// The file tests of generated code: a kernel as text in, LLVM IR out (filetests/runner.h).
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/emit_kernel.h"
#include "filetests/runner.h"
#include "passes/kernel_text.h"

namespace kintsugi::filetests {
namespace {

// `ARGUMENT`: how many floats a register holds; 8 if there is none. `contract`: products and sums may be one.
std::string runLlvm(std::string_view argument, std::string_view input) {
  passes::SizeTable sizes;
  const passes::SizeScope scope(sizes);
  ir::Cursor cursor(input);
  const passes::Kernel kernel = passes::readKernel(cursor);
  if (cursor.failed()) {
    return unexpected(syntaxError(cursor.diagnostic()));
  }
  codegen::EmitOptions options;
  options.contract = argument == "contract";
  options.lanes =
      options.contract || argument.empty() ? 8 : static_cast<unsigned>(std::stoul(std::string(argument)));
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module = codegen::emitKernel(context, kernel, "kernel", options);
  std::string out, problems;
  llvm::raw_string_ostream text(out), wrong(problems);
  if (llvm::verifyModule(*module, &wrong)) {
    return unexpected(problems);
  }
  module->print(text, nullptr);
  return out;
}

constexpr ModeRow kModes[] = {{"llvm", runLlvm}};

}  // namespace
}  // namespace kintsugi::filetests

int main(int argc, char** argv) {
  return kintsugi::filetests::runFileTests(argc, argv, KINTSUGI_FILETESTS_DIR, kintsugi::filetests::kModes);
}
