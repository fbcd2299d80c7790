#include "store_checks.h"

#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "entry_calls.h"
#include "instrument/abi.h"
#include "load_checks.h"
#include "options.h"
#include "register_entries.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

class StoreChecks {
 public:
  StoreChecks(CheckedFunction& function, LoopHazard& loop_hazard) : f_(function), loop_hazard_(loop_hazard) {}

  // Checks stores of one run that use the loop hazard.
  void check_under_loop_hazard(Batch& batch) {
    const Run& run = batch.run;
    const DebugLoc location = batch.accesses.front()->getDebugLoc();
    BasicBlock* const head = batch.accesses.front()->getParent();
    BasicBlock* const body = SplitBlock(head, batch.accesses.front());
    BasicBlock* const tail = SplitBlock(body, batch.accesses.back()->getNextNode());
    BasicBlock* const shared = BasicBlock::Create(f_.context, "", &f_.function, body);
    BasicBlock* const asking = BasicBlock::Create(f_.context, "", &f_.function);
    StoreInst* const small = batch.holds ? nullptr : small_store(batch);
    SmallVector<Instruction*, 8> slow_accesses;
    BasicBlock* const slow = small == nullptr && !batch.holds && hands_over_value(batch)
                                 ? copy_body(body, tail, batch, slow_accesses)
                                 : nullptr;

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    Value* const begin = address_of(f_, builder, run);
    if (is_certainly_shared(run.base))
      builder.CreateBr(shared);
    else  // mostly the object is known before the loop, and the optimiser moves the test there
      builder.CreateCondBr(is_in_view(builder, builder.CreatePtrToInt(object_of(run.base), f_.i64)), shared, body);

    builder.SetInsertPoint(shared);
    if (options().pages) {
      Value* const epoch = loop_hazard_.epoch(builder);
      LoadInst* const word = load_rights(builder, begin);
      MDNode* const weights = f_.is_seldom(*batch.accesses.front()) ? f_.evenly : f_.mostly;
      Value* const cached = is_cached(builder, run, begin, word, epoch);
      loop_hazard_.depends_on(epoch, word, builder.CreateCondBr(cached, body, asking, weights));
    } else {
      builder.CreateBr(asking);
    }

    builder.SetInsertPoint(asking);
    if (small != nullptr) {
      loop_hazard_.store(builder, *small);
      if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
      builder.CreateBr(tail);
    } else if (slow != nullptr) {
      Value* const may_store = loop_hazard_.check(builder, begin, size_of(run));
      builder.CreateCondBr(may_store, body, slow, f_.mostly);
    } else {
      loop_hazard_.hold(builder, begin, size_of(run));
      builder.CreateBr(body);
    }

    for (Instruction* access : batch.accesses) fence_behind(*access);
    for (Instruction* access : slow_accesses) emit_slow_path(*access);
    f_.changed = true;
  }

