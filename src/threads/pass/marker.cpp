#include "marker.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include "threads/abi.h"

namespace multigrain::threads {

using namespace llvm;

void add_marker(Module& module) {
  if (module.getNamedValue(MG_THREADS_MARKER) != nullptr) return;
  auto* const type = Type::getInt32Ty(module.getContext());
  auto* const marker =
      new GlobalVariable(module, type, true, GlobalValue::WeakODRLinkage, ConstantInt::get(type, 1), MG_THREADS_MARKER);
  // The executable exports it, because the library refers to it, even if the program is compiled with
  // -fvisibility=hidden.
  marker->setVisibility(GlobalValue::DefaultVisibility);
  marker->setComdat(module.getOrInsertComdat(MG_THREADS_MARKER));
  appendToUsed(module, {marker});
}

}  // namespace multigrain::threads
