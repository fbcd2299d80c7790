#include "load_checks.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/Analysis/MemoryLocation.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "entry_calls.h"
#include "instrument/abi.h"
#include "narrow_loads.h"
#include "options.h"
#include "register_entries.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr unsigned kLargestGroup = 8;  // loads

class LoadChecks {
 public:
  explicit LoadChecks(CheckedFunction& function) : f_(function) {}

  // Consecutive loads whose addresses do not depend on each other's values are made together and checked by one branch.
  // A load moves up to the loads before it if nothing in between may store to its address.
  void form_groups(BasicBlock& block, std::vector<LoadGroup>& groups) {
    LoadGroup group;
    const auto finish = [&] {
      if (!group.empty()) groups.push_back(group);
      group.clear();
    };
    SmallVector<Instruction*> writers;  // behind the group's last load
    unsigned distance = 0;
    for (Instruction& instruction : make_early_inc_range(block)) {
      ++distance;
      if (f_.is_checked_load(instruction)) {
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

  void check(LoopHazard& loop_hazard, ArrayRef<LoadInst*> group, const Run* again) {
    LoadInst& last = *group.back();
    IRBuilder<> builder(last.getNextNode());
    builder.SetCurrentDebugLocation(last.getDebugLoc());
    SmallVector<Value*, 8> conditions;
    SmallVector<Value*, 8> floats;
    for (LoadInst* load : group) add_flag_condition(builder, *load, conditions, floats);
    // One comparison checks two loaded numbers: it is unordered if either of them is a NaN, as the flag value is.
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
    Instruction* const then = SplitBlockAndInsertIfThen(any, split, false, f_.is_seldom(last) ? f_.evenly : f_.rarely);
    BasicBlock* const missed = then->getParent();
    BasicBlock* const head = missed->getSinglePredecessor();
    BasicBlock* const tail = cast<BranchInst>(then)->getSuccessor(0);
    IRBuilder<> slow(then);
    // After a miss all loads of the group are made again, in order: a value that was loaded before an earlier load
    // missed would be out of order.
    SmallVector<std::pair<LoadInst*, Value*>, 8> values;
    for (LoadInst* load : group) {
      slow.SetCurrentDebugLocation(load->getDebugLoc());
      values.push_back({load, load_by_runtime(f_, slow, *load)});
    }
    if (again != nullptr) loop_hazard.hold_again(slow, address_of(f_, slow, *again), size_of(*again));
    for (auto& [load, value] : values) {
      PHINode* const phi = PHINode::Create(load->getType(), 2, "", tail->begin());
      phi->setDebugLoc(load->getDebugLoc());
      // The head keeps the loaded value for the comparisons. But if the head is a loop's only block, its phi nodes are
      // those of the next iteration, and get the checked value.
      load->replaceUsesWithIf(phi, [&](Use& use) {
        const auto* const user = cast<Instruction>(use.getUser());
        return user != phi && (user->getParent() != head || isa<PHINode>(user));
      });
      phi->addIncoming(load, head);
      phi->addIncoming(value, missed);
    }
    f_.compared_loads.insert(f_.compared_loads.end(), group.begin(), group.end());
    f_.changed = true;
  }

 private:
  bool move_up(LoadInst& load, LoadInst& last, ArrayRef<LoadInst*> group, ArrayRef<Instruction*> writers) {
    const MemoryLocation location = MemoryLocation::get(&load);
    for (Instruction* writer : writers)
      if (isModSet(f_.aliases.getModRefInfo(writer, location))) return false;
    // The instructions between the two loads that compute the address move as well, in order.
    SmallVector<Instruction*, 8> needed;
    SmallVector<Value*, 8> work = {load.getPointerOperand()};
    while (!work.empty()) {
      auto* const instruction = dyn_cast<Instruction>(work.pop_back_val());
      if (instruction == nullptr || instruction->getParent() != load.getParent()) continue;
      if (is_contained(group, instruction)) return false;
      if (isa<PHINode>(instruction) || instruction->comesBefore(&last)) {
        // The instruction stands above the group's last load, but may depend on the value of another load of the group.
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

  // Adds conditions of which at least one is true if the loaded value may be, or contain, the flag value.
  void add_flag_condition(IRBuilder<>& builder, LoadInst& load, SmallVectorImpl<Value*>& conditions,
                          SmallVectorImpl<Value*>& floats) {
    Type* const type = load.getType();
    const uint64_t size = f_.layout.getTypeStoreSize(type);
    // The words of the value may be of different lines, so each is compared.
    const bool precise = load.getAlign() < Align(std::min<uint64_t>(size, 8));
    if (is_unaligned(f_, load)) {
      conditions.push_back(may_have_part_of_flag(builder, load, size));
      return;
    }
    if (is_narrow(f_, load)) {
      Value* const value = builder.CreateBitCast(&load, builder.getIntNTy(static_cast<unsigned>(size * 8)));
      conditions.push_back(size == 1 ? builder.CreateICmpUGE(value, builder.getInt8(MG_FINE_FLAG8))
                                     : builder.CreateICmpEQ(value, builder.getInt16(MG_FINE_FLAG16)));
      return;
    }
    Type* const scalar = type->getScalarType();
    if (!precise && (scalar->isDoubleTy() || scalar->isFloatTy()) && !f_.function.hasFnAttribute(Attribute::StrictFP)) {
      if (!type->isVectorTy()) {
        floats.push_back(&load);
        return;
      }
      conditions.push_back(any_lane(builder, builder.CreateFCmpUNO(&load, &load)));
      return;
    }
    if (type->isPointerTy()) {
      Value* const low = builder.CreateTrunc(builder.CreatePtrToInt(&load, f_.i64), f_.i32);
      if (!precise) {
        conditions.push_back(builder.CreateICmpEQ(low, builder.getInt32(MG_FINE_FLAG32)));
        return;
      }
    }
    if (size == 4) {
      conditions.push_back(
          builder.CreateICmpEQ(builder.CreateBitCast(&load, f_.i32), builder.getInt32(MG_FINE_FLAG32)));
      return;
    }
    if (size == 8 && !precise && !type->isPointerTy()) {
      Value* const low = builder.CreateTrunc(builder.CreateBitCast(&load, f_.i64), f_.i32);
      conditions.push_back(builder.CreateICmpEQ(low, builder.getInt32(MG_FINE_FLAG32)));
      return;
    }
    Value* whole = &load;
    if (type->isPtrOrPtrVectorTy()) whole = builder.CreatePtrToInt(whole, f_.layout.getIntPtrType(type));
    auto* const words = FixedVectorType::get(f_.i32, static_cast<unsigned>(size / 4));
    Value* const lanes = builder.CreateBitCast(whole, words);
    conditions.push_back(any_lane(
        builder, builder.CreateICmpEQ(
                     lanes, ConstantVector::getSplat(words->getElementCount(), builder.getInt32(MG_FINE_FLAG32)))));
  }

  // Tests whether any byte is at least as great as the smallest byte of the flag value.
  Value* may_have_part_of_flag(IRBuilder<>& builder, LoadInst& load, uint64_t size) {
    Type* const type = load.getType();
    Value* whole = &load;
    if (type->isPtrOrPtrVectorTy()) whole = builder.CreatePtrToInt(whole, f_.layout.getIntPtrType(type));
    if (size > 8) {
      auto* const bytes = FixedVectorType::get(builder.getInt8Ty(), static_cast<unsigned>(size));
      Value* const least = ConstantVector::getSplat(bytes->getElementCount(), builder.getInt8(MG_FINE_FLAG8));
      return any_lane(builder, builder.CreateICmpUGE(builder.CreateBitCast(whole, bytes), least));
    }
    // The inverse of a byte that may be of the flag value is less than n = 0x100 - MG_FINE_FLAG8. If n is subtracted
    // from such a byte, it borrows, and its highest bit becomes 1, which was 0 before.
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

  CheckedFunction& f_;
};

}  // namespace

Value* load_by_runtime(const CheckedFunction& function, IRBuilder<>& builder, const LoadInst& load) {
  Type* const type = load.getType();
  const uint64_t size = function.layout.getTypeStoreSize(type);
  auto* const pointer = const_cast<Value*>(load.getPointerOperand());
  if (size <= 8 && isPowerOf2_64(size)) return call_load_entry(builder, pointer, type);
  AllocaInst* const value = function.local(type);
  call_cold_entry(builder,
                  cold_entry(function.module, "__multigrain_load_range_miss",
                             FunctionType::get(builder.getVoidTy(), {function.ptr, function.i64, function.ptr}, false)),
                  {pointer, builder.getInt64(size), value});
  return builder.CreateLoad(type, value);
}

void form_load_groups(CheckedFunction& function, BasicBlock& block, std::vector<LoadGroup>& groups) {
  LoadChecks(function).form_groups(block, groups);
}

void check_loads(CheckedFunction& function, LoopHazard& loop_hazard, ArrayRef<LoadInst*> group, const Run* again) {
  if (again == nullptr) {
    LoadChecks(function).check(loop_hazard, group, nullptr);
    return;
  }
  Run run = *again;
  recompute_run(function, run);
  LoadChecks(function).check(loop_hazard, group, &run);
}

void keep_compared_loads_single(CheckedFunction& function) {
  for (const WeakVH& value : function.compared_loads)
    if (auto* const load = dyn_cast_or_null<LoadInst>(value); load != nullptr && !load->isAtomic())
      load->setVolatile(true);
}

}  // namespace multigrain::checks