  // Checks stores that have a hazard of their own, or an atomic.
  void guard_with_hazard(Batch& batch) {
    const Run& run = batch.run;
    if (StoreInst* const small = small_store(batch)) return store_by_runtime(*small, run);
    Instruction& first = *batch.accesses.front();
    Instruction& last = *batch.accesses.back();
    const DebugLoc location = first.getDebugLoc();
    // `head` tests whether the run is shared. In `publishing` the runtime publishes the hazard and checks the line table.
    // `body` has the instructions from the batch's first access to its last, and `tail` what follows.
    BasicBlock* const head = first.getParent();
    BasicBlock* const body = SplitBlock(head, &first);
    BasicBlock* const tail = SplitBlock(body, last.getNextNode());
    BasicBlock* const publishing = BasicBlock::Create(f_.context, "", &f_.function, body);
    // The runtime can always begin a batch. But it makes a plain store itself if the lines are not here, so that the
    // protocol can take it. Then another copy of the body runs (the slow path).
    SmallVector<Instruction*, 8> slow_accesses;
    BasicBlock* const slow = hands_over_value(batch) ? copy_body(body, tail, batch, slow_accesses) : nullptr;

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    Value* const begin = address_of(f_, builder, run);
    // Mostly the run is shared, so the call, which for the compiler is cold, stands in line.
    builder.CreateCondBr(is_in_view(builder, begin), publishing, body, f_.evenly);

    builder.SetInsertPoint(publishing);
    if (slow == nullptr) {
      // What is within a line is made exclusive with its first byte.
      call_run_entry(builder, "begin_stores", begin, run.within_line ? 1 : size_of(run));
      builder.CreateBr(body);
    } else {
      Value* const begun = call_run_entry(builder, "try_stores", begin, size_of(run));
      builder.CreateCondBr(builder.CreateICmpNE(begun, builder.getInt64(0)), body, slow, f_.mostly);
    }

    builder.SetInsertPoint(body->getTerminator());
    builder.SetCurrentDebugLocation(location);
    for (Instruction* access : batch.accesses) fence_behind(*access);
    clear_hazards(builder, hazards_of_thread(builder, f_.module), 1);
    for (Instruction* access : slow_accesses) emit_slow_path(*access);
    f_.changed = true;
  }

 private:
  // Returns the batch's only store if the runtime has an entry for it.
  StoreInst* small_store(const Batch& batch) const {
    auto* const store = dyn_cast<StoreInst>(batch.accesses.front());
    if (store == nullptr || batch.accesses.size() != 1 || store->isAtomic() || !batch.run.within_line) return nullptr;
    Type* const type = store->getValueOperand()->getType();
    const uint64_t size = f_.layout.getTypeStoreSize(type);
    // The bits of a type that is not whole bytes would have to be padded as the processor's store pads them.
    return size <= 8 && isPowerOf2_64(size) && f_.layout.getTypeSizeInBits(type) == size * 8 && !type->isAggregateType()
               ? store
               : nullptr;
  }

  // Tells whether the batch is one store whose value the runtime offers to the protocol if it misses.
  static bool hands_over_value(const Batch& batch) {
    constexpr uint64_t kLongestValue = 16;
    const Instruction& access = *batch.accesses.front();
    return batch.accesses.size() == 1 && isa<StoreInst>(access) && !access.isAtomic() && !options().sequential &&
           size_of(batch.run) <= kLongestValue;
  }

  // The runtime makes the store if it is shared.
  void store_by_runtime(StoreInst& store, const Run& run) {
    BasicBlock* const head = store.getParent();
    BasicBlock* const body = SplitBlock(head, &store);
    BasicBlock* const tail = SplitBlock(body, store.getNextNode());
    BasicBlock* const shared = BasicBlock::Create(f_.context, "", &f_.function, body);
    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(store.getDebugLoc());
    builder.CreateCondBr(is_in_view(builder, address_of(f_, builder, run)), shared, body, f_.evenly);
    builder.SetInsertPoint(shared);
    call_store_entry(builder, store, false);
    if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    builder.CreateBr(tail);
    fence_behind(store);
    f_.changed = true;
  }

  // Copies a batch's body for the slow path, and connects the copy's values to `tail`. It runs before
  // the body is changed.
  BasicBlock* copy_body(BasicBlock* body, BasicBlock* tail, const Batch& batch,
                        SmallVectorImpl<Instruction*>& accesses) {
    ValueToValueMapTy map;
    BasicBlock* const slow = CloneBasicBlock(body, map, "", &f_.function);
    for (Instruction& instruction : *slow) {
      RemapInstruction(&instruction, map, RF_NoModuleLevelChanges | RF_IgnoreMissingLocals);
      instruction.dropDbgRecords();
    }
    for (Instruction* access : batch.accesses) accesses.push_back(cast<Instruction>(&*map[access]));
    for (Instruction& original : *body) {
      if (original.getType()->isVoidTy()) continue;
      SmallVector<Use*, 8> outside;
      for (Use& use : original.uses())
        if (auto* user = cast<Instruction>(use.getUser()); user->getParent() != body) outside.push_back(&use);
      if (outside.empty()) continue;
      PHINode* const phi = PHINode::Create(original.getType(), 2, "", tail->begin());
      for (Use* use : outside) use->set(phi);
      phi->addIncoming(&original, body);
      phi->addIncoming(&*map[&original], slow);
    }
    return slow;
  }

