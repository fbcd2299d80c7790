#include "copies.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/Transforms/Scalar/SROA.h>

#include "covered.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

constexpr uint64_t kLargestExpansion = 64;

bool expand(AnyMemIntrinsic& memory) {
  Value* const to = memory.getRawDest();
  auto* const transfer = dyn_cast<AnyMemTransferInst>(&memory);
  auto* const set = dyn_cast<AnyMemSetInst>(&memory);
  if (!may_be_shared(to) && (transfer == nullptr || !may_be_shared(transfer->getRawSource()))) return false;
  const auto* const length = dyn_cast<ConstantInt>(memory.getLength());
  if (length == nullptr || length->getZExtValue() > kLargestExpansion || length->getZExtValue() % 4 != 0) return false;
  const Align to_align = memory.getDestAlign().valueOrOne();
  const Align from_align = transfer != nullptr ? transfer->getSourceAlign().valueOrOne() : Align(16);
  if (to_align < Align(4) || from_align < Align(4)) return false;
  if (set != nullptr && !isa<ConstantInt>(set->getValue())) return false;
  IRBuilder<> builder(&memory);
  struct Part {
    uint64_t offset;
    Type* type;
    Value* value;
  };
  SmallVector<Part, 8> parts;
  for (uint64_t at = 0, bytes = length->getZExtValue(); at < bytes;) {
    const bool wide = bytes - at >= 8;
    parts.push_back({at, wide ? builder.getInt64Ty() : builder.getInt32Ty(), nullptr});
    at += wide ? 8 : 4;
  }
  const bool is_volatile = memory.isVolatile();
  for (Part& part : parts) {
    if (set != nullptr) {
      const APInt byte = cast<ConstantInt>(set->getValue())->getValue();
      part.value = ConstantInt::get(part.type, APInt::getSplat(part.type->getIntegerBitWidth(), byte));
      continue;
    }
    Value* const pointer = builder.CreatePtrAdd(transfer->getRawSource(), builder.getInt64(part.offset));
    part.value = builder.CreateAlignedLoad(part.type, pointer, commonAlignment(from_align, part.offset), is_volatile);
  }
  for (const Part& part : parts) {
    Value* const pointer = builder.CreatePtrAdd(to, builder.getInt64(part.offset));
    builder.CreateAlignedStore(part.value, pointer, commonAlignment(to_align, part.offset), is_volatile);
  }
  memory.eraseFromParent();
  return true;
}

}  // namespace

bool expand_short_copies(Function& function, FunctionAnalysisManager& analyses) {
  if (!options().expand) return false;
  const DenseSet<const Instruction*> covered = covered_by_hazards(function);
  bool changed = false;
  for (Instruction& instruction : make_early_inc_range(instructions(function))) {
    auto* const memory = dyn_cast<AnyMemIntrinsic>(&instruction);
    if (memory != nullptr && !covered.contains(memory)) changed |= expand(*memory);
  }
  if (changed && !function.hasOptNone()) {
    analyses.invalidate(function, PreservedAnalyses::none());
    SROAPass(SROAOptions::PreserveCFG).run(function, analyses);
  }
  return changed;
}

}  // namespace multigrain::checks
