#include "known.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <cstddef>

#include "races/compiled/abi.h"

namespace multigrain::races {

using namespace llvm;

namespace {

constexpr uint64_t kLineBytes = 64;
static_assert(sizeof(mg_race_recent_line) == kLineBytes / 2);

struct Access {
  CallInst* call = nullptr;
  bool writes = false;
  unsigned bytes = 0;
};

// Returns what a call tells of, if it is one access of 1, 2, 4, 8 or 16 bytes at an address that is aligned to 8 or to its size.
Access access_of(Instruction& instruction) {
  auto* const call = dyn_cast<CallInst>(&instruction);
  if (call == nullptr || call->getCalledFunction() == nullptr || call->arg_size() != 1) return {};
  StringRef name = call->getCalledFunction()->getName();
  if (!name.consume_front(MG_RACES_PREFIX)) return {};
  Access access{.call = call, .writes = name.consume_front("write")};
  if ((!access.writes && !name.consume_front("read")) || name.getAsInteger(10, access.bytes)) return {};
  return access;
}

class Looker {
 public:
  explicit Looker(Function& function)
      : module_(*function.getParent()),
        builder_(&*function.getEntryBlock().getFirstNonPHIOrDbgOrAlloca()),
        weights_(MDBuilder(module_.getContext()).createUnlikelyBranchWeights()) {
    builder_.SetCurrentDebugLocation({});
    constexpr const char* kName = "__multigrain_race_recent";
    GlobalVariable* recent = module_.getGlobalVariable(kName);
    if (recent == nullptr)
      recent = new GlobalVariable(module_, builder_.getPtrTy(), false, GlobalValue::ExternalLinkage, nullptr, kName,
                                  nullptr, GlobalValue::InitialExecTLSModel);
    lines_ = builder_.CreateLoad(builder_.getPtrTy(), builder_.CreateThreadLocalAddress(recent));
  }

  void at(const Access& access) {
    builder_.SetInsertPoint(access.call);
    builder_.SetCurrentDebugLocation(access.call->getDebugLoc());
    Value* const address = builder_.CreatePtrToInt(access.call->getArgOperand(0), builder_.getInt64Ty());
    // An entry of the table has half as many bytes as a line.
    constexpr uint64_t kOffsets = (MG_RACES_RECENT_LINES - 1) * sizeof(mg_race_recent_line);
    Value* const folded = builder_.CreateXor(address, builder_.CreateLShr(address, MG_RACES_RECENT_FOLD));
    Value* const offset = builder_.CreateAnd(builder_.CreateLShr(folded, 1), kOffsets);
    Value* const entry = builder_.CreateGEP(builder_.getInt8Ty(), lines_, offset);
    Value* const line = load(builder_.getInt64Ty(), entry, offsetof(mg_race_recent_line, address));
    Value* const is_line = builder_.CreateICmpEQ(line, builder_.CreateAnd(address, ~(kLineBytes - 1)));
    Value* const is_known = builder_.CreateAnd(is_line, are_known(address, entry, access));
    Instruction* const unknown =
        SplitBlockAndInsertIfThen(builder_.CreateNot(is_known), access.call->getIterator(), false, weights_);
    access.call->moveBefore(unknown);
  }

 private:
  Value* load(Type* type, Value* base, uint64_t offset) {
    Value* const at = builder_.CreateConstGEP1_64(builder_.getInt8Ty(), base, offset);
    return builder_.CreateAlignedLoad(type, at, Align(type->isIntegerTy(64) ? 8 : 1));
  }

  // Whether the bits of all of the access's bytes are set. Where an access of 16 bytes goes on in the next line, bytes of the
  // member behind are looked at: the address, of which the first byte is no 0xff, or zero.
  Value* are_known(Value* address, Value* entry, const Access& access) {
    const uint64_t member =
        access.writes ? offsetof(mg_race_recent_line, written) : offsetof(mg_race_recent_line, read);
    if (access.bytes >= 8) {
      Value* const word = builder_.CreateAnd(builder_.CreateLShr(address, 3), kLineBytes / 8 - 1);
      Type* const type = builder_.getIntNTy(access.bytes);
      return builder_.CreateICmpEQ(load(type, builder_.CreateGEP(builder_.getInt8Ty(), entry, word), member),
                                   Constant::getAllOnesValue(type));
    }
    Value* const bits = load(builder_.getInt64Ty(), entry, member);
    const uint64_t all = (uint64_t{1} << access.bytes) - 1;
    Value* const shifted = builder_.CreateLShr(bits, builder_.CreateAnd(address, kLineBytes - 1));
    return builder_.CreateICmpEQ(builder_.CreateAnd(shifted, all), builder_.getInt64(all));
  }
  static_assert(offsetof(mg_race_recent_line, address) == offsetof(mg_race_recent_line, read) + 8 &&
                offsetof(mg_race_recent_line, zero) == offsetof(mg_race_recent_line, written) + 8);

  Module& module_;
  IRBuilder<> builder_;
  MDNode* const weights_;
  Value* lines_ = nullptr;
};

}  // namespace

void look_before_calls(Function& function) {
  if (function.hasOptNone()) return;
  SmallVector<Access> accesses;
  for (Instruction& instruction : instructions(function))
    if (const Access access = access_of(instruction); access.call != nullptr) accesses.push_back(access);
  if (accesses.empty()) return;
  Looker looker(function);
  for (const Access& access : accesses) looker.at(access);
}

}  // namespace multigrain::races
