// mgcc loads this plugin into Clang for -fmultigrain-count: the program counts what it executes. It says where in Clang's
// pipeline the pass runs.
#include <llvm/ADT/DenseSet.h>
#include <llvm/Analysis/CallGraph.h>
#include <llvm/IR/GlobalIFunc.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/TargetParser/Triple.h>

#include "function.h"
#include "instrument/pass/cycles.h"
#include "instrument/pass/options.h"
#include "table.h"

namespace multigrain::count {
namespace {

using namespace llvm;

cl::opt<bool> hoist("multigrain-count-hoist", cl::desc("count loops before they begin"), cl::init(true), cl::Hidden);

cl::opt<bool> checks_are_priced("multigrain-count-checks", cl::desc("the program has access checks, which have prices"),
                                cl::init(false), cl::Hidden);
cl::opt<bool> translate("multigrain-count-translate", cl::desc("count translations"), cl::Hidden);
cl::opt<bool> memory("multigrain-count-memory", cl::desc("report accesses to memory that may be shared"),
                     cl::init(false), cl::Hidden);

struct CountPass : PassInfoMixin<CountPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
    const Triple target(module.getTargetTriple());
    if (target.getArch() != Triple::x86_64 || target.isX32()) {
      module.getContext().emitError("multigrain: -fmultigrain-count is for x86-64, not for " + Twine(target.str()) +
                                    ": leave out -m32, -mx32 or --target");
      return PreservedAnalyses::all();
    }
    if (translate) count_translation();
    auto& functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    const DenseSet<Function*> recursive = checks::find_recursive(analyses.getResult<CallGraphAnalysis>(module));
    // The dynamic linker calls these before the thread has its thread-local variables.
    DenseSet<const Function*> resolvers;
    for (const GlobalIFunc& chosen : module.ifuncs()) resolvers.insert(chosen.getResolverFunction());
    std::vector<Function*> counted;
    for (Function& function : module)
      if (!function.isDeclaration() && !function.hasAvailableExternallyLinkage() &&
          !function.hasFnAttribute(Attribute::Naked) && !resolvers.contains(&function))
        counted.push_back(&function);
    const Options options{.hoist = hoist, .checks = checks_are_priced, .memory = memory};
    Table table(module, memory);
    for (Function* function : counted) {
      count_function(*function, functions, table, recursive.contains(function), options);
      functions.invalidate(*function, PreservedAnalyses::none());
    }
    table.finish();
    return PreservedAnalyses::none();
  }
  // The pass must also run on functions that are not optimised. LLVM prescribes the name.
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

}  // namespace
}  // namespace multigrain::count

namespace multigrain::checks {

// The analyses that this plugin shares with that of the checks ask for these. No answer of theirs to this plugin depends on them.
const Options& options() {
  static const Options defaults;
  return defaults;
}

}  // namespace multigrain::checks

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "multigrain-count", "1", [](llvm::PassBuilder& builder) {
            // The program is counted as it is optimised, before anything of Multigrain's is put into it at this place
            // (mgcc loads this plugin first).
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::count::CountPass());
            });
          }};
}
