// mgcc loads this plugin into Clang for -fmultigrain-threads: programs that were written for the threads of one machine,
// and run over all nodes. It says where in Clang's pipeline the passes run.
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/TargetParser/Triple.h>

#include "atomics.h"
#include "captures.h"
#include "marker.h"
#include "shared_stack.h"

namespace multigrain::threads {
namespace {

using namespace llvm;

// All of these passes must also run on functions that are not optimised. LLVM prescribes the name isRequired.

struct StartPass : PassInfoMixin<StartPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    const Triple target(module.getTargetTriple());
    if (target.getArch() != Triple::x86_64 || target.isX32())
      module.getContext().emitError("multigrain: -fmultigrain-threads is for x86-64, not for " + Twine(target.str()) +
                                    ": leave out -m32, -mx32 or --target");
    forget_callbacks(module);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

struct AtomicsPass : PassInfoMixin<AtomicsPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    bool changed = false;
    for (Function& function : module) changed |= call_runtime_for_atomics(function);
    return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

struct LastPass : PassInfoMixin<LastPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    for (Function& function : module) move_to_shared_stack(function);
    add_marker(module);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

}  // namespace
}  // namespace multigrain::threads

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "multigrain-threads", "1", [](llvm::PassBuilder& builder) {
            // This runs before attributes are derived.
            builder.registerPipelineStartEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::threads::StartPass());
            });
            // This runs after functions have been inlined, when it is seen which atomics are a function's own, and
            // before loops become vectors and get checks.
            builder.registerOptimizerEarlyEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::threads::AtomicsPass());
            });
            // This runs after the checks have been put in (mgcc loads their plugin first): local variables are private
            // or in memory that is kept by pages, and need no checks.
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::threads::LastPass());
            });
          }};
}
