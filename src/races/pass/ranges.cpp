#include "ranges.h"

#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScalarEvolutionExpressions.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/LoopSimplify.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include <optional>

#include "races/compiled/abi.h"

namespace multigrain::races {

using namespace llvm;

namespace {

// --- The mark. Optimisations keep the groups of which all accesses that they combine are (LLVM's llvm.access.group), and this one is
// named by no loop, so it says nothing to them.

constexpr const char* kMark = "multigrain.told";

MDNode* mark_of(Module& module) {
  NamedMDNode* const named = module.getOrInsertNamedMetadata(kMark);
  if (named->getNumOperands() == 0) named->addOperand(MDNode::getDistinct(module.getContext(), {}));
  return named->getOperand(0);
}

// --- What is told

// A branch that is taken to where something is told; its condition does not change in the loops that are left.
struct Guard {
  Value* condition = nullptr;
  bool is_taken = false;  // where it is true
};

// `count` pieces of memory of `bytes` each, `stride` bytes from one to the next; without a stride one piece. Without the guards
// nothing is accessed.
struct Pieces {
  const SCEV* begin = nullptr;  // a pointer
  const SCEV* bytes = nullptr;
  const SCEV* stride = nullptr;
  const SCEV* count = nullptr;
  bool writes = false;
  DebugLoc at;
  uint64_t other_lines = 0;  // abi.h
  SmallVector<Guard, 2> guards;
};
struct Told {
  CallInst* call = nullptr;
  Pieces pieces;
};

// Accesses of a loop, in one function of the source, whose addresses move by one step and are at constant distances.
struct Group {
  struct Member {
    int64_t begin = 0;  // behind the group's start
    int64_t end = 0;
    bool writes = false;
    DebugLoc at;
  };
  const SCEV* start = nullptr;
  const SCEV* step = nullptr;
  SmallVector<Member, 4> members;
};

// Bytes without a gap, and where they are accessed.
struct Part {
  int64_t begin = 0;
  int64_t end = 0;
  DebugLoc at;
  SmallVector<int64_t, MG_RACES_OTHER_LINES> other_lines;  // behind that of `at`

  // Returns whether a report has room for the line, too.
  bool add_line(const DebugLoc& more) {
    if (!at || !more) return !at && !more;
    const int64_t distance = int64_t{more.getLine()} - int64_t{at.getLine()};
    if (distance == 0 || is_contained(other_lines, distance)) return true;
    if (!isInt<16>(distance) || other_lines.size() == MG_RACES_OTHER_LINES) return false;
    other_lines.push_back(distance);
    return true;
  }
  [[nodiscard]] uint64_t packed_lines() const {
    uint64_t packed = 0;
    for (const int64_t distance : llvm::reverse(other_lines)) packed = packed << 16 | static_cast<uint16_t>(distance);
    return packed;
  }
};

bool is_same_function(const DebugLoc& a, const DebugLoc& b) {
  if (!a || !b) return !a && !b;
  return a->getScope()->getSubprogram() == b->getScope()->getSubprogram() && a->getFile() == b->getFile() &&
         a.getInlinedAt() == b.getInlinedAt();
}

// The bytes of all members that do so, in order, in parts that are as long as they can be.
SmallVector<Part, 4> merged(const Group& group, bool writes) {
  SmallVector<Group::Member, 4> members;
  for (const Group::Member& member : group.members)
    if (member.writes == writes) members.push_back(member);
  llvm::stable_sort(members, [](const auto& a, const auto& b) { return a.begin < b.begin; });
  SmallVector<Part, 4> parts;
  for (const Group::Member& member : members) {
    if (!parts.empty() && member.begin <= parts.back().end && parts.back().add_line(member.at))
      parts.back().end = std::max(parts.back().end, member.end);
    else
      parts.push_back({member.begin, member.end, member.at, {}});
  }
  return parts;
}

class RangeTeller {
 public:
  RangeTeller(Function& function, FunctionAnalysisManager& analyses)
      : module_(*function.getParent()),
        layout_(module_.getDataLayout()),
        i64_(Type::getInt64Ty(module_.getContext())),
        loops_(analyses.getResult<LoopAnalysis>(function)),
        dominators_(analyses.getResult<DominatorTreeAnalysis>(function)),
        evolution_(analyses.getResult<ScalarEvolutionAnalysis>(function)),
        assumptions_(analyses.getResult<AssumptionAnalysis>(function)) {}

