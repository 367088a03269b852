// Inside codegen only: LLVM's side of a Target (support/target.h): its name for the machine, and modules to
// object files or assembly for it.
//
// Ownership: as the types say. Threads: a machine is used by one at a time. LLVM's targets have to be
// initialized first: the native one by ObjectCompiler, others by tests that want them.
//
//   const auto machine = makeMachine(namesOf(levelInfo(VectorLevel::kNeon)), reason);
//   std::string text = writeModule(*module, *machine, llvm::CodeGenFileType::AssemblyFile, reason);
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "support/target.h"

namespace kintsugi::codegen {

struct MachineNames {
  std::string triple, processor, features;
};

// The smallest machine that has a level.
MachineNames namesOf(const VectorLevelInfo& level);
// This machine; if the target has a lower level than this machine, the smallest machine of that level.
MachineNames namesOf(const Target& target);

// Null, with a reason: LLVM has no such target.
std::unique_ptr<llvm::TargetMachine> makeMachine(const MachineNames& names, std::string& reason);
// Optimizes the module and writes it. Empty, with a reason, when it is not well formed.
std::string writeModule(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type,
                        std::string& reason);

}  // namespace kintsugi::codegen
