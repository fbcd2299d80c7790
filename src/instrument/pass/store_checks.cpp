#include "store_checks.h"

#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include "entry_calls.h"
#include "instrument/abi.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

class StoreChecks {
 public:
  StoreChecks(CheckedFunction& function, LoopHazard& loop_hazard) : f_(function), loop_hazard_(loop_hazard) {}

  // Checks stores of one run in a loop that uses the loop hazard.
  void check_under_loop_hazard(Batch& batch) {
    const Run& run = batch.runs.front();
    const DebugLoc location = batch.accesses.front()->getDebugLoc();
    BasicBlock* const head = batch.accesses.front()->getParent();
    BasicBlock* const body = SplitBlock(head, batch.accesses.front());
    BasicBlock* const tail = SplitBlock(body, batch.accesses.back()->getNextNode());
    BasicBlock* const shared = BasicBlock::Create(f_.context, "", &f_.function, body);
    BasicBlock* const publishing = BasicBlock::Create(f_.context, "", &f_.function);
    BasicBlock* const checking = BasicBlock::Create(f_.context, "", &f_.function);
    SmallVector<Instruction*, 8> slow_accesses;
    BasicBlock* const slow = copy_body(body, tail, batch, slow_accesses);

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    GuardedRun o;
    o.begin = address_of(builder, run);
    if (is_certainly_shared(run.base))
      builder.CreateBr(shared);
    else  // mostly the object is known before the loop, and the optimiser moves the test there
      builder.CreateCondBr(is_in_view(builder, builder.CreatePtrToInt(object_of(run.base), f_.i64)), shared, body);

    builder.SetInsertPoint(shared);
    Value* const epoch = loop_hazard_.epoch(builder);
    Value* const is_cleared = builder.CreateICmpEQ(epoch, builder.getInt64(MG_FINE_NO_LOOP_HAZARD));
    if (options().pages)
      ask_rights_cache(builder, run, o.begin, epoch, is_cleared, body, publishing, checking);
    else
      builder.CreateCondBr(is_cleared, publishing, checking, f_.rarely);

    builder.SetInsertPoint(publishing);
    loop_hazard_.publish(builder);
    builder.CreateBr(checking);

    builder.SetInsertPoint(checking);
    find_lines(builder, run, o.begin, loop_hazard_.shift(), o);
    builder.CreateCondBr(is_exclusive(builder, run, o, loop_hazard_.table(), nullptr), body, slow, f_.mostly);

    builder.SetCurrentDebugLocation(location);
    for (Instruction* access : batch.accesses) fence_behind(*access);
    for (Instruction* access : slow_accesses) emit_slow_path(cast<StoreInst>(*access));
    f_.changed = true;
  }

  // Checks stores that have hazards of their own, or an atomic.
  void guard_with_hazard(Batch& batch) {
    Instruction& first = *batch.accesses.front();
    Instruction& last = *batch.accesses.back();
    const DebugLoc location = first.getDebugLoc();
    // `head` tests whether anything is shared. `publishing` publishes the hazards and checks the line table. `body` has
    // the instructions from the batch's first access to its last, and `tail` what follows.
    BasicBlock* const head = first.getParent();
    BasicBlock* const body = SplitBlock(head, &first);
    BasicBlock* const tail = SplitBlock(body, last.getNextNode());
    BasicBlock* const publishing = BasicBlock::Create(f_.context, "", &f_.function, body);
    BasicBlock* const missed = BasicBlock::Create(f_.context, "", &f_.function);

    // If the batch cannot begin, another copy of the body runs, without hazards (the slow path). One store within a
    // line can always begin.
    SmallVector<Instruction*, 8> slow_accesses;
    const bool simple = batch.accesses.size() == 1 && batch.runs.front().within_line;
    BasicBlock* const slow = simple ? nullptr : copy_body(body, tail, batch, slow_accesses);

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    SmallVector<GuardedRun, 4> guarded;
    Value* any = nullptr;
    for (const Run& run : batch.runs) {
      GuardedRun o;
      o.begin = address_of(builder, run);
      o.shared = is_in_view(builder, o.begin);
      any = any == nullptr ? o.shared : builder.CreateOr(any, o.shared);
      guarded.push_back(o);
    }
    Value* const all = hazards_of_thread(builder, f_.module);
    builder.CreateCondBr(any, publishing, body);

    builder.SetInsertPoint(publishing);
    Value* const exclusive = publish_and_check(builder, batch, guarded, all);
    builder.CreateCondBr(exclusive, body, missed, f_.mostly);

    builder.SetInsertPoint(missed);
    bring_lines(builder, batch, guarded, {body, tail, slow});

    builder.SetInsertPoint(body->getTerminator());
    builder.SetCurrentDebugLocation(location);
    for (Instruction* access : batch.accesses) fence_behind(*access);
    clear_hazards(builder, all, guarded.size());
    for (Instruction* access : slow_accesses) emit_slow_path(cast<StoreInst>(*access));
    f_.changed = true;
  }

