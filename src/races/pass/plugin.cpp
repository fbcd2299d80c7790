// mgcc loads this plugin into Clang for -fmultigrain-races: each access of the program calls the detector (races/compiled). LLVM's
// own pass for its thread sanitizer puts the calls in; nothing of the sanitizer's runtime is used, so the calls get other names.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Instrumentation/ThreadSanitizer.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include "base/object_note.h"
#include "known.h"
#include "races/compiled/abi.h"
#include "ranges.h"
#include "synchronisation.h"

namespace multigrain::races {
namespace {

using namespace llvm;

constexpr StringRef kSanitizersPrefix = "__tsan_";

bool is_instrumented(const Function& function) {
  return !function.isDeclaration() && !function.hasAvailableExternallyLinkage() &&
         !function.hasFnAttribute(Attribute::Naked) &&
         !function.hasFnAttribute(Attribute::DisableSanitizerInstrumentation);
}

// Leaves atomic operations to tell_of_synchronisation(): the sanitizer's pass would have the runtime make them.
void leave_atomics_alone() {
  const auto& options = cl::getRegisteredOptions();
  const auto found = options.find("tsan-instrument-atomics");
  if (found == options.end()) report_fatal_error("-fmultigrain-races: this is not LLVM 19", false);
  static_cast<cl::opt<bool>*>(found->second)->setValue(false);
}

// Accesses of a size for which the sanitizer's pass has no call (wide vectors, long doubles), and those that need none.
void tell_of_others(Function& function) {
  Module& module = *function.getParent();
  const DataLayout& layout = module.getDataLayout();
  SmallVector<Instruction*> found;
  for (Instruction& instruction : instructions(function)) {
    if (!isa<LoadInst, StoreInst>(instruction) || instruction.isAtomic()) continue;
    if (is_told(instruction)) {
      // The sanitizer's pass takes it for an access of another one's.
      instruction.setMetadata(LLVMContext::MD_nosanitize, MDNode::get(function.getContext(), {}));
      continue;
    }
    const TypeSize size = layout.getTypeStoreSize(getLoadStoreType(&instruction));
    if (size.isScalable() || (isPowerOf2_64(size) && size <= 16) || size.isZero()) continue;
    if (!isa<AllocaInst>(getLoadStorePointerOperand(&instruction)->stripInBoundsOffsets()))
      found.push_back(&instruction);
  }
  for (Instruction* const instruction : found) {
    IRBuilder<> builder(instruction);
    const FunctionCallee entry = module.getOrInsertFunction(
        isa<LoadInst>(instruction) ? MG_RACES_PREFIX "read_range" : MG_RACES_PREFIX "write_range", builder.getVoidTy(),
        builder.getPtrTy(), builder.getInt64Ty());
    const uint64_t size = layout.getTypeStoreSize(getLoadStoreType(instruction)).getFixedValue();
    builder.CreateCall(entry, {getLoadStorePointerOperand(instruction), builder.getInt64(size)});
  }
}

// All of these passes must also run on functions that are not optimised. LLVM prescribes the name isRequired.

// No optimisation makes an access that the source has on another path only.
struct StartPass : PassInfoMixin<StartPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    const Triple target(module.getTargetTriple());
    if (target.getArch() != Triple::x86_64 || target.isX32())
      module.getContext().emitError("multigrain: -fmultigrain-races is for x86-64, not for " + Twine(target.str()) +
                                    ": leave out -m32, -mx32 or --target");
    for (Function& function : module)
      if (is_instrumented(function)) function.addFnAttr(Attribute::SanitizeThread);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

struct SynchronisationPass : PassInfoMixin<SynchronisationPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    bool changed = false;
    for (Function& function : module)
      if (is_instrumented(function)) changed |= tell_of_synchronisation(function);
    return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

struct RangePass : PassInfoMixin<RangePass> {
  PreservedAnalyses run(Function& function, FunctionAnalysisManager& analyses) {
    const bool changed = is_instrumented(function) && tell_of_ranges(function, analyses);
    return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
};

struct AccessPass : PassInfoMixin<AccessPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
    leave_atomics_alone();
    auto& functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    for (Function& function : module) {
      if (!is_instrumented(function)) continue;
      tell_of_others(function);
      function.addFnAttr(Attribute::SanitizeThread);
      ThreadSanitizerPass().run(function, functions);
      functions.invalidate(function, PreservedAnalyses::none());
      // What follows optimises as ever.
      function.removeFnAttr(Attribute::SanitizeThread);
    }
    for (Function& function : module) {
      if (!function.isDeclaration()) continue;
      if (function.getName().starts_with(kSanitizersPrefix))
        function.setName(MG_RACES_PREFIX + function.getName().drop_front(kSanitizersPrefix.size()));
      // No stub of the procedure linkage table in between.
      if (function.getName().starts_with(MG_RACES_PREFIX)) function.addFnAttr(Attribute::NonLazyBind);
    }
    for (Function& function : module)
      if (is_instrumented(function)) look_before_calls(function);
    add_note(module);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)

 private:
  static void add_note(Module& module) {
    module.appendModuleInlineAsm(MG_OBJECT_NOTE(MG_RACES_NOTE_TYPE, MG_RACES_VERSION));
  }
};

}  // namespace
}  // namespace multigrain::races

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "multigrain-races", "1", [](llvm::PassBuilder& builder) {
            builder.registerPipelineStartEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::races::StartPass());
            });
            // This runs before atomics become calls of the runtime (src/threads/pass), while their order is still known.
            builder.registerOptimizerEarlyEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::races::SynchronisationPass());
            });
            builder.registerVectorizerStartEPCallback([](llvm::FunctionPassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::races::RangePass());
            });
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::races::AccessPass());
            });
          }};
}
