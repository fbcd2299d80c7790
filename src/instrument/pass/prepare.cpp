#include "prepare.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "atomics.h"
#include "checks.h"
#include "library_calls.h"
#include "narrow_loads.h"
#include "options.h"
#include "shared.h"
#include "store_batches.h"
#include "vector_accesses.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

class Preparation {
 public:
  explicit Preparation(CheckedFunction& function) : f_(function) {}

  // Makes non-temporal stores ordinary ones. A store that bypasses the caches may become visible after the plain store
  // that clears its hazard, and so in a line that a requester has taken meanwhile. The hint is worth less than the
  // fence that would be needed before each hazard is cleared.
  void drop_non_temporal() {
    for (Instruction& instruction : f_.all_instructions())
      if (auto* store = dyn_cast<StoreInst>(&instruction); store != nullptr &&
                                                           store->hasMetadata(LLVMContext::MD_nontemporal) &&
                                                           may_be_shared(store->getPointerOperand()))
        store->setMetadata(LLVMContext::MD_nontemporal, nullptr);
  }

  // Turns all accesses into loads, stores and atomics that the checks can handle, and collects them.
  void prepare_all() {
    std::vector<Instruction*> instructions;
    for (Instruction& instruction : f_.all_instructions()) instructions.push_back(&instruction);
    for (Instruction* instruction : instructions) {
      // The instructions that this pass has inserted itself do not access shared memory.
      if (f_.covered.contains(instruction) || instruction->hasMetadata(LLVMContext::MD_nosanitize)) continue;
      prepare(*instruction);
    }
  }

