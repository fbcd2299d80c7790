#include "references.h"

#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/LowerAtomic.h>

#include "checked_function.h"
#include "entry_calls.h"
#include "instrument/abi.h"
#include "options.h"
#include "prepare.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// The runtime's entries have the values of accesses of 1, 2, 4 and 8 bytes in a register.
bool is_word(uint64_t size) {
  return size == 1 || size == 2 || size == 4 || size == 8;
}

class References {
 public:
  explicit References(CheckedFunction& function) : f_(function) {}

  // The code is
  //
  //   head:     if the address is shared, go on at `looking`, else at `here`
  //   looking:  if the table says that the page is remote, go on at `remote`, else at `here`
  //   here:     the access, as it was
  //   remote:   the runtime makes the access
  //   behind:   the value is that of the one or of the other
  //
  // Nothing keeps the page where it is between the check and the access. So an access at `here` may fault on a page that has become
  // remote, and is executed by the fault handler then; and an entry makes its reference wherever the page is.
  void check(Instruction& access) {
    Type* const type = type_of_access(access);
    // What is atomic and longer than a word is left to the fault handler.
    if (access.isAtomic() && !is_word(f_.layout.getTypeStoreSize(type))) return;
    Value* const pointer = pointer_of_access(access);
    const DebugLoc location = access.getDebugLoc();

    BasicBlock* const head = access.getParent();
    BasicBlock* const here = SplitBlock(head, &access);
    BasicBlock* const behind = SplitBlock(here, access.getNextNode());
    BasicBlock* const looking = BasicBlock::Create(f_.context, "", &f_.function, here);
    BasicBlock* const remote = BasicBlock::Create(f_.context, "", &f_.function);

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    Value* const address = builder.CreatePtrToInt(pointer, f_.i64);
    branch_if_in_view(builder, pointer, address, looking, here);

    builder.SetInsertPoint(looking);
    auto* const table_type = StructType::get(f_.context, {static_cast<Type*>(f_.ptr), f_.i64});
    Value* const table = f_.module.getOrInsertGlobal("__multigrain_references", table_type);
    Value* const pages = builder.CreateAlignedLoad(f_.ptr, table, Align(8));
    Value* const shift = builder.CreateAlignedLoad(f_.i64, builder.CreateStructGEP(table_type, table, 1), Align(8));
    Value* const page = builder.CreateLShr(builder.CreateSub(address, builder.getInt64(MG_FINE_VIEW_BASE)), shift);
    LoadInst* const entry = builder.CreateAlignedLoad(builder.getInt8Ty(), builder.CreatePtrAdd(pages, page), Align(1));
    // The runtime changes the table.
    entry->setAtomic(AtomicOrdering::Monotonic);
    builder.CreateCondBr(builder.CreateICmpEQ(entry, builder.getInt8(0)), here, remote, f_.mostly);

    if (options().sequential && isa<StoreInst>(access) && !access.isAtomic()) {
      builder.SetInsertPoint(access.getNextNode());
      builder.SetCurrentDebugLocation(location);
      builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    }

    builder.SetInsertPoint(remote);
    builder.SetCurrentDebugLocation(location);
    Value* const value = refer(builder, access, pointer, type);
    builder.CreateBr(behind);
    if (value != nullptr) {
      PHINode* const joined = PHINode::Create(access.getType(), 2, "", behind->begin());
      access.replaceAllUsesWith(joined);
      joined->addIncoming(&access, here);
      joined->addIncoming(value, builder.GetInsertBlock());
    }
    f_.changed = true;
  }

