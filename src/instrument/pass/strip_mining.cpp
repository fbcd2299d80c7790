#include "strip_mining.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/Cloning.h>
#include <llvm/Transforms/Utils/ScalarEvolutionExpander.h>

#include "count/pass/cost.h"
#include "loops.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Hazards are published for a bounded time: for this many iterations of the innermost loop at most.
constexpr uint64_t kIterationsOfLoop = 4096;
constexpr uint64_t kIterationsOfNest = 1 << 15;
// The memory that the check of a piece covers must be in proportion to what the piece does: this many bytes for an
// iteration at most. Otherwise the check of a column of a matrix would cover the whole matrix.
constexpr uint64_t kBytesPerIteration = 128;
// The check of one more row costs as much as the check of this many bytes.
constexpr uint64_t kLookOfRow = 128;
constexpr uint64_t kLongestRun = 1 << 20;

// preheader -> ready -> piece -> bounds -> begin -> the copy   -> end ---+-> piece, or the exit
//     \----------------/  \---------\-------\----> the original loop ----/
// A loop whose iterations cannot be counted passes by `ready`, where bounds are computed, and runs as the original loop, which
// keeps its own exit condition then.
class StripMining {
 public:
  StripMining(const LoopAnalyses& analyses, Loop& loop, const Plan& plan)
      : a_(analyses),
        loop_(loop),
        plan_(plan),
        context_(analyses.function.getContext()),
        expander_(analyses.evolution, analyses.layout, "multigrain"),
        preheader_(loop.getLoopPreheader()),
        header_(loop.getHeader()),
        latch_(loop.getLoopLatch()),
        exit_(loop.getUniqueExitBlock()),
        before_(preheader_->getTerminator()),
        is_nest_(!plan.inner.empty()),
        location_(loop.getStartLoc()),
        builder_(before_) {}

  bool build() {
    if (!is_computable()) return false;
    check_conditions();
    find_longest_piece();
    find_ends();
    create_blocks();
    copy_loop();
    begin_pieces();
    find_bounds();
    publish_hazards();
    run_both_forms();
    end_pieces();
    mark_loops();
    return true;
  }

 private:
  // The address of a run's first or last byte, as a linear function of the iterations. Its parts are computed once,
  // before the pieces.
  struct End {
    Value* start;
    Value* step;  // null: the address is the same in all iterations
    bool rises, falls;
  };
  struct Ends {
    SmallVector<End, 4> least, greatest;
    Value* stride = nullptr;
    Value* rows = nullptr;
  };

  // Tells whether all expressions of the plan can be computed before the loop.
  bool is_computable() {
    SmallVector<const SCEV*> needed = {count(a_, loop_)->back_edges};
    for (const LoopRun& run : plan_.runs) {
      for (const SCEV* end : concat<const SCEV* const>(run.least, run.greatest)) {
        const auto* const recurrence = as_recurrence(a_, end, loop_);
        needed.push_back(recurrence != nullptr ? recurrence->getStart() : end);
        if (recurrence != nullptr) needed.push_back(recurrence->getStepRecurrence(a_.evolution));
      }
      if (run.stride != nullptr) needed.push_back(run.stride);
      if (run.rows != nullptr) needed.push_back(run.rows);
    }
    for (const auto& product : plan_.inner) needed.append(product.begin(), product.end());
    for (const Condition& condition : plan_.conditions) needed.append({condition.left, condition.right});
    for (const SCEV* expression : needed) {
      if (expander_.isSafeToExpandAt(expression, before_) || divides_as_before(expression, *before_)) continue;
      if (options().explain)
        errs() << "multigrain: " << a_.function.getName() << ": cannot compute " << *expression << '\n';
      return false;
    }
    return true;
  }