 private:
  void prepare(Instruction& instruction) {
    if (replace_unaligned_atomic(instruction)) {
      f_.changed = true;
      return;
    }
    if (auto* load = dyn_cast<LoadInst>(&instruction)) return prepare_load(*load);
    if (auto* store = dyn_cast<StoreInst>(&instruction)) return prepare_store(*store);
    if (auto* update = dyn_cast<AtomicRMWInst>(&instruction)) {
      if (!may_be_shared(update->getPointerOperand())) return;
      update->setOrdering(AtomicOrdering::SequentiallyConsistent);
      f_.accesses.insert(update);
    } else if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
      if (!may_be_shared(exchange->getPointerOperand())) return;
      exchange->setSuccessOrdering(AtomicOrdering::SequentiallyConsistent);
      exchange->setFailureOrdering(AtomicOrdering::SequentiallyConsistent);
      f_.accesses.insert(exchange);
    } else if (auto* memory = dyn_cast<AnyMemIntrinsic>(&instruction)) {
      prepare_memory(*memory);
    } else if (auto* call = dyn_cast<CallBase>(&instruction)) {
      prepare_call(*call);
    }
  }

  void prepare_load(LoadInst& load) {
    Value* const pointer = load.getPointerOperand();
    Type* const type = load.getType();
    if (!may_be_shared(pointer)) return;
    // Metadata about the program's value does not hold for the flag value.
    if (!options().looks_up()) load.dropUnknownNonDebugMetadata({LLVMContext::MD_tbaa});
    const TypeSize scalable = f_.layout.getTypeStoreSize(type);
    if (scalable.isScalable() || scalable.getFixedValue() == 0) return;
    const uint64_t size = scalable.getFixedValue();
    if (load.isAtomic()) {
      load.setOrdering(AtomicOrdering::SequentiallyConsistent);
      if (size > 8) {  // it becomes a locked instruction under a hazard
        f_.accesses.insert(&load);
        return;
      }
    }
    if (options().looks_up()) {
      if (size > MG_TRANSLATE_LARGEST || type->isAggregateType()) return load_through_runtime(load, size);
      f_.accesses.insert(&load);
      return;
    }
    const bool whole = f_.layout.getTypeSizeInBits(type) == size * 8;
    if (!whole || type->isAggregateType() || type->isX86_FP80Ty() || (!is_natural(size) && size != 1 && size != 2)) {
      return load_through_runtime(load, size);
    }
    if (is_unaligned(f_, load)) {
      if (!options().narrow) return load_through_runtime(load, size);
    } else if (size < 4) {
      return prepare_narrow(load);
    }
    if (auto* integer = dyn_cast<IntegerType>(type); integer != nullptr && size > 8 && !load.isAtomic()) {
      auto* const words = FixedVectorType::get(f_.i64, static_cast<unsigned>(size / 8));
      IRBuilder<> builder(&load);
      LoadInst* const vector = builder.CreateAlignedLoad(words, pointer, load.getAlign(), load.isVolatile());
      f_.replace(load, builder.CreateBitCast(vector, type));
      f_.accesses.insert(vector);
      return;
    }
    f_.accesses.insert(&load);
  }

  void load_through_runtime(LoadInst& load, uint64_t size) {
    IRBuilder<> builder(&load);
    AllocaInst* const value = f_.local(load.getType());
    builder.CreateCall(
        f_.module.getOrInsertFunction("__multigrain_load", Type::getVoidTy(f_.context), f_.ptr, f_.i64, f_.ptr),
        {load.getPointerOperand(), builder.getInt64(size), value});
    f_.replace(load, builder.CreateLoad(load.getType(), value));
  }

  // Prepares a load of one or two bytes. If they may be a part of the flag value, the code of check_loads() loads and
  // checks the word around them.
  void prepare_narrow(LoadInst& load) {
    if (!options().narrow || load.isVolatile()) {
      // A volatile load must be made only once, so the word is loaded at once.
      IRBuilder<> builder(&load);
      const Word word = load_word_around(f_, builder, load);
      f_.replace(load, part_of(f_, builder, word, load.getType()));
      f_.accesses.insert(word.load);
      return;
    }
    f_.accesses.insert(&load);
  }

  void prepare_store(StoreInst& store) {
    if (!may_be_shared(store.getPointerOperand())) return;
    const TypeSize size = f_.layout.getTypeStoreSize(store.getValueOperand()->getType());
    if (size.isScalable() || size.getFixedValue() == 0) return;
    if (store.isAtomic()) store.setOrdering(AtomicOrdering::SequentiallyConsistent);
    if (static_cast<int64_t>(size.getFixedValue()) > kLargestRun ||
        (options().looks_up() && size.getFixedValue() > MG_TRANSLATE_LARGEST)) {
      IRBuilder<> builder(&store);
      AllocaInst* const value = f_.local(store.getValueOperand()->getType());
      builder.CreateStore(store.getValueOperand(), value);
      builder.CreateCall(
          f_.module.getOrInsertFunction("__multigrain_store", Type::getVoidTy(f_.context), f_.ptr, f_.i64, f_.ptr),
          {store.getPointerOperand(), builder.getInt64(size.getFixedValue()), value});
      if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
      store.eraseFromParent();
      f_.changed = true;
      return;
    }
    f_.accesses.insert(&store);
  }

  void prepare_memory(AnyMemIntrinsic& memory) {
    Value* const to = memory.getRawDest();
    auto* const transfer = dyn_cast<AnyMemTransferInst>(&memory);
    Value* const from = transfer != nullptr ? transfer->getRawSource() : nullptr;
    if (!may_be_shared(to) && (from == nullptr || !may_be_shared(from))) return;
    IRBuilder<> builder(&memory);
    Value* const length = builder.CreateZExtOrTrunc(memory.getLength(), f_.i64);
    if (transfer != nullptr) {
      const char* const name = isa<AnyMemMoveInst>(memory) ? "__multigrain_memmove" : "__multigrain_memcpy";
      builder.CreateCall(f_.module.getOrInsertFunction(name, f_.ptr, f_.ptr, f_.ptr, f_.i64), {to, from, length});
    } else {
      Value* const byte = builder.CreateZExt(cast<AnyMemSetInst>(memory).getValue(), f_.i32);
      builder.CreateCall(f_.module.getOrInsertFunction("__multigrain_memset", f_.ptr, f_.ptr, f_.i32, f_.i64),
                         {to, byte, length});
    }
    if (options().sequential) builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    memory.eraseFromParent();
    f_.changed = true;
  }

  void prepare_call(CallBase& call) {
    if (call.isInlineAsm()) return report_assembly(call);
    if (auto* intrinsic = dyn_cast<IntrinsicInst>(&call)) return prepare_intrinsic(*intrinsic);
    // The call itself reads an argument that is passed by value, so it gets a private copy.
    for (unsigned i = 0; i < call.arg_size(); ++i) {
      Type* const type = call.getParamByValType(i);
      if (type == nullptr || !may_be_shared(call.getArgOperand(i))) continue;
      IRBuilder<> builder(&call);
      AllocaInst* const copy = f_.local(type);
      copy->setAlignment(std::max(copy->getAlign(), call.getParamAlign(i).valueOrOne()));
      builder.CreateCall(
          f_.module.getOrInsertFunction("__multigrain_load", Type::getVoidTy(f_.context), f_.ptr, f_.i64, f_.ptr),
          {call.getArgOperand(i), builder.getInt64(f_.layout.getTypeAllocSize(type)), copy});
      call.setArgOperand(i, copy);
      f_.changed = true;
    }
    f_.changed |= redirect_library_call(call);
  }

  // Reports inline assembly that may access shared memory. The compiler does not see the access, so it
  // cannot be checked.
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
      if (!in_memory && !clobbers_memory) continue;  // the assembly uses the address as a number only
      note_gap(*call.getFunction());
      f_.context.diagnose(DiagnosticInfoInlineAsm(
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
      f_.changed = true;
      return prepare(*same);
    }
    f_.changed |= look_at_intrinsic(intrinsic);
  }

  // Replaces a masked access by an access of each lane, which is checked if it may be shared.
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
    const uint64_t size = f_.layout.getTypeStoreSize(element);
    Value* result = stores ? nullptr : intrinsic.getArgOperand(packed ? 2 : 3);
    Value* next = where;  // the address of a packed access' next lane
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
    f_.changed = true;
  }

  CheckedFunction& f_;
};

}  // namespace

void prepare_accesses(CheckedFunction& function) {
  Preparation preparation(function);
  preparation.drop_non_temporal();
  preparation.prepare_all();
}

}  // namespace multigrain::checks
