// The compiler pass of `mgtrace cc` records every reference to memory that threads may share.
//
// It runs last, when variables that fit have been moved to registers. The loads and stores that remain are references
// of the program (except for spills of the code generator, and the pushes of calls). References to locals that stay on
// the stack, and whose address goes nowhere, are private ([Bolosky], section 2.2): they are counted, a basic block at a
// time. Of other references to stacks the runtime says whether another thread can make them, too.
//
// Plain loads and stores are recorded by groups (groups.h): what is known of a group before the program runs is laid down once, and
// the code writes what is not, a number for the group and some addresses, into the thread's buffer. It does so before the group's
// last access, or behind a loop. Whatever needs more than that (the buffer is full, others must be told the clock, an address may be
// on the thread's own stack) the runtime does. All else calls the runtime for each reference.
//
// Which calls led to a function is one number, which the thread's state has while the function runs. A function reads it when it
// begins, puts it into its groups' records, and before a call puts the number of these calls with that one there, which it has from
// the last time, if the same calls led to it then (raw::CallDescription), and otherwise from the runtime.
//
// Another pipeline can use the pass by calling instrument(); the plugin below is one way to run it.
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/Analysis/CaptureTracking.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/Path.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <map>
#include <tuple>
#include <vector>

#include "groups.h"
#include "trace/record/raw.h"

namespace multigrain::trace::record {
namespace {

using namespace llvm;

// A reference larger than this is recorded as a range of words.
constexpr uint64_t kLargestReference = 64;

// These are functions whose result is a fresh block of memory.
bool is_allocator(StringRef name) {
  static const StringSet<> names = {"malloc", "calloc",         "realloc", "reallocarray", "memalign", "aligned_alloc",
                                    "valloc", "posix_memalign", "strdup",  "strndup",      "mmap"};
  // These are the names of operator new in all its forms.
  return names.contains(name) || name.starts_with("_Znw") || name.starts_with("_Zna");
}

class Instrumentation {
 public:
  Instrumentation(Module& module, FunctionAnalysisManager& analyses)
      : module_(module),
        analyses_(analyses),
        context_(module.getContext()),
        void_(Type::getVoidTy(context_)),
        i32_(Type::getInt32Ty(context_)),
        i64_(Type::getInt64Ty(context_)),
        ptr_(PointerType::getUnqual(context_)) {
    slow_ = declare("__multigrain_record_group", {ptr_});
    range_ = declare("__multigrain_record_range", {i64_, i64_, i64_, i32_});
    lanes_ = declare("__multigrain_record_lanes", {i64_, i32_, i32_, i32_, i64_});
    packed_lanes_ = declare("__multigrain_record_packed_lanes", {i64_, i32_, i32_, i32_, i64_});
    atomic_begin_ = declare("__multigrain_record_atomic_begin", {i64_, i32_, i32_, i32_});
    atomic_end_ = declare("__multigrain_record_atomic_end", {});
    call_ = module.getOrInsertFunction("__multigrain_record_call", FunctionType::get(i64_, {i64_, ptr_}, false));
    cast<Function>(call_.getCallee())->addFnAttr(Attribute::NoUnwind);
    cast<Function>(call_.getCallee())->addFnAttr(Attribute::NonLazyBind);
    state_type_ = StructType::get(
        context_, {ptr_, ptr_, i64_, i64_, i64_, i64_, i64_, i64_, ArrayType::get(i64_, raw::kMostWords)});
    call_type_ = StructType::get(context_, {i64_, ptr_, ptr_, i32_, i32_});
    state_ = thread_local_of_runtime("__multigrain_record_state", state_type_);
    allocation_site_ = thread_local_of_runtime("__multigrain_record_allocation_site", i32_);
    first_site_ = new GlobalVariable(module, i32_, false, GlobalValue::InternalLinkage, ConstantInt::get(i32_, 0),
                                     "__multigrain_record_first_site");
    first_group_ = new GlobalVariable(module, i32_, false, GlobalValue::InternalLinkage, ConstantInt::get(i32_, 0),
                                      "__multigrain_record_first_group");
    access_type_ = StructType::get(context_, {i64_, i32_, IntegerType::get(context_, 16), IntegerType::get(context_, 8),
                                              IntegerType::get(context_, 8)});
    group_type_ = StructType::get(context_, {ptr_, ptr_, ptr_, i64_, i32_, i32_});
  }

  bool run() {
    std::vector<GlobalVariable*> globals;
    for (GlobalVariable& global : module_.globals()) {
      if (wanted(global)) globals.push_back(&global);
    }
    bool changed = false;
    for (Function& function : module_) changed |= instrument(function);
    if (!changed && globals.empty()) return false;
    describe(globals);
    return true;
  }

 private:
  struct SiteKey {
    std::string file, function, name;
    uint32_t line;
    bool operator<(const SiteKey& other) const {
      return std::tie(file, function, name, line) < std::tie(other.file, other.function, other.name, other.line);
    }
  };

  FunctionCallee declare(const char* name, ArrayRef<Type*> arguments) {
    FunctionCallee callee = module_.getOrInsertFunction(name, FunctionType::get(void_, arguments, false));
    auto* const function = cast<Function>(callee.getCallee());
    function->addFnAttr(Attribute::NoUnwind);
    function->addFnAttr(Attribute::NonLazyBind);  // this avoids the detour through the PLT
    return callee;
  }

  GlobalVariable* thread_local_of_runtime(const char* name, Type* type) {
    auto* const variable = new GlobalVariable(module_, type, false, GlobalValue::ExternalLinkage, nullptr, name,
                                              nullptr, GlobalValue::InitialExecTLSModel);
    return variable;
  }

