#include "store_checks.h"

#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "entry_calls.h"
#include "instrument/abi.h"
#include "load_checks.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

class StoreChecks {
 public:
  StoreChecks(CheckedFunction& function, LoopHazard& loop_hazard) : f_(function), loop_hazard_(loop_hazard) {}

  // Checks stores of one run that use the loop hazard.
  void check_under_loop_hazard(Batch& batch) {
    const Run& run = batch.runs.front();
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
      BasicBlock* const not_cached = batch.in_loop ? BasicBlock::Create(f_.context, "", &f_.function) : asking;
      Value* const epoch = loop_hazard_.epoch(builder);
      LoadInst* const word = load_rights(builder, begin);
      loop_hazard_.depends_on(
          epoch, word, builder.CreateCondBr(is_cached(builder, run, begin, word, epoch), body, not_cached, f_.mostly));
      if (batch.in_loop) {
        builder.SetInsertPoint(not_cached);
        check_lines(builder, run, begin, word, epoch, body, asking);
      }
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

  // Checks stores that have hazards of their own, or an atomic.
  void guard_with_hazard(Batch& batch) {
    if (StoreInst* const small = small_store(batch)) return store_by_runtime(*small, batch.runs.front());
    Instruction& first = *batch.accesses.front();
    Instruction& last = *batch.accesses.back();
    const DebugLoc location = first.getDebugLoc();
    // `head` tests whether anything is shared. `publishing` publishes the hazards and checks the line table. `body` has
    // the instructions from the batch's first access to its last, and `tail` what follows.
    BasicBlock* const head = first.getParent();
    BasicBlock* const body = SplitBlock(head, &first);
    BasicBlock* const tail = SplitBlock(body, last.getNextNode());
    BasicBlock* const publishing = BasicBlock::Create(f_.context, "", &f_.function, body);
    // If the batch cannot begin, another copy of the body runs, without hazards (the slow path). Accesses of one run
    // can always begin, but the runtime makes a plain store itself, so that the protocol can take it.
    SmallVector<Instruction*, 8> slow_accesses;
    const bool can_begin = batch.runs.size() == 1 && !hands_over_value(batch);
    BasicBlock* const slow = can_begin ? nullptr : copy_body(body, tail, batch, slow_accesses);

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    SmallVector<GuardedRun, 4> guarded;
    Value* any = nullptr;
    for (const Run& run : batch.runs) {
      GuardedRun o;
      o.begin = address_of(f_, builder, run);
      o.shared = is_in_view(builder, o.begin);
      any = any == nullptr ? o.shared : builder.CreateOr(any, o.shared);
      guarded.push_back(o);
    }
    builder.CreateCondBr(any, publishing, body);

    builder.SetInsertPoint(publishing);
    if (batch.runs.size() == 1) {
      Value* const address = builder.CreateIntToPtr(guarded[0].begin, f_.ptr);
      if (can_begin) {
        begin_stores(builder, batch.runs.front(), address);
        builder.CreateBr(body);
      } else {
        Value* const begun = call_run_entry(builder, "__multigrain_try_stores", f_.i64, batch.runs.front(), address);
        builder.CreateCondBr(builder.CreateICmpNE(begun, builder.getInt64(0)), body, slow, f_.mostly);
      }
    } else {
      BasicBlock* const missed = BasicBlock::Create(f_.context, "", &f_.function);
      Value* const exclusive = publish_and_check(builder, batch, guarded);
      builder.CreateCondBr(exclusive, body, missed, f_.mostly);
      builder.SetInsertPoint(missed);
      bring_lines(builder, batch, guarded, body, slow);
    }

    builder.SetInsertPoint(body->getTerminator());
    builder.SetCurrentDebugLocation(location);
    for (Instruction* access : batch.accesses) fence_behind(*access);
    clear_hazards(builder, hazards_of_thread(builder, f_.module), guarded.size());
    for (Instruction* access : slow_accesses) emit_slow_path(*access);
    f_.changed = true;
  }

 private:
  // Returns the batch's only store if the runtime has an entry for it.
  StoreInst* small_store(const Batch& batch) const {
    auto* const store = dyn_cast<StoreInst>(batch.accesses.front());
    if (store == nullptr || batch.accesses.size() != 1 || store->isAtomic() || !batch.runs.front().within_line)
      return nullptr;
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
           size_of(batch.runs.front()) <= kLongestValue;
  }

  // Calls the runtime, which publishes hazard 0 over the lines of the run, and makes them exclusive.
  void begin_stores(IRBuilder<>& builder, const Run& run, Value* address) {
    if (!run.within_line) {
      call_run_entry(builder, "__multigrain_begin_stores", builder.getVoidTy(), run, address);
      return;
    }
    auto* const type = FunctionType::get(builder.getVoidTy(), {f_.ptr}, false);
    call_cold_entry(builder, cold_entry(f_.module, "__multigrain_begin_store", type), {address});
  }
  Value* call_run_entry(IRBuilder<>& builder, StringRef name, Type* result, const Run& run, Value* address) {
    auto* const type = FunctionType::get(result, {f_.ptr, f_.i64}, false);
    return call_cold_entry(builder, cold_entry(f_.module, name, type), {address, builder.getInt64(size_of(run))});
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
    builder.CreateCondBr(is_in_view(builder, address_of(f_, builder, run)), shared, body);
    builder.SetInsertPoint(shared);
    call_store_entry(builder, store, false);
    if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    builder.CreateBr(tail);
    fence_behind(store);
    f_.changed = true;
  }

  static Value* hazard(IRBuilder<>& builder, Value* all, unsigned i) {
    return i == 0 ? all : builder.CreatePtrAdd(all, builder.getInt64(8 * i));
  }
  static void store_relaxed(IRBuilder<>& builder, Value* value, Value* pointer) {
    builder.CreateAlignedStore(value, pointer, Align(8))->setAtomic(AtomicOrdering::Release);
  }

  // The values that the code computes for each run before its check.
  struct GuardedRun {
    Value* begin;
    Value* shared;
    Value* first_line = nullptr;
    Value* last_line = nullptr;  // null: it is the first line
  };

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
  Value* is_in_view(IRBuilder<>& builder, Value* address) {
    return builder.CreateICmpEQ(builder.CreateLShr(address, MG_FINE_VIEW_SHIFT), builder.getInt64(MG_FINE_VIEW_TAG));
  }
  // Computes a run's first and last line. `offset` is the run's distance from the place where line 0 begins.
  static void find_lines(IRBuilder<>& builder, const Run& run, Value* offset, Value* shift, GuardedRun& guarded) {
    guarded.first_line = builder.CreateLShr(offset, shift);
    if (run.within_line) return;
    Value* const end = builder.CreateAdd(offset, builder.getInt64(static_cast<uint64_t>(run.end - run.begin - 1)));
    guarded.last_line = builder.CreateLShr(end, shift);
  }
  // Computes whether this node may store to the run's lines. If the run is not shared, the word at `instead`, if not
  // null, is tested in place of the lines' words.
  Value* is_exclusive(IRBuilder<>& builder, const Run& run, const GuardedRun& guarded, Value* table, Value* instead) {
    const auto is_line_exclusive = [&](Value* line) {
      Value* pointer = builder.CreateIntToPtr(builder.CreateAdd(builder.CreateShl(line, 3), table), f_.ptr);
      if (instead != nullptr) pointer = builder.CreateSelect(guarded.shared, pointer, instead);
      Value* const word = builder.CreateAlignedLoad(f_.i64, pointer, Align(8), true);
      return builder.CreateICmpEQ(word, builder.getInt64(MG_FINE_EXCLUSIVE));
    };
    Value* exclusive = is_line_exclusive(guarded.first_line);
    if (guarded.last_line == nullptr) return exclusive;
    exclusive = builder.CreateAnd(exclusive, is_line_exclusive(guarded.last_line));
    // A run of up to kLargestRun bytes may have a third line between the first and the last.
    if (run.end - run.begin > static_cast<int64_t>(kSmallestLine) + 1) {
      Value* const middle = builder.CreateLShr(builder.CreateAdd(guarded.first_line, guarded.last_line), 1);
      exclusive = builder.CreateAnd(exclusive, is_line_exclusive(middle));
    }
    return exclusive;
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

  // Branches to `hit` if the loop hazard is published, the rights cache knows of no right to the whole page, and the
  // run's lines are exclusive. In a loop that may happen often, and to ask the runtime would take longer.
  void check_lines(IRBuilder<>& builder, const Run& run, Value* begin, LoadInst* word, Value* epoch, BasicBlock* hit,
                   BasicBlock* asking) {
    BasicBlock* const checking = BasicBlock::Create(f_.context, "", &f_.function);
    // If the hazard is not published, neither is true.
    Value* const is_known =
        builder.CreateICmpULE(builder.CreateSub(word, epoch), builder.getInt64(MG_FINE_CACHED_NEITHER));
    Value* const cannot_be = builder.CreateICmpEQ(epoch, builder.getInt64(MG_FINE_CACHE_UNUSABLE));
    loop_hazard_.depends_on(epoch, word,
                            builder.CreateCondBr(builder.CreateOr(is_known, cannot_be), checking, asking, f_.mostly));

    builder.SetInsertPoint(checking);
    GuardedRun o{.begin = begin, .shared = nullptr};
    find_lines(builder, run, begin, loop_hazard_.shift(), o);
    builder.CreateCondBr(is_exclusive(builder, run, o, loop_hazard_.table(), nullptr), hit, asking, f_.mostly);
  }

  // Publishes a hazard over the lines of each of several runs, and then computes whether this node may store to all of them.
  Value* publish_and_check(IRBuilder<>& builder, const Batch& batch, MutableArrayRef<GuardedRun> guarded) {
    Value* const all = hazards_of_thread(builder, f_.module);
    Value* const shift = load_line_shift(builder);
    for (size_t i = 0; i < guarded.size(); ++i) {
      GuardedRun& o = guarded[i];
      const Run& run = batch.runs[i];
      find_lines(builder, run, builder.CreateSub(o.begin, builder.getInt64(MG_FINE_VIEW_BASE)), shift, o);
      Value* word = builder.CreateAdd(o.first_line, builder.getInt64(MG_FINE_HAZARD_LINE | MG_FINE_HAZARD_STORES));
      if (o.last_line != nullptr)
        word = builder.CreateAdd(word, builder.CreateShl(builder.CreateSub(o.last_line, o.first_line), 40));
      word = builder.CreateSelect(o.shared, word, builder.getInt64(0));
      // Only the last hazard is published by a locked instruction, which is the full fence for all of them.
      if (i + 1 < guarded.size())
        store_relaxed(builder, word, hazard(builder, all, static_cast<unsigned>(i)));
      else
        builder.CreateAtomicRMW(AtomicRMWInst::Xchg, hazard(builder, all, static_cast<unsigned>(i)), word, Align(8),
                                AtomicOrdering::SequentiallyConsistent);
    }
    // Private memory has no word in the line table, so a word that is always exclusive stands in for it.
    Value* const table = builder.getInt64(MG_FINE_TABLE_BASE);
    Value* const instead = always_exclusive();
    Value* all_exclusive = nullptr;
    for (size_t i = 0; i < guarded.size(); ++i) {
      Value* const exclusive = is_exclusive(builder, batch.runs[i], guarded[i], table, instead);
      all_exclusive = all_exclusive == nullptr ? exclusive : builder.CreateAnd(all_exclusive, exclusive);
    }
    // The blocks own the builder's instructions, which the analyser does not see.
    return all_exclusive;  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
  }

  // The blocks that may follow a miss: the batch's accesses, the code behind them, and the slow path, if there is one.
  struct AfterMiss {
    BasicBlock* body;
    BasicBlock* tail;
    BasicBlock* slow;
  };

  // Calls the runtime, which makes the lines exclusive, and branches to the block that follows.
  void bring_lines(IRBuilder<>& builder, const Batch& batch, ArrayRef<GuardedRun> guarded, BasicBlock* body,
                   BasicBlock* slow) {
    AllocaInst* const runs = describe_runs(builder, batch, guarded);
    CallInst* const begun = call_cold_entry(
        builder, cold_entry(f_.module, "__multigrain_batch_miss", FunctionType::get(f_.i64, {f_.ptr, f_.i32}, false)),
        {runs, builder.getInt32(count_for_runtime(guarded.size()))});
    builder.CreateCondBr(builder.CreateICmpNE(begun, builder.getInt64(0)), body, slow);
  }

  // Fills an array of mg_fine_run on the stack.
  AllocaInst* describe_runs(IRBuilder<>& builder, const Batch& batch, ArrayRef<GuardedRun> guarded) {
    AllocaInst* const runs = f_.local(ArrayType::get(f_.i64, kWordsOfRun * guarded.size()));
    for (size_t i = 0; i < guarded.size(); ++i) {
      const auto put = [&](uint64_t member, Value* value) {
        builder.CreateStore(value, builder.CreatePtrAdd(runs, builder.getInt64(8 * (kWordsOfRun * i + member))));
      };
      put(0, guarded[i].begin);
      put(1, builder.CreateAdd(guarded[i].begin, builder.getInt64(size_of(batch.runs[i]))));
      put(2, builder.getInt64(1));
      put(3, builder.getInt64(0));
      put(4, builder.getInt64(1));
    }
    return runs;
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

  Constant* always_exclusive() {
    constexpr const char* kName = "__multigrain_exclusive";
    if (auto* found = f_.module.getNamedGlobal(kName)) return found;
    return new GlobalVariable(f_.module, f_.i64, true, GlobalValue::PrivateLinkage,
                              ConstantInt::get(f_.i64, MG_FINE_EXCLUSIVE), kName);
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
