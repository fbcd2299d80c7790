#include "translate.h"

#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "checked_function.h"
#include "entry_calls.h"
#include "instrument/abi.h"
#include "instrument/note.h"
#include "options.h"
#include "prepare.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

class Translation {
 public:
  explicit Translation(CheckedFunction& function) : f_(function) {}

  // The code is
  //
  //   head:     if the address is shared, go on at `looking`, else at `body`
  //   looking:  publish the hazard; load the page's rights; if they do not allow the access, or it may lie in two pages, go on
  //             at `missed`, else at `body`
  //   missed:   the runtime's entry returns with the hazard published and the access allowed
  //   body:     the access; clear the hazard
  //
  // The hazard is published by a plain store: whoever takes the right away makes this processor execute a barrier before it
  // looks for hazards (coherence/mgs/translation_tables.cpp).
  void translate(Instruction& access) {
    const bool stores = !isa<LoadInst>(access);
    Value* const pointer = pointer_of_access(access);
    Type* const type = type_of_access(access);
    const uint64_t size = f_.layout.getTypeStoreSize(type);
    const bool within_page = align_of(access).value() >= size;
    const DebugLoc location = access.getDebugLoc();

    BasicBlock* const head = access.getParent();
    BasicBlock* const body = SplitBlock(head, &access);
    BasicBlock* const looking = BasicBlock::Create(f_.context, "", &f_.function, body);
    BasicBlock* const missed = BasicBlock::Create(f_.context, "", &f_.function);

    head->getTerminator()->eraseFromParent();
    IRBuilder<> builder(head);
    builder.SetCurrentDebugLocation(location);
    Value* const address = builder.CreatePtrToInt(pointer, f_.i64);
    branch_if_in_view(builder, pointer, address, looking, body);

    builder.SetInsertPoint(looking);
    Value* const offset = builder.CreateSub(address, builder.getInt64(MG_FINE_VIEW_BASE));
    // The first line takes the lower bits of the word, and the number of lines those above.
    Value* const hazard = builder.CreateAdd(
        builder.CreateLShr(offset, load_line_shift(builder)),
        builder.getInt64(MG_TRANSLATE_LINES * MG_FINE_HAZARD_LINE + (stores ? MG_FINE_HAZARD_STORES : 0)));
    builder.CreateAlignedStore(hazard, hazards_of_thread(builder, f_.module), Align(8))
        ->setAtomic(AtomicOrdering::Monotonic);
    keep_order(builder);
    auto* const table_type = StructType::get(f_.context, {static_cast<Type*>(f_.ptr), f_.i64});
    Value* const table =
        builder.CreateThreadLocalAddress(thread_local_of_runtime(f_.module, "__multigrain_translation", table_type));
    Value* const rights = builder.CreateAlignedLoad(f_.ptr, table, Align(8));
    Value* const shift = builder.CreateAlignedLoad(f_.i64, builder.CreateStructGEP(table_type, table, 1), Align(8));
    Value* const page = builder.CreateLShr(offset, shift);
    Value* const entry =
        builder.CreateAlignedLoad(builder.getInt8Ty(), builder.CreatePtrAdd(rights, page), Align(1), true);
    Value* allowed = builder.CreateICmpNE(
        builder.CreateAnd(entry, builder.getInt8(stores ? MG_TRANSLATE_MAY_WRITE : MG_TRANSLATE_MAY_READ)),
        builder.getInt8(0));
    if (!within_page) {
      Value* const last = builder.CreateLShr(builder.CreateAdd(offset, builder.getInt64(size - 1)), shift);
      allowed = builder.CreateAnd(allowed, builder.CreateICmpEQ(last, page));
    }
    builder.CreateCondBr(allowed, body, missed, f_.mostly);

    builder.SetInsertPoint(missed);
    auto* const entry_type = FunctionType::get(builder.getVoidTy(), {f_.ptr, f_.i64}, false);
    const char* const name = stores ? "__multigrain_translate_write_miss" : "__multigrain_translate_read_miss";
    call_cold_entry(builder, cold_entry(f_.module, name, entry_type), {pointer, builder.getInt64(size)});
    builder.CreateBr(body);

    builder.SetInsertPoint(&access);
    keep_order(builder);
    builder.SetInsertPoint(access.getNextNode());
    builder.SetCurrentDebugLocation(location);
    // An entry may have given the thread other hazards.
    clear_hazard(builder, hazards_of_thread(builder, f_.module), 0);
    if (options().sequential && stores && !access.isAtomic())
      builder.CreateFence(AtomicOrdering::SequentiallyConsistent);
    f_.changed = true;
  }

 private:
  // Keeps the compiler, but not the processor, from moving accesses across.
  static void keep_order(IRBuilder<>& builder) {
    builder.CreateFence(AtomicOrdering::SequentiallyConsistent, SyncScope::SingleThread);
  }

  static Align align_of(const Instruction& access) {
    if (const auto* const update = dyn_cast<AtomicRMWInst>(&access)) return update->getAlign();
    if (const auto* const exchange = dyn_cast<AtomicCmpXchgInst>(&access)) return exchange->getAlign();
    return getLoadStoreAlignment(const_cast<Instruction*>(&access));
  }

  CheckedFunction& f_;
};

}  // namespace

bool translate_accesses(Function& translated, AAResults& aliases) {
  CheckedFunction function(translated, aliases);
  prepare_accesses(function);
  Translation translation(function);
  for (Instruction* const access : function.accesses) translation.translate(*access);
  return function.changed;
}

void add_note_of_translation(Module& module) {
  module.appendModuleInlineAsm(MG_TRANSLATE_NOTE);
}

}  // namespace multigrain::checks
