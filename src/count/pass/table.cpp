#include "table.h"

#include <llvm/IR/Constants.h>
#include <llvm/Support/MathExtras.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <limits>

#include "count/note.h"

namespace multigrain::count {

using namespace llvm;

namespace {

// Libraries of the same process register before the program's own constructors run.
constexpr int kPriority = 101;

uint32_t saturated(uint64_t number) {
  return static_cast<uint32_t>(std::min<uint64_t>(number, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

Table::Table(Module& module, bool reports_memory)
    : module_(module),
      reports_memory_(reports_memory),
      costs_(new GlobalVariable(module, Type::getInt64Ty(module.getContext()), false, GlobalValue::ExternalLinkage,
                                nullptr, "multigrain.costs.of.unknown.length")) {
  costs_->setDSOLocal(true);
}

unsigned Table::entry_of(const Cost& cost) {
  Key key{cost.instructions, {}};
  for (const NamedCalls& call : cost.calls) key.second.emplace_back(call.name, call.calls, call.bytes);
  const auto [place, is_new] = entries_.try_emplace(std::move(key), static_cast<unsigned>(in_order_.size()));
  if (is_new) in_order_.push_back(&place->first);
  return place->second;
}

Value* Table::load_cost(IRBuilderBase& builder, const Cost& cost) {
  Type* const word = builder.getInt64Ty();
  Constant* const address = ConstantExpr::getGetElementPtr(word, costs_, builder.getInt64(entry_of(cost)));
  return builder.CreateAlignedLoad(word, address, Align(8), "cost");
}

GlobalVariable* Table::add_constant(Constant* value, const char* name) {
  auto* const made = new GlobalVariable(module_, value->getType(), true, GlobalValue::PrivateLinkage, value, name);
  return made;
}

GlobalVariable* Table::add_text(StringRef text) {
  GlobalVariable* const made =
      add_constant(ConstantDataArray::getString(module_.getContext(), text), "multigrain.text");
  made->setUnnamedAddr(GlobalValue::UnnamedAddr::Global);
  return made;
}

Function* Table::add_function_of_module(const char* name, const char* calls, GlobalVariable* description) {
  LLVMContext& context = module_.getContext();
  auto* const type = FunctionType::get(Type::getVoidTy(context), false);
  Function* const function = Function::Create(type, GlobalValue::InternalLinkage, name, module_);
  function->addFnAttr(Attribute::NoUnwind);
  IRBuilder<> builder(BasicBlock::Create(context, "", function));
  const FunctionCallee callee = module_.getOrInsertFunction(calls, builder.getVoidTy(), builder.getPtrTy());
  builder.CreateCall(callee, {description});
  builder.CreateRetVoid();
  return function;
}

void Table::finish() {
  LLVMContext& context = module_.getContext();
  Type* const number = Type::getInt32Ty(context);
  Type* const word = Type::getInt64Ty(context);
  Type* const pointer = PointerType::get(context, 0);

  auto* const costs_type = ArrayType::get(word, std::max<size_t>(in_order_.size(), 1));
  auto* const costs = new GlobalVariable(module_, costs_type, false, GlobalValue::InternalLinkage,
                                         ConstantAggregateZero::get(costs_type), "multigrain.costs");
  costs->setAlignment(Align(64));
  costs_->replaceAllUsesWith(costs);
  costs_->eraseFromParent();

  std::vector<Constant*> rows;
  std::vector<Constant*> calls;
  auto* const call_type = StructType::get(context, {pointer, number, number, word});
  std::map<StringRef, Constant*> texts;
  for (unsigned entry = 0; entry < in_order_.size(); ++entry) {
    const auto& [instructions, named] = *in_order_[entry];
    SmallVector<uint32_t, MG_COUNT_COLUMNS> row;
    for (const uint64_t each : instructions) row.push_back(saturated(each));
    rows.push_back(ConstantDataArray::get(context, row));
    for (const auto& [name, times, bytes] : named) {
      Constant*& text = texts[name];
      if (text == nullptr) text = add_text(name);
      calls.push_back(
          ConstantStruct::get(call_type, {text, ConstantInt::get(number, entry),
                                          ConstantInt::get(number, saturated(times)), ConstantInt::get(word, bytes)}));
    }
  }
  GlobalVariable* const table =
      add_constant(ConstantArray::get(ArrayType::get(ArrayType::get(number, MG_COUNT_COLUMNS), rows.size()), rows),
                   "multigrain.instructions");
  GlobalVariable* const call_table =
      add_constant(ConstantArray::get(ArrayType::get(call_type, calls.size()), calls), "multigrain.calls");

  auto* const type = StructType::get(context, {number, pointer, number, number, pointer, pointer, pointer, pointer});
  Constant* const value =
      ConstantStruct::get(type, {ConstantInt::get(number, MG_COUNT_VERSION), add_text(module_.getSourceFileName()),
                                 ConstantInt::get(number, in_order_.size()), ConstantInt::get(number, calls.size()),
                                 table, costs, call_table, ConstantPointerNull::get(cast<PointerType>(pointer))});
  auto* const description =
      new GlobalVariable(module_, type, false, GlobalValue::InternalLinkage, value, MG_COUNTED_MODULE);
  appendToCompilerUsed(module_, {description});
  const char* const registers = reports_memory_ ? "__multigrain_count_register_memory" : "__multigrain_count_register";
  appendToGlobalCtors(module_, add_function_of_module("multigrain.count.begin", registers, description), kPriority);
  appendToGlobalDtors(
      module_, add_function_of_module("multigrain.count.end", "__multigrain_count_unregister", description), kPriority);
  module_.appendModuleInlineAsm(MG_COUNT_NOTE);
}

}  // namespace multigrain::count