  // Follows the pointer back to an earlier pointer into the same object. An object is shared as a whole or not at all.
  static Value* object_of(Value* pointer) {
    while (auto* const within = dyn_cast<GEPOperator>(pointer)) {
      if (!within->isInBounds()) break;
      pointer = within->getPointerOperand();
    }
    return pointer;
  }
  // Loads the word of the page at `begin` from the rights cache.
  LoadInst* load_rights(IRBuilder<>& builder, Value* begin) {
    Value* const page = builder.CreateLShr(begin, MG_FINE_PAGE_SHIFT);
    // The address that the word of a page at address 0 would have.
    Value* const table =
        builder.getInt64(MG_FINE_RIGHTS_CACHE_BASE - (MG_FINE_VIEW_BASE >> MG_FINE_PAGE_SHIFT) * sizeof(uint64_t));
    Value* const pointer = builder.CreateIntToPtr(builder.CreateAdd(builder.CreateShl(page, 3), table), f_.ptr);
    return builder.CreateAlignedLoad(f_.i64, pointer, Align(8), true);
  }

  // Computes whether the page's word says that it is exclusive, as it mostly does. It does not if the loop hazard is not
  // published.
  static Value* is_cached(IRBuilder<>& builder, const Run& run, Value* begin, Value* word, Value* epoch) {
    Value* const cached = builder.CreateICmpEQ(word, epoch);
    if (run.within_line) return cached;
    // If the run crosses pages, which is rare, its lines are checked.
    constexpr uint64_t kPage = uint64_t{1} << MG_FINE_PAGE_SHIFT;
    const uint64_t size = size_of(run);
    Value* const within = builder.CreateAnd(begin, builder.getInt64(kPage - 1));
    return builder.CreateAnd(cached, builder.CreateICmpULE(within, builder.getInt64(kPage - size)));
  }

  // With -fmultigrain-sequential, a fence keeps later loads of this processor from being made before
  // the store is visible.
  void fence_behind(Instruction& access) {
    if (!options().sequential || access.isAtomic()) return;
    IRBuilder<> builder(access.getNextNode());
    builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
  }

  // Replaces one access of a batch that could not begin by a call of the runtime.
  void emit_slow_path(Instruction& access) {
    IRBuilder<> builder(&access);
    if (auto* const load = dyn_cast<LoadInst>(&access)) {
      f_.replace(*load, load_by_runtime(f_, builder, *load));
      return;
    }
    auto& store = cast<StoreInst>(access);
    Type* const type = store.getValueOperand()->getType();
    AllocaInst* const value = f_.local(type);
    builder.CreateStore(store.getValueOperand(), value);
    call_cold_entry(builder,
                    cold_entry(f_.module, "__multigrain_store_range_miss",
                               FunctionType::get(builder.getVoidTy(), {f_.ptr, f_.i64, f_.ptr}, false)),
                    {store.getPointerOperand(), builder.getInt64(f_.layout.getTypeStoreSize(type)), value});
    if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    store.eraseFromParent();
  }

  CheckedFunction& f_;
  LoopHazard& loop_hazard_;
};

}  // namespace

void check_stores(CheckedFunction& function, LoopHazard& loop_hazard, Batch& batch) {
  StoreChecks checks(function, loop_hazard);
  batch.under_loop_hazard ? checks.check_under_loop_hazard(batch) : checks.guard_with_hazard(batch);
}

}  // namespace multigrain::checks