  bool run() {
    for (Loop* const outermost : loops_)
      is_changed_ |= simplifyLoop(outermost, &dominators_, &loops_, &evolution_, &assumptions_, nullptr, false);
    // Inner loops come first: what they tell may be told before the outer one.
    const SmallVector<Loop*, 4> outer_first = loops_.getLoopsInPreorder();
    for (Loop* const loop : llvm::reverse(outer_first)) at_loop(*loop);
    return is_changed_;
  }

 private:
  // A loop that runs `times_` + 1 times to its end, and in which the thread does not synchronise.
  bool is_regular(const Loop& loop) {
    if (!loop.isLoopSimplifyForm() || loop.getExitingBlock() != loop.getLoopLatch()) return false;
    times_ = evolution_.getBackedgeTakenCount(&loop);
    if (isa<SCEVCouldNotCompute>(times_) || evolution_.getTypeSizeInBits(times_->getType()) > 64) return false;
    times_ = evolution_.getNoopOrZeroExtend(times_, i64_);
    // A call costs what it takes to look at a few addresses.
    if (const unsigned trips = evolution_.getSmallConstantTripCount(&loop); trips != 0 && trips < 4) return false;
    end_ = loop.getLoopPreheader()->getTerminator();
    if (!can_expand(times_)) return false;
    for (const BasicBlock* const block : loop.blocks())
      for (const Instruction& instruction : *block)
        if (!is_quiet(instruction)) return false;
    return true;
  }
  static bool is_quiet(const Instruction& instruction) {
    if (instruction.isAtomic()) return false;
    const auto* const call = dyn_cast<CallBase>(&instruction);
    if (call == nullptr) return !instruction.mayThrow();
    if (isa<DbgInfoIntrinsic>(call) || isa<MemIntrinsic>(call)) return true;
    if (!call->doesNotThrow() || !call->willReturn()) return false;
    return call->doesNotAccessMemory() || call->hasFnAttr(Attribute::NoSync);
  }

  void at_loop(Loop& loop) {
    if (!is_regular(loop)) return;
    SmallVector<Group, 8> groups;
    for (BasicBlock* const block : loop.blocks()) {
      if (loops_.getLoopFor(block) != &loop || !dominators_.dominates(block, loop.getLoopLatch())) continue;
      for (Instruction& instruction : *block) add(instruction, loop, groups);
    }
    for (const Group& group : groups) tell(group);
    for (Told& inner : told_)
      if (inner.call != nullptr && loops_.getLoopFor(inner.call->getParent()) == &loop) move_out(inner, loop);
    append_range(told_, told_now_);
    told_now_.clear();
  }

  void add(Instruction& instruction, const Loop& loop, SmallVectorImpl<Group>& groups) {
    if (auto* const load = dyn_cast<LoadInst>(&instruction); load != nullptr && !load->isSimple()) return;
    if (auto* const store = dyn_cast<StoreInst>(&instruction); store != nullptr && !store->isSimple()) return;
    Value* const pointer = getLoadStorePointerOperand(&instruction);
    if (pointer == nullptr || pointer->getType()->getPointerAddressSpace() != 0) return;
    const TypeSize size = layout_.getTypeStoreSize(getLoadStoreType(&instruction));
    if (size.isScalable() || size.isZero()) return;
    // Locals, and constants, are the business of LLVM's pass.
    const Value* const object = getUnderlyingObject(pointer);
    const auto* const global = dyn_cast<GlobalVariable>(object);
    if (isa<AllocaInst>(object) || (global != nullptr && global->isConstant())) return;
    const SCEV* const address = evolution_.getSCEV(pointer);
    const SCEV* start = address;
    const SCEV* step = evolution_.getZero(i64_);
    if (!evolution_.isLoopInvariant(address, &loop)) {
      const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(address);
      if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return;
      start = recurrence->getStart();
      step = recurrence->getStepRecurrence(evolution_);
    }
    if (!can_expand(start) || !can_expand(step)) return;
    Group::Member member{.begin = 0,
                         .end = static_cast<int64_t>(size.getFixedValue()),
                         .writes = isa<StoreInst>(instruction),
                         .at = instruction.getDebugLoc()};
    Group* const group = group_of(start, step, groups, member);
    group->members.push_back(member);
    instruction.setMetadata(LLVMContext::MD_access_group,
                            uniteAccessGroups(instruction.getMetadata(LLVMContext::MD_access_group), mark_of(module_)));
    is_changed_ = true;
  }

