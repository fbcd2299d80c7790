#include "narrow_loads.h"

#include <llvm/Transforms/Utils/Local.h>

namespace multigrain::checks {

using namespace llvm;

bool is_natural(uint64_t size) {
  return size == 4 || size == 8 || size == 16 || size == 32 || size == 64;
}

bool is_unaligned(const CheckedFunction& function, const LoadInst& load) {
  return load.getAlign() < Align(std::min<uint64_t>(PowerOf2Ceil(function.layout.getTypeStoreSize(load.getType())), 4));
}

bool is_narrow(const CheckedFunction& function, const LoadInst& load) {
  return function.layout.getTypeStoreSize(load.getType()) < 4 && !is_unaligned(function, load);
}

Word load_word_around(const CheckedFunction& function, IRBuilder<>& builder, LoadInst& load) {
  Value* const pointer = load.getPointerOperand();
  APInt offset(64, 0);
  Value* const base = pointer->stripAndAccumulateConstantOffsets(function.layout, offset, true);
  Value* word_pointer;
  Value* shift;
  if (getKnownAlignment(base, function.layout, &load) >= Align(4)) {
    const uint64_t within = offset.getZExtValue() & 3;
    word_pointer = within == 0 ? pointer : builder.CreatePtrAdd(pointer, builder.getInt64(-within));
    shift = builder.getInt32(static_cast<uint32_t>(within * 8));
  } else {
    word_pointer = builder.CreateIntrinsic(Intrinsic::ptrmask, {function.ptr, function.i64},
                                           {pointer, builder.getInt64(~uint64_t{3})});
    Value* const within = builder.CreateTrunc(builder.CreatePtrToInt(pointer, function.i64), function.i32);
    shift = builder.CreateShl(builder.CreateAnd(within, builder.getInt32(3)), 3);
  }
  LoadInst* const word = builder.CreateAlignedLoad(function.i32, word_pointer, Align(4), load.isVolatile());
  if (load.isAtomic()) word->setAtomic(AtomicOrdering::SequentiallyConsistent, load.getSyncScopeID());
  return {word, shift};
}

Value* part_of(const CheckedFunction& function, IRBuilder<>& builder, const Word& word, Type* type) {
  Type* const narrow = builder.getIntNTy(static_cast<unsigned>(function.layout.getTypeSizeInBits(type)));
  return builder.CreateBitCast(builder.CreateTrunc(builder.CreateLShr(word.load, word.shift), narrow), type);
}

}  // namespace multigrain::checks
