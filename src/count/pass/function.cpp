#include "function.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include "calls.h"
#include "memory.h"
#include "plan.h"

namespace multigrain::count {

using namespace llvm;

namespace {

// Between two places where the thread's count has to be up to date, a function keeps what it has counted in a register: a
// local variable at first, which LLVM turns into values.
class Counter {
 public:
  Counter(Function& function, FunctionAnalysisManager& analyses, Table& table, const Options& options)
      : function_(function),
        analyses_(analyses),
        table_(table),
        plan_(function, analyses, options),
        word_(Type::getInt64Ty(function.getContext())) {
    collect();
  }

  void insert(bool poll_at_entry, bool polls) {
    Instruction* const begin = &*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca();
    IRBuilder<> builder(begin);
    pending_ = builder.CreateAlloca(word_, nullptr, "count");
    builder.CreateStore(builder.getInt64(0), pending_);
    add_products();
    add_costs();
    add_bytes();
    for (Instruction* place : up_to_date_) {
      if (polls && plan_.polls_at_return && isa<ReturnInst>(place))
        insert_poll(*place);
      else
        bring_up_to_date(*place);
    }
    if (polls) {
      for (BasicBlock* block : plan_.polling_blocks) insert_poll(*begin_of(*block));
      for (Instruction* end : plan_.polling_ends) insert_poll(*end);
      if (poll_at_entry) insert_poll(*begin_of(function_.getEntryBlock()));
    }
    DominatorTree dominators(function_);
    AssumptionCache assumptions(function_);
    PromoteMemToReg({pending_}, dominators, &assumptions);
    drop_useless();
  }

 private:
  struct Addition {
    BinaryOperator* sum;
    StoreInst* store;
  };

  // Finds what the pass looks for before it changes anything.
  void collect() {
    for (BasicBlock& block : function_) {
      for (Instruction& instruction : block) {
        if (auto* const call = dyn_cast<CallBase>(&instruction)) {
          if (needs_count(*call)) up_to_date_.push_back(call);
          const Bytes bytes = bytes_of(*call);
          if (bytes.number != nullptr &&
              !(isa<ConstantInt>(bytes.number) && (bytes.size == nullptr || isa<ConstantInt>(bytes.size))))
            bytes_.push_back({call, bytes});
        } else if (isa<ReturnInst, ResumeInst>(instruction) && block.getTerminatingMustTailCall() == nullptr) {
          up_to_date_.push_back(&instruction);
        }
      }
    }
  }

  // Returns the place at the begin of a block behind what is counted there.
  Instruction* begin_of(BasicBlock& block) {
    if (Instruction* const last = last_.lookup(&block)) return last->getNextNode();
    if (block.isEntryBlock()) {
      Instruction* first = &*block.getFirstNonPHIOrDbgOrAlloca();
      while (isa<AllocaInst>(first) ||
             (isa<StoreInst>(first) && cast<StoreInst>(first)->getPointerOperand() == pending_))
        first = first->getNextNode();
      return first;
    }
    return &*block.getFirstInsertionPt();
  }

  StoreInst* add(IRBuilder<>& builder, Value* value) {
    return builder.CreateStore(builder.CreateAdd(builder.CreateLoad(word_, pending_), value), pending_);
  }

  // Products are first, while the analysis of the loops is that of the function.
  void add_products() {
    auto& evolution = analyses_.getResult<ScalarEvolutionAnalysis>(function_);
    SCEVExpander expander(evolution, function_.getParent()->getDataLayout(), "count");
    for (const Product& product : plan_.products) {
      Instruction* const place = product.before->getTerminator();
      Value* const times = expander.expandCodeFor(product.times, word_, place);
      IRBuilder<> builder(place);
      add(builder, builder.CreateMul(times, table_.load_cost(builder, product.cost)));
    }
  }

  void add_costs() {
    for (BasicBlock& block : function_) {
      const auto cost = plan_.costs.find(&block);
      if (cost == plan_.costs.end()) continue;
      IRBuilder<> builder(begin_of(block));
      last_[&block] = add(builder, table_.load_cost(builder, cost->second));
    }
  }

  void add_bytes() {
    for (const auto& [call, bytes] : bytes_) {
      IRBuilder<> builder(call);
      Value* number = builder.CreateZExtOrTrunc(bytes.number, word_);
      if (bytes.size != nullptr) number = builder.CreateMul(number, builder.CreateZExtOrTrunc(bytes.size, word_));
      Cost one;
      one.calls.push_back({price_name(*call), 0, 1});
      add(builder, builder.CreateMul(number, table_.load_cost(builder, one)));
    }
  }

  Value* count(IRBuilder<>& builder) {
    Module& module = *function_.getParent();
    GlobalVariable* variable = module.getNamedGlobal("__multigrain_count");
    if (variable == nullptr)
      variable = new GlobalVariable(module, StructType::get(module.getContext(), {word_, word_}), false,
                                    GlobalValue::ExternalLinkage, nullptr, "__multigrain_count", nullptr,
                                    GlobalValue::InitialExecTLSModel);
    return builder.CreateThreadLocalAddress(variable);
  }