  // These are globals of the program that threads can share. String literals and tables of the compiler have no name to
  // report.
  static bool wanted(const GlobalVariable& global) {
    return !global.isDeclaration() && !global.isThreadLocal() && !global.hasPrivateLinkage() &&
           !global.hasAvailableExternallyLinkage() && !global.getName().starts_with("llvm.") &&
           !global.getName().starts_with("_ZT") && !global.getName().starts_with("__multigrain_record") &&
           !global.hasSection();
  }

  uint32_t site(SiteKey key) {
    const auto [at, added] = site_numbers_.try_emplace(std::move(key), static_cast<uint32_t>(sites_.size()));
    if (added) sites_.push_back(&at->first);
    return at->second;
  }

  static std::string path_of(const DIScope& scope) {
    SmallString<128> path(scope.getFilename());
    if (!sys::path::is_absolute(path) && !scope.getDirectory().empty()) {
      path = scope.getDirectory();
      sys::path::append(path, scope.getFilename());
    }
    sys::path::remove_dots(path, true);
    return std::string(path);
  }

  // The function's name with the classes and namespaces around it; empty: not known.
  static std::string qualified_name_of(const DILocation& location) {
    const DISubprogram* const subprogram = location.getScope()->getSubprogram();
    if (subprogram == nullptr) return "";
    std::string name = subprogram->getName().str();
    for (const DIScope* scope = subprogram->getScope(); scope != nullptr; scope = scope->getScope()) {
      if (!isa<DICompositeType>(scope) && !isa<DINamespace>(scope)) break;
      if (!scope->getName().empty()) name = scope->getName().str() + "::" + name;
    }
    return name;
  }

  // Headers of the system: who uses std::vector wants to know where, and not where std::vector does it.
  static bool is_of_the_system(const std::string& path) {
    const StringRef file(path);
    return file.starts_with("/usr/include/") || file.starts_with("/usr/lib/") ||
           file.starts_with("/usr/local/include/");
  }

  // A site is the program's line that the instruction belongs to: that of the innermost inlined function that is not in a
  // header of the system. To the function's name are added the field that is accessed, and the functions that the line has
  // been inlined into, again without those in headers of the system.
  uint32_t site_of(const Instruction& instruction, std::string name = "") {
    SiteKey key;
    key.name = std::move(name);
    key.line = 0;
    if (const DILocation* const innermost = instruction.getDebugLoc().get()) {
      const DILocation* chosen = innermost;
      while (chosen != nullptr && is_of_the_system(path_of(*chosen->getFile()))) chosen = chosen->getInlinedAt();
      if (chosen == nullptr) chosen = innermost;
      key.file = path_of(*chosen->getFile());
      key.line = chosen->getLine();
      key.function = qualified_name_of(*chosen);
      if (!key.function.empty()) {
        if (const std::string field = field_of(instruction); !field.empty()) key.function += ", on " + field;
        constexpr unsigned kMostFrames = 4;
        unsigned frames = 0;
        for (const DILocation* at = chosen->getInlinedAt(); at != nullptr && frames < kMostFrames;
             at = at->getInlinedAt()) {
          if (is_of_the_system(path_of(*at->getFile()))) continue;
          ++frames;
          key.function += ", in " + qualified_name_of(*at) + " (" +
                          sys::path::filename(at->getFile()->getFilename()).str() + ":" +
                          std::to_string(at->getLine()) + ")";
        }
      }
    }
    if (key.function.empty()) {
      key.function = demangle(instruction.getFunction()->getName());
      if (key.file.empty()) key.file = module_.getSourceFileName();
    }
    return site(std::move(key));
  }

  static const DIType* without_names(const DIType* type) {
    while (const auto* derived = dyn_cast_or_null<DIDerivedType>(type)) {
      const unsigned tag = derived->getTag();
      if (tag != dwarf::DW_TAG_typedef && tag != dwarf::DW_TAG_const_type && tag != dwarf::DW_TAG_volatile_type &&
          tag != dwarf::DW_TAG_atomic_type)
        break;
      type = derived->getBaseType();
    }
    return type;
  }

  static std::string name_of_type(const DIType* type) {
    if (type == nullptr) return "void";
    if (const auto* derived = dyn_cast<DIDerivedType>(type)) {
      switch (derived->getTag()) {
        case dwarf::DW_TAG_pointer_type:
          return name_of_type(derived->getBaseType()) + "*";
        case dwarf::DW_TAG_reference_type:
          return name_of_type(derived->getBaseType()) + "&";
        case dwarf::DW_TAG_const_type:
        case dwarf::DW_TAG_volatile_type:
        case dwarf::DW_TAG_atomic_type:
          return name_of_type(derived->getBaseType());
        default:
          break;
      }
    }
    if (const auto* composite = dyn_cast<DICompositeType>(type);
        composite && composite->getTag() == dwarf::DW_TAG_array_type)
      return name_of_type(composite->getBaseType()) + "[]";
    return type->getName().empty() ? "?" : type->getName().str();
  }