  Group* group_of(const SCEV* start, const SCEV* step, SmallVectorImpl<Group>& groups, Group::Member& member) {
    for (Group& group : groups) {
      if (group.step != step || !is_same_function(group.members.front().at, member.at)) continue;
      const auto* const distance = dyn_cast<SCEVConstant>(evolution_.getMinusSCEV(start, group.start));
      if (distance == nullptr || distance->getAPInt().getSignificantBits() > 20) continue;
      member.begin += distance->getAPInt().getSExtValue();
      member.end += distance->getAPInt().getSExtValue();
      return &group;
    }
    groups.push_back({start, step, {}});
    return &groups.back();
  }

  // A write says all that a read says.
  void tell(const Group& group) {
    const auto writes = merged(group, true);
    for (const Part& part : writes) tell(group, part, true);
    for (const Part& part : merged(group, false))
      if (none_of(writes, [&](const auto& write) { return write.begin <= part.begin && part.end <= write.end; }))
        tell(group, part, false);
  }
  void tell(const Group& group, const Part& part, bool writes) {
    emit(repeated({.begin = evolution_.getAddExpr(group.start, constant(part.begin)),
                   .bytes = constant(part.end - part.begin),
                   .writes = writes,
                   .at = part.at,
                   .other_lines = part.packed_lines(),
                   .guards = {}},
                  group.step));
  }

  // Whether pieces of so many bytes, a step from each other, leave nothing out.
  static bool is_within(const SCEV* step, const SCEV* bytes) {
    const auto* const known_step = dyn_cast<SCEVConstant>(step);
    const auto* const known_bytes = dyn_cast<SCEVConstant>(bytes);
    return known_step != nullptr && known_bytes != nullptr &&
           known_step->getAPInt().abs().ule(known_bytes->getAPInt().getZExtValue());
  }

  // What the loop tells of that tells of these pieces in its first iteration, and `step` bytes further in each one behind.
  Pieces repeated(Pieces pieces, const SCEV* step) {
    if (step->isZero()) return pieces;
    if (is_within(step, pieces.bytes)) {
      const SCEV* const way = evolution_.getMulExpr(step, times_);
      const bool falls = cast<SCEVConstant>(step)->getAPInt().isNegative();
      if (falls) pieces.begin = evolution_.getAddExpr(pieces.begin, way);
      pieces.bytes = evolution_.getAddExpr(pieces.bytes, falls ? evolution_.getNegativeSCEV(way) : way);
      return pieces;
    }
    pieces.stride = step;
    pieces.count = evolution_.getAddExpr(times_, constant(1));
    return pieces;
  }

  // Appends the guards of the loop's block, which all iterations or none of them run; returns false if it is not such a block.
  bool add_guards(const BasicBlock* block, const Loop& loop, SmallVectorImpl<Guard>& guards) {
    while (!dominators_.dominates(block, loop.getLoopLatch())) {
      const BasicBlock* const before = block->getSinglePredecessor();
      if (before == nullptr || loops_.getLoopFor(before) != &loop) return false;
      const auto* const branch = dyn_cast<BranchInst>(before->getTerminator());
      if (branch == nullptr) return false;
      if (branch->isConditional()) guards.push_back({branch->getCondition(), branch->getSuccessor(0) == block});
      block = before;
    }
    return true;
  }

  // What an inner loop tells of, in each iteration of this one, is told before this one.
  void move_out(Told& inner, const Loop& loop) {
    Pieces pieces = inner.pieces;
    if (!add_guards(inner.call->getParent(), loop, pieces.guards)) return;
    for (const Guard& guard : pieces.guards)
      if (!loop.isLoopInvariant(guard.condition)) return;
    const SCEV* step = evolution_.getZero(i64_);
    if (!evolution_.isLoopInvariant(pieces.begin, &loop)) {
      const auto* const recurrence = dyn_cast<SCEVAddRecExpr>(pieces.begin);
      if (recurrence == nullptr || recurrence->getLoop() != &loop || !recurrence->isAffine()) return;
      pieces.begin = recurrence->getStart();
      step = recurrence->getStepRecurrence(evolution_);
      // There is no call for pieces of pieces.
      if (pieces.stride != nullptr && !is_within(step, pieces.bytes)) return;
    }
    for (const SCEV* const part : {pieces.begin, pieces.bytes, pieces.stride, pieces.count, step})
      if (part != nullptr && (!evolution_.isLoopInvariant(part, &loop) || !can_expand(part))) return;
    emit(repeated(pieces, step));
    inner.call->eraseFromParent();
    inner.call = nullptr;
  }

