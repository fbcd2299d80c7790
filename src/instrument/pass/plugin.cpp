// mgcc loads this plugin into Clang. It says where in Clang's pipeline the passes run, and reads the options that
// switch them on and off.
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/StringSwitch.h>
#include <llvm/Analysis/CallGraph.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/TargetParser/Triple.h>

#include "arguments.h"
#include "checks.h"
#include "copies.h"
#include "count/pass/cost.h"
#include "cycles.h"
#include "entry_calls.h"
#include "exclusive.h"
#include "fences.h"
#include "library_calls.h"
#include "loops.h"
#include "options.h"
#include "polls.h"
#include "references.h"
#include "sequential.h"
#include "shared.h"
#include "spins.h"
#include "translate.h"
#include "versions.h"

namespace multigrain::checks {
namespace {

using namespace llvm;

cl::opt<std::string> switches("multigrain-checks", cl::desc("what -fmultigrain-checks= says"), cl::Hidden);
cl::opt<bool> sequential("multigrain-sequential", cl::desc("plain accesses keep their order"), cl::Hidden);
cl::opt<bool> asm_is_error("multigrain-asm-error", cl::desc("unchecked inline assembly is an error"), cl::Hidden);
cl::opt<std::string> unchecked_call("multigrain-unchecked-call", cl::desc("ignore, warn or error"), cl::Hidden);
cl::opt<bool> polls("multigrain-polls", cl::desc("polls in loops"), cl::init(true), cl::Hidden);
cl::opt<bool> translate("multigrain-translate", cl::desc("look-ups in translation tables in place of checks"),
                        cl::Hidden);
cl::opt<bool> references("multigrain-references", cl::desc("checks whether pages are in other nodes' memory"),
                         cl::Hidden);
cl::opt<bool> explain("multigrain-explain", cl::desc("say why a loop has no hazards"), cl::Hidden);

Options parse() {
  Options options;
  options.sequential = sequential;
  options.asm_is_error = asm_is_error;
  options.polls = polls;
  options.translate = translate;
  options.references = references;
  options.explain = explain;
  options.unchecked_call = unchecked_call == "ignore"  ? Options::Unchecked::kIgnore
                           : unchecked_call == "error" ? Options::Unchecked::kError
                                                       : Options::Unchecked::kWarn;
  SmallVector<StringRef> words;
  StringRef(switches).split(words, ',', -1, false);
  for (StringRef word : words) {
    const bool on = !word.consume_front("no-");
    bool* const option = StringSwitch<bool*>(word)
                             .Case("group", &options.group_loads)
                             .Case("narrow", &options.narrow)
                             .Case("batch", &options.batch_stores)
                             .Case("loops", &options.loops)
                             .Case("nests", &options.nests)
                             .Case("rows", &options.rows)
                             .Case("expand", &options.expand)
                             .Case("prefetch", &options.prefetch)
                             .Case("hold", &options.hold)
                             .Case("arguments", &options.arguments)
                             .Case("pages", &options.pages)
                             .Case("updates", &options.updates)
                             .Case("versions", &options.versions)
                             .Case("verify", &options.verify)
                             .Default(nullptr);
    if (option != nullptr) {
      *option = on;
    } else if (word == "all") {
      for (bool* each : {&options.group_loads, &options.narrow, &options.batch_stores, &options.loops, &options.nests,
                         &options.rows, &options.expand, &options.prefetch, &options.hold, &options.arguments,
                         &options.pages, &options.updates, &options.versions})
        *each = on;
    } else {
      report_fatal_error("-fmultigrain-checks: there is no '" + word +
                             "'; it takes group, narrow, batch, loops, nests, rows, expand, prefetch, hold, arguments, "
                             "pages, updates, versions, verify and all (but verify), each with no- in front or without",
                         false);
    }
  }
  return options;
}

struct ArgumentPass : PassInfoMixin<ArgumentPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    return mark_private_arguments(module) ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
};

struct SequentialPass : PassInfoMixin<SequentialPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    bool changed = false;
    for (Function& function : module) changed |= keep_accesses_in_order(function);
    return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  // The pass must also run on functions that are not optimised. LLVM prescribes the name.
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

// With -fmultigrain-count the program's instructions are counted (src/count/pass), and not those of checks. While loops are
// transformed, the program's own are marked, and so are copies of them.
void mark_own_instructions(Function& function) {
  MDNode* const nothing = MDNode::get(function.getContext(), {});
  for (Instruction& instruction : instructions(function)) instruction.setMetadata(count::kOfProgram, nothing);
}

void mark_new_as_not_counted(Function& function) {
  MDNode* const nothing = MDNode::get(function.getContext(), {});
  for (Instruction& instruction : instructions(function)) {
    if (instruction.getMetadata(count::kOfProgram) == nullptr) instruction.setMetadata(count::kNotCounted, nothing);
    instruction.setMetadata(count::kOfProgram, nullptr);
  }
}

struct LoopPass : PassInfoMixin<LoopPass> {
  PreservedAnalyses run(Function& function, FunctionAnalysisManager& analyses) {
    if (options().looks_up()) return PreservedAnalyses::all();
    mark_own_instructions(function);
    const bool changed = guard_loops(function, analyses);
    mark_new_as_not_counted(function);
    keep_checked_loops_short(function, analyses);
    return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
};

struct CheckPass : PassInfoMixin<CheckPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
    const Triple target(module.getTargetTriple());
    if (target.getArch() != Triple::x86_64 || target.isX32()) {
      module.getContext().emitError("multigrain: access checks are made for x86-64, not for " + Twine(target.str()) +
                                    ": leave out -m32, -mx32 or --target, or give -fno-multigrain-checks");
      return PreservedAnalyses::all();
    }
    auto& functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    const DenseSet<Function*> recursive = find_recursive(analyses.getResult<CallGraphAnalysis>(module));
    redirect_function_pointers(module);
    std::vector<Function*> all;
    for (Function& function : module)
      if (is_instrumented(function)) all.push_back(&function);
    // A function that the program keeps from being checked.
    for (const Function& function : module)
      if (!function.isDeclaration() && !function.hasAvailableExternallyLinkage() && !is_instrumented(function) &&
          !function.getName().starts_with("multigrain."))
        note_gap(function);
    // What the program loads at run time need not have checks.
    for (const char* const name : {"dlopen", "dlmopen"})
      if (const Function* const loads = module.getFunction(name)) note_gap(*loads);
    if (options().looks_up()) {
      const auto look_up = options().translate ? &translate_accesses : &check_references;
      for (Function* function : all) {
        const bool has_copies = expand_short_copies(*function, functions);
        if (has_copies) functions.invalidate(*function, PreservedAnalyses::none());
        if (look_up(*function, functions.getResult<AAManager>(*function)) || has_copies) drop_promises(*function);
        functions.invalidate(*function, PreservedAnalyses::none());
      }
      if (options().translate) add_note_of_translation(module);
      return PreservedAnalyses::none();
    }
    for (Function* function : all) {
      Polls polls(*function, functions, recursive.contains(function));
      bool changed = false;
      const auto did = [&](bool something) {
        if (something) functions.invalidate(*function, PreservedAnalyses::none());
        changed |= something;
      };
      did(expand_short_copies(*function, functions));
      // This changes at least the loops' form, which breaks no promise, so it is not counted as a change.
      if (make_versions_of_loops(*function, functions)) functions.invalidate(*function, PreservedAnalyses::none());
      did(announce_spins(*function, functions.getResult<LoopAnalysis>(*function)));
      did(insert_fences(*function));
      did(prefetch_for_loops(*function, functions));
      did(polls.insert());
      did(insert_checks(*function, functions.getResult<AAManager>(*function)));
      drop_marks(*function);
      if (changed) drop_promises(*function);
    }
    for (const char* name : {kPrivateMark, kSharedMark})
      if (Function* const mark = module.getFunction(name)) mark->eraseFromParent();
    add_notes(module);
    return PreservedAnalyses::none();
  }
  // The pass must also run on functions that are not optimised. LLVM prescribes the name.
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

}  // namespace

const Options& options() {
  static const Options parsed = parse();
  return parsed;
}

}  // namespace multigrain::checks

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "multigrain-checks", "1", [](llvm::PassBuilder& builder) {
            // This pass runs before all passes that change the order of accesses.
            if (multigrain::checks::options().sequential)
              builder.registerPipelineStartEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
                passes.addPass(multigrain::checks::SequentialPass());
              });
            // This pass runs after functions have been inlined, and before the passes that ask what may be shared.
            builder.registerOptimizerEarlyEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::checks::ArgumentPass());
            });
            // This pass runs after all passes that simplify loops, and before loops are vectorised.
            builder.registerVectorizerStartEPCallback([](llvm::FunctionPassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::checks::LoopPass());
            });
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::checks::CheckPass());
            });
          }};
}