  // Appends ".field" of the record's member at this offset, and those within it; returns the last one's type, or nullptr if
  // there is no such member.
  static const DIType* append_member(const DICompositeType& record, uint64_t offset, std::string& path) {
    for (const DINode* const element : record.getElements()) {
      const auto* const member = dyn_cast<DIDerivedType>(element);
      if (member == nullptr || member->isStaticMember()) continue;
      const bool is_base = member->getTag() == dwarf::DW_TAG_inheritance;
      if (!is_base && member->getTag() != dwarf::DW_TAG_member) continue;
      const DIType* type = without_names(member->getBaseType());
      if (type == nullptr) continue;
      const uint64_t begin = member->getOffsetInBits() / 8;
      const uint64_t bytes = std::max<uint64_t>(1, (is_base ? type->getSizeInBits() : member->getSizeInBits()) / 8);
      if (offset < begin || offset - begin >= bytes) continue;
      if (!member->getName().empty()) path += "." + member->getName().str();
      uint64_t within = offset - begin;
      const DIType* named = member->getBaseType();
      if (const auto* array = dyn_cast<DICompositeType>(type); array && array->getTag() == dwarf::DW_TAG_array_type) {
        named = array->getBaseType();
        type = without_names(named);
        path += "[]";
        const uint64_t each = type == nullptr ? 0 : type->getSizeInBits() / 8;
        if (each != 0) within %= each;
      }
      const auto* const inner = dyn_cast_or_null<DICompositeType>(type);
      if (inner == nullptr || inner->getTag() == dwarf::DW_TAG_enumeration_type) return named;
      if (const DIType* const last = append_member(*inner, within, path)) return last;
      return named;
    }
    return nullptr;
  }

  // "counter.hits (long)", if the compiler knows that the instruction accesses a field of a record, which it does where it
  // optimises (-O1 and more) and has debugging information; else "".
  std::string field_of(const Instruction& instruction) {
    const MDNode* const tag = instruction.getMetadata(LLVMContext::MD_tbaa);
    if (tag == nullptr || tag->getNumOperands() < 3) return "";
    const auto* const base = dyn_cast_or_null<MDNode>(tag->getOperand(0));
    const auto* const offset = mdconst::dyn_extract_or_null<ConstantInt>(tag->getOperand(2));
    if (base == nullptr || offset == nullptr || base == tag->getOperand(1) || base->getNumOperands() == 0) return "";
    const auto* const name = dyn_cast_or_null<MDString>(base->getOperand(0));
    if (name == nullptr || name->getString().empty()) return "";
    if (!has_records_) {
      has_records_ = true;
      DebugInfoFinder finder;
      finder.processModule(module_);
      for (const DIType* const type : finder.types()) {
        const auto* const record = dyn_cast<DICompositeType>(type);
        if (record == nullptr || record->isForwardDecl() || record->getTag() == dwarf::DW_TAG_array_type) continue;
        records_.try_emplace(record->getIdentifier().empty() ? record->getName() : record->getIdentifier(), record);
      }
    }
    const auto found = records_.find(name->getString());
    if (found == records_.end()) return "";
    std::string path = found->second->getName().str();
    const DIType* const type = append_member(*found->second, offset->getZExtValue(), path);
    return type == nullptr ? "" : path + " (" + name_of_type(type) + ")";
  }

  // This is memory of the thread's own, as far as can be known here. A variable on the stack is, if its address goes nowhere;
  // of others the runtime knows whether another thread can have heard of them.
  bool is_private(const Value* pointer) {
    const Value* const object = getUnderlyingObject(pointer, 0);
    if (isa<AllocaInst>(object)) return !is_captured(object);
    if (const auto* global = dyn_cast<GlobalVariable>(object)) return global->isThreadLocal();
    if (const auto* call = dyn_cast<IntrinsicInst>(object)) {
      return call->getIntrinsicID() == Intrinsic::threadlocal_address;
    }
    if (const auto* argument = dyn_cast<Argument>(object)) return argument->hasByValAttr() && !is_captured(argument);
    return false;
  }

  bool is_captured(const Value* object) {
    const auto [found, added] = captured_.try_emplace(object, false);
    // Instrumentation itself hands over addresses, but only those of what was captured before.
    if (added) found->second = PointerMayBeCaptured(object, /*ReturnCaptures=*/true, /*StoreCaptures=*/true);
    return found->second;
  }

  // In the program, a block of memory is called by the variable that its address goes to.
  static std::string name_of(CallBase& call) {
    SmallVector<DbgVariableIntrinsic*> intrinsics;
    SmallVector<DbgVariableRecord*> records;
    findDbgUsers(intrinsics, &call, &records);
    for (const DbgVariableRecord* record : records) return record->getVariable()->getName().str();
    for (const DbgVariableIntrinsic* intrinsic : intrinsics) return intrinsic->getVariable()->getName().str();
    for (const User* user : call.users()) {
      const auto* const stored = dyn_cast<StoreInst>(user);
      if (stored == nullptr || stored->getValueOperand() != &call) continue;
      const Value* const object = getUnderlyingObject(stored->getPointerOperand(), 0);
      if (const auto* global = dyn_cast<GlobalVariable>(object)) {
        return std::string("*").append(
            demangle(global->getName()));  // the variable itself is in the trace under its name
      }
      if (const auto* local = dyn_cast<AllocaInst>(object); local != nullptr) {
        for (const DbgVariableRecord* record : findDVRDeclares(const_cast<AllocaInst*>(local))) {
          return record->getVariable()->getName().str();
        }
        if (local->hasName()) return local->getName().str();
      }
    }
    return "";
  }

  Value* site_value(IRBuilder<>& builder, uint32_t number) {
    return builder.CreateAdd(site_base_, ConstantInt::get(i32_, number));
  }
  Value* address_value(IRBuilder<>& builder, Value* pointer) { return builder.CreatePtrToInt(pointer, i64_); }
  Value* constant(uint64_t value) { return ConstantInt::get(i32_, value); }