  // Tells whether only divisions keep an expression from being computed before the loop, and the program has divided by
  // the same numbers on the way there. Then these are not 0.
  bool divides_as_before(const SCEV* expression, const Instruction& before) {
    if (!a_.evolution.dominates(expression, before.getParent())) return false;
    SmallPtrSet<const SCEV*, 8> divisors;
    for (const BasicBlock& block : a_.function) {
      if (!a_.dominators.dominates(&block, before.getParent())) continue;
      for (const Instruction& instruction : block)
        if (instruction.getOpcode() == Instruction::UDiv || instruction.getOpcode() == Instruction::URem)
          divisors.insert(a_.evolution.getSCEV(instruction.getOperand(1)));
    }
    return !llvm::SCEVExprContains(expression, [&](const SCEV* part) {
      if (const auto* recurrence = dyn_cast<SCEVAddRecExpr>(part)) return !recurrence->isAffine();
      const auto* const division = dyn_cast<SCEVUDivExpr>(part);
      return division != nullptr && !a_.evolution.isKnownNonZero(division->getRHS()) &&
             !divisors.contains(division->getRHS());
    });
  }

  Value* value_before(const SCEV* expression) {
    Type* const type = expression->getType()->isPointerTy() ? a_.i64 : expression->getType();
    return expander_.expandCodeFor(expression, type, before_);
  }
  // Computes the expression in `ready`.
  Value* value(const SCEV* expression) { return expander_.expandCodeFor(expression, a_.i64, end_of_ready_); }

  // Computes whether the iterations can be counted, and are worth the hazards.
  void check_conditions() {
    builder_.SetCurrentDebugLocation(location_);
    const auto also = [&](Value* condition) {
      possible_ = possible_ == nullptr ? condition : builder_.CreateLogicalAnd(possible_, condition);
    };
    for (const Condition& condition : plan_.conditions) {
      Value* const left = value_before(condition.left);
      also(builder_.CreateICmp(condition.predicate, left, value_before(condition.right)));
    }
    const SCEV* const times = count(a_, loop_)->back_edges;
    Value* const back_edges = value_before(times);
    total_ = builder_.CreateAdd(back_edges, builder_.getInt64(1), "multigrain.total");
    // The sum is 0 for the greatest number. Where conditions are looked at anyway, a short loop also passes by `ready`.
    const bool may_be_greatest =
        a_.evolution.getUnsignedRangeMax(a_.evolution.applyLoopGuards(times, &loop_)).isMaxValue();
    if (!is_nest_ && (possible_ != nullptr || may_be_greatest))
      also(builder_.CreateICmpUGE(total_, builder_.getInt64(plan_.stores ? kWorthStores : kWorthLoads)));
  }

  // Computes how many iterations a piece has at most.
  void find_longest_piece() {
    ready_ = SplitEdge(preheader_, header_, &a_.dominators, &a_.loops);
    end_of_ready_ = ready_->getTerminator();
    builder_.SetInsertPoint(end_of_ready_);
    builder_.SetCurrentDebugLocation(location_);
    for (const auto& product : plan_.inner) {
      Value* count = nullptr;
      for (const SCEV* factor : product) {
        // The bound keeps the product small. The count of a loop without iterations, which wraps around, is huge, too.
        Value* const bounded =
            builder_.CreateBinaryIntrinsic(Intrinsic::umin, value(factor), builder_.getInt64(1 << 18));
        count = count == nullptr ? bounded : builder_.CreateMul(count, bounded);
      }
      inner_ = inner_ == nullptr ? count : builder_.CreateAdd(inner_, count);
    }
    const uint64_t limit = is_nest_ ? kIterationsOfNest : kIterationsOfLoop;
    longest_ = builder_.getInt64(limit);
    if (is_nest_) {
      inner_ = builder_.CreateBinaryIntrinsic(Intrinsic::umax, inner_, builder_.getInt64(1));
      longest_ =
          builder_.CreateBinaryIntrinsic(Intrinsic::umax, builder_.CreateUDiv(longest_, inner_), builder_.getInt64(1));
    }
  }

  End end_of(const SCEV* expression) {
    const auto* const recurrence = as_recurrence(a_, expression, loop_);
    if (recurrence == nullptr) return {value(expression), nullptr, false, false};
    const SCEV* const step = recurrence->getStepRecurrence(a_.evolution);
    const bool rises = a_.evolution.isKnownNonNegative(step);
    return {value(recurrence->getStart()), value(step), rises, !rises && a_.evolution.isKnownNonPositive(step)};
  }

