#include "shared_stack.h"

#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/Local.h>

#include "captures.h"
#include "threads/abi.h"

namespace multigrain::threads {

using namespace llvm;

namespace {

// Between functions the stack pointer is a multiple of this.
constexpr Align kStackAlign = Align::Constant<16>();

// What a function has that concerns the shared stack.
struct Contents {
  explicit Contents(Function& function) {
    for (Argument& argument : function.args())
      if (argument.hasByValAttr() && may_be_reached(argument)) by_value.push_back(&argument);
    bool moves_dynamic = false;
    SmallVector<AllocaInst*, 4> all_dynamic;
    for (Instruction& instruction : instructions(function)) {
      if (auto* const variable = dyn_cast<AllocaInst>(&instruction)) {
        if (variable->isSwiftError() || variable->isUsedWithInAlloca()) continue;
        const bool moves = may_be_reached(*variable);
        if (is_dynamic(*variable)) {
          all_dynamic.push_back(variable);
          moves_dynamic |= moves;
        } else if (moves) {
          fixed.push_back(variable);
        }
      }
      look_at(instruction);
    }
    // The two stacks would need a mark each where a block ends that has variables of both kinds.
    if (moves_dynamic) dynamic = std::move(all_dynamic);
  }
  [[nodiscard]] bool has_variables() const { return !fixed.empty() || !dynamic.empty() || !by_value.empty(); }

  static bool is_dynamic(const AllocaInst& variable) {
    return !variable.isStaticAlloca() || !variable.getAllocationSize(variable.getDataLayout()) ||
           variable.getAllocationSize(variable.getDataLayout())->isScalable();
  }

  SmallVector<AllocaInst*, 8> fixed;    // their sizes are known, and they are made once
  SmallVector<AllocaInst*, 4> dynamic;  // variable-length arrays
  SmallVector<Argument*, 4> by_value;
  SmallVector<Instruction*, 4> returns;  // before these the function gives its part of the stack back
  // Where control comes from functions that did not return: behind these the stack pointer is set again.
  SmallVector<Instruction*, 4> comebacks;
  SmallVector<IntrinsicInst*, 4> marks;  // llvm.stacksave and llvm.stackrestore

 private:
  void look_at(Instruction& instruction) {
    if (isa<ReturnInst>(instruction)) {
      CallInst* const tail = instruction.getParent()->getTerminatingMustTailCall();
      returns.push_back(tail != nullptr ? static_cast<Instruction*>(tail) : &instruction);
    } else if (auto* const pad = dyn_cast<LandingPadInst>(&instruction)) {
      // A pad that only cleans up leads to another one: what it calls may use the stack below.
      if (pad->getNumClauses() > 0) comebacks.push_back(pad);
    } else if (auto* const intrinsic = dyn_cast<IntrinsicInst>(&instruction)) {
      if (intrinsic->getIntrinsicID() == Intrinsic::stacksave || intrinsic->getIntrinsicID() == Intrinsic::stackrestore)
        marks.push_back(intrinsic);
    } else if (auto* const call = dyn_cast<CallInst>(&instruction)) {
      if (call->canReturnTwice()) comebacks.push_back(call);
    }
  }
};

class Mover {
 public:
  Mover(Function& function, Contents& contents)
      : function_(function), contents_(contents), layout_(function.getDataLayout()), debug_(*function.getParent()) {}

  void run() {
    IRBuilder<> builder(&*function_.getEntryBlock().getFirstInsertionPt());
    builder.SetCurrentDebugLocation({});
    pointer_ = builder.CreateThreadLocalAddress(stack_pointer());
    base_ = builder.CreateLoad(builder.getPtrTy(), pointer_, "shared.stack");
    top_ = make_frame(builder);
    if (!contents_.dynamic.empty()) {
      dynamic_top_ = builder.CreateAlloca(builder.getPtrTy(), nullptr, "shared.top");
      builder.CreateStore(top_, dynamic_top_);
      move_dynamic();
    }
    for (Instruction* comeback : contents_.comebacks) {
      IRBuilder<> behind(comeback->getNextNode());
      Value* const top = dynamic_top_ != nullptr ? behind.CreateLoad(behind.getPtrTy(), dynamic_top_, true) : top_;
      behind.CreateStore(top, pointer_);
    }
    if (contents_.has_variables())
      for (Instruction* end : contents_.returns) IRBuilder<>(end).CreateStore(base_, pointer_);
    for (AllocaInst* variable : moved_) variable->eraseFromParent();
    // The function now uses memory of its thread, whatever was known of it before.
    function_.setMemoryEffects(MemoryEffects::unknown());
    function_.removeFnAttr(Attribute::Speculatable);
  }

 private:
  GlobalVariable* stack_pointer() {
    Module& module = *function_.getParent();
    if (GlobalVariable* const known = module.getNamedGlobal(MG_THREADS_STACK_POINTER)) return known;
    return new GlobalVariable(module, PointerType::getUnqual(module.getContext()), false, GlobalValue::ExternalLinkage,
                              nullptr, MG_THREADS_STACK_POINTER, nullptr, GlobalValue::InitialExecTLSModel);
  }

  Value* aligned_down(IRBuilder<>& builder, Value* address, Align align) {
    Constant* const mask = builder.getInt64(~(align.value() - 1));
    return builder.CreateIntrinsic(Intrinsic::ptrmask, {builder.getPtrTy(), builder.getInt64Ty()}, {address, mask});
  }