  bool instrument(Function& function) {
    if (function.isDeclaration() || function.hasAvailableExternallyLinkage()) return false;
    if (function.hasFnAttribute(Attribute::Naked) ||
        function.hasFnAttribute(Attribute::DisableSanitizerInstrumentation)) {
      return false;
    }
    if (function.getName().starts_with("__multigrain_record")) return false;
    captured_.clear();
    const Plan plan = plan_of(
        function, analyses_.getResult<LoopAnalysis>(function), analyses_.getResult<ScalarEvolutionAnalysis>(function),
        [this](Instruction& instruction, uint64_t& privates) { return kind(instruction, privates); });
    std::vector<Instruction*> others;
    for (Instruction& instruction : instructions(function)) {
      uint64_t privates = 0;
      if (kind(instruction, privates) == AccessKind::kOther) others.push_back(&instruction);
    }
    // One load of the number of this module's first site serves all of the function.
    IRBuilder<> entry(&*function.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    LoadInst* const base = entry.CreateLoad(i32_, first_site_);
    base->setDebugLoc({});
    site_base_ = base;
    std::vector<CallBase*> calls;
    for (Instruction* instruction : others)
      if (auto* const call = dyn_cast<CallBase>(instruction); call != nullptr && leads_on(*call)) calls.push_back(call);
    // The function's calls, and its groups, go on from the calls that led to it.
    LoadInst* const led_here =
        entry.CreateLoad(i64_, entry.CreateStructGEP(state_type_, entry.CreateThreadLocalAddress(state_), kCalls));
    led_here->setDebugLoc({});
    calls_ = led_here;
    bool changed = !calls.empty();
    for (Instruction* instruction : others) changed |= instrument(*instruction);
    for (CallBase* const call : calls) note_call(*call);
    for (const auto& [block, privates] : plan.private_references) {
      auto at = block->getFirstInsertionPt();
      if (at == block->end()) continue;  // the block is a catchswitch, which has no place for code
      while (isa<AllocaInst>(*at) || &*at == base) ++at;
      IRBuilder<> builder(block, at);
      builder.SetCurrentDebugLocation({});
      Value* const count =
          builder.CreateStructGEP(state_type_, builder.CreateThreadLocalAddress(state_), kPrivateReferences);
      add(builder, count, ConstantInt::get(i64_, privates));
      changed = true;
    }
    if (base->use_empty()) base->eraseFromParent();
    for (const Group& group : plan.groups) emit(group);
    if (led_here->use_empty()) led_here->eraseFromParent();
    return changed || !plan.groups.empty();
  }

  // Says what is to be done about an instruction, and how many private references it makes. Does not change the function.
  AccessKind kind(Instruction& instruction, uint64_t& privates) {
    privates = 0;
    if (auto* load = dyn_cast<LoadInst>(&instruction))
      return kind_of_access(load->getPointerOperand(), load->getType(), 1, load->isAtomic() || load->isVolatile(),
                            privates);
    if (auto* store = dyn_cast<StoreInst>(&instruction))
      return kind_of_access(store->getPointerOperand(), store->getValueOperand()->getType(), 1,
                            store->isAtomic() || store->isVolatile(), privates);
    if (auto* update = dyn_cast<AtomicRMWInst>(&instruction))
      return kind_of_access(update->getPointerOperand(), update->getValOperand()->getType(), 2, true, privates);
    if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction))
      return kind_of_access(exchange->getPointerOperand(), exchange->getNewValOperand()->getType(), 2, true, privates);
    if (auto* memory = dyn_cast<AnyMemIntrinsic>(&instruction)) {
      const bool to_private = is_private(memory->getRawDest());
      const auto* const transfer = dyn_cast<AnyMemTransferInst>(memory);
      const bool from_private = transfer != nullptr && is_private(transfer->getRawSource());
      const auto* const length = dyn_cast<ConstantInt>(memory->getLength());
      const uint64_t words = length != nullptr ? (length->getZExtValue() + 7) / 8 : 1;
      privates = words * (unsigned{to_private} + unsigned{from_private});
      return to_private && (transfer == nullptr || from_private) ? AccessKind::kPrivate : AccessKind::kOther;
    }
    if (auto* intrinsic = dyn_cast<IntrinsicInst>(&instruction)) {
      if (const Value* const pointer = pointer_of_lanes(*intrinsic); pointer != nullptr && is_private(pointer)) {
        privates = 1;  // how many lanes there are is known only when the program runs
        return AccessKind::kPrivate;
      }
      if (intrinsic->isAssumeLikeIntrinsic()) return AccessKind::kNone;
    }
    if (auto* call = dyn_cast<CallBase>(&instruction))
      return call->doesNotAccessMemory() ? AccessKind::kNone : AccessKind::kOther;
    return instruction.mayReadOrWriteMemory() ? AccessKind::kOther : AccessKind::kNone;
  }

  AccessKind kind_of_access(Value* pointer, Type* type, uint64_t references, bool synchronises, uint64_t& privates) {
    if (pointer->getType()->getPointerAddressSpace() != 0) return AccessKind::kOther;
    if (is_private(pointer)) {
      privates = references;
      return AccessKind::kPrivate;
    }
    const TypeSize size = module_.getDataLayout().getTypeStoreSize(type);
    if (size.isScalable() || size.getFixedValue() == 0) return AccessKind::kOther;
    return synchronises || size.getFixedValue() > kLargestReference ? AccessKind::kOther : AccessKind::kShared;
  }

