#include "arguments.h"

#include <llvm/IR/InstrTypes.h>

#include <vector>

#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Whether all calls of the function are calls of this file that name it, or can be made so.
bool callers_are_known(const Function& function) {
  if (function.isDeclaration() || function.isVarArg() || function.isIntrinsic()) return false;
  // The body that is linked in another file's place does the same, so this file may keep to its own.
  if (!function.hasLocalLinkage()) {
    if (!function.hasLinkOnceODRLinkage()) return false;
    // With others in its group, such as a constructor's two forms, the other files would miss it.
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
  // All that may be, and then one after the other is taken back that a call disproves; so that an argument which a
  // function hands to itself is no obstacle.
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