  void find_ends() {
    for (const LoopRun& run : plan_.runs) {
      Ends of_run;
      for (const SCEV* expression : run.least) of_run.least.push_back(end_of(expression));
      for (const SCEV* expression : run.greatest) of_run.greatest.push_back(end_of(expression));
      if (run.stride != nullptr) of_run.stride = value(run.stride);
      if (run.rows != nullptr) of_run.rows = value(run.rows);
      ends_.push_back(of_run);
    }
  }

  // From here on LLVM's analyses are out of date.
  void create_blocks() {
    piece_ = BasicBlock::Create(context_, "multigrain.piece", &a_.function, header_);
    bounds_of_piece_ = BasicBlock::Create(context_, "multigrain.bounds", &a_.function, header_);
    begin_batch_ = BasicBlock::Create(context_, "multigrain.open", &a_.function, header_);
    fast_entry_ = BasicBlock::Create(context_, "multigrain.fast", &a_.function, header_);
    slow_entry_ = BasicBlock::Create(context_, "multigrain.slow", &a_.function, header_);
    fast_exit_ = BasicBlock::Create(context_, "multigrain.fast.end", &a_.function, exit_);
    slow_exit_ = BasicBlock::Create(context_, "multigrain.slow.end", &a_.function, exit_);
    piece_end_ = BasicBlock::Create(context_, "multigrain.piece.end", &a_.function, exit_);
  }

  void copy_loop() {
    SmallVector<BasicBlock*, 8> copies;
    for (BasicBlock* block : loop_.blocks()) {
      BasicBlock* const copy = CloneBasicBlock(block, map_, ".multigrain", &a_.function);
      map_[block] = copy;
      copies.push_back(copy);
    }
    map_[ready_] = fast_entry_;
    map_[exit_] = fast_exit_;
    remapInstructionsInBlocks(copies, map_);
    for (BasicBlock* block : copies) block->moveBefore(slow_entry_);
    fast_header_ = cast<BasicBlock>(&*map_[header_]);
    fast_latch_ = cast<BasicBlock>(&*map_[latch_]);
  }

  Value* in_copy(Value* original) {
    const auto found = map_.find(original);
    return found == map_.end() ? original : &*found->second;
  }

  // Makes a phi node for a value at the beginning of a piece.
  PHINode* at_begin(Type* type, Value* from_ready, Value* otherwise, const Twine& name = "") {
    PHINode* const phi = builder_.CreatePHI(type, 3, name);
    phi->addIncoming(from_ready, ready_);
    if (possible_ != nullptr) phi->addIncoming(otherwise, preheader_);
    return phi;
  }

  // Brings a value that was computed in `ready` to the beginning of a piece. It is poison if `ready` was passed by,
  // and not used then.
  void take_from_ready(Value*& one) {
    auto* const instruction = dyn_cast_or_null<Instruction>(one);
    if (possible_ == nullptr || instruction == nullptr || instruction->getParent() != ready_) return;
    PHINode* const phi = at_begin(one->getType(), one, PoisonValue::get(one->getType()));
    phi->addIncoming(phi, piece_end_);
    one = phi;
  }

