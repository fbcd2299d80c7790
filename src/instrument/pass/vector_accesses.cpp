#include "vector_accesses.h"

#include <llvm/IR/IRBuilder.h>

#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

Align natural(const FixedVectorType& type) {
  return Align(std::max(1u, type.getScalarSizeInBits() / 8));
}

// Returns the mask as a bit for each lane. The mask has that form already, or its bits are the sign bits
// of a vector's lanes.
Value* bits_of(IRBuilder<>& builder, Value* mask) {
  auto* const type = cast<FixedVectorType>(mask->getType());
  if (type->getElementType()->isIntegerTy(1)) return mask;
  auto* const integers = FixedVectorType::getInteger(type);
  return builder.CreateICmpSLT(builder.CreateBitCast(mask, integers), Constant::getNullValue(integers));
}

Value* first_lanes(IRBuilder<>& builder, Value* vector, unsigned lanes) {
  if (cast<FixedVectorType>(vector->getType())->getNumElements() == lanes) return vector;
  SmallVector<int, 16> which;
  for (unsigned i = 0; i < lanes; ++i) which.push_back(static_cast<int>(i));
  return builder.CreateShuffleVector(vector, which);
}

// Computes base + index * scale for each lane.
Value* addresses(IRBuilder<>& builder, Value* base, Value* indices, Value* scale) {
  const unsigned lanes = cast<FixedVectorType>(indices->getType())->getNumElements();
  auto* const numbers = FixedVectorType::get(builder.getInt64Ty(), lanes);
  Value* const wide = builder.CreateSExt(indices, numbers);
  Value* const by = builder.CreateVectorSplat(lanes, builder.CreateZExt(scale, builder.getInt64Ty()));
  return builder.CreateGEP(builder.getInt8Ty(), base, builder.CreateMul(wide, by));
}

// The intrinsic's arguments are: the values of lanes that are not loaded, base, indices, mask, scale.
Instruction* gather(IntrinsicInst& intrinsic) {
  IRBuilder<> builder(&intrinsic);
  auto* const type = cast<FixedVectorType>(intrinsic.getType());
  Value* const indices = intrinsic.getArgOperand(2);
  const unsigned lanes = std::min(type->getNumElements(), cast<FixedVectorType>(indices->getType())->getNumElements());
  auto* const used = FixedVectorType::get(type->getElementType(), lanes);
  Value* const pointers =
      addresses(builder, intrinsic.getArgOperand(1), first_lanes(builder, indices, lanes), intrinsic.getArgOperand(4));
  Value* const mask = first_lanes(builder, bits_of(builder, intrinsic.getArgOperand(3)), lanes);
  CallInst* const gathered = builder.CreateMaskedGather(used, pointers, natural(*used), mask,
                                                        first_lanes(builder, intrinsic.getArgOperand(0), lanes));
  Value* whole = gathered;
  if (lanes != type->getNumElements()) {  // the other lanes become 0
    SmallVector<int, 16> which;
    for (unsigned i = 0; i < type->getNumElements(); ++i) which.push_back(static_cast<int>(std::min(i, lanes)));
    whole = builder.CreateShuffleVector(gathered, Constant::getNullValue(used), which);
  }
  intrinsic.replaceAllUsesWith(whole);
  return gathered;
}

// The intrinsic's arguments are: base, mask, indices, values, scale.
Instruction* scatter(IntrinsicInst& intrinsic) {
  IRBuilder<> builder(&intrinsic);
  Value* const values = intrinsic.getArgOperand(3);
  Value* const indices = intrinsic.getArgOperand(2);
  const unsigned lanes = std::min(cast<FixedVectorType>(values->getType())->getNumElements(),
                                  cast<FixedVectorType>(indices->getType())->getNumElements());
  Value* const used = first_lanes(builder, values, lanes);
  Value* const pointers =
      addresses(builder, intrinsic.getArgOperand(0), first_lanes(builder, indices, lanes), intrinsic.getArgOperand(4));
  return builder.CreateMaskedScatter(used, pointers, natural(*cast<FixedVectorType>(used->getType())),
                                     first_lanes(builder, bits_of(builder, intrinsic.getArgOperand(1)), lanes));
}

}  // namespace

Instruction* replace_vector_access(IntrinsicInst& intrinsic) {
  StringRef name = intrinsic.getCalledFunction()->getName();
  if (!name.consume_front("llvm.x86.")) return nullptr;
  const auto shared = [&](unsigned i) { return may_be_shared(intrinsic.getArgOperand(i)); };
  IRBuilder<> builder(&intrinsic);
  Instruction* access = nullptr;
  if (name.starts_with("avx2.gather.") || name.starts_with("avx512.mask.gather") || name.starts_with("avx512.gather")) {
    if (intrinsic.arg_size() != 5 || !isa<FixedVectorType>(intrinsic.getArgOperand(3)->getType()) || !shared(1))
      return nullptr;
    access = gather(intrinsic);
  } else if (name.starts_with("avx512.mask.scatter") || name.starts_with("avx512.scatter")) {
    if (intrinsic.arg_size() != 5 || !isa<FixedVectorType>(intrinsic.getArgOperand(1)->getType()) || !shared(0))
      return nullptr;
    access = scatter(intrinsic);
  } else if (name.starts_with("avx.maskload.") || name.starts_with("avx2.maskload.")) {
    if (!shared(0)) return nullptr;
    auto* const type = cast<FixedVectorType>(intrinsic.getType());
    access = builder.CreateMaskedLoad(type, intrinsic.getArgOperand(0), natural(*type),
                                      bits_of(builder, intrinsic.getArgOperand(1)), Constant::getNullValue(type));
    intrinsic.replaceAllUsesWith(access);
  } else if (name.starts_with("avx.maskstore.") || name.starts_with("avx2.maskstore.")) {
    if (!shared(0)) return nullptr;
    Value* const values = intrinsic.getArgOperand(2);
    access = builder.CreateMaskedStore(values, intrinsic.getArgOperand(0),
                                       natural(*cast<FixedVectorType>(values->getType())),
                                       bits_of(builder, intrinsic.getArgOperand(1)));
  } else if (name == "sse2.maskmov.dqu") {
    if (!shared(2)) return nullptr;
    access = builder.CreateMaskedStore(intrinsic.getArgOperand(0), intrinsic.getArgOperand(2), Align(1),
                                       bits_of(builder, intrinsic.getArgOperand(1)));
  } else if (name == "sse3.ldu.dq" || name == "avx.ldu.dq.256") {
    if (!shared(0)) return nullptr;
    access = builder.CreateAlignedLoad(intrinsic.getType(), intrinsic.getArgOperand(0), Align(1));
    intrinsic.replaceAllUsesWith(access);
  } else {
    return nullptr;
  }
  intrinsic.eraseFromParent();
  return access;
}

}  // namespace multigrain::checks
