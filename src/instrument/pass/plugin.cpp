// The plugin that mgcc loads into clang: where the passes run, and the options that switch them.
#include <llvm/ADT/StringSwitch.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>

#include "checks.h"
#include "loops.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {
namespace {

using namespace llvm;

cl::opt<std::string> switches("multigrain-checks", cl::desc("what -fmultigrain-checks= says"), cl::Hidden);
cl::opt<bool> sequential("multigrain-sequential", cl::desc("a fence behind each shared store"), cl::Hidden);
cl::opt<bool> asm_is_error("multigrain-asm-error", cl::desc("unchecked inline assembly is an error"), cl::Hidden);

cl::opt<bool> explain("multigrain-explain", cl::desc("say why a loop has no windows"), cl::Hidden);

Options parse() {
  Options options;
  options.sequential = sequential;
  options.asm_is_error = asm_is_error;
  options.explain = explain;
  SmallVector<StringRef> words;
  StringRef(switches).split(words, ',', -1, false);
  for (StringRef word : words) {
    const bool on = !word.consume_front("no-");
    bool* const option = StringSwitch<bool*>(word)
                             .Case("group", &options.group_loads)
                             .Case("batch", &options.batch_stores)
                             .Case("loops", &options.loops)
                             .Case("nests", &options.nests)
                             .Case("expand", &options.expand)
                             .Default(nullptr);
    if (option != nullptr) {
      *option = on;
    } else if (word == "all") {
      options.group_loads = options.batch_stores = options.loops = options.nests = options.expand = on;
    } else {
      report_fatal_error("-fmultigrain-checks: there is no '" + word +
                             "'; it takes group, batch, loops, nests, expand and all, each with no- in front or without",
                         false);
    }
  }
  return options;
}

struct LoopPass : PassInfoMixin<LoopPass> {
  PreservedAnalyses run(Function& function, FunctionAnalysisManager& analyses) {
    return open_windows_around_loops(function, analyses) ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
};

struct CheckPass : PassInfoMixin<CheckPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
    auto& functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    std::vector<Function*> all;
    for (Function& function : module)
      if (is_instrumented(function)) all.push_back(&function);
    for (Function* function : all) {
      if (!insert_checks(*function, functions.getResult<AAManager>(*function))) continue;
      functions.invalidate(*function, PreservedAnalyses::none());
    }
    add_note(module);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }  // also of functions that are not optimised
};

}  // namespace

const Options& options() {
  static const Options parsed = parse();
  return parsed;
}

}  // namespace multigrain::checks

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "multigrain-checks", "1", [](llvm::PassBuilder& builder) {
            // Behind everything that simplifies loops and before they are turned into vectors.
            builder.registerVectorizerStartEPCallback(
                [](llvm::FunctionPassManager& passes, llvm::OptimizationLevel) {
                  passes.addPass(multigrain::checks::LoopPass());
                });
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::checks::CheckPass());
            });
          }};
}
