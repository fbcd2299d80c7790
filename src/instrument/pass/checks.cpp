#include "checks.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/DenseSet.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/Analysis/MemoryLocation.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/Local.h>

#include "atomics.h"
#include "base/fine_grain.h"
#include "base/fine_grain_note.h"
#include "covered.h"
#include "entry_calls.h"
#include "library_calls.h"
#include "loop_hazard.h"
#include "options.h"
#include "shared.h"
#include "vector_accesses.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr uint64_t kSmallestLine = uint64_t{1} << MG_FINE_MIN_LINE_SHIFT;
constexpr int64_t kLargestRun = 64;      // bytes of a run of stores: three lines at the most, whatever their size
constexpr unsigned kLargestGroup = 8;    // loads that share a branch
constexpr unsigned kLongestGroup = 200;  // instructions between a batch's first store and its last

class Checker {
 public:
  Checker(Function& function, AAResults& aliases)
      : function_(function),
        module_(*function.getParent()),
        context_(function.getContext()),
        layout_(module_.getDataLayout()),
        aliases_(aliases),
        i32_(Type::getInt32Ty(context_)),
        i64_(Type::getInt64Ty(context_)),
        ptr_(PointerType::getUnqual(context_)),
        loop_hazard_(function),
        rarely_(MDBuilder(context_).createBranchWeights(1, 1 << 20)),
        mostly_(MDBuilder(context_).createBranchWeights(1 << 20, 1)) {}

  bool run() {
    covered_ = covered_by_hazards(function_);
    drop_non_temporal();
    prepare();
    loop_hazard_.find(accesses_, covered_);
    std::vector<BasicBlock*> blocks;
    for (BasicBlock& block : function_) blocks.push_back(&block);
    for (BasicBlock* block : blocks) {
      form_load_groups(*block);
      form_batches(*block);
    }
    for (auto& group : load_groups_) check_loads(group);
    for (auto& batch : batches_) {
      for (Run& run : batch.runs) recompute_run(run);
      batch.under_loop_hazard ? check_under_loop_hazard(batch) : guard_with_hazard(batch);
    }
    loop_hazard_.finish();
    close_batches();
    if (options().verify) verify_accesses();
    return changed_;
  }

 private:
  // --- Which accesses ---------------------------------------------------------------------------------------------

  void close_batches() {
    for (Instruction& instruction : make_early_inc_range(instructions_of_function())) {
      if (!is_call_of(instruction, kBatchEnd)) continue;
      auto* const call = cast<CallInst>(&instruction);
      IRBuilder<> builder(call);
      clear(builder, hazards(builder), cast<ConstantInt>(call->getArgOperand(0))->getZExtValue());
      call->eraseFromParent();
      changed_ = true;
    }
  }

  // A store that bypasses the caches may become visible after the plain store that clears its hazard, and so in a line that
  // a requester has taken meanwhile. Its hint is worth less than the fence that would be needed before each hazard is cleared.
  void drop_non_temporal() {
    for (Instruction& instruction : instructions_of_function())
      if (auto* store = dyn_cast<StoreInst>(&instruction);
          store != nullptr && store->hasMetadata(LLVMContext::MD_nontemporal) && may_be_shared(store->getPointerOperand()))
        store->setMetadata(LLVMContext::MD_nontemporal, nullptr);
  }

  // -fmultigrain-checks=verify: before each access that relies on a published hazard, the runtime tests whether there is one.
  void verify_accesses() {
    SmallVector<Instruction*> accesses;
    for (const Batch& batch : batches_) accesses.append(batch.accesses.begin(), batch.accesses.end());
    for (Instruction& instruction : instructions_of_function())
      if (covered_.contains(&instruction)) accesses.push_back(&instruction);
    const auto verify = [&](Instruction& access, Value* pointer, uint64_t size, bool stores) {
      if (!may_be_shared(pointer)) return;
      IRBuilder<> builder(&access);
      builder.CreateCall(
          module_.getOrInsertFunction("__multigrain_verify", Type::getVoidTy(context_), ptr_, i64_, i32_),
          {pointer, builder.getInt64(size), builder.getInt32(stores ? 1 : 0)});
      changed_ = true;
    };
    for (Instruction* access : accesses) {
      if (auto* memory = dyn_cast<MemIntrinsic>(access)) {
        const uint64_t size = cast<ConstantInt>(memory->getLength())->getZExtValue();
        verify(*memory, memory->getRawDest(), size, true);
        if (auto* transfer = dyn_cast<MemTransferInst>(memory)) verify(*memory, transfer->getRawSource(), size, false);
        continue;
      }
      if (!isa<LoadInst, StoreInst, AtomicRMWInst, AtomicCmpXchgInst>(access)) continue;
      // What is not a store alone has its address for its first operand.
      Value* const pointer = access->getOperand(isa<StoreInst>(access) ? StoreInst::getPointerOperandIndex() : 0);
      const Extent extent = extent_of(*access);
      const bool stores = !isa<LoadInst>(access) || access->isAtomic();
      verify(*access, pointer, static_cast<uint64_t>(extent.end - extent.begin), stores);
    }
  }

  // Brings everything into the form of loads, stores and atomics that the checks know, and collects them.
  void prepare() {
    std::vector<Instruction*> instructions;
    for (Instruction& instruction : instructions_of_function()) instructions.push_back(&instruction);
    for (Instruction* instruction : instructions) {
      // What this pass has put in itself looks at no shared memory.
      if (covered_.contains(instruction) || instruction->hasMetadata(LLVMContext::MD_nosanitize)) continue;
      prepare(*instruction);
    }
  }
  iterator_range<inst_iterator> instructions_of_function() { return instructions(function_); }