  void begin_pieces() {
    // The weights tell the compiler to keep registers for the copy, above all.
    mostly_ = MDBuilder(context_).createBranchWeights(1 << 10, 1);
    end_of_ready_->replaceSuccessorWith(header_, piece_);
    if (possible_ != nullptr) {
      preheader_->getTerminator()->eraseFromParent();
      builder_.SetInsertPoint(preheader_);
      builder_.CreateCondBr(possible_, ready_, piece_, mostly_);
    }
    builder_.SetInsertPoint(piece_);
    done_ = at_begin(a_.i64, builder_.getInt64(0), builder_.getInt64(0), "multigrain.done");
    for (PHINode& phi : header_->phis()) {
      Value* const first = phi.getIncomingValueForBlock(ready_);
      carried_.push_back({&phi, at_begin(phi.getType(), first, first)});
    }
    take_from_ready(inner_);
    take_from_ready(longest_);
    for (Ends& of_run : ends_) {
      take_from_ready(of_run.stride);
      take_from_ready(of_run.rows);
      for (SmallVector<End, 4>* side : {&of_run.least, &of_run.greatest}) {
        for (End& end : *side) {
          take_from_ready(end.start);
          take_from_ready(end.step);
        }
      }
    }
    if (possible_ != nullptr) {
      is_ready_ = at_begin(builder_.getInt1Ty(), builder_.getTrue(), builder_.getFalse());
      is_ready_->addIncoming(builder_.getTrue(), piece_end_);
    }
    length_ = builder_.CreateBinaryIntrinsic(Intrinsic::umin, builder_.CreateSub(total_, done_), longest_);
    if (is_ready_ != nullptr) length_ = builder_.CreateSelect(is_ready_, length_, builder_.getInt64(UINT64_MAX));
    iterations_ = inner_ == nullptr ? length_ : builder_.CreateMul(length_, inner_);
    Value* enough = builder_.CreateICmpUGE(iterations_, builder_.getInt64(plan_.stores ? kWorthStores : kWorthLoads));
    if (is_ready_ != nullptr) enough = builder_.CreateLogicalAnd(is_ready_, enough);
    builder_.CreateCondBr(enough, bounds_of_piece_, slow_entry_, mostly_);
  }