  // Records what is no plain load or store of a group.
  bool instrument(Instruction& instruction) {
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
      return access(instruction, load->getPointerOperand(), load->getType(), 1, load->isAtomic() || load->isVolatile());
    }
    if (auto* store = dyn_cast<StoreInst>(&instruction)) {
      return access(instruction, store->getPointerOperand(), store->getValueOperand()->getType(), 2,
                    store->isAtomic() || store->isVolatile());
    }
    if (auto* update = dyn_cast<AtomicRMWInst>(&instruction)) {
      return access(instruction, update->getPointerOperand(), update->getValOperand()->getType(), 3, true);
    }
    if (auto* exchange = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
      return access(instruction, exchange->getPointerOperand(), exchange->getNewValOperand()->getType(), 3, true);
    }
    if (auto* memory = dyn_cast<AnyMemIntrinsic>(&instruction)) return range(*memory);
    if (auto* intrinsic = dyn_cast<IntrinsicInst>(&instruction)) return masked(*intrinsic);
    if (auto* call = dyn_cast<CallBase>(&instruction)) return allocation(*call);
    return false;
  }

  // Calls the runtime for an access. `kind` is 1 for a read, 2 for a write, and 3 for both.
  bool access(Instruction& instruction, Value* pointer, Type* type, unsigned kind, bool synchronises) {
    if (pointer->getType()->getPointerAddressSpace() != 0) return false;
    const TypeSize size_of_type = module_.getDataLayout().getTypeStoreSize(type);
    if (size_of_type.isScalable() || size_of_type.getFixedValue() == 0) return false;
    const uint64_t size = size_of_type.getFixedValue();
    IRBuilder<> builder(&instruction);
    Value* const address = address_value(builder, pointer);
    Value* const where = site_value(builder, site_of(instruction));
    if (synchronises && size <= kLargestReference) {
      builder.CreateCall(atomic_begin_, {address, where, constant(size), constant(kind)});
      IRBuilder<> after(instruction.getNextNode());
      after.SetCurrentDebugLocation(instruction.getDebugLoc());
      after.CreateCall(atomic_end_, {});
    } else {
      Value* const none = ConstantInt::get(i64_, 0);
      builder.CreateCall(range_,
                         {kind == 1 ? none : address, kind == 1 ? address : none, ConstantInt::get(i64_, size), where});
    }
    return true;
  }

  // Fields of raw::State, in their order.
  enum StateField { kNext, kLimit, kStackLow, kPrivateStackBytes, kClock, kOther, kPrivateReferences, kCalls, kSpare };

  // Whether references may be made in the call, by a function whose frame is another than the caller's.
  static bool leads_on(const CallBase& call) {
    return !isa<IntrinsicInst>(call) && !call.isInlineAsm() && !call.isMustTailCall() && !isa<CallBrInst>(call);
  }

  // During the call the thread's state has the number of the calls that led there. Behind it, and where an exception out of it is
  // caught, it has again what it had when the function began.
  void note_call(CallBase& call) {
    auto* const description = new GlobalVariable(
        module_, call_type_, false, GlobalValue::InternalLinkage,
        ConstantStruct::get(call_type_, {ConstantInt::get(i64_, raw::kNoKnownCalls), call.getFunction(), first_site_,
                                         ConstantInt::get(i32_, site_of(call)), ConstantInt::get(i32_, 0)}),
        "__multigrain_record_call_site");
    IRBuilder<> builder(&call);
    LoadInst* const known = builder.CreateAlignedLoad(i64_, description, Align(8));
    known->setAtomic(AtomicOrdering::Monotonic);
    Value* const is_new = builder.CreateICmpNE(builder.CreateShl(known, raw::kCallsShift), calls_);
    Instruction* const ask =
        SplitBlockAndInsertIfThen(is_new, &call, false, MDBuilder(context_).createBranchWeights(1, 1u << 10));
    IRBuilder<> asking(ask);
    asking.SetCurrentDebugLocation(call.getDebugLoc());
    Value* const told = asking.CreateCall(call_, {calls_, description});
    PHINode* const entry = PHINode::Create(i64_, 2, "", call.getParent()->begin());
    entry->addIncoming(known, known->getParent());
    entry->addIncoming(told, ask->getParent());
    const auto set = [&](IRBuilder<>& at, Value* calls) {
      at.SetCurrentDebugLocation(call.getDebugLoc());
      at.CreateStore(calls, at.CreateStructGEP(state_type_, at.CreateThreadLocalAddress(state_), kCalls));
    };
    builder.SetInsertPoint(&call);
    set(builder, builder.CreateAnd(entry, ConstantInt::get(i64_, ~uint64_t{0} << raw::kCallsShift)));
    const auto set_back = [&](BasicBlock& block, BasicBlock::iterator at) {
      IRBuilder<> behind(&block, at);
      set(behind, calls_);
    };
    if (auto* const invoke = dyn_cast<InvokeInst>(&call)) {
      for (BasicBlock* const next : {invoke->getNormalDest(), invoke->getUnwindDest()})
        if (const auto at = next->getFirstInsertionPt(); at != next->end()) set_back(*next, at);
      return;
    }
    // Something is done behind the call, so it is no longer the last thing that the function does.
    cast<CallInst>(call).setTailCall(false);
    set_back(*call.getParent(), std::next(call.getIterator()));
  }

  void add(IRBuilder<>& builder, Value* to, Value* count) {
    builder.CreateStore(builder.CreateAdd(builder.CreateLoad(i64_, to), count), to);
  }