 private:
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

  Value* address_of(IRBuilder<>& builder, const Run& run) {
    Value* const base = builder.CreatePtrToInt(run.base, f_.i64);
    return run.begin == 0 ? base : builder.CreateAdd(base, builder.getInt64(static_cast<uint64_t>(run.begin)));
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

  // Branches to `hit` if the rights cache says that the run's page is exclusive, as it mostly does. Otherwise the loop
  // hazard has to be published, or the lines have to be checked.
  void ask_rights_cache(IRBuilder<>& builder, const Run& run, Value* begin, Value* epoch, Value* is_cleared,
                        BasicBlock* hit, BasicBlock* publishing, BasicBlock* checking) {
    BasicBlock* const not_cached = BasicBlock::Create(f_.context, "", &f_.function);
    BasicBlock* const published = BasicBlock::Create(f_.context, "", &f_.function);
    BasicBlock* const caching_page = BasicBlock::Create(f_.context, "", &f_.function);
    const auto size = static_cast<uint64_t>(run.end - run.begin);
    Value* const page = builder.CreateLShr(begin, MG_FINE_PAGE_SHIFT);
    // The address that the word of a page at address 0 would have.
    Value* const table =
        builder.getInt64(MG_FINE_RIGHTS_CACHE_BASE - (MG_FINE_VIEW_BASE >> MG_FINE_PAGE_SHIFT) * sizeof(uint64_t));
    Value* const pointer = builder.CreateIntToPtr(builder.CreateAdd(builder.CreateShl(page, 3), table), f_.ptr);
    Value* const word = builder.CreateAlignedLoad(f_.i64, pointer, Align(8), true);
    Value* cached = builder.CreateICmpEQ(word, epoch);
    if (!run.within_line) {
      // If the run crosses pages, which is rare, its lines are checked.
      constexpr uint64_t kPage = uint64_t{1} << MG_FINE_PAGE_SHIFT;
      Value* const within = builder.CreateAnd(begin, builder.getInt64(kPage - 1));
      cached = builder.CreateAnd(cached, builder.CreateICmpULE(within, builder.getInt64(kPage - size)));
    }
    builder.CreateCondBr(cached, hit, not_cached, f_.mostly);

    builder.SetInsertPoint(not_cached);
    builder.CreateCondBr(is_cleared, publishing, published);

    // The page is entered into the rights cache unless the cache already says that not all of its lines are exclusive.
    builder.SetInsertPoint(published);
    Value* const is_known =
        builder.CreateICmpULE(builder.CreateSub(word, epoch), builder.getInt64(MG_FINE_CACHED_NEITHER));
    Value* const may_cache = builder.CreateICmpNE(epoch, builder.getInt64(MG_FINE_CACHE_UNUSABLE));
    builder.CreateCondBr(builder.CreateAnd(may_cache, builder.CreateNot(is_known)), caching_page, checking, f_.rarely);

    builder.SetInsertPoint(caching_page);
    loop_hazard_.cache_rights(builder, begin, size);
    builder.CreateBr(checking);
  }

  // Publishes a hazard over the lines of each run, and then computes whether this node may store to all of them.
  Value* publish_and_check(IRBuilder<>& builder, const Batch& batch, MutableArrayRef<GuardedRun> guarded, Value* all) {
    Value* const shift = load_line_shift(builder);
    for (size_t i = 0; i < guarded.size(); ++i) {
      GuardedRun& o = guarded[i];
      const Run& run = batch.runs[i];
      find_lines(builder, run, builder.CreateSub(o.begin, builder.getInt64(MG_FINE_VIEW_BASE)), shift, o);
      Value* word = builder.CreateAdd(o.first_line, builder.getInt64(MG_FINE_HAZARD_LINE | MG_FINE_HAZARD_STORES));
      if (o.last_line != nullptr)
        word = builder.CreateAdd(word, builder.CreateShl(builder.CreateSub(o.last_line, o.first_line), 40));
      if (guarded.size() > 1) word = builder.CreateSelect(o.shared, word, builder.getInt64(0));
      // Only the last hazard is published by a locked instruction, which is the full fence for all of them.
      if (i + 1 < guarded.size())
        store_relaxed(builder, word, hazard(builder, all, static_cast<unsigned>(i)));
      else
        builder.CreateAtomicRMW(AtomicRMWInst::Xchg, hazard(builder, all, static_cast<unsigned>(i)), word, Align(8),
                                AtomicOrdering::SequentiallyConsistent);
    }
    // Private memory has no word in the line table, so a word that is always exclusive stands in for it.
    Value* const table = builder.getInt64(MG_FINE_TABLE_BASE);
    Value* const instead = guarded.size() > 1 ? always_exclusive() : nullptr;
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
  void bring_lines(IRBuilder<>& builder, const Batch& batch, ArrayRef<GuardedRun> guarded, const AfterMiss& after) {
    Instruction& first = *batch.accesses.front();
    // A plain store that stands alone hands its value to the runtime, so that the thread need not wait for the line.
    StoreInst* const alone = batch.accesses.size() == 1 && !first.isAtomic() && !options().sequential
                                 ? dyn_cast<StoreInst>(&first)
                                 : nullptr;
    const bool simple = after.slow == nullptr;
    if (simple && alone != nullptr && has_value_in_two_words(*alone)) {
      Value* const taken = call_value_miss(builder, *alone);
      builder.CreateCondBr(builder.CreateICmpNE(taken, builder.getInt64(0)), after.tail, after.body);
    } else if (simple) {
      Value* const pointer = builder.CreateIntToPtr(guarded[0].begin, f_.ptr);
      call_cold_entry(
          builder,
          cold_entry(f_.module, "__multigrain_store_miss", FunctionType::get(builder.getVoidTy(), {f_.ptr}, false)),
          {pointer});
      builder.CreateBr(after.body);
    } else if (alone != nullptr) {
      builder.CreateBr(after.slow);  // the runtime stores line by line
    } else {
      AllocaInst* const runs = describe_runs(builder, batch, guarded);
      CallInst* const begun = call_cold_entry(
          builder, cold_entry(f_.module, "__multigrain_batch_miss", FunctionType::get(f_.i64, {f_.ptr, f_.i32}, false)),
          {runs, builder.getInt32(count_for_runtime(guarded.size()))});
      builder.CreateCondBr(builder.CreateICmpNE(begun, builder.getInt64(0)), after.body, after.slow);
    }
  }

  // Fills an array of mg_fine_run on the stack.
  AllocaInst* describe_runs(IRBuilder<>& builder, const Batch& batch, ArrayRef<GuardedRun> guarded) {
    AllocaInst* const runs = f_.local(ArrayType::get(f_.i64, kWordsOfRun * guarded.size()));
    for (size_t i = 0; i < guarded.size(); ++i) {
      const auto put = [&](uint64_t member, Value* value) {
        builder.CreateStore(value, builder.CreatePtrAdd(runs, builder.getInt64(8 * (kWordsOfRun * i + member))));
      };
      put(0, guarded[i].begin);
      put(1, builder.CreateAdd(guarded[i].begin,
                               builder.getInt64(static_cast<uint64_t>(batch.runs[i].end - batch.runs[i].begin))));
      put(2, builder.getInt64(1));
      put(3, builder.getInt64(0));
      put(4, builder.getInt64(1));
    }
    return runs;
  }

  bool has_value_in_two_words(const StoreInst& store) const {
    Type* const type = store.getValueOperand()->getType();
    const uint64_t size = f_.layout.getTypeStoreSize(type);
    // The bits of a type that is not whole bytes would have to be padded as the processor's store pads them.
    return size <= 16 && f_.layout.getTypeSizeInBits(type) == size * 8 && !type->isAggregateType() &&
           !type->isX86_FP80Ty();
  }

  Value* call_value_miss(IRBuilder<>& builder, StoreInst& store) {
    Value* value = store.getValueOperand();
    Type* const type = value->getType();
    const auto size = static_cast<uint32_t>(f_.layout.getTypeStoreSize(type));
    if (type->isPtrOrPtrVectorTy()) value = builder.CreatePtrToInt(value, f_.layout.getIntPtrType(type));
    value = builder.CreateBitCast(value, builder.getIntNTy(size * 8));
    Value* high = builder.getInt64(0);
    if (size > 8) high = builder.CreateZExtOrTrunc(builder.CreateLShr(value, 64), f_.i64);
    Value* const low = builder.CreateZExtOrTrunc(value, f_.i64);
    return call_cold_entry(builder,
                           cold_entry(f_.module, "__multigrain_store_value_miss",
                                      FunctionType::get(f_.i64, {f_.ptr, f_.i64, f_.i64, f_.i32}, false)),
                           {store.getPointerOperand(), low, high, builder.getInt32(size)});
  }

  // With -fmultigrain-sequential, a fence keeps later loads of this processor from being made before
  // the store is visible.
  void fence_behind(Instruction& access) {
    if (!options().sequential || access.isAtomic()) return;
    IRBuilder<> builder(access.getNextNode());
    builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
  }

  // Replaces one store of a batch that could not begin by a call of the runtime.
  void emit_slow_path(StoreInst& store) {
    IRBuilder<> builder(&store);
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