  // Computes the bounds of a piece's runs, and whether the piece is worth their check.
  void find_bounds() {
    builder_.SetInsertPoint(bounds_of_piece_);
    further_ = builder_.CreateSub(length_, builder_.getInt64(1));
    const bool certainly_worth = is_certainly_worth();
    Value* bytes = nullptr;
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      const LoopRun& run = plan_.runs[i];
      Value* begin =
          builder_.CreateAdd(extreme(run, ends_[i].least, true), builder_.getInt64(static_cast<uint64_t>(run.begin)));
      Value* end =
          builder_.CreateAdd(extreme(run, ends_[i].greatest, false), builder_.getInt64(static_cast<uint64_t>(run.end)));
      bounds_.push_back({begin, end});
      if (certainly_worth) continue;
      Value* const span = builder_.CreateSub(end, begin);
      // The test also fails for a loop without iterations, whose end is before its beginning.
      and_also(builder_.CreateICmpULE(span, builder_.getInt64(kLongestRun)));
      Value* looked_at = span;
      if (run.stride != nullptr) looked_at = look_at_rows(run, ends_[i], span, begin, end);
      bounds_.back() = {begin, end};
      bytes = bytes == nullptr ? looked_at : builder_.CreateAdd(bytes, looked_at);
    }
    if (certainly_worth) {
      builder_.CreateBr(begin_batch_);
      return;
    }
    and_also(builder_.CreateICmpULE(bytes, builder_.CreateMul(iterations_, builder_.getInt64(kBytesPerIteration))));
    if (inner_ != nullptr) and_also(builder_.CreateICmpULE(iterations_, builder_.getInt64(kIterationsOfNest)));
    builder_.CreateCondBr(worth_, begin_batch_, slow_entry_, mostly_);
  }

  // Tells whether a piece of any length is worth its check: each run moves by a constant distance from one iteration to the
  // next, and all runs together by no more than the bytes that may be checked for an iteration.
  bool is_certainly_worth() const {
    if (is_nest_) return false;
    static_assert(kIterationsOfLoop * kBytesPerIteration <= kLongestRun);
    uint64_t moves = 0, bytes = 0;
    for (const LoopRun& run : plan_.runs) {
      bytes += static_cast<uint64_t>(run.end - run.begin);
      const auto* const recurrence = as_recurrence(a_, run.address, loop_);
      if (recurrence == nullptr) continue;
      const auto* const step = dyn_cast<SCEVConstant>(recurrence->getStepRecurrence(a_.evolution));
      if (step == nullptr || step->getAPInt().abs().ugt(kBytesPerIteration)) return false;
      moves += step->getAPInt().abs().getZExtValue();
    }
    return moves <= kBytesPerIteration && bytes <= kBytesPerIteration;
  }

  void and_also(Value* condition) { worth_ = worth_ == nullptr ? condition : builder_.CreateAnd(worth_, condition); }

  // Computes the least or the greatest of the candidates in the piece.
  Value* extreme(const LoopRun& run, ArrayRef<End> candidates, bool low) {
    Value* result = nullptr;
    const auto consider = [&](Value* candidate) {
      result = result == nullptr
                   ? candidate
                   : builder_.CreateBinaryIntrinsic(low ? Intrinsic::umin : Intrinsic::umax, result, candidate);
    };
    for (const End& end : candidates) {
      if (end.step == nullptr) {
        consider(end.start);
        continue;
      }
      Value* const first = builder_.CreateAdd(end.start, builder_.CreateMul(end.step, done_));
      if (run.stride != nullptr && run.rows == nullptr) {
        consider(first);
        continue;
      }
      if (!(low ? end.falls : end.rises)) consider(first);
      if (!(low ? end.rises : end.falls)) consider(builder_.CreateAdd(first, builder_.CreateMul(end.step, further_)));
    }
    return result;
  }

  // Computes how many bytes the check of a run with rows covers. Changes the run's bounds if the run is
  // checked as one row.
  Value* look_at_rows(const LoopRun& run, Ends& of_run, Value* span, Value*& begin, Value*& end) {
    Value*& rows = of_run.rows;
    if (run.rows == nullptr) rows = length_;
    Value* const before_last = builder_.CreateSub(rows, builder_.getInt64(1));
    and_also(builder_.CreateICmpULT(before_last, builder_.getInt64(kIterationsOfNest)));
    // The run is checked row by row, or as all memory from the first row to the last, whichever is less.
    Value* const each = builder_.CreateMul(builder_.CreateAdd(span, builder_.getInt64(kLookOfRow)), rows);
    Value* const way = builder_.CreateMul(of_run.stride, before_last);
    Value* const falls = builder_.CreateICmpSLT(way, builder_.getInt64(0));
    Value* const all = builder_.CreateAdd(span, builder_.CreateSelect(falls, builder_.CreateNeg(way), way));
    Value* const as_one = builder_.CreateICmpULE(all, each);
    Value* const nothing = builder_.getInt64(0);
    begin = builder_.CreateAdd(begin, builder_.CreateSelect(builder_.CreateAnd(as_one, falls), way, nothing));
    end = builder_.CreateAdd(
        end, builder_.CreateSelect(builder_.CreateAnd(as_one, builder_.CreateNot(falls)), way, nothing));
    rows = builder_.CreateSelect(as_one, builder_.getInt64(1), rows);
    Value* const looked_at = builder_.CreateSelect(as_one, all, each);
    and_also(builder_.CreateICmpULE(looked_at, builder_.getInt64(kLongestRun)));
    return looked_at;
  }

  void publish_hazards() {
    builder_.SetInsertPoint(begin_batch_);
    IRBuilder<> entry(&*a_.function.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    AllocaInst* const table = entry.CreateAlloca(ArrayType::get(a_.i64, kWordsOfRun * plan_.runs.size()));
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      const auto put = [&](uint64_t member, Value* number) {
        builder_.CreateStore(number, builder_.CreatePtrAdd(table, builder_.getInt64(8 * (kWordsOfRun * i + member))));
      };
      put(0, bounds_[i].first);
      put(1, bounds_[i].second);
      put(2, builder_.getInt64(plan_.runs[i].stores ? 1 : 0));
      put(3, ends_[i].rows != nullptr ? ends_[i].stride : builder_.getInt64(0));
      put(4, ends_[i].rows != nullptr ? ends_[i].rows : builder_.getInt64(1));
    }
    Module& module = *a_.function.getParent();
    CallInst* const begun = builder_.CreateCall(
        module.getOrInsertFunction(kBatchBegin, builder_.getInt32Ty(), builder_.getPtrTy(), builder_.getInt32Ty()),
        {table, builder_.getInt32(count_for_runtime(plan_.runs.size()))});
    builder_.CreateCondBr(builder_.CreateICmpNE(begun, builder_.getInt32(0)), fast_entry_, slow_entry_, mostly_);
  }

  // Both forms of the loop count the piece's iterations. The copy has no other exit condition; the original loop
  // keeps its own as well.
  void count_piece(BasicBlock* from, BasicBlock* first, BasicBlock* last, BasicBlock* to) {
    builder_.SetInsertPoint(from);
    builder_.CreateBr(first);
    auto* const branch = cast<BranchInst>(last->getTerminator());
    builder_.SetInsertPoint(first, first->begin());
    PHINode* const counter = builder_.CreatePHI(a_.i64, 2, "multigrain.count");
    builder_.SetInsertPoint(branch);
    Value* const next = builder_.CreateAdd(counter, builder_.getInt64(1), "", true, true);
    counter->addIncoming(builder_.getInt64(0), from);
    counter->addIncoming(next, last);
    Value* more = builder_.CreateICmpULT(next, length_);
    if (first == header_ && is_ready_ != nullptr) {
      Value* const condition = branch->getCondition();
      more = builder_.CreateAnd(more, branch->getSuccessor(0) == header_ ? condition : builder_.CreateNot(condition));
    }
    BranchInst* const again = builder_.CreateCondBr(more, first, to);
    again->setMetadata(count::kOfProgram, MDNode::get(context_, {}));
    again->copyMetadata(*branch, {LLVMContext::MD_loop});
    again->setDebugLoc(branch->getDebugLoc());
    branch->eraseFromParent();
  }

  void run_both_forms() {
    for (auto& [phi, outer] : carried_) {
      auto* const copy = cast<PHINode>(&*map_[phi]);
      for (auto& [one, from] : {std::pair{phi, slow_entry_}, std::pair{copy, fast_entry_}}) {
        const int at = one->getBasicBlockIndex(one == phi ? ready_ : fast_entry_);
        one->setIncomingValue(static_cast<unsigned>(at), outer);
        one->setIncomingBlock(static_cast<unsigned>(at), from);
      }
    }
    count_piece(slow_entry_, header_, latch_, slow_exit_);
    count_piece(fast_entry_, fast_header_, fast_latch_, fast_exit_);
    builder_.SetInsertPoint(fast_exit_);
    Module& module = *a_.function.getParent();
    builder_.CreateCall(module.getOrInsertFunction(kBatchEnd, builder_.getVoidTy(), builder_.getInt32Ty(), a_.i64),
                        {builder_.getInt32(static_cast<uint32_t>(plan_.runs.size())), iterations_});
    builder_.CreateBr(piece_end_);
    builder_.SetInsertPoint(slow_exit_);
    builder_.CreateBr(piece_end_);
  }

  // Returns the value that a value of the loop has behind both forms.
  Value* join(Value* original) {
    auto* const instruction = dyn_cast<Instruction>(original);
    if (instruction == nullptr || !loop_.contains(instruction)) return original;
    PHINode* const result = PHINode::Create(original->getType(), 2, "", piece_end_->begin());
    // The value goes through a phi node in each loop's exit block, so that the loops stay in LCSSA form.
    const auto through = [&](Value* from, BasicBlock* block, BasicBlock* last) {
      PHINode* const phi = PHINode::Create(from->getType(), 1, "", block->begin());
      phi->addIncoming(from, last);
      result->addIncoming(phi, block);
    };
    through(in_copy(original), fast_exit_, fast_latch_);
    through(original, slow_exit_, latch_);
    return result;
  }

  // Connects the values that go on into the next piece, and those that are used behind the loop.
  void end_pieces() {
    builder_.SetInsertPoint(piece_end_);
    for (auto& [phi, outer] : carried_) outer->addIncoming(join(phi->getIncomingValueForBlock(latch_)), piece_end_);
    for (PHINode& phi : exit_->phis()) {
      const int at = phi.getBasicBlockIndex(latch_);
      phi.setIncomingValue(static_cast<unsigned>(at), join(phi.getIncomingValue(static_cast<unsigned>(at))));
      phi.setIncomingBlock(static_cast<unsigned>(at), piece_end_);
    }
    Value* const now = builder_.CreateAdd(done_, length_);
    done_->addIncoming(now, piece_end_);
    Value* more = builder_.CreateICmpULT(now, total_);
    if (is_ready_ != nullptr) more = builder_.CreateLogicalAnd(is_ready_, more);
    next_piece_ = builder_.CreateCondBr(more, piece_, exit_);
  }

  void mark_loops() {
    // Neither form, nor the loop around the pieces, is handled again by guard_loops(). The inner loops of the
    // original loop are.
    mark(*next_piece_, {});
    mark(*latch_->getTerminator(),
         loop_.isInnermost() ? ArrayRef<const char*>({"llvm.loop.vectorize.width", "llvm.loop.unroll.disable"})
                             : ArrayRef<const char*>());
    for (Loop* inside : loop_.getLoopsInPreorder()) {
      auto* const copied_latch = cast<BasicBlock>(&*map_[inside->getLoopLatch()]);
      mark(*copied_latch->getTerminator(), {});
    }
  }

  void mark(Instruction& branch, ArrayRef<const char*> also) {
    LLVMContext& context = branch.getContext();
    SmallVector<Metadata*, 6> operands = {nullptr};
    if (MDNode* const old = branch.getMetadata(LLVMContext::MD_loop))
      operands.append(old->op_begin() + 1, old->op_end());
    operands.push_back(MDNode::get(context, MDString::get(context, kGuardedLoop)));
    for (const char* name : also) {
      SmallVector<Metadata*, 2> option = {MDString::get(context, name)};
      if (StringRef(name).ends_with(".width"))
        option.push_back(ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(context), 1)));
      operands.push_back(MDNode::get(context, option));
    }
    MDNode* const id = MDNode::getDistinct(context, operands);
    id->replaceOperandWith(0, id);
    branch.setMetadata(LLVMContext::MD_loop, id);
  }

  const LoopAnalyses& a_;
  Loop& loop_;
  const Plan& plan_;
  LLVMContext& context_;
  SCEVExpander expander_;
  BasicBlock* const preheader_;
  BasicBlock* const header_;
  BasicBlock* const latch_;
  BasicBlock* const exit_;
  Instruction* const before_;
  const bool is_nest_;
  const DebugLoc location_;
  IRBuilder<> builder_;
  Value* possible_ = nullptr;  // null: it is possible without conditions
  Value* total_ = nullptr;     // iterations of the loop
  BasicBlock* ready_ = nullptr;
  Instruction* end_of_ready_ = nullptr;
  Value* inner_ = nullptr;    // a nest's innermost iterations in one iteration of the loop
  Value* longest_ = nullptr;  // iterations of a piece
  SmallVector<Ends, MG_FINE_HAZARDS> ends_;
  BasicBlock* piece_ = nullptr;
  BasicBlock* bounds_of_piece_ = nullptr;
  BasicBlock* begin_batch_ = nullptr;
  BasicBlock* fast_entry_ = nullptr;
  BasicBlock* slow_entry_ = nullptr;
  BasicBlock* fast_exit_ = nullptr;
  BasicBlock* slow_exit_ = nullptr;
  BasicBlock* piece_end_ = nullptr;
  ValueToValueMapTy map_;
  BasicBlock* fast_header_ = nullptr;
  BasicBlock* fast_latch_ = nullptr;
  MDNode* mostly_ = nullptr;
  PHINode* done_ = nullptr;                                // iterations before the piece
  SmallVector<std::pair<PHINode*, PHINode*>, 8> carried_;  // the header's phi nodes and the piece's
  PHINode* is_ready_ = nullptr;
  Value* length_ = nullptr;      // iterations of the piece
  Value* further_ = nullptr;     // all but the first
  Value* iterations_ = nullptr;  // innermost iterations in the piece
  Value* worth_ = nullptr;
  SmallVector<std::pair<Value*, Value*>, MG_FINE_HAZARDS> bounds_;
  BranchInst* next_piece_ = nullptr;
};

}  // namespace

bool strip_mine(const LoopAnalyses& analyses, Loop& loop, const Plan& plan) {
  return StripMining(analyses, loop, plan).build();
}

}  // namespace multigrain::checks
