#include "captures.h"

#include <llvm/Analysis/CaptureTracking.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include "library_arguments.h"

namespace multigrain::threads {

using namespace llvm;

namespace {

// Tells whether it is a function of OpenMP's runtime. LLVM declares for some of them that they capture no pointer, and
// yet all threads of a team read there what one has handed over (copyprivate, reductions, tasks).
bool is_of_openmp(const Function& function) {
  return function.getName().starts_with("__kmpc_");
}

class Reached final : public CaptureTracker {
 public:
  void tooManyUses() override { reached_ = true; }
  bool shouldExplore(const Use* use) override {
    const auto* const call = dyn_cast<CallBase>(use->getUser());
    if (call == nullptr || !call->isArgOperand(use)) return true;
    if (only_uses_argument(*call, call->getArgOperandNo(use))) return false;
    const Function* const callee = call->getCalledFunction();
    if (callee == nullptr || !is_of_openmp(*callee)) return true;
    reached_ = true;
    return false;
  }
  bool captured(const Use*) override {
    reached_ = true;
    return true;
  }
  [[nodiscard]] bool reached() const { return reached_; }

 private:
  bool reached_ = false;
};

}  // namespace

void forget_callbacks(Module& module) {
  for (Function& function : module) {
    if (!function.isDeclaration()) continue;
    function.setMetadata(LLVMContext::MD_callback, nullptr);
    if (!is_of_openmp(function)) continue;
    for (Argument& argument : function.args()) argument.removeAttr(Attribute::NoCapture);
  }
}

bool may_be_reached(const Value& local) {
  // By default LLVM looks at 100 uses, which an array in an unrolled loop has.
  constexpr unsigned kMostUses = 100'000;
  Reached tracker;
  PointerMayBeCaptured(&local, &tracker, kMostUses);
  return tracker.reached();
}

bool is_private(const Value& pointer) {
  if (pointer.getType()->getPointerAddressSpace() != 0) return true;  // fs and gs lead to thread-local memory
  SmallVector<const Value*, 4> objects;
  getUnderlyingObjects(&pointer, objects, nullptr, 12);
  return all_of(objects, [](const Value* object) {
    if (isa<AllocaInst>(object)) return !may_be_reached(*object);
    if (const auto* const variable = dyn_cast<GlobalVariable>(object)) return variable->isThreadLocal();
    const auto* const intrinsic = dyn_cast<IntrinsicInst>(object);
    return intrinsic != nullptr && intrinsic->getIntrinsicID() == Intrinsic::threadlocal_address;
  });
}

}  // namespace multigrain::threads
