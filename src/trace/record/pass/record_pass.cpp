// The compiler pass of `mgtrace cc` calls the recorder's runtime for every reference to memory that threads may share.
//
// It runs last, when variables that fit have been moved to registers. The loads and stores that remain are references
// of the program (except for spills of the code generator, and the pushes of calls). References to locals that stay on
// the stack, and whose address goes nowhere, are private ([Bolosky], section 2.2): they are counted, a basic block at a
// time. Of other references to stacks the runtime says whether another thread can make them, too.
//
// Another pipeline can use the pass by calling instrument(); the plugin below is one way to run it.
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/Analysis/CaptureTracking.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/DebugInfo.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/Path.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <map>
#include <tuple>
#include <vector>

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
  explicit Instrumentation(Module& module)
      : module_(module),
        context_(module.getContext()),
        void_(Type::getVoidTy(context_)),
        i32_(Type::getInt32Ty(context_)),
        i64_(Type::getInt64Ty(context_)),
        ptr_(PointerType::getUnqual(context_)) {
    read_ = declare("__multigrain_record_read", {i64_, i32_, i32_});
    write_ = declare("__multigrain_record_write", {i64_, i32_, i32_});
    range_ = declare("__multigrain_record_range", {i64_, i64_, i64_, i32_});
    lanes_ = declare("__multigrain_record_lanes", {i64_, i32_, i32_, i32_, i64_});
    packed_lanes_ = declare("__multigrain_record_packed_lanes", {i64_, i32_, i32_, i32_, i64_});
    atomic_begin_ = declare("__multigrain_record_atomic_begin", {i64_, i32_, i32_, i32_});
    atomic_end_ = declare("__multigrain_record_atomic_end", {});
    private_ = thread_local_of_runtime("__multigrain_record_private", i64_);
    allocation_site_ = thread_local_of_runtime("__multigrain_record_allocation_site", i32_);
    first_site_ = new GlobalVariable(module, i32_, false, GlobalValue::InternalLinkage, ConstantInt::get(i32_, 0),
                                     "__multigrain_record_first_site");
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

  uint32_t site_of(const Instruction& instruction, std::string name = "") {
    SiteKey key;
    key.name = std::move(name);
    key.line = 0;
    if (const DILocation* const location = instruction.getDebugLoc().get()) {
      key.file = path_of(*location->getFile());
      key.line = location->getLine();
      if (const DISubprogram* const subprogram = location->getScope()->getSubprogram()) {
        key.function = subprogram->getName().str();
      }
    }
    if (key.function.empty()) {
      key.function = demangle(instruction.getFunction()->getName());
      if (key.file.empty()) key.file = module_.getSourceFileName();
    }
    return site(std::move(key));
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
    std::vector<std::pair<BasicBlock*, std::vector<Instruction*>>> work;
    for (BasicBlock& block : function) {
      work.push_back({&block, {}});
      for (Instruction& instruction : block) {
        if (instruction.mayReadOrWriteMemory() || isa<CallBase>(instruction))
          work.back().second.push_back(&instruction);
      }
    }
    // One load of the number of this module's first site serves all of the function.
    IRBuilder<> entry(&*function.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
    LoadInst* const base = entry.CreateLoad(i32_, first_site_);
    base->setDebugLoc({});
    site_base_ = base;
    bool changed = false;
    for (auto& [block, instructions] : work) {
      private_references_ = 0;
      for (Instruction* instruction : instructions) changed |= instrument(*instruction);
      if (private_references_ == 0) continue;
      auto at = block->getFirstInsertionPt();
      if (at == block->end()) continue;  // the block is a catchswitch, which has no place for code
      while (isa<AllocaInst>(*at) || &*at == base) ++at;
      IRBuilder<> builder(block, at);
      builder.SetCurrentDebugLocation({});
      Value* const counter = builder.CreateThreadLocalAddress(private_);
      builder.CreateStore(
          builder.CreateAdd(builder.CreateLoad(i64_, counter), ConstantInt::get(i64_, private_references_)), counter);
      changed = true;
    }
    if (base->use_empty()) base->eraseFromParent();
    return changed;
  }

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
    if (is_private(pointer)) {
      private_references_ += kind == 3 ? 2 : 1;
      return false;
    }
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
    } else if (size > kLargestReference) {
      Value* const none = ConstantInt::get(i64_, 0);
      builder.CreateCall(range_,
                         {kind == 1 ? none : address, kind == 1 ? address : none, ConstantInt::get(i64_, size), where});
    } else {
      builder.CreateCall(kind == 1 ? read_ : write_, {address, where, constant(size)});
    }
    return true;
  }

  bool range(AnyMemIntrinsic& memory) {
    Value* const to = memory.getRawDest();
    Value* const from = isa<AnyMemTransferInst>(memory) ? cast<AnyMemTransferInst>(memory).getRawSource() : nullptr;
    const bool to_private = is_private(to);
    const bool from_private = from == nullptr || is_private(from);
    const auto* const length = dyn_cast<ConstantInt>(memory.getLength());
    const uint64_t words = length != nullptr ? (length->getZExtValue() + 7) / 8 : 1;
    if (to_private) private_references_ += words;
    if (from != nullptr && from_private) private_references_ += words;
    if (to_private && from_private) return false;
    IRBuilder<> builder(&memory);
    Value* const none = ConstantInt::get(i64_, 0);
    builder.CreateCall(
        range_, {to_private ? none : address_value(builder, to), from_private ? none : address_value(builder, from),
                 builder.CreateZExtOrTrunc(memory.getLength(), i64_), site_value(builder, site_of(memory))});
    return true;
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
    if (is_private(pointer)) {
      ++private_references_;  // how many lanes there are is known only when the program runs
      return false;
    }
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
    StructType* const module_type = StructType::get(i32_, i32_, ptr_, ptr_, i64_, ptr_);
    auto* const description = new GlobalVariable(
        module_, module_type, true, GlobalValue::InternalLinkage,
        ConstantStruct::get(module_type,
                            {ConstantInt::get(i32_, raw::kVersion), ConstantInt::get(i32_, site_table.size()),
                             table(site_type, site_table), first_site_, ConstantInt::get(i64_, global_table.size()),
                             table(global_type, global_table)}),
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
  LLVMContext& context_;
  Type* void_;
  IntegerType* i32_;
  IntegerType* i64_;
  PointerType* ptr_;
  FunctionCallee read_, write_, range_, lanes_, packed_lanes_, atomic_begin_, atomic_end_;
  GlobalVariable* private_;
  GlobalVariable* allocation_site_;
  GlobalVariable* first_site_;
  Value* site_base_ = nullptr;
  uint64_t private_references_ = 0;
  DenseMap<const Value*, bool> captured_;  // the variables of this function whose address goes somewhere
  std::map<SiteKey, uint32_t> site_numbers_;
  std::vector<const SiteKey*> sites_;
  StringMap<Constant*> strings_;
};

}  // namespace

// Instruments all of a module. Returns whether the module changed.
bool instrument(llvm::Module& module) {
  return Instrumentation(module).run();
}

namespace {

struct RecordPass : PassInfoMixin<RecordPass> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    return instrument(module) ? PreservedAnalyses::none() : PreservedAnalyses::all();
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
