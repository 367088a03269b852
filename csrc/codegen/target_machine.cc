#include "codegen/target_machine.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/SubtargetFeature.h>

#include "support/host_machine.h"

namespace kintsugi::codegen {

namespace {

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager calls;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;  // the loops already use vectors
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false;
  llvm::PassBuilder builder(&machine, tuning);
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

}  // namespace

MachineNames namesOf(const VectorLevelInfo& level) {
  return {std::string(level.triple), std::string(level.processor), ""};
}

MachineNames namesOf(const Target& target) {
  if (target.machine.level != hostMachine().level) {
    return namesOf(levelInfo(target.machine.level));
  }
  llvm::SubtargetFeatures features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    features.AddFeature(feature.first(), feature.second);
  }
  return {llvm::sys::getProcessTriple(), llvm::sys::getHostCPUName().str(), features.getString()};
}

std::unique_ptr<llvm::TargetMachine> makeMachine(const MachineNames& names, std::string& reason) {
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(names.triple, reason);
  if (found == nullptr) {
    return nullptr;
  }
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(names.triple, names.processor, names.features, llvm::TargetOptions(),
                                 llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

std::string writeModule(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type,
                        std::string& reason) {
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple().str());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) {
      function.addFnAttr("target-cpu", machine.getTargetCPU());
      function.addFnAttr("target-features", machine.getTargetFeatureString());
    }
  }
  llvm::raw_string_ostream problems(reason);
  if (llvm::verifyModule(module, &problems)) {
    return {};
  }
  optimize(module, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr, type)) {
    reason = "the target can't write files of this kind";
    return {};
  }
  passes.run(module);
  return {bytes.data(), bytes.size()};
}

}  // namespace kintsugi::codegen