  // Makes room for the variables whose sizes are known. Returns the stack's new top.
  Value* make_frame(IRBuilder<>& builder) {
    Align most = kStackAlign;
    for (const AllocaInst* variable : contents_.fixed) most = std::max(most, variable->getAlign());
    for (Argument* argument : contents_.by_value) most = std::max(most, align_of(*argument));
    frame_ = most > kStackAlign ? aligned_down(builder, base_, most) : base_;
    // The first variable that moves is at the highest address. Every store is behind the one that lowers the top,
    // because a handler of a signal may use what is below the top.
    uint64_t depth = 0;
    SmallVector<std::pair<Value*, uint64_t>, 8> places;
    const auto add = [&](Value* variable, uint64_t size, Align align) {
      depth = alignTo(depth + std::max<uint64_t>(size, 1), align);
      places.emplace_back(variable, depth);
    };
    for (AllocaInst* variable : contents_.fixed)
      add(variable, variable->getAllocationSize(layout_)->getFixedValue(), variable->getAlign());
    for (Argument* argument : contents_.by_value)
      add(argument, layout_.getTypeAllocSize(argument->getParamByValType()), align_of(*argument));
    Value* top = base_;
    if (depth != 0) {
      top = at(builder, alignTo(depth, kStackAlign));
      builder.CreateStore(top, pointer_);
    }
    for (const auto& [variable, offset] : places) {
      if (auto* const alloca = dyn_cast<AllocaInst>(variable))
        move(builder, *alloca, offset);
      else
        copy(builder, *cast<Argument>(variable), offset);
    }
    return top;
  }

  Value* at(IRBuilder<>& builder, uint64_t offset) {
    return builder.CreatePtrAdd(frame_, builder.getInt64(-static_cast<int64_t>(offset)));
  }
  [[nodiscard]] Align align_of(const Argument& argument) const {
    return std::max(argument.getParamAlign().valueOrOne(), layout_.getABITypeAlign(argument.getParamByValType()));
  }

  void move(IRBuilder<>& builder, AllocaInst& variable, uint64_t offset) {
    Value* const place = at(builder, offset);
    replaceDbgDeclare(&variable, frame_, debug_, DIExpression::ApplyOffset, -static_cast<int>(offset));
    put(variable, place);
  }

  void copy(IRBuilder<>& builder, Argument& argument, uint64_t offset) {
    Value* const place = at(builder, offset);
    place->setName(argument.getName() + ".shared");
    replaceDbgDeclare(&argument, frame_, debug_, DIExpression::ApplyOffset, -static_cast<int>(offset));
    argument.replaceAllUsesWith(place);
    builder.CreateMemCpy(place, align_of(argument), &argument, argument.getParamAlign(),
                         layout_.getTypeAllocSize(argument.getParamByValType()));
  }

  // Puts `place` wherever the variable is used. Marks of its life say nothing about memory that is not on the stack.
  void put(AllocaInst& variable, Value* place) {
    for (User* user : make_early_inc_range(variable.users()))
      if (auto* const intrinsic = dyn_cast<IntrinsicInst>(user);
          intrinsic != nullptr && intrinsic->isLifetimeStartOrEnd())
        intrinsic->eraseFromParent();
    place->takeName(&variable);
    variable.replaceAllUsesWith(place);
    moved_.push_back(&variable);
  }

  void move_dynamic() {
    for (AllocaInst* variable : contents_.dynamic) {
      IRBuilder<> builder(variable);
      Value* const one = builder.getInt64(layout_.getTypeAllocSize(variable->getAllocatedType()));
      Value* const count = builder.CreateZExtOrTrunc(variable->getArraySize(), builder.getInt64Ty());
      Value* const size = builder.CreateNeg(builder.CreateMul(count, one));
      Value* const old = builder.CreateLoad(builder.getPtrTy(), pointer_);
      Value* const place =
          aligned_down(builder, builder.CreatePtrAdd(old, size), std::max(kStackAlign, variable->getAlign()));
      set_top(builder, place);
      replaceDbgDeclare(variable, place, debug_, DIExpression::ApplyOffset, 0);
      put(*variable, place);
    }
    for (IntrinsicInst* mark : contents_.marks) {
      IRBuilder<> builder(mark);
      if (mark->getIntrinsicID() == Intrinsic::stacksave)
        mark->replaceAllUsesWith(builder.CreateLoad(builder.getPtrTy(), pointer_));
      else
        set_top(builder, mark->getArgOperand(0));
      mark->eraseFromParent();
    }
  }
  void set_top(IRBuilder<>& builder, Value* top) {
    builder.CreateStore(top, pointer_);
    builder.CreateStore(top, dynamic_top_, true);
  }

  Function& function_;
  Contents& contents_;
  const DataLayout& layout_;
  DIBuilder debug_;
  Value* pointer_ = nullptr;           // the address of the thread's stack pointer
  Value* base_ = nullptr;              // what it was when the function began
  Value* frame_ = nullptr;             // the same, aligned
  Value* top_ = nullptr;               // below the variables whose sizes are known
  SmallVector<AllocaInst*, 8> moved_;  // those that nothing uses any more
  AllocaInst* dynamic_top_ = nullptr;  // below all variables, where there are some of other sizes
};

}  // namespace

bool move_to_shared_stack(Function& function) {
  if (function.isDeclaration() || function.hasAvailableExternallyLinkage() || function.hasFnAttribute(Attribute::Naked))
    return false;
  Contents contents(function);
  if (!contents.has_variables() && contents.comebacks.empty()) return false;
  Mover(function, contents).run();
  return true;
}

}  // namespace multigrain::threads