  // Returns the place for code that runs when the loop, which is one block, has ended; and the number of its iterations.
  std::pair<Instruction*, Value*> behind(BasicBlock& loop) {
    auto* const branch = cast<BranchInst>(loop.getTerminator());
    const unsigned out = branch->getSuccessor(0) == &loop ? 1 : 0;
    BasicBlock* const exit = branch->getSuccessor(out);
    BasicBlock* const edge = BasicBlock::Create(context_, "", loop.getParent(), exit);
    BranchInst* const end = BranchInst::Create(exit, edge);
    branch->setSuccessor(out, edge);
    for (PHINode& phi : exit->phis()) phi.replaceIncomingBlockWith(&loop, edge);
    PHINode* const iterations = PHINode::Create(i64_, 2, "", loop.begin());
    Value* const following =
        BinaryOperator::CreateAdd(iterations, ConstantInt::get(i64_, 1), "", branch->getIterator());
    for (BasicBlock* const before : predecessors(&loop))
      iterations->addIncoming(before == &loop ? following : ConstantInt::get(i64_, 1), before);
    return {end, iterations};
  }

  // Writes the group's record into the thread's buffer, or into the state's spare words for the runtime.
  void emit(const Group& group) {
    const auto [at, iterations] = group.loop != nullptr
                                      ? behind(*group.loop)
                                      : std::pair<Instruction*, Value*>(group.accesses.back().instruction, nullptr);
    IRBuilder<> builder(at);
    builder.SetCurrentDebugLocation(group.accesses.back().instruction->getDebugLoc());
    GlobalVariable* const description = describe(group);
    Value* const state = builder.CreateThreadLocalAddress(state_);
    const auto field = [&](StateField number) { return builder.CreateStructGEP(state_type_, state, number); };
    const auto loaded = [&](StateField number) {
      return builder.CreateLoad(state_type_->getElementType(number), field(number));
    };
    Value* const next = loaded(kNext);
    Value* good = builder.CreateICmpULT(next, loaded(kLimit));
    good = builder.CreateAnd(good, builder.CreateICmpEQ(loaded(kPrivateReferences), ConstantInt::get(i64_, 0)));
    Value* const low = loaded(kStackLow);
    Value* const own = loaded(kPrivateStackBytes);
    SmallVector<Value*> words;
    if (iterations != nullptr) words.push_back(iterations);
    for (Value* const base : group.bases) {
      Value* const address = address_value(builder, base);
      words.push_back(address);
      if (!isa<GlobalVariable>(getUnderlyingObject(base, 0)))
        good = builder.CreateAnd(good, builder.CreateICmpUGE(builder.CreateSub(address, low), own));
    }
    words.push_back(ConstantInt::get(i64_, 0));  // there is no record behind this one
    Value* const to = builder.CreateSelect(good, next, field(kSpare));
    Value* const number =
        builder.CreateAdd(builder.CreateLoad(i32_, first_group_), ConstantInt::get(i32_, groups_.size() - 1));
    Value* const head = builder.CreateOr(
        builder.CreateOr(builder.CreateZExt(number, i64_), calls_),
        ConstantInt::get(i64_, raw::head_of(group.loop != nullptr ? raw::Kind::kLoop : raw::Kind::kGroup, 0, 0)));
    for (unsigned i = 0; i < words.size(); ++i)
      builder.CreateStore(words[i], builder.CreateConstInBoundsGEP1_64(i64_, to, i + 1));
    builder.CreateAlignedStore(head, to, Align(8))->setAtomic(AtomicOrdering::Release);
    Instruction* fast = nullptr;
    Instruction* slow = nullptr;
    SplitBlockAndInsertIfThenElse(good, at, &fast, &slow, MDBuilder(context_).createBranchWeights(1u << 20, 1));
    builder.SetInsertPoint(fast);
    builder.CreateStore(builder.CreateConstInBoundsGEP1_64(i64_, next, words.size()), field(kNext));
    const auto times = [&](uint64_t count) -> Value* {
      Value* const each = ConstantInt::get(i64_, count);
      return iterations != nullptr ? builder.CreateMul(iterations, each) : each;
    };
    add(builder, field(kClock), times(group.accesses.size() + group.private_references));
    if (group.private_references != 0) add(builder, field(kOther), times(group.private_references));
    builder.SetInsertPoint(slow);
    builder.CreateCall(slow_, {description});
  }

  // Lays down a raw::GroupDescription.
  GlobalVariable* describe(const Group& group) {
    std::vector<Constant*> accesses;
    for (const Access& access : group.accesses) {
      const bool reads = isa<LoadInst>(access.instruction);
      const uint64_t bytes =
          module_.getDataLayout().getTypeStoreSize(getLoadStoreType(access.instruction)).getFixedValue();
      const auto kind = static_cast<uint64_t>(reads ? raw::Kind::kRead : raw::Kind::kWrite);
      accesses.push_back(
          ConstantStruct::get(access_type_, {ConstantInt::get(i64_, static_cast<uint64_t>(access.offset)),
                                             ConstantInt::get(i32_, site_of(*access.instruction)),
                                             ConstantInt::get(access_type_->getElementType(2), access.base),
                                             ConstantInt::get(access_type_->getElementType(3), kind),
                                             ConstantInt::get(access_type_->getElementType(4), bytes)}));
    }
    Constant* strides = ConstantPointerNull::get(cast<PointerType>(ptr_));
    if (group.loop != nullptr) {
      SmallVector<uint64_t> values(group.strides.begin(), group.strides.end());
      Constant* const data = ConstantDataArray::get(context_, ArrayRef<uint64_t>(values));
      strides = new GlobalVariable(module_, data->getType(), true, GlobalValue::InternalLinkage, data,
                                   "__multigrain_record_table");
    }
    auto* const description =
        new GlobalVariable(module_, group_type_, true, GlobalValue::InternalLinkage,
                           ConstantStruct::get(group_type_, {table(access_type_, accesses), strides, first_site_,
                                                             ConstantInt::get(i64_, group.private_references),
                                                             ConstantInt::get(i32_, accesses.size()),
                                                             ConstantInt::get(i32_, group.bases.size())}),
                           "__multigrain_record_table");
    groups_.push_back(description);
    return description;
  }