  // Puts the call before the loop.
  void emit(const Pieces& pieces) {
    IRBuilder<> builder(end_);
    builder.SetCurrentDebugLocation(pieces.at);
    SCEVExpander expander(evolution_, layout_, "told");
    SmallVector<Value*, 5> arguments{expander.expandCodeFor(pieces.begin, builder.getPtrTy(), end_)};
    for (const SCEV* const part : {pieces.bytes, pieces.stride, pieces.count})
      if (part != nullptr) arguments.push_back(expander.expandCodeFor(part, i64_, end_));
    // No bytes, or no pieces, are told of.
    for (const Guard& guard : pieces.guards) {
      Value* const nothing = builder.getInt64(0);
      arguments.back() = builder.CreateSelect(guard.condition, guard.is_taken ? arguments.back() : nothing,
                                              guard.is_taken ? nothing : arguments.back());
    }
    StringRef name = pieces.stride == nullptr
                         ? (pieces.writes ? MG_RACES_PREFIX "write_range" : MG_RACES_PREFIX "read_range")
                         : (pieces.writes ? MG_RACES_PREFIX "write_strided" : MG_RACES_PREFIX "read_strided");
    if (pieces.other_lines != 0) {
      name = pieces.writes ? MG_RACES_PREFIX "write_lines" : MG_RACES_PREFIX "read_lines";
      if (pieces.stride == nullptr) arguments.append({builder.getInt64(0), builder.getInt64(1)});
      arguments.push_back(builder.getInt64(pieces.other_lines));
    }
    SmallVector<Type*, 5> types;
    for (const Value* const argument : arguments) types.push_back(argument->getType());
    const FunctionCallee entry =
        module_.getOrInsertFunction(name, FunctionType::get(builder.getVoidTy(), types, false));
    CallInst* const call = builder.CreateCall(entry, arguments);
    // It sees nothing of the program's memory, so it is in no optimisation's way.
    call->setMemoryEffects(MemoryEffects::inaccessibleMemOnly());
    call->addParamAttr(0, Attribute::NoCapture);
    for (const Attribute::AttrKind kind :
         {Attribute::NoUnwind, Attribute::WillReturn, Attribute::NoSync, Attribute::NoFree, Attribute::NoCallback})
      call->addFnAttr(kind);
    told_now_.push_back({call, pieces});
    is_changed_ = true;
  }

  bool can_expand(const SCEV* expression) {
    SCEVExpander expander(evolution_, layout_, "told");
    return expander.isSafeToExpandAt(expression, end_);
  }
  const SCEV* constant(int64_t value) { return evolution_.getConstant(i64_, static_cast<uint64_t>(value), true); }

  Module& module_;
  const DataLayout& layout_;
  Type* const i64_;
  LoopInfo& loops_;
  DominatorTree& dominators_;
  ScalarEvolution& evolution_;
  AssumptionCache& assumptions_;
  // Of the loop that is looked at.
  const SCEV* times_ = nullptr;
  Instruction* end_ = nullptr;  // of its preheader
  SmallVector<Told, 8> told_now_;

  SmallVector<Told, 8> told_;
  bool is_changed_ = false;
};

}  // namespace

bool tell_of_ranges(Function& function, FunctionAnalysisManager& analyses) {
  return RangeTeller(function, analyses).run();
}

bool is_told(const Instruction& access) {
  const NamedMDNode* const named = access.getModule()->getNamedMetadata(kMark);
  const MDNode* const groups = access.getMetadata(LLVMContext::MD_access_group);
  if (named == nullptr || groups == nullptr) return false;
  const MDNode* const mark = named->getOperand(0);
  return groups == mark || is_contained(groups->operands(), mark);
}

}  // namespace multigrain::races
