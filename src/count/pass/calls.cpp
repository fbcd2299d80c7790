#include "calls.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/ADT/StringSwitch.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/IntrinsicInst.h>

#include "instrument/pass/library_functions.h"

namespace multigrain::count {

using namespace llvm;

namespace {

// The compiler makes copies and fills of so many bytes in line.
constexpr uint64_t kInLine = 128;
constexpr uint64_t kWord = 8;

// These handle only memory and numbers, and end soon: whatever is counted around them may be counted together.
bool is_computing(StringRef name) {
  static const StringSet<> names = {"lgamma",  "sincos", "frexp",   "modf",   "memcpy", "memmove", "memset",  "memcmp",
                                    "memchr",  "bcmp",   "bcopy",   "bzero",  "strlen", "strcmp",  "strncmp", "strcpy",
                                    "strncpy", "strchr", "strrchr", "strcat", "abs",    "labs"};
  if (checks::is_mathematical(name) || checks::is_random(name) || names.contains(name)) return true;
  return (name.ends_with("f") || name.ends_with("l")) && names.contains(name.drop_back());
}

// Returns the name of a mathematical function of this type.
StringRef typed(StringRef of_double, const Type* type) {
  static StringSet<> names;
  const Type* const scalar = type->getScalarType();
  if (scalar->isFloatTy()) return names.insert((of_double + "f").str()).first->getKey();
  if (scalar->isX86_FP80Ty() || scalar->isFP128Ty()) return names.insert((of_double + "l").str()).first->getKey();
  return of_double;
}

// Returns the name of the library's function that the compiler calls for an intrinsic; nothing if there is none.
StringRef library_name_of(const IntrinsicInst& intrinsic) {
  const Type* const type = intrinsic.getType();
  switch (intrinsic.getIntrinsicID()) {
    case Intrinsic::sin:
      return typed("sin", type);
    case Intrinsic::cos:
      return typed("cos", type);
    case Intrinsic::tan:
      return typed("tan", type);
    case Intrinsic::exp:
      return typed("exp", type);
    case Intrinsic::exp2:
      return typed("exp2", type);
    case Intrinsic::exp10:
      return typed("exp10", type);
    case Intrinsic::log:
      return typed("log", type);
    case Intrinsic::log2:
      return typed("log2", type);
    case Intrinsic::log10:
      return typed("log10", type);
    case Intrinsic::pow:
    case Intrinsic::powi:
      return typed("pow", type);
    case Intrinsic::ldexp:
      return typed("ldexp", type);
    case Intrinsic::memcpy:
    case Intrinsic::memcpy_inline:
      return "memcpy";
    case Intrinsic::memmove:
      return "memmove";
    case Intrinsic::memset:
    case Intrinsic::memset_inline:
      return "memset";
    default:
      return {};
  }
}

bool is_in_line(const MemIntrinsic& memory) {
  const auto* const length = dyn_cast<ConstantInt>(memory.getLength());
  return length != nullptr && length->getZExtValue() <= kInLine;
}

StringRef name_of(const CallBase& call) {
  const Function* const callee = call.getCalledFunction();
  if (callee == nullptr) return {};
  StringRef name = callee->getName();
  for (const char* prefix : {"__isoc99_", "__isoc23_"}) name.consume_front(prefix);
  if (name.ends_with("_chk") && name.starts_with("__")) name = name.drop_front(2).drop_back(4);
  return name;
}

uint64_t elements(const Type* type) {
  const auto* const vector = dyn_cast<VectorType>(type);
  return vector == nullptr ? 1 : vector->getElementCount().getKnownMinValue();
}

void add_intrinsic(const IntrinsicInst& intrinsic, Cost& cost) {
  if (const auto* const memory = dyn_cast<MemIntrinsic>(&intrinsic); memory != nullptr && is_in_line(*memory)) {
    const uint64_t words = divideCeil(cast<ConstantInt>(memory->getLength())->getZExtValue(), kWord);
    if (isa<MemTransferInst>(memory)) cost.add(MG_COUNT_LOAD, words);
    return cost.add(MG_COUNT_STORE, words);
  }
  const uint64_t lanes = elements(intrinsic.getType());
  if (const StringRef name = library_name_of(intrinsic); !name.empty()) {
    const Bytes bytes = bytes_of(intrinsic);
    const auto* const known = dyn_cast_or_null<ConstantInt>(bytes.number);
    cost.calls.push_back({name, lanes, known == nullptr ? 0 : known->getZExtValue()});
    return;
  }
  const auto operands = [&](unsigned i) { return elements(intrinsic.getArgOperand(i)->getType()); };
  switch (intrinsic.getIntrinsicID()) {
    case Intrinsic::sqrt:
      return cost.add(MG_COUNT_FLOAT_SQRT, lanes);
    case Intrinsic::fmuladd:
      cost.add(MG_COUNT_FLOAT_MULTIPLY, lanes);
      return cost.add(MG_COUNT_FLOAT_ADD, lanes);
    case Intrinsic::fma:
      return cost.add(MG_COUNT_FLOAT_MULTIPLY, lanes);
    case Intrinsic::minnum:
    case Intrinsic::maxnum:
    case Intrinsic::minimum:
    case Intrinsic::maximum:
      return cost.add(MG_COUNT_FLOAT_ADD, lanes);
    case Intrinsic::floor:
    case Intrinsic::ceil:
    case Intrinsic::trunc:
    case Intrinsic::rint:
    case Intrinsic::nearbyint:
    case Intrinsic::round:
    case Intrinsic::roundeven:
    case Intrinsic::lround:
    case Intrinsic::llround:
    case Intrinsic::lrint:
    case Intrinsic::llrint:
    case Intrinsic::fptosi_sat:
    case Intrinsic::fptoui_sat:
      return cost.add(MG_COUNT_CONVERT, lanes);
    case Intrinsic::smin:
    case Intrinsic::smax:
    case Intrinsic::umin:
    case Intrinsic::umax:
    case Intrinsic::abs:
    case Intrinsic::copysign:
      return cost.add(MG_COUNT_INTEGER, 2 * lanes);
    case Intrinsic::smul_with_overflow:
    case Intrinsic::umul_with_overflow:
      return cost.add(MG_COUNT_MULTIPLY);
    case Intrinsic::vector_reduce_fadd:
    case Intrinsic::vector_reduce_fmul:
      return cost.add(
          intrinsic.getIntrinsicID() == Intrinsic::vector_reduce_fadd ? MG_COUNT_FLOAT_ADD : MG_COUNT_FLOAT_MULTIPLY,
          operands(1));
    case Intrinsic::vector_reduce_fmin:
    case Intrinsic::vector_reduce_fmax:
    case Intrinsic::vector_reduce_fminimum:
    case Intrinsic::vector_reduce_fmaximum:
      return cost.add(MG_COUNT_FLOAT_ADD, operands(0));
    case Intrinsic::vector_reduce_mul:
      return cost.add(MG_COUNT_MULTIPLY, operands(0));
    case Intrinsic::vector_reduce_add:
    case Intrinsic::vector_reduce_and:
    case Intrinsic::vector_reduce_or:
    case Intrinsic::vector_reduce_xor:
    case Intrinsic::vector_reduce_smin:
    case Intrinsic::vector_reduce_smax:
    case Intrinsic::vector_reduce_umin:
    case Intrinsic::vector_reduce_umax:
      return cost.add(MG_COUNT_INTEGER, operands(0));
    case Intrinsic::masked_load:
    case Intrinsic::masked_gather:
      return cost.add(MG_COUNT_LOAD, lanes);
    case Intrinsic::masked_store:
    case Intrinsic::masked_scatter:
      return cost.add(MG_COUNT_STORE, operands(0));
    case Intrinsic::stacksave:
    case Intrinsic::stackrestore:
    case Intrinsic::prefetch:
    case Intrinsic::threadlocal_address:
    case Intrinsic::experimental_noalias_scope_decl:
    case Intrinsic::invariant_start:
    case Intrinsic::invariant_end:
    case Intrinsic::launder_invariant_group:
    case Intrinsic::strip_invariant_group:
    case Intrinsic::expect:
    case Intrinsic::expect_with_probability:
    case Intrinsic::is_constant:
    case Intrinsic::objectsize:
    case Intrinsic::annotation:
    case Intrinsic::ptr_annotation:
    case Intrinsic::ssa_copy:
    case Intrinsic::eh_typeid_for:
    case Intrinsic::trap:
    case Intrinsic::get_active_lane_mask:
    case Intrinsic::vector_insert:
    case Intrinsic::vector_extract:
      return;
    default:
      break;
  }
  if (intrinsic.isAssumeLikeIntrinsic() || isa<DbgInfoIntrinsic>(intrinsic)) return;
  const bool is_float = intrinsic.getType()->isFPOrFPVectorTy() && intrinsic.getIntrinsicID() != Intrinsic::fabs;
  cost.add(is_float ? MG_COUNT_FLOAT_ADD : MG_COUNT_INTEGER, lanes);
}

// What Multigrain's runtime does for atomics of -fmultigrain-threads stands for an instruction of the program.
void add_runtime_call(StringRef name, Cost& cost) {
  if (!name.consume_front("__multigrain_threads_")) return;
  if (name.starts_with("load"))
    cost.add(MG_COUNT_LOAD);
  else if (name.starts_with("store"))
    cost.add(MG_COUNT_STORE);
  else if (name.starts_with("update") || name.starts_with("compare_exchange") || name.starts_with("atomic"))
    cost.add(MG_COUNT_ATOMIC);
}

// Returns the class of a library function that is one instruction.
mg_count_class instruction_for(StringRef name) {
  if (name == "sqrt" || name == "sqrtf") return MG_COUNT_FLOAT_SQRT;
  if (name == "fabs" || name == "fabsf" || name == "abs" || name == "labs") return MG_COUNT_INTEGER;
  if (name == "fmin" || name == "fmax" || name == "fminf" || name == "fmaxf") return MG_COUNT_FLOAT_ADD;
  return MG_COUNT_CLASSES;
}

}  // namespace

Callee callee_of(const CallBase& call) {
  if (call.isInlineAsm() || isa<IntrinsicInst>(call)) return Callee::kInline;
  const Function* const callee = call.getCalledFunction();
  if (callee == nullptr) return Callee::kCounted;
  const StringRef name = callee->getName();
  if (name.starts_with("multigrain.")) return Callee::kNothing;
  if (callee->isDeclaration())
    for (const char* prefix : {"__multigrain_", "mg_", "__kmpc_", "omp_"})
      if (name.starts_with(prefix)) return Callee::kRuntime;
  if (!callee->isDeclaration() || !checks::is_exported(name)) return Callee::kCounted;
  return instruction_for(name_of(call)) != MG_COUNT_CLASSES ? Callee::kInline : Callee::kLibrary;
}

bool needs_count(const CallBase& call) {
  switch (callee_of(call)) {
    case Callee::kNothing:
    case Callee::kInline:
      return isa<InvokeInst, CallBrInst>(call);
    case Callee::kLibrary:
      return !is_computing(name_of(call));
    case Callee::kRuntime:
    case Callee::kCounted:
      return true;
  }
  return true;
}

StringRef price_name(const CallBase& call) {
  if (const auto* const intrinsic = dyn_cast<IntrinsicInst>(&call)) return library_name_of(*intrinsic);
  return callee_of(call) == Callee::kLibrary ? name_of(call) : StringRef();
}

Bytes bytes_of(const CallBase& call) {
  const StringRef name = price_name(call);
  const unsigned at = StringSwitch<unsigned>(name)
                          .Cases("memcpy", "memmove", "memset", "memcmp", "bcmp", "bcopy", "memchr", 2)
                          .Cases("strncpy", "strncmp", "read", "write", "pread", "pwrite", 2)
                          .Case("bzero", 1)
                          .Cases("fread", "fwrite", 2)
                          .Default(0);
  if (at == 0 || call.arg_size() <= at || !call.getArgOperand(at)->getType()->isIntegerTy()) return {};
  Bytes bytes{.number = call.getArgOperand(at)};
  if (name == "fread" || name == "fwrite") bytes.size = call.getArgOperand(1);
  return bytes;
}

void add_call(const CallBase& call, Cost& cost) {
  switch (callee_of(call)) {
    case Callee::kNothing:
      return;
    case Callee::kInline:
      if (const auto* const intrinsic = dyn_cast<IntrinsicInst>(&call))
        add_intrinsic(*intrinsic, cost);
      else if (call.isInlineAsm())
        cost.add(MG_COUNT_INTEGER);
      else
        cost.add(instruction_for(name_of(call)));
      return;
    case Callee::kLibrary: {
      const Bytes bytes = bytes_of(call);
      const auto* const number = dyn_cast_or_null<ConstantInt>(bytes.number);
      const auto* const size = dyn_cast_or_null<ConstantInt>(bytes.size);
      uint64_t known = number == nullptr ? 0 : number->getZExtValue();
      if (bytes.size != nullptr) known = size == nullptr ? 0 : known * size->getZExtValue();
      cost.calls.push_back({name_of(call), 1, known});
      return;
    }
    case Callee::kRuntime:
      return add_runtime_call(call.getCalledFunction()->getName(), cost);
    case Callee::kCounted:
      return cost.add(MG_COUNT_CALL);
  }
}

}  // namespace multigrain::count
