#include "cycles.h"

#include <llvm/ADT/SCCIterator.h>
#include <llvm/Analysis/CFG.h>

namespace multigrain::checks {

using namespace llvm;

DenseSet<Function*> find_recursive(CallGraph& calls) {
  DenseSet<Function*> recursive;
  for (auto component = scc_begin(&calls); !component.isAtEnd(); ++component)
    if (component.hasCycle())
      for (const CallGraphNode* node : *component)
        if (node->getFunction() != nullptr) recursive.insert(node->getFunction());
  return recursive;
}

SmallVector<Instruction*> ends_of_other_cycles(Function& function, const LoopInfo& loops) {
  SmallVector<Instruction*> ends;
  SmallVector<std::pair<const BasicBlock*, const BasicBlock*>> edges;
  FindFunctionBackedges(function, edges);
  for (auto& [from, to] : edges) {
    const Loop* const loop = loops.getLoopFor(to);
    if (loop != nullptr && loop->getHeader() == to && loop->contains(from)) continue;
    ends.push_back(const_cast<Instruction*>(from->getTerminator()));
  }
  return ends;
}

}  // namespace multigrain::checks