  bool range(AnyMemIntrinsic& memory) {
    Value* const to = memory.getRawDest();
    Value* const from = isa<AnyMemTransferInst>(memory) ? cast<AnyMemTransferInst>(memory).getRawSource() : nullptr;
    const bool to_private = is_private(to);
    const bool from_private = from == nullptr || is_private(from);
    IRBuilder<> builder(&memory);
    Value* const none = ConstantInt::get(i64_, 0);
    builder.CreateCall(
        range_, {to_private ? none : address_value(builder, to), from_private ? none : address_value(builder, from),
                 builder.CreateZExtOrTrunc(memory.getLength(), i64_), site_value(builder, site_of(memory))});
    return true;
  }

  // The memory that a vector instruction with a mask refers to, if its lanes are in one place; else nullptr.
  static const Value* pointer_of_lanes(const IntrinsicInst& call) {
    switch (call.getIntrinsicID()) {
      case Intrinsic::masked_load:
      case Intrinsic::masked_expandload:
        return call.getArgOperand(0);
      case Intrinsic::masked_store:
      case Intrinsic::masked_compressstore:
        return call.getArgOperand(1);
      default:
        return nullptr;
    }
  }

  // Vector instructions with a mask, of which only some lanes touch memory.
  bool masked(IntrinsicInst& call) {
    switch (call.getIntrinsicID()) {
      case Intrinsic::masked_load:
        return lanes(call, call.getArgOperand(0), call.getType(), call.getArgOperand(2), 1, lanes_);
      case Intrinsic::masked_store:
        return lanes(call, call.getArgOperand(1), call.getArgOperand(0)->getType(), call.getArgOperand(3), 2, lanes_);
      case Intrinsic::masked_expandload:
        return lanes(call, call.getArgOperand(0), call.getType(), call.getArgOperand(1), 1, packed_lanes_);
      case Intrinsic::masked_compressstore:
        return lanes(call, call.getArgOperand(1), call.getArgOperand(0)->getType(), call.getArgOperand(2), 2,
                     packed_lanes_);
      case Intrinsic::masked_gather:
        return lanes_of_pointers(call, call.getArgOperand(0), call.getType(), call.getArgOperand(2), 1);
      case Intrinsic::masked_scatter:
        return lanes_of_pointers(call, call.getArgOperand(1), call.getArgOperand(0)->getType(), call.getArgOperand(3),
                                 2);
      default:
        return false;
    }
  }

  // The bytes of a lane of a vector type with at most 64 lanes; 0: the type is another one, which x86 does not have.
  uint64_t bytes_of_lane(const Type* type) const {
    const auto* const vector = dyn_cast<FixedVectorType>(type);
    if (vector == nullptr || vector->getNumElements() > 64) return 0;
    return module_.getDataLayout().getTypeStoreSize(vector->getElementType()).getFixedValue();
  }

  // The lanes of `type` are in memory from `pointer` on.
  bool lanes(IntrinsicInst& call, Value* pointer, Type* type, Value* mask, unsigned kind, FunctionCallee record) {
    const uint64_t bytes = bytes_of_lane(type);
    if (bytes == 0) return false;
    IRBuilder<> builder(&call);
    Value* const bits = builder.CreateBitCast(mask, builder.getIntNTy(cast<FixedVectorType>(type)->getNumElements()));
    builder.CreateCall(record, {address_value(builder, pointer), site_value(builder, site_of(call)), constant(bytes),
                                constant(kind), builder.CreateZExt(bits, i64_)});
    return true;
  }

  // Each lane of `type` is where its pointer says.
  bool lanes_of_pointers(IntrinsicInst& call, Value* pointers, Type* type, Value* mask, unsigned kind) {
    const uint64_t bytes = bytes_of_lane(type);
    if (bytes == 0) return false;
    IRBuilder<> builder(&call);
    Value* const where = site_value(builder, site_of(call));
    for (unsigned lane = 0; lane < cast<FixedVectorType>(type)->getNumElements(); ++lane) {
      builder.CreateCall(lanes_,
                         {address_value(builder, builder.CreateExtractElement(pointers, lane)), where, constant(bytes),
                          constant(kind), builder.CreateZExt(builder.CreateExtractElement(mask, lane), i64_)});
    }
    return true;
  }

  bool allocation(CallBase& call) {
    const Function* const callee = call.getCalledFunction();
    if (callee == nullptr || callee->isIntrinsic() || !is_allocator(callee->getName())) return false;
    IRBuilder<> builder(&call);
    builder.CreateStore(site_value(builder, site_of(call, name_of(call))),
                        builder.CreateThreadLocalAddress(allocation_site_));
    return true;
  }

  Constant* string(StringRef text) {
    Constant*& found = strings_[text];
    if (found == nullptr) {
      auto* const data = ConstantDataArray::getString(context_, text);
      auto* const global = new GlobalVariable(module_, data->getType(), true, GlobalValue::PrivateLinkage, data);
      global->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
      found = global;
    }
    return found;
  }