  void prepare(Instruction& instruction) {
    if (replace_unaligned_atomic(instruction)) {
      changed_ = true;
      return;
    }
    if (auto* load = dyn_cast<LoadInst>(&instruction)) return prepare_load(*load);
    if (auto* store = dyn_cast<StoreInst>(&instruction)) return prepare_store(*store);
    if (auto* update = dyn_cast<AtomicRMWInst>(&instruction)) {
      if (!may_be_shared(update->getPointerOperand())) return;
      update->setOrdering(AtomicOrdering::SequentiallyConsistent);
      accesses_.insert(update);
    } else if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
      if (!may_be_shared(exchange->getPointerOperand())) return;
      exchange->setSuccessOrdering(AtomicOrdering::SequentiallyConsistent);
      exchange->setFailureOrdering(AtomicOrdering::SequentiallyConsistent);
      accesses_.insert(exchange);
    } else if (auto* memory = dyn_cast<AnyMemIntrinsic>(&instruction)) {
      prepare_memory(*memory);
    } else if (auto* call = dyn_cast<CallBase>(&instruction)) {
      prepare_call(*call);
    }
  }

  // Natural: whole words at the alignment of words, so that no part of a word is of another line than the rest.
  static bool is_natural(uint64_t size) { return size == 4 || size == 8 || size == 16 || size == 32 || size == 64; }

  void prepare_load(LoadInst& load) {
    Value* const pointer = load.getPointerOperand();
    Type* const type = load.getType();
    if (!may_be_shared(pointer)) return;
    // What is known of the program's value does not hold for the flag value.
    load.dropUnknownNonDebugMetadata({LLVMContext::MD_tbaa});
    const TypeSize scalable = layout_.getTypeStoreSize(type);
    if (scalable.isScalable() || scalable.getFixedValue() == 0) return;
    const uint64_t size = scalable.getFixedValue();
    if (load.isAtomic()) {
      load.setOrdering(AtomicOrdering::SequentiallyConsistent);
      if (size > 8) {  // a locked instruction of its own
        accesses_.insert(&load);
        return;
      }
    }
    const bool whole = layout_.getTypeSizeInBits(type) == size * 8;
    if (!whole || type->isAggregateType() || type->isX86_FP80Ty() ||
        (!is_natural(size) && size != 1 && size != 2)) {
      return load_through_runtime(load, size);
    }
    if (is_unaligned(load)) {
      if (!options().narrow) return load_through_runtime(load, size);
    } else if (size < 4) {
      return prepare_narrow(load);
    }
    if (auto* integer = dyn_cast<IntegerType>(type); integer != nullptr && size > 8 && !load.isAtomic()) {
      auto* const words = FixedVectorType::get(i64_, static_cast<unsigned>(size / 8));
      IRBuilder<> builder(&load);
      LoadInst* const vector = builder.CreateAlignedLoad(words, pointer, load.getAlign(), load.isVolatile());
      replace(load, builder.CreateBitCast(vector, type));
      accesses_.insert(vector);
      return;
    }
    accesses_.insert(&load);
  }

  void replace(Instruction& old, Value* with) {
    if (auto* named = dyn_cast<Instruction>(with)) named->takeName(&old);
    old.replaceAllUsesWith(with);
    old.eraseFromParent();
    changed_ = true;
  }

  // In what the program was, a place for values on the stack.
  AllocaInst* local(Type* type) {
    IRBuilder<> builder(&*function_.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    builder.SetCurrentDebugLocation({});
    return builder.CreateAlloca(type);
  }

  void load_through_runtime(LoadInst& load, uint64_t size) {
    IRBuilder<> builder(&load);
    AllocaInst* const value = local(load.getType());
    builder.CreateCall(module_.getOrInsertFunction("__multigrain_load", Type::getVoidTy(context_), ptr_, i64_, ptr_),
                       {load.getPointerOperand(), builder.getInt64(size), value});
    replace(load, builder.CreateLoad(load.getType(), value));
  }

  // One or two bytes. If they cannot be the flag value's, that is all; else check_loads() has a look at the word.
  void prepare_narrow(LoadInst& load) {
    if (!options().narrow || load.isVolatile()) {
      // A volatile load is made once.
      IRBuilder<> builder(&load);
      const Word word = load_word_around(builder, load);
      replace(load, part_of(builder, word, load.getType()));
      accesses_.insert(word.load);
      return;
    }
    accesses_.insert(&load);
  }

  // The aligned word that holds what a narrow load loads, and by how many bits that is to be shifted.
  struct Word {
    LoadInst* load;
    Value* shift;
  };
  Word load_word_around(IRBuilder<>& builder, LoadInst& load) {
    Value* const pointer = load.getPointerOperand();
    APInt offset(64, 0);
    Value* const base = pointer->stripAndAccumulateConstantOffsets(layout_, offset, true);
    Value* word_pointer;
    Value* shift;
    if (getKnownAlignment(base, layout_, &load) >= Align(4)) {
      const uint64_t within = offset.getZExtValue() & 3;
      word_pointer = within == 0 ? pointer : builder.CreatePtrAdd(pointer, builder.getInt64(-within));
      shift = builder.getInt32(static_cast<uint32_t>(within * 8));
    } else {
      word_pointer =
          builder.CreateIntrinsic(Intrinsic::ptrmask, {ptr_, i64_}, {pointer, builder.getInt64(~uint64_t{3})});
      Value* const within = builder.CreateTrunc(builder.CreatePtrToInt(pointer, i64_), i32_);
      shift = builder.CreateShl(builder.CreateAnd(within, builder.getInt32(3)), 3);
    }
    LoadInst* const word = builder.CreateAlignedLoad(i32_, word_pointer, Align(4), load.isVolatile());
    if (load.isAtomic()) word->setAtomic(AtomicOrdering::SequentiallyConsistent, load.getSyncScopeID());
    return {word, shift};
  }
  Value* part_of(IRBuilder<>& builder, const Word& word, Type* type) const {
    Type* const narrow = builder.getIntNTy(static_cast<unsigned>(layout_.getTypeSizeInBits(type)));
    return builder.CreateBitCast(builder.CreateTrunc(builder.CreateLShr(word.load, word.shift), narrow), type);
  }
  [[nodiscard]] bool is_narrow(const LoadInst& load) const {
    return layout_.getTypeStoreSize(load.getType()) < 4 && !is_unaligned(load);
  }
  // Of parts of words, perhaps of different lines. Such as two bytes that the compiler loads at once.
  [[nodiscard]] bool is_unaligned(const LoadInst& load) const {
    return load.getAlign() < Align(std::min<uint64_t>(PowerOf2Ceil(layout_.getTypeStoreSize(load.getType())), 4));
  }

  void prepare_store(StoreInst& store) {
    if (!may_be_shared(store.getPointerOperand())) return;
    const TypeSize size = layout_.getTypeStoreSize(store.getValueOperand()->getType());
    if (size.isScalable() || size.getFixedValue() == 0) return;
    if (store.isAtomic()) store.setOrdering(AtomicOrdering::SequentiallyConsistent);
    if (static_cast<int64_t>(size.getFixedValue()) > kLargestRun) {
      IRBuilder<> builder(&store);
      AllocaInst* const value = local(store.getValueOperand()->getType());
      builder.CreateStore(store.getValueOperand(), value);
      builder.CreateCall(module_.getOrInsertFunction("__multigrain_store", Type::getVoidTy(context_), ptr_, i64_, ptr_),
                         {store.getPointerOperand(), builder.getInt64(size.getFixedValue()), value});
      if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
      store.eraseFromParent();
      changed_ = true;
      return;
    }
    accesses_.insert(&store);
  }

  void prepare_memory(AnyMemIntrinsic& memory) {
    Value* const to = memory.getRawDest();
    auto* const transfer = dyn_cast<AnyMemTransferInst>(&memory);
    Value* const from = transfer != nullptr ? transfer->getRawSource() : nullptr;
    if (!may_be_shared(to) && (from == nullptr || !may_be_shared(from))) return;
    IRBuilder<> builder(&memory);
    Value* const length = builder.CreateZExtOrTrunc(memory.getLength(), i64_);
    if (transfer != nullptr) {
      const char* const name = isa<AnyMemMoveInst>(memory) ? "__multigrain_memmove" : "__multigrain_memcpy";
      builder.CreateCall(module_.getOrInsertFunction(name, ptr_, ptr_, ptr_, i64_), {to, from, length});
    } else {
      Value* const byte = builder.CreateZExt(cast<AnyMemSetInst>(memory).getValue(), i32_);
      builder.CreateCall(module_.getOrInsertFunction("__multigrain_memset", ptr_, ptr_, i32_, i64_),
                         {to, byte, length});
    }
    if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    memory.eraseFromParent();
    changed_ = true;
  }

  void prepare_call(CallBase& call) {
    if (call.isInlineAsm()) return report_assembly(call);
    if (auto* intrinsic = dyn_cast<IntrinsicInst>(&call)) return prepare_intrinsic(*intrinsic);
    // An argument passed by value is read by the call.
    for (unsigned i = 0; i < call.arg_size(); ++i) {
      Type* const type = call.getParamByValType(i);
      if (type == nullptr || !may_be_shared(call.getArgOperand(i))) continue;
      IRBuilder<> builder(&call);
      AllocaInst* const copy = local(type);
      copy->setAlignment(std::max(copy->getAlign(), call.getParamAlign(i).valueOrOne()));
      builder.CreateCall(module_.getOrInsertFunction("__multigrain_load", Type::getVoidTy(context_), ptr_, i64_, ptr_),
                         {call.getArgOperand(i), builder.getInt64(layout_.getTypeAllocSize(type)), copy});
      call.setArgOperand(i, copy);
      changed_ = true;
    }
    changed_ |= redirect_library_call(call);
  }

  // An operand in memory that the compiler does not see: nobody can put a check there.
  void report_assembly(CallBase& call) {
    const auto* const assembly = cast<InlineAsm>(call.getCalledOperand());
    const InlineAsm::ConstraintInfoVector constraints = assembly->ParseConstraints();
    bool clobbers_memory = false;
    for (const auto& constraint : constraints)
      clobbers_memory |=
          constraint.Type == InlineAsm::isClobber && !constraint.Codes.empty() && constraint.Codes[0] == "{memory}";
    unsigned argument = 0;
    for (const auto& constraint : constraints) {
      const bool takes_argument =
          constraint.Type == InlineAsm::isInput || (constraint.Type == InlineAsm::isOutput && constraint.isIndirect);
      if (!takes_argument) continue;
      Value* const operand = call.getArgOperand(argument++);
      if (!operand->getType()->isPointerTy() || !may_be_shared(operand)) continue;
      const bool in_memory = constraint.isIndirect || is_contained(constraint.Codes, "m");
      if (!in_memory && !clobbers_memory) continue;  // the address as a number
      context_.diagnose(DiagnosticInfoInlineAsm(
          call,
          "multigrain: inline assembly accesses memory that may be shared; its accesses are not checked: use atomics "
          "or built-in functions, or hand it private memory",
          options().asm_is_error ? DS_Error : DS_Warning));
      return;
    }
  }

  void prepare_intrinsic(IntrinsicInst& intrinsic) {
    switch (intrinsic.getIntrinsicID()) {
      case Intrinsic::masked_load:
      case Intrinsic::masked_store:
      case Intrinsic::masked_gather:
      case Intrinsic::masked_scatter:
      case Intrinsic::masked_expandload:
      case Intrinsic::masked_compressstore:
        return prepare_masked(intrinsic);
      default:
        break;
    }
    if (!intrinsic.mayReadOrWriteMemory() || is_harmless_call(intrinsic)) return;
    if (!intrinsic.getCalledFunction()->getName().starts_with("llvm.x86.")) return;
    if (Instruction* const same = replace_vector_access(intrinsic)) {
      changed_ = true;
      return prepare(*same);
    }
    changed_ |= look_at_intrinsic(intrinsic);
  }

  // Lane by lane.
  void prepare_masked(IntrinsicInst& intrinsic) {
    const Intrinsic::ID id = intrinsic.getIntrinsicID();
    const bool stores =
        id == Intrinsic::masked_store || id == Intrinsic::masked_scatter || id == Intrinsic::masked_compressstore;
    const bool pointers = id == Intrinsic::masked_gather || id == Intrinsic::masked_scatter;
    const bool packed = id == Intrinsic::masked_expandload || id == Intrinsic::masked_compressstore;
    Value* const where = intrinsic.getArgOperand(stores ? 1 : 0);
    if (!pointers && !may_be_shared(where)) return;
    auto* const type = dyn_cast<FixedVectorType>(stores ? intrinsic.getArgOperand(0)->getType() : intrinsic.getType());
    if (type == nullptr) report_fatal_error("multigrain: masked access of a vector of unknown length");
    Value* const mask = intrinsic.getArgOperand(packed ? (stores ? 2 : 1) : (stores ? 3 : 2));
    Type* const element = type->getElementType();
    const uint64_t size = layout_.getTypeStoreSize(element);
    Value* result = stores ? nullptr : intrinsic.getArgOperand(packed ? 2 : 3);
    Value* next = where;  // of packed accesses
    for (unsigned lane = 0; lane < type->getNumElements(); ++lane) {
      IRBuilder<> builder(&intrinsic);
      Value* const wanted = builder.CreateExtractElement(mask, lane);
      Value* const pointer = pointers ? builder.CreateExtractElement(where, lane)
                             : packed ? next
                                      : builder.CreatePtrAdd(where, builder.getInt64(lane * size));
      Instruction* const then = SplitBlockAndInsertIfThen(wanted, &intrinsic, false);
      BasicBlock* const from = then->getParent()->getSinglePredecessor();
      IRBuilder<> inside(then);
      inside.SetCurrentDebugLocation(intrinsic.getDebugLoc());
      const Align align(std::min<uint64_t>(size, 4));
      Value* new_result = nullptr;
      Instruction* access;
      if (stores) {
        access =
            inside.CreateAlignedStore(inside.CreateExtractElement(intrinsic.getArgOperand(0), lane), pointer, align);
      } else {
        LoadInst* const load = inside.CreateAlignedLoad(element, pointer, align);
        new_result = inside.CreateInsertElement(result, load, lane);
        access = load;
      }
      Value* const following = packed ? inside.CreatePtrAdd(pointer, inside.getInt64(size)) : nullptr;
      builder.SetInsertPoint(&intrinsic);
      const auto join = [&](Value* taken, Value* skipped) {
        PHINode* const phi = PHINode::Create(taken->getType(), 2, "", intrinsic.getParent()->begin());
        phi->addIncoming(taken, then->getParent());
        phi->addIncoming(skipped, from);
        return phi;
      };
      if (new_result != nullptr) result = join(new_result, result);
      if (packed) next = join(following, next);
      prepare(*access);
    }
    if (result != nullptr) intrinsic.replaceAllUsesWith(result);
    intrinsic.eraseFromParent();
    changed_ = true;
  }

  // --- Loads ------------------------------------------------------------------------------------------------------

  [[nodiscard]] bool is_checked_load(const Instruction& instruction) const {
    // An atomic load too wide for a check goes through a hazard, as a store does.
    return isa<LoadInst>(instruction) && accesses_.contains(const_cast<Instruction*>(&instruction)) &&
           !(instruction.isAtomic() && layout_.getTypeStoreSize(instruction.getType()) > 8);
  }

  // Whether nothing moves from before to behind it, or the other way.
  static bool is_barrier(const Instruction& instruction) {
    if (const auto* call = dyn_cast<CallBase>(&instruction)) return !is_harmless_call(*call);
    if (const auto* load = dyn_cast<LoadInst>(&instruction)) return !load->isUnordered() || load->isVolatile();
    if (const auto* store = dyn_cast<StoreInst>(&instruction)) return !store->isUnordered() || store->isVolatile();
    return isa<AtomicRMWInst, AtomicCmpXchgInst, FenceInst>(instruction) || instruction.mayThrow();
  }

  // Consecutive loads whose addresses do not depend on each other's values are made together and checked by one branch.
  // A load moves up to those before it if nothing in between may store there.
  void form_load_groups(BasicBlock& block) {
    SmallVector<LoadInst*, 8> group;
    const auto finish = [&] {
      if (!group.empty()) load_groups_.push_back(group);
      group.clear();
    };
    SmallVector<Instruction*> writers;  // since the group's last load
    unsigned distance = 0;
    for (Instruction& instruction : make_early_inc_range(block)) {
      ++distance;
      if (is_checked_load(instruction)) {
        auto& load = cast<LoadInst>(instruction);
        if (is_barrier(load)) {
          finish();
          group.push_back(&load);
          finish();
          writers.clear();
          continue;
        }
        if (!options().group_loads || group.empty() || group.size() >= kLargestGroup || distance > 64 ||
            !move_up(load, *group.back(), group, writers)) {
          finish();
          writers.clear();
        }
        group.push_back(&load);
        distance = 0;
        continue;
      }
      if (is_barrier(instruction)) {
        finish();
        writers.clear();
      } else if (instruction.mayWriteToMemory() && !isa<CallBase>(instruction)) {
        writers.push_back(&instruction);
      }
    }
    finish();
  }

  bool move_up(LoadInst& load, LoadInst& last, ArrayRef<LoadInst*> group, ArrayRef<Instruction*> writers) {
    const MemoryLocation location = MemoryLocation::get(&load);
    for (Instruction* writer : writers)
      if (isModSet(aliases_.getModRefInfo(writer, location))) return false;
    // What computes its address, between the two, in order.
    SmallVector<Instruction*, 8> needed;
    SmallVector<Value*, 8> work = {load.getPointerOperand()};
    while (!work.empty()) {
      auto* const instruction = dyn_cast<Instruction>(work.pop_back_val());
      if (instruction == nullptr || instruction->getParent() != load.getParent()) continue;
      if (is_contained(group, instruction)) return false;
      if (isa<PHINode>(instruction) || instruction->comesBefore(&last)) {
        // Above the group's last load, but a value of the group may flow into it there.
        if (depends_on(*instruction, group)) return false;
        continue;
      }
      if (is_contained(needed, instruction)) continue;
      if (instruction->mayReadOrWriteMemory() || !isSafeToSpeculativelyExecute(instruction) || needed.size() >= 8)
        return false;
      needed.push_back(instruction);
      work.append(instruction->op_begin(), instruction->op_end());
    }
    llvm::sort(needed, [](const Instruction* a, const Instruction* b) { return a->comesBefore(b); });
    Instruction* after = &last;
    needed.push_back(&load);
    for (Instruction* instruction : needed) {
      if (instruction->getPrevNode() != after) instruction->moveAfter(after);
      after = instruction;
    }
    return true;
  }

  static bool depends_on(const Instruction& instruction, ArrayRef<LoadInst*> group) {
    SmallVector<const Instruction*, 8> work = {&instruction};
    DenseSet<const Instruction*> seen;
    while (!work.empty()) {
      const Instruction* const at = work.pop_back_val();
      if (!seen.insert(at).second || isa<PHINode>(at)) continue;
      if (seen.size() > 64) return true;
      for (const Value* operand : at->operands()) {
        const auto* const from = dyn_cast<Instruction>(operand);
        if (from == nullptr || from->getParent() != instruction.getParent()) continue;
        if (any_of(group, [&](const LoadInst* load) { return load == from; })) return true;
        if (!from->comesBefore(group.front())) work.push_back(from);
      }
    }
    return false;
  }

  // Whether a loaded value may be, or have in it, the flag value. A number of conditions, any of which says so.
  void add_flag_condition(IRBuilder<>& builder, LoadInst& load, SmallVectorImpl<Value*>& conditions,
                          SmallVectorImpl<Value*>& floats) {
    Type* const type = load.getType();
    const uint64_t size = layout_.getTypeStoreSize(type);
    const bool precise = load.getAlign() < Align(std::min<uint64_t>(size, 8));  // words of different lines
    if (is_unaligned(load)) {
      conditions.push_back(may_have_part_of_flag(builder, load, size));
      return;
    }
    if (is_narrow(load)) {
      Value* const value = builder.CreateBitCast(&load, builder.getIntNTy(static_cast<unsigned>(size * 8)));
      conditions.push_back(size == 1 ? builder.CreateICmpUGE(value, builder.getInt8(MG_FINE_FLAG8))
                                     : builder.CreateICmpEQ(value, builder.getInt16(MG_FINE_FLAG16)));
      return;
    }
    Type* const scalar = type->getScalarType();
    if (!precise && (scalar->isDoubleTy() || scalar->isFloatTy()) && !function_.hasFnAttribute(Attribute::StrictFP)) {
      if (!type->isVectorTy()) {
        floats.push_back(&load);
        return;
      }
      conditions.push_back(any_lane(builder, builder.CreateFCmpUNO(&load, &load)));
      return;
    }
    if (type->isPointerTy()) {
      Value* const low = builder.CreateTrunc(builder.CreatePtrToInt(&load, i64_), i32_);
      if (!precise) {
        conditions.push_back(builder.CreateICmpEQ(low, builder.getInt32(MG_FINE_FLAG32)));
        return;
      }
    }
    if (size == 4) {
      conditions.push_back(builder.CreateICmpEQ(builder.CreateBitCast(&load, i32_), builder.getInt32(MG_FINE_FLAG32)));
      return;
    }
    if (size == 8 && !precise && !type->isPointerTy()) {
      Value* const low = builder.CreateTrunc(builder.CreateBitCast(&load, i64_), i32_);
      conditions.push_back(builder.CreateICmpEQ(low, builder.getInt32(MG_FINE_FLAG32)));
      return;
    }
    Value* whole = &load;
    if (type->isPtrOrPtrVectorTy()) whole = builder.CreatePtrToInt(whole, layout_.getIntPtrType(type));
    auto* const words = FixedVectorType::get(i32_, static_cast<unsigned>(size / 4));
    Value* const lanes = builder.CreateBitCast(whole, words);
    conditions.push_back(any_lane(
        builder, builder.CreateICmpEQ(
                     lanes, ConstantVector::getSplat(words->getElementCount(), builder.getInt32(MG_FINE_FLAG32)))));
  }

  // Whether any byte is as great as the flag value's are.
  Value* may_have_part_of_flag(IRBuilder<>& builder, LoadInst& load, uint64_t size) {
    Type* const type = load.getType();
    Value* whole = &load;
    if (type->isPtrOrPtrVectorTy()) whole = builder.CreatePtrToInt(whole, layout_.getIntPtrType(type));
    if (size > 8) {
      auto* const bytes = FixedVectorType::get(builder.getInt8Ty(), static_cast<unsigned>(size));
      Value* const least = ConstantVector::getSplat(bytes->getElementCount(), builder.getInt8(MG_FINE_FLAG8));
      return any_lane(builder, builder.CreateICmpUGE(builder.CreateBitCast(whole, bytes), least));
    }
    // A byte of the inverse that is less than n lends from its highest bit if n is taken away, which it had not.
    const auto bits = static_cast<unsigned>(size * 8);
    const auto in_each = [&](uint64_t byte) { return builder.getInt(APInt::getSplat(bits, APInt(8, byte))); };
    whole = builder.CreateBitCast(whole, builder.getIntNTy(bits));
    Value* const taken = builder.CreateSub(builder.CreateNot(whole), in_each(0x100 - MG_FINE_FLAG8));
    Value* const lent = builder.CreateAnd(builder.CreateAnd(taken, whole), in_each(0x80));
    return builder.CreateICmpNE(lent, ConstantInt::get(lent->getType(), 0));
  }

  static Value* any_lane(IRBuilder<>& builder, Value* lanes) {
    const unsigned count = cast<FixedVectorType>(lanes->getType())->getNumElements();
    Value* const bits = builder.CreateBitCast(lanes, builder.getIntNTy(count));
    return builder.CreateICmpNE(bits, ConstantInt::get(bits->getType(), 0));
  }

  FunctionCallee miss(const char* name, FunctionType* type) { return cold_entry(module_, name, type); }
  static CallInst* call_miss(IRBuilder<>& builder, FunctionCallee callee, ArrayRef<Value*> arguments) {
    return call_cold_entry(builder, callee, arguments);
  }

  // The load's value by way of the runtime.
  Value* load_again(IRBuilder<>& builder, LoadInst& load) {
    Type* const type = load.getType();
    const uint64_t size = layout_.getTypeStoreSize(type);
    Value* const pointer = load.getPointerOperand();
    if (size <= 8) {
      CallInst* const value =
          call_miss(builder, miss("__multigrain_load_miss", FunctionType::get(i64_, {ptr_, i32_}, false)),
                    {pointer, builder.getInt32(static_cast<uint32_t>(size))});
      Type* const integer = builder.getIntNTy(static_cast<unsigned>(size * 8));
      Value* const narrow = builder.CreateTrunc(value, integer);
      return type->isPointerTy() ? builder.CreateIntToPtr(narrow, type) : builder.CreateBitCast(narrow, type);
    }
    AllocaInst* const value = local(type);
    call_miss(builder,
              miss("__multigrain_load_range_miss", FunctionType::get(builder.getVoidTy(), {ptr_, i64_, ptr_}, false)),
              {pointer, builder.getInt64(size), value});
    return builder.CreateLoad(type, value);
  }

  void check_loads(ArrayRef<LoadInst*> group) {
    LoadInst& last = *group.back();
    IRBuilder<> builder(last.getNextNode());
    builder.SetCurrentDebugLocation(last.getDebugLoc());
    SmallVector<Value*, 8> conditions;
    SmallVector<Value*, 8> floats;
    for (LoadInst* load : group) add_flag_condition(builder, *load, conditions, floats);
    // One comparison looks at two numbers: it is unordered if either is none.
    DenseMap<Type*, Value*> waiting;
    for (Value* number : floats) {
      Value*& other = waiting[number->getType()];
      if (other == nullptr) {
        other = number;
        continue;
      }
      conditions.push_back(builder.CreateFCmpUNO(other, number));
      other = nullptr;
    }
    for (Value* number : floats) {
      if (Value*& other = waiting[number->getType()]; other == number) {
        conditions.push_back(builder.CreateFCmpUNO(number, number));
        other = nullptr;
      }
    }
    Value* any = conditions.front();
    for (Value* condition : ArrayRef<Value*>(conditions).drop_front()) any = builder.CreateOr(any, condition);
    Instruction* const split =
        builder.GetInsertPoint() == last.getParent()->end() ? nullptr : &*builder.GetInsertPoint();
    Instruction* const then = SplitBlockAndInsertIfThen(any, split, false, rarely_);
    BasicBlock* const missed = then->getParent();
    BasicBlock* const head = missed->getSinglePredecessor();
    BasicBlock* const tail = cast<BranchInst>(then)->getSuccessor(0);
    IRBuilder<> slow(then);
    // All again, in order: a load that was made before its predecessor missed would be out of order.
    SmallVector<std::pair<LoadInst*, Value*>, 8> values;
    SmallVector<LoadInst*, 8> words;
    if (any_of(group, [this](const LoadInst* load) { return is_narrow(*load); })) {
      // Here, too, with whole words in place of narrow loads, and then checked as such.
      SmallVector<Value*, 8> shifts;
      for (LoadInst* load : group) {
        slow.SetCurrentDebugLocation(load->getDebugLoc());
        const bool narrow = is_narrow(*load);
        const Word word = narrow ? load_word_around(slow, *load) : Word{cast<LoadInst>(load->clone()), nullptr};
        if (!narrow) slow.Insert(word.load);
        words.push_back(word.load);
        shifts.push_back(word.shift);
      }
      for (const auto& [load, word, shift] : zip(group, words, shifts))
        values.push_back({load, shift == nullptr ? word : part_of(slow, {word, shift}, load->getType())});
    } else {
      for (LoadInst* load : group) {
        slow.SetCurrentDebugLocation(load->getDebugLoc());
        values.push_back({load, load_again(slow, *load)});
      }
    }
    for (auto& [load, value] : values) {
      PHINode* const phi = PHINode::Create(load->getType(), 2, "", tail->begin());
      phi->setDebugLoc(load->getDebugLoc());
      // In the head are the comparisons, and, of a loop of one block, what the next iteration gets.
      load->replaceUsesWithIf(phi, [&](Use& use) {
        const auto* const user = cast<Instruction>(use.getUser());
        return user != phi && (user->getParent() != head || isa<PHINode>(user));
      });
      phi->addIncoming(load, head);
      phi->addIncoming(value, missed);
    }
    if (!words.empty()) check_loads(words);
    changed_ = true;
  }

  // --- Stores -----------------------------------------------------------------------------------------------------

  struct Run {
    Value* base;
    Instruction* access;   // one of the run's
    int64_t access_begin;  // where that begins
    int64_t begin, end;    // from the base
    bool within_line;      // it cannot cross lines
  };
  struct Batch {
    SmallVector<Instruction*, 8> accesses;
    SmallVector<Run, 4> runs;
    bool under_loop_hazard = false;
  };
  struct Extent {
    Value* base;
    Instruction* access;
    int64_t begin, end;
    bool within_line;
  };

  Extent extent_of(Instruction& access) const {
    Value* pointer;
    Type* type;
    Align align;
    if (auto* store = dyn_cast<StoreInst>(&access)) {
      pointer = store->getPointerOperand(), type = store->getValueOperand()->getType(), align = store->getAlign();
    } else if (auto* load = dyn_cast<LoadInst>(&access)) {
      pointer = load->getPointerOperand(), type = load->getType(), align = load->getAlign();
    } else if (auto* update = dyn_cast<AtomicRMWInst>(&access)) {
      pointer = update->getPointerOperand(), type = update->getValOperand()->getType(), align = update->getAlign();
    } else {
      auto& exchange = cast<AtomicCmpXchgInst>(access);
      pointer = exchange.getPointerOperand(), type = exchange.getNewValOperand()->getType(),
      align = exchange.getAlign();
    }
    const auto size = static_cast<int64_t>(layout_.getTypeStoreSize(type).getFixedValue());
    const bool atomic = access.isAtomic();
    const bool within = static_cast<uint64_t>(size) <= kSmallestLine && (atomic || align.value() >= PowerOf2Ceil(size));
    APInt offset(64, 0);
    Value* const base = pointer->stripAndAccumulateConstantOffsets(layout_, offset, true);
    return {base, &access, offset.getSExtValue(), offset.getSExtValue() + size, within};
  }

  // Adds an extent to a batch's runs, if they can take it.
  static bool add(Batch& batch, const Extent& extent) {
    for (Run& run : batch.runs) {
      if (run.base != extent.base) continue;
      const int64_t begin = std::min(run.begin, extent.begin);
      const int64_t end = std::max(run.end, extent.end);
      if (end - begin > kLargestRun) continue;
      run.within_line = (run.begin == begin && run.end == end && run.within_line) ||
                        (extent.begin == begin && extent.end == end && extent.within_line);
      run.begin = begin, run.end = end;
      return true;
    }
    if (batch.runs.size() == (batch.under_loop_hazard ? 1 : kMostRuns)) return false;
    batch.runs.push_back({extent.base, extent.access, extent.begin, extent.begin, extent.end, extent.within_line});
    return true;
  }

  // What was a load when the batch was formed may be the outcome of its check by now; and what was an address at an
  // offset, where the bodies of other batches meet their copies, a base itself.
  void recompute_run(Run& run) const {
    const Extent extent = extent_of(*run.access);
    const int64_t moved = extent.begin - run.access_begin;
    run = {extent.base, run.access, extent.begin, run.begin + moved, run.end + moved, run.within_line};
  }

  // Stores between which nothing is called or may miss share hazards.
  void form_batches(BasicBlock& block) {
    Batch batch;
    const auto finish = [&] {
      if (!batch.accesses.empty()) batches_.push_back(std::move(batch));
      batch = {};
    };
    unsigned distance = 0;
    for (Instruction& instruction : block) {
      ++distance;
      if (accesses_.contains(&instruction) && !is_checked_load(instruction)) {
        const Extent extent = extent_of(instruction);
        const bool alone = instruction.isAtomic() || instruction.isVolatile();
        if (alone || !options().batch_stores || distance > kLongestGroup) finish();
        if (!batch.accesses.empty()) {
          // Its address must be known where the hazards are published.
          auto* const base = dyn_cast<Instruction>(extent.base);
          const bool early = base == nullptr || base->getParent() != &block || isa<PHINode>(base) ||
                             base->comesBefore(batch.accesses.front());
          if (!early || !add(batch, extent)) finish();
        }
        if (batch.accesses.empty()) {
          batch.under_loop_hazard = !alone && loop_hazard_.covers(&block);
          add(batch, extent);
          distance = 0;
        }
        batch.accesses.push_back(&instruction);
        if (alone) finish();
        continue;
      }
      if (is_checked_load(instruction) || is_barrier(instruction)) finish();
    }
    finish();
  }
  Value* hazards(IRBuilder<>& builder) { return hazards_of_thread(builder, module_); }
  Value* hazard(IRBuilder<>& builder, Value* all, unsigned i) {
    return i == 0 ? all : builder.CreatePtrAdd(all, builder.getInt64(8 * i));
  }
  static void store_relaxed(IRBuilder<>& builder, Value* value, Value* pointer) {
    builder.CreateAlignedStore(value, pointer, Align(8))->setAtomic(AtomicOrdering::Release);
  }
  void clear(IRBuilder<>& builder, Value* all, size_t count) {
    for (unsigned i = 0; i < count; ++i) clear_hazard(builder, all, i);
  }

  // Computed for each run before its check.
  struct GuardedRun {
    Value* begin;
    Value* shared;
    Value* first_line = nullptr;
    Value* last_line = nullptr;  // null: the first
  };

  // A copy of a batch's body, for the slow way, whose values reach `tail` as well; before the body is changed.
  BasicBlock* copy_body(BasicBlock* body, BasicBlock* tail, const Batch& batch,
                        SmallVectorImpl<Instruction*>& accesses) {
    ValueToValueMapTy map;
    BasicBlock* const slow = CloneBasicBlock(body, map, "", &function_);
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
    Value* const base = builder.CreatePtrToInt(run.base, i64_);
    return run.begin == 0 ? base : builder.CreateAdd(base, builder.getInt64(static_cast<uint64_t>(run.begin)));
  }
  // A pointer into the same object, which is shared as a whole or not at all, as far back as it is known.
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
  // Of a run that begins so far behind where lines are counted from.
  static void find_lines(IRBuilder<>& builder, const Run& run, Value* offset, Value* shift, GuardedRun& guarded) {
    guarded.first_line = builder.CreateLShr(offset, shift);
    if (run.within_line) return;
    Value* const end = builder.CreateAdd(offset, builder.getInt64(static_cast<uint64_t>(run.end - run.begin - 1)));
    guarded.last_line = builder.CreateLShr(end, shift);
  }
  // Whether this node may store to the run's lines; `instead`, if not null, is looked at if the run is not shared.
  Value* is_exclusive(IRBuilder<>& builder, const Run& run, const GuardedRun& guarded, Value* table, Value* instead) {
    const auto look = [&](Value* line) {
      Value* pointer = builder.CreateIntToPtr(builder.CreateAdd(builder.CreateShl(line, 3), table), ptr_);
      if (instead != nullptr) pointer = builder.CreateSelect(guarded.shared, pointer, instead);
      Value* const word = builder.CreateAlignedLoad(i64_, pointer, Align(8), true);
      return builder.CreateICmpEQ(word, builder.getInt64(MG_FINE_EXCLUSIVE));
    };
    Value* good = look(guarded.first_line);
    if (guarded.last_line == nullptr) return good;
    good = builder.CreateAnd(good, look(guarded.last_line));
    // Runs of up to kLargestRun bytes may have a line in between.
    if (run.end - run.begin > static_cast<int64_t>(kSmallestLine) + 1) {
      Value* const middle = builder.CreateLShr(builder.CreateAdd(guarded.first_line, guarded.last_line), 1);
      good = builder.CreateAnd(good, look(middle));
    }
    return good;
  }

  // Stores of one run, in a loop that uses the loop hazard.
  void check_under_loop_hazard(Batch& batch) {
    const Run& run = batch.runs.front();
    const DebugLoc location = batch.accesses.front()->getDebugLoc();
    BasicBlock* const head = batch.accesses.front()->getParent();
    BasicBlock* const body = SplitBlock(head, batch.accesses.front());
    BasicBlock* const tail = SplitBlock(body, batch.accesses.back()->getNextNode());
    BasicBlock* const shared = BasicBlock::Create(context_, "", &function_, body);
    BasicBlock* const publishing = BasicBlock::Create(context_, "", &function_);
    BasicBlock* const checking = BasicBlock::Create(context_, "", &function_);
    SmallVector<Instruction*, 8> slow_accesses;
    BasicBlock* const slow = copy_body(body, tail, batch, slow_accesses);

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    GuardedRun o;
    o.begin = address_of(builder, run);
    if (is_known_shared(run.base))
      builder.CreateBr(shared);
    else  // mostly the object is known before the loop, and computed there whether it is shared
      builder.CreateCondBr(is_in_view(builder, builder.CreatePtrToInt(object_of(run.base), i64_)), shared, body);

    builder.SetInsertPoint(shared);
    Value* const epoch = loop_hazard_.epoch(builder);
    Value* const is_cleared = builder.CreateICmpEQ(epoch, builder.getInt64(MG_FINE_NO_LOOP_HAZARD));
    if (options().pages)
      ask_rights_cache(builder, run, o.begin, epoch, is_cleared, body, publishing, checking);
    else
      builder.CreateCondBr(is_cleared, publishing, checking, rarely_);

    builder.SetInsertPoint(publishing);
    loop_hazard_.publish(builder);
    builder.CreateBr(checking);

    builder.SetInsertPoint(checking);
    find_lines(builder, run, o.begin, loop_hazard_.shift(), o);
    builder.CreateCondBr(is_exclusive(builder, run, o, loop_hazard_.table(), nullptr), body, slow, mostly_);

    builder.SetCurrentDebugLocation(location);
    for (Instruction* access : batch.accesses) fence_behind(*access);
    for (Instruction* access : slow_accesses) emit_slow_path(cast<StoreInst>(*access));
    changed_ = true;
  }

  // Goes to `good` if the rights cache says that the run's page is exclusive, as mostly it does; else the loop hazard has to
  // be published, or the lines have to be checked.
  void ask_rights_cache(IRBuilder<>& builder, const Run& run, Value* begin, Value* epoch, Value* is_cleared,
                        BasicBlock* good, BasicBlock* publishing, BasicBlock* checking) {
    BasicBlock* const not_cached = BasicBlock::Create(context_, "", &function_);
    BasicBlock* const published = BasicBlock::Create(context_, "", &function_);
    BasicBlock* const caching_page = BasicBlock::Create(context_, "", &function_);
    const auto size = static_cast<uint64_t>(run.end - run.begin);
    Value* const page = builder.CreateLShr(begin, MG_FINE_PAGE_SHIFT);
    // Where the word of a page would be that began at address 0.
    Value* const table =
        builder.getInt64(MG_FINE_RIGHTS_CACHE_BASE - (MG_FINE_VIEW_BASE >> MG_FINE_PAGE_SHIFT) * sizeof(uint64_t));
    Value* const pointer = builder.CreateIntToPtr(builder.CreateAdd(builder.CreateShl(page, 3), table), ptr_);
    Value* const word = builder.CreateAlignedLoad(i64_, pointer, Align(8), true);
    Value* cached = builder.CreateICmpEQ(word, epoch);
    if (!run.within_line) {
      // Of two pages, which is rare, the lines are looked at.
      constexpr uint64_t kPage = uint64_t{1} << MG_FINE_PAGE_SHIFT;
      Value* const within = builder.CreateAnd(begin, builder.getInt64(kPage - 1));
      cached = builder.CreateAnd(cached, builder.CreateICmpULE(within, builder.getInt64(kPage - size)));
    }
    builder.CreateCondBr(cached, good, not_cached, mostly_);

    builder.SetInsertPoint(not_cached);
    builder.CreateCondBr(is_cleared, publishing, published);

    // Unless it is known that some of its lines are not.
    builder.SetInsertPoint(published);
    Value* const is_known =
        builder.CreateICmpULE(builder.CreateSub(word, epoch), builder.getInt64(MG_FINE_CACHED_NEITHER));
    Value* const may_cache = builder.CreateICmpNE(epoch, builder.getInt64(MG_FINE_CACHE_UNUSABLE));
    builder.CreateCondBr(builder.CreateAnd(may_cache, builder.CreateNot(is_known)), caching_page, checking, rarely_);

    builder.SetInsertPoint(caching_page);
    loop_hazard_.cache_rights(builder, begin, size);
    builder.CreateBr(checking);
  }

  void guard_with_hazard(Batch& batch) {
    Instruction& first = *batch.accesses.front();
    Instruction& last = *batch.accesses.back();
    const DebugLoc location = first.getDebugLoc();
    // head: is anything shared? publishing: publish the hazards, check the line table; body: first .. last; tail: behind.
    BasicBlock* const head = first.getParent();
    BasicBlock* const body = SplitBlock(head, &first);
    BasicBlock* const tail = SplitBlock(body, last.getNextNode());
    // The slow way: what lies between is executed once more in another form, if the batch cannot begin.
    const bool single = batch.accesses.size() == 1;
    const bool simple = single && batch.runs.front().within_line;
    // A plain store alone goes to the runtime with its value, so that nobody need wait for its line.
    StoreInst* const alone =
        single && !first.isAtomic() && !options().sequential ? dyn_cast<StoreInst>(&first) : nullptr;
    BasicBlock* const publishing = BasicBlock::Create(context_, "", &function_, body);
    BasicBlock* const missed = BasicBlock::Create(context_, "", &function_);

    SmallVector<Instruction*, 8> slow_accesses;
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
    Value* const all = hazards(builder);
    builder.CreateCondBr(any, publishing, body);

    builder.SetInsertPoint(publishing);
    Value* const shift = load_line_shift(builder);
    Value* good = nullptr;
    for (size_t i = 0; i < guarded.size(); ++i) {
      GuardedRun& o = guarded[i];
      const Run& run = batch.runs[i];
      find_lines(builder, run, builder.CreateSub(o.begin, builder.getInt64(MG_FINE_VIEW_BASE)), shift, o);
      Value* word = builder.CreateAdd(o.first_line, builder.getInt64(MG_FINE_HAZARD_LINE | MG_FINE_HAZARD_STORES));
      if (o.last_line != nullptr)
        word = builder.CreateAdd(word, builder.CreateShl(builder.CreateSub(o.last_line, o.first_line), 40));
      if (guarded.size() > 1) word = builder.CreateSelect(o.shared, word, builder.getInt64(0));
      // One locked instruction for all: the last.
      if (i + 1 < guarded.size())
        store_relaxed(builder, word, hazard(builder, all, static_cast<unsigned>(i)));
      else
        builder.CreateAtomicRMW(AtomicRMWInst::Xchg, hazard(builder, all, static_cast<unsigned>(i)), word, Align(8),
                                AtomicOrdering::SequentiallyConsistent);
    }
    // Of private memory there is no word: one that is always right stands in for it.
    Value* const table = builder.getInt64(MG_FINE_TABLE_BASE);
    Value* const instead = guarded.size() > 1 ? always_exclusive() : nullptr;
    for (size_t i = 0; i < guarded.size(); ++i) {
      Value* const exclusive = is_exclusive(builder, batch.runs[i], guarded[i], table, instead);
      good = good == nullptr ? exclusive : builder.CreateAnd(good, exclusive);
    }
    builder.CreateCondBr(good, body, missed, mostly_);

    builder.SetInsertPoint(missed);
    if (simple && alone != nullptr && has_value_in_two_words(*alone)) {
      Value* const taken = call_value_miss(builder, *alone);
      builder.CreateCondBr(builder.CreateICmpNE(taken, builder.getInt64(0)), tail, body);
    } else if (simple) {
      Value* const pointer = builder.CreateIntToPtr(guarded[0].begin, ptr_);
      call_miss(builder, miss("__multigrain_store_miss", FunctionType::get(builder.getVoidTy(), {ptr_}, false)),
                {pointer});
      builder.CreateBr(body);
    } else if (alone != nullptr) {
      builder.CreateBr(slow);  // line by line
    } else {
      auto* const run_type = ArrayType::get(i64_, kWordsOfRun * guarded.size());
      AllocaInst* const runs = local(run_type);
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
      CallInst* const begun =
          call_miss(builder, miss("__multigrain_batch_miss", FunctionType::get(i64_, {ptr_, i32_}, false)),
                    {runs, builder.getInt32(count_for_runtime(guarded.size()))});
      builder.CreateCondBr(builder.CreateICmpNE(begun, builder.getInt64(0)), body, slow);
    }

    builder.SetInsertPoint(body->getTerminator());
    builder.SetCurrentDebugLocation(location);
    for (Instruction* access : batch.accesses) fence_behind(*access);
    clear(builder, all, guarded.size());
    for (Instruction* access : slow_accesses) emit_slow_path(cast<StoreInst>(*access));
    changed_ = true;
  }

  bool has_value_in_two_words(const StoreInst& store) const {
    Type* const type = store.getValueOperand()->getType();
    const uint64_t size = layout_.getTypeStoreSize(type);
    // Bits that are no whole bytes would have to be filled up as the processor's store does.
    return size <= 16 && layout_.getTypeSizeInBits(type) == size * 8 && !type->isAggregateType() &&
           !type->isX86_FP80Ty();
  }

  Value* call_value_miss(IRBuilder<>& builder, StoreInst& store) {
    Value* value = store.getValueOperand();
    Type* const type = value->getType();
    const auto size = static_cast<uint32_t>(layout_.getTypeStoreSize(type));
    if (type->isPtrOrPtrVectorTy()) value = builder.CreatePtrToInt(value, layout_.getIntPtrType(type));
    value = builder.CreateBitCast(value, builder.getIntNTy(size * 8));
    Value* high = builder.getInt64(0);
    if (size > 8) high = builder.CreateZExtOrTrunc(builder.CreateLShr(value, 64), i64_);
    Value* const low = builder.CreateZExtOrTrunc(value, i64_);
    return call_miss(builder,
                     miss("__multigrain_store_value_miss", FunctionType::get(i64_, {ptr_, i64_, i64_, i32_}, false)),
                     {store.getPointerOperand(), low, high, builder.getInt32(size)});
  }

  // -fmultigrain-sequential: no later load of this processor is made before the store is seen.
  void fence_behind(Instruction& access) {
    if (!options().sequential || access.isAtomic()) return;
    IRBuilder<> builder(access.getNextNode());
    builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
  }

  // One store of a batch that could not begin.
  void emit_slow_path(StoreInst& store) {
    IRBuilder<> builder(&store);
    Type* const type = store.getValueOperand()->getType();
    AllocaInst* const value = local(type);
    builder.CreateStore(store.getValueOperand(), value);
    call_miss(builder,
              miss("__multigrain_store_range_miss", FunctionType::get(builder.getVoidTy(), {ptr_, i64_, ptr_}, false)),
              {store.getPointerOperand(), builder.getInt64(layout_.getTypeStoreSize(type)), value});
    if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    store.eraseFromParent();
  }

  Constant* always_exclusive() {
    constexpr const char* kName = "__multigrain_exclusive";
    if (auto* found = module_.getNamedGlobal(kName)) return found;
    return new GlobalVariable(module_, i64_, true, GlobalValue::PrivateLinkage,
                              ConstantInt::get(i64_, MG_FINE_EXCLUSIVE), kName);
  }

  Function& function_;
  Module& module_;
  LLVMContext& context_;
  const DataLayout& layout_;
  AAResults& aliases_;
  IntegerType* i32_;
  IntegerType* i64_;
  PointerType* ptr_;
  LoopHazard loop_hazard_;
  MDNode* rarely_;
  MDNode* mostly_;
  DenseSet<const Instruction*> covered_;
  SetVector<Instruction*> accesses_;
  std::vector<SmallVector<LoadInst*, 8>> load_groups_;
  std::vector<Batch> batches_;
  bool changed_ = false;
};

}  // namespace

bool insert_checks(Function& function, AAResults& aliases) {
  return Checker(function, aliases).run();
}

void add_note(Module& module) {
  module.appendModuleInlineAsm(MG_FINE_NOTE);
}

}  // namespace multigrain::checks