  // Adds what is pending to the thread's count. Returns the new count.
  Value* bring_up_to_date(Instruction& before) {
    IRBuilder<> builder(&before);
    builder.SetCurrentDebugLocation(before.getDebugLoc());
    Value* const now = count(builder);
    Value* const pending = builder.CreateLoad(word_, pending_);
    auto* const sum = cast<BinaryOperator>(builder.CreateAdd(builder.CreateAlignedLoad(word_, now, Align(8)), pending));
    StoreInst* const store = builder.CreateAlignedStore(sum, now, Align(8));
    builder.CreateStore(builder.getInt64(0), pending_);
    additions_.push_back({sum, store});
    return sum;
  }

  void insert_poll(Instruction& before) {
    Value* const now = bring_up_to_date(before);
    IRBuilder<> builder(&before);
    builder.SetCurrentDebugLocation(before.getDebugLoc());
    Value* const limit = builder.CreateAlignedLoad(
        word_, builder.CreateConstInBoundsGEP1_64(word_, count(builder), offsetof(mg_count, limit) / sizeof(uint64_t)),
        Align(8));
    MDNode* const rarely = MDBuilder(function_.getContext()).createUnlikelyBranchWeights();
    Instruction* const cold = SplitBlockAndInsertIfThen(builder.CreateICmpUGE(now, limit), &before, false, rarely);
    builder.SetInsertPoint(cold);
    builder.SetCurrentDebugLocation(before.getDebugLoc());
    FunctionCallee poll = function_.getParent()->getOrInsertFunction("__multigrain_count_poll", builder.getVoidTy());
    auto* const declared = cast<Function>(poll.getCallee());
    declared->setCallingConv(CallingConv::PreserveAll);
    declared->addFnAttr(Attribute::NoUnwind);
    declared->addFnAttr(Attribute::Cold);
    declared->addFnAttr(Attribute::NonLazyBind);  // lazy binding in the dynamic linker does not keep vector registers
    builder.CreateCall(poll)->setCallingConv(CallingConv::PreserveAll);
  }

  // Where nothing can be pending, nothing is added.
  void drop_useless() {
    for (const auto& [sum, store] : additions_) {
      const auto* const pending = dyn_cast<ConstantInt>(sum->getOperand(1));
      if (pending == nullptr || !pending->isZero()) continue;
      Value* const now = sum->getOperand(0);
      store->eraseFromParent();
      sum->replaceAllUsesWith(now);
      sum->eraseFromParent();
      if (now->use_empty()) cast<Instruction>(now)->eraseFromParent();
    }
  }

  Function& function_;
  FunctionAnalysisManager& analyses_;
  Table& table_;
  Plan plan_;
  Type* const word_;
  AllocaInst* pending_ = nullptr;
  SmallVector<Instruction*> up_to_date_;  // in front of these the count has to be up to date
  SmallVector<std::pair<CallBase*, Bytes>> bytes_;
  SmallVector<Addition> additions_;
  DenseMap<BasicBlock*, Instruction*> last_;  // of what is counted at the begin of a block
};

// Removes what LLVM knows of functions as they were: now they change the thread's count, and may wait.
void drop_promises(Function& function) {
  function.setMemoryEffects(MemoryEffects::unknown());
  for (const Attribute::AttrKind kind : {Attribute::NoSync, Attribute::Speculatable, Attribute::NoFree})
    function.removeFnAttr(kind);
}

void drop_promises_of_calls(Function& function) {
  for (BasicBlock& block : function) {
    for (Instruction& instruction : block) {
      auto* const call = dyn_cast<CallBase>(&instruction);
      if (call == nullptr || callee_of(*call) != Callee::kCounted) continue;
      call->setMemoryEffects(MemoryEffects::unknown());
      for (const Attribute::AttrKind kind : {Attribute::NoSync, Attribute::Speculatable, Attribute::NoFree})
        call->removeFnAttr(kind);
      if (Function* const callee = call->getCalledFunction()) drop_promises(*callee);
    }
  }
}

}  // namespace

void count_function(Function& function, FunctionAnalysisManager& analyses, Table& table, bool calls_itself,
                    const Options& options) {
  Options used = options;
  // Accesses should be reported when their time has come, and not after all of a loop's time.
  if (function.hasOptNone() || options.memory) used.hoist = false;
  // Before the function counts: the count is no memory of the program's.
  const SmallVector<Instruction*> accesses = options.memory ? accesses_of(function) : SmallVector<Instruction*>();
  Counter(function, analyses, table, used).insert(calls_itself, used.polls);
  for (Instruction* access : accesses) report_access(*access);
  drop_promises(function);
  drop_promises_of_calls(function);
}

}  // namespace multigrain::count