  template <typename Elements>
  Constant* table(StructType* type, const Elements& elements) {
    auto* const array = ArrayType::get(type, elements.size());
    return new GlobalVariable(module_, array, true, GlobalValue::InternalLinkage, ConstantArray::get(array, elements),
                              "__multigrain_record_table");
  }

  // Adds a raw::ModuleDescription to the module, and a constructor that passes it to the runtime.
  void describe(const std::vector<GlobalVariable*>& globals) {
    StructType* const global_type = StructType::get(ptr_, i64_, i32_, i32_);
    StructType* const site_type = StructType::get(ptr_, ptr_, ptr_, i32_, i32_);
    std::vector<Constant*> global_table;
    for (GlobalVariable* global : globals) {
      SiteKey key{module_.getSourceFileName(), "", demangle(global->getName()), 0};
      SmallVector<DIGlobalVariableExpression*> expressions;
      global->getDebugInfo(expressions);
      if (!expressions.empty()) {
        const DIGlobalVariable* const variable = expressions.front()->getVariable();
        key.name = variable->getName().str();
        key.line = variable->getLine();
        if (variable->getFile() != nullptr) key.file = path_of(*variable->getFile());
      }
      const uint64_t bytes = module_.getDataLayout().getTypeAllocSize(global->getValueType()).getFixedValue();
      global_table.push_back(
          ConstantStruct::get(global_type, {global, ConstantInt::get(i64_, bytes),
                                            ConstantInt::get(i32_, site(std::move(key))), ConstantInt::get(i32_, 0)}));
    }
    std::vector<Constant*> site_table;
    site_table.reserve(sites_.size());
    for (const SiteKey* key : sites_) {
      site_table.push_back(
          ConstantStruct::get(site_type, {string(key->file), string(key->function), string(key->name),
                                          ConstantInt::get(i32_, key->line), ConstantInt::get(i32_, 0)}));
    }
    auto* const group_array = ArrayType::get(ptr_, groups_.size());
    auto* const group_table = new GlobalVariable(module_, group_array, true, GlobalValue::InternalLinkage,
                                                 ConstantArray::get(group_array, groups_), "__multigrain_record_table");
    StructType* const module_type = StructType::get(i32_, i32_, ptr_, ptr_, i64_, ptr_, ptr_, ptr_, i64_);
    auto* const description = new GlobalVariable(
        module_, module_type, true, GlobalValue::InternalLinkage,
        ConstantStruct::get(
            module_type,
            {ConstantInt::get(i32_, raw::kVersion), ConstantInt::get(i32_, site_table.size()),
             table(site_type, site_table), first_site_, ConstantInt::get(i64_, global_table.size()),
             table(global_type, global_table), first_group_, group_table, ConstantInt::get(i64_, groups_.size())}),
        "__multigrain_record_description");
    auto* const constructor = Function::Create(FunctionType::get(void_, false), GlobalValue::InternalLinkage,
                                               "__multigrain_record_constructor", module_);
    IRBuilder<> builder(BasicBlock::Create(context_, "", constructor));
    builder.CreateCall(
        module_.getOrInsertFunction("__multigrain_record_module", FunctionType::get(void_, {ptr_}, false)),
        {description});
    builder.CreateRetVoid();
    // This runs before constructors of the program, whose references need their sites.
    appendToGlobalCtors(module_, constructor, 102);
  }

  Module& module_;
  FunctionAnalysisManager& analyses_;
  LLVMContext& context_;
  Type* void_;
  IntegerType* i32_;
  IntegerType* i64_;
  PointerType* ptr_;
  StructType *state_type_, *access_type_, *group_type_, *call_type_;
  FunctionCallee slow_, range_, lanes_, packed_lanes_, atomic_begin_, atomic_end_, call_;
  GlobalVariable* state_;
  GlobalVariable* allocation_site_;
  GlobalVariable* first_site_;
  GlobalVariable* first_group_;
  Value* site_base_ = nullptr;
  Value* calls_ = nullptr;                     // the number of those that led to this function
  std::vector<Constant*> groups_;              // their descriptions
  DenseMap<const Value*, bool> captured_;      // the variables of this function whose address goes somewhere
  StringMap<const DICompositeType*> records_;  // by the name that the compiler's alias analysis has for them
  bool has_records_ = false;
  std::map<SiteKey, uint32_t> site_numbers_;
  std::vector<const SiteKey*> sites_;
  StringMap<Constant*> strings_;
};

}  // namespace

// Instruments all of a module. Returns whether the module changed.
bool instrument(llvm::Module& module, llvm::FunctionAnalysisManager& analyses) {
  return Instrumentation(module, analyses).run();
}

namespace {

struct RecordPass : PassInfoMixin<RecordPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager& analyses) {
    FunctionAnalysisManager& of_functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    return instrument(module, of_functions) ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  // LLVM knows the pass by this name. It is required, because functions that are not optimised are wanted, too.
  static bool isRequired() { return true; }  // NOLINT(readability-identifier-naming)
};

}  // namespace
}  // namespace multigrain::trace::record

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "multigrain-record", "1", [](llvm::PassBuilder& builder) {
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(multigrain::trace::record::RecordPass());
            });
            builder.registerPipelineParsingCallback([](llvm::StringRef name, llvm::ModulePassManager& passes, auto) {
              if (name != "multigrain-record") return false;
              passes.addPass(multigrain::trace::record::RecordPass());
              return true;
            });
          }};
}