 private:
  // Returns the value of the access, which the runtime makes; nullptr for a store.
  Value* refer(IRBuilder<>& builder, Instruction& access, Value* pointer, Type* type) {
    if (isa<LoadInst>(access)) return load(builder, pointer, type);
    if (auto* const store = dyn_cast<StoreInst>(&access)) {
      this->store(builder, pointer, *store->getValueOperand());
      return nullptr;
    }
    if (auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&access)) {
      Value* const expected = to_word(builder, exchange->getCompareOperand());
      Value* const found =
          compare_and_swap(builder, pointer, type, expected, to_word(builder, exchange->getNewValOperand()));
      Value* const pair =
          builder.CreateInsertValue(PoisonValue::get(access.getType()), from_word(builder, found, type), 0);
      return builder.CreateInsertValue(pair, builder.CreateICmpEQ(found, expected), 1);
    }
    return update(builder, cast<AtomicRMWInst>(access), pointer, type);
  }

  // Tells whether a value of the type can be made of a word's bits, and its bits of the value.
  [[nodiscard]] bool fits_word(Type* type) const {
    const uint64_t size = f_.layout.getTypeStoreSize(type);
    return is_word(size) && f_.layout.getTypeSizeInBits(type) == size * 8 &&
           (type->isPointerTy() || type->isIntOrIntVectorTy() || type->isFPOrFPVectorTy());
  }

  Value* to_word(IRBuilder<>& builder, Value* value) const {
    if (value->getType()->isPointerTy()) return builder.CreatePtrToInt(value, f_.i64);
    const auto bits = static_cast<unsigned>(f_.layout.getTypeSizeInBits(value->getType()));
    return builder.CreateZExt(builder.CreateBitCast(value, builder.getIntNTy(bits)), f_.i64);
  }

  Value* from_word(IRBuilder<>& builder, Value* word, Type* type) const {
    if (type->isPointerTy()) return builder.CreateIntToPtr(word, type);
    const auto bits = static_cast<unsigned>(f_.layout.getTypeSizeInBits(type));
    return builder.CreateBitCast(builder.CreateTrunc(word, builder.getIntNTy(bits)), type);
  }

  Value* load(IRBuilder<>& builder, Value* pointer, Type* type) {
    const uint64_t size = f_.layout.getTypeStoreSize(type);
    if (fits_word(type)) {
      const std::string name = "__multigrain_load_" + std::to_string(size) + "_miss";
      auto* const entry_type = FunctionType::get(f_.i64, {f_.ptr}, false);
      return from_word(builder, call_cold_entry(builder, cold_entry(f_.module, name, entry_type), {pointer}), type);
    }
    AllocaInst* const value = f_.local(type);
    call_range_entry(builder, "__multigrain_load_range_miss", pointer, size, value);
    return builder.CreateLoad(type, value);
  }

  void store(IRBuilder<>& builder, Value* pointer, Value& value) {
    // The runtime takes all stores from memory: a reference takes longer than that by far.
    AllocaInst* const copy = f_.local(value.getType());
    builder.CreateStore(&value, copy);
    call_range_entry(builder, "__multigrain_store_range_miss", pointer, f_.layout.getTypeStoreSize(value.getType()),
                     copy);
  }

  void call_range_entry(IRBuilder<>& builder, const char* name, Value* pointer, uint64_t size, Value* value) {
    auto* const type = FunctionType::get(builder.getVoidTy(), {f_.ptr, f_.i64, f_.ptr}, false);
    call_cold_entry(builder, cold_entry(f_.module, name, type), {pointer, builder.getInt64(size), value});
  }

  // Returns what was found, as a word.
  Value* compare_and_swap(IRBuilder<>& builder, Value* pointer, Type* type, Value* expected, Value* desired) {
    auto* const entry_type = FunctionType::get(f_.i64, {f_.ptr, f_.i64, f_.i64, f_.i64}, false);
    const FunctionCallee entry = cold_entry(f_.module, "__multigrain_compare_and_swap_miss", entry_type);
    Value* const size = builder.getInt64(f_.layout.getTypeStoreSize(type));
    return call_cold_entry(builder, entry, {pointer, size, expected, desired});
  }

  // A load, and a loop around a compare-and-swap.
  Value* update(IRBuilder<>& builder, AtomicRMWInst& update, Value* pointer, Type* type) {
    Value* const first = to_word(builder, load(builder, pointer, type));
    BasicBlock* const before = builder.GetInsertBlock();
    BasicBlock* const loop = BasicBlock::Create(f_.context, "", &f_.function);
    BasicBlock* const done = BasicBlock::Create(f_.context, "", &f_.function);
    builder.CreateBr(loop);
    builder.SetInsertPoint(loop);
    PHINode* const expected = builder.CreatePHI(f_.i64, 2);
    Value* const old = from_word(builder, expected, type);
    Value* const fresh = buildAtomicRMWValue(update.getOperation(), builder, old, update.getValOperand());
    Value* const found = compare_and_swap(builder, pointer, type, expected, to_word(builder, fresh));
    expected->addIncoming(first, before);
    expected->addIncoming(found, builder.GetInsertBlock());
    builder.CreateCondBr(builder.CreateICmpEQ(found, expected), done, loop);
    builder.SetInsertPoint(done);
    return old;
  }

  CheckedFunction& f_;
};

}  // namespace

bool check_references(Function& checked, AAResults& aliases) {
  CheckedFunction function(checked, aliases);
  prepare_accesses(function);
  References references(function);
  for (Instruction* const access : function.accesses) references.check(*access);
  return function.changed;
}

}  // namespace multigrain::checks
