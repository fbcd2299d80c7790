#include "arguments.h"

#include <llvm/IR/InstrTypes.h>

#include <vector>

#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Tells whether all calls of the function are direct calls in this file, or become that if the function
// is made local to it.
bool callers_are_known(const Function& function) {
  if (function.isDeclaration() || function.isVarArg() || function.isIntrinsic()) return false;
  // All files' bodies of an inline function do the same, so this file may use its own.
  if (!function.hasLocalLinkage()) {
    if (!function.hasLinkOnceODRLinkage()) return false;
    // If its group (comdat) has other functions in it, such as the two forms of a constructor, other files may rely on
    // this file's group to contain it.
    const Comdat* const group = function.getComdat();
    if (group != nullptr && (group->getName() != function.getName() || group->getUsers().size() != 1)) return false;
  }
  for (const Use& use : function.uses()) {
    const auto* const call = dyn_cast<CallBase>(use.getUser());
    if (call == nullptr || !call->isCallee(&use) || call->getFunctionType() != function.getFunctionType()) return false;
  }
  return !function.use_empty();
}

bool is_private_in_all_calls(const Argument& argument) {
  for (const User* user : argument.getParent()->users())
    if (may_be_shared(cast<CallBase>(user)->getArgOperand(argument.getArgNo()))) return false;
  return true;
}

}  // namespace

bool mark_private_arguments(Module& module) {
  if (!options().arguments) return false;
  // All candidates are marked first, and then each one is unmarked that a call disproves. So an argument that a
  // function passes to itself is no obstacle.
  std::vector<Argument*> marked;
  for (Function& function : module) {
    if (!callers_are_known(function)) continue;
    for (Argument& argument : function.args()) {
      if (!argument.getType()->isPointerTy() || is_marked_private(argument)) continue;
      mark_private(argument, true);
      marked.push_back(&argument);
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    std::erase_if(marked, [&](Argument* argument) {
      if (is_private_in_all_calls(*argument)) return false;
      mark_private(*argument, false);
      changed = true;
      return true;
    });
  }
  for (Argument* argument : marked) {
    Function& function = *argument->getParent();
    if (function.hasLocalLinkage()) continue;
    function.setLinkage(GlobalValue::InternalLinkage);
    function.setComdat(nullptr);
  }
  return !marked.empty();
}

}  // namespace multigrain::checks
