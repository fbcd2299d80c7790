#include "library_calls.h"

#include <llvm/ADT/StringSet.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include "atomics.h"
#include "checks.h"
#include "instrument/abi.h"
#include "library_names.h"
#include "options.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Tells whether a wrapped function may reach shared memory by its arguments.
bool reaches_shared(const CallBase& call, StringRef name) {
  // Some functions may reach shared memory even if no argument is shared: by a list of arguments; by a pointer that an
  // earlier call left in the program's own memory; by nodes that are linked to a private node. dlsym may return such
  // functions, and must return their wrappers.
  static const StringSet<> always = {"strtok",  "strtok_r", "__strtok_r", "strsep",
                                     "getline", "getdelim", "__getdelim", "dlsym"};
  if (always.contains(name) || name.contains("_List_node_base") || name.contains("_Rb_tree_")) return true;
  if ((name.starts_with("v") || name.starts_with("__v")) && (name.contains("printf") || name.contains("scanf")))
    return true;
  // A stream is the C library's own object, and private.
  const bool stream_is_first = name == "fscanf" || name == "fprintf" || name == "__fprintf_chk";
  return any_of(drop_begin(call.args(), stream_is_first ? 1 : 0), [](const Use& argument) {
    return argument->getType()->isPointerTy() && may_be_shared(argument.get());
  });
}

FunctionCallee wrapper_in(Module& module, const Function& function) {
  return module.getOrInsertFunction(wrapper_of(function), function.getFunctionType());
}

std::string readable(const Function& function) {
  return demangle(function.getName().str());
}

void warn(const Function& caller, const DebugLoc& location, const Twine& what, bool is_error = false) {
  note_gap(caller);
  is_error |= options().unchecked_call == Options::Unchecked::kError;
  if (options().unchecked_call == Options::Unchecked::kIgnore && !is_error) return;
  caller.getContext().diagnose(DiagnosticInfoUnsupported(
      caller,
      "multigrain: " + what + (is_error ? " [-Werror=multigrain-unchecked-call]" : " [-Wmultigrain-unchecked-call]"),
      location, is_error ? DS_Error : DS_Warning));
}

// Inserts a test in front of the call: if the pointer is shared, the code calls the runtime, which ends the run if the
// memory is kept coherent by lines.
void look_at(CallBase& call, Value* pointer) {
  Module& module = *call.getModule();
  IRBuilder<> builder(&call);
  Value* const number = builder.CreatePtrToInt(pointer, builder.getInt64Ty());
  Value* const shared = is_in_view(builder, number);
  MDNode* const rarely = MDBuilder(module.getContext()).createBranchWeights(1, 1 << 20);
  Instruction* const then = SplitBlockAndInsertIfThen(shared, &call, false, rarely);
  builder.SetInsertPoint(then);
  builder.SetCurrentDebugLocation(call.getDebugLoc());
  auto* const type = builder.getPtrTy();
  Value* file = ConstantPointerNull::get(type);
  unsigned line = 0;
  if (const DILocation* const location = call.getDebugLoc()) {
    file = builder.CreateGlobalString(location->getFilename());
    line = location->getLine();
  }
  const FunctionCallee entry = module.getOrInsertFunction("__multigrain_hand_out", builder.getVoidTy(), type, type,
                                                          type, type, builder.getInt32Ty());
  Function& callee = *call.getCalledFunction();
  Value* address = &callee;
  if (callee.isIntrinsic()) address = ConstantPointerNull::get(type);
  builder.CreateCall(entry,
                     {pointer, address, builder.CreateGlobalString(callee.getName()), file, builder.getInt32(line)});
}

// Handles a call of a function that has no wrapper.
bool look_at_arguments(CallBase& call, const Function& callee, Library kind) {
  SmallVector<Value*, 4> suspects;
  bool likely = false;
  for (unsigned i = 0; i < call.arg_size(); ++i) {
    const Use& argument = call.getArgOperandUse(i);
    if (!argument->getType()->isPointerTy() || !may_be_shared(argument.get()) || call.isByValArgument(i)) continue;
    suspects.push_back(argument.get());
    // The object of a member function is mostly private, such as a stream that is passed by reference.
    likely |= !(i == 0 && callee.getName().starts_with("_ZN"));
  }
  if (suspects.empty()) return false;
  // There is a gap also where the warning is left out: what a private object of a member function points to may be shared.
  if (kind == Library::kUnchecked) note_gap(*call.getFunction());
  if (likely && kind == Library::kUnchecked) {
    warn(*call.getFunction(), call.getDebugLoc(),
         readable(callee) +
             " has no access checks, and may be handed a pointer to shared memory, which ends a run under a line "
             "protocol: hand it private memory");
  }
  for (Value* pointer : suspects) look_at(call, pointer);
  return true;
}

// Returns a function of this file that tests its arguments and then calls the given function.
Function* make_looking(Function& function) {
  Module& module = *function.getParent();
  const std::string name = ("multigrain.looking." + function.getName()).str();
  if (Function* const known = module.getFunction(name)) return known;
  auto* const looking = Function::Create(function.getFunctionType(), GlobalValue::InternalLinkage, name, module);
  looking->setAttributes(function.getAttributes());
  looking->addFnAttr(Attribute::DisableSanitizerInstrumentation);  // no checks of its own
  IRBuilder<> builder(BasicBlock::Create(module.getContext(), "", looking));
  SmallVector<Value*, 8> arguments;
  for (Argument& argument : looking->args()) arguments.push_back(&argument);
  CallInst* const call = builder.CreateCall(&function, arguments);
  if (call->getType()->isVoidTy())
    builder.CreateRetVoid();
  else
    builder.CreateRet(call);
  for (Value* argument : arguments)
    if (argument->getType()->isPointerTy()) look_at(*call, argument);
  return looking;
}

bool is_called_by(const Use& use) {
  const auto* const call = dyn_cast<CallBase>(use.getUser());
  return call != nullptr && call->isCallee(&use);
}

// Returns the first instruction that makes a pointer to the function, or nullptr if there is none.
const Instruction* first_user(const Function& function) {
  for (const Use& use : function.uses())
    if (!is_called_by(use))
      if (const auto* instruction = dyn_cast<Instruction>(use.getUser())) return instruction;
  return nullptr;
}

}  // namespace

bool redirect_library_call(CallBase& call) {
  Function* const callee = call.getCalledFunction();
  if (callee == nullptr || callee->isIntrinsic() || !callee->isDeclaration()) return false;
  if (redirect_atomic_call(call)) return true;
  if (is_wrapped(*callee) && callee->getFunctionType() == call.getFunctionType()) {
    if (!reaches_shared(call, without_prefix(callee->getName()))) return false;
    call.setCalledFunction(wrapper_in(*call.getModule(), *callee));
    // The attributes of the library's function do not hold for the wrapper, which may wait for other nodes.
    call.setAttributes(AttributeList());
    return true;
  }
  const Library kind = kind_of(*callee);
  if (kind == Library::kNone || kind == Library::kAccepts) return false;
  return look_at_arguments(call, *callee, kind);
}

bool look_at_intrinsic(IntrinsicInst& intrinsic) {
  SmallVector<Value*, 4> suspects;
  for (const Use& argument : intrinsic.args())
    if (argument->getType()->isPointerTy() && may_be_shared(argument.get())) suspects.push_back(argument.get());
  if (suspects.empty()) return false;
  warn(
      *intrinsic.getFunction(), intrinsic.getDebugLoc(),
      intrinsic.getCalledFunction()->getName() +
          " accesses memory that may be shared by an instruction that is not checked; a run under a line protocol ends "
          "where it is: hand it private memory",
      options().asm_is_error);
  for (Value* pointer : suspects) look_at(intrinsic, pointer);
  return true;
}

bool redirect_function_pointers(Module& module) {
  bool changed = false;
  std::vector<Function*> declared;
  for (Function& function : module)
    if (function.isDeclaration() && !all_of(function.uses(), is_called_by)) declared.push_back(&function);
  for (Function* function : declared) {
    Value* instead = nullptr;
    if (is_wrapped(*function)) {
      instead = wrapper_in(module, *function).getCallee();
    } else if (kind_of(*function) == Library::kUnchecked && !function->getName().starts_with("_Z") &&
               any_of(function->getFunctionType()->params(), [](const Type* type) { return type->isPointerTy(); })) {
      const Instruction* const user = first_user(*function);
      if (user != nullptr)
        warn(
            *user->getFunction(), user->getDebugLoc(),
            readable(*function) +
                " has no access checks: a call through this pointer that hands it a pointer to shared memory ends a run "
                "under a line protocol");
      if (!function->isVarArg()) instead = make_looking(*function);
    }
    if (instead == nullptr) continue;
    function->replaceUsesWithIf(instead, [&](const Use& use) {
      return !is_called_by(use) && !(isa<Instruction>(use.getUser()) &&
                                     is_call_of(*cast<Instruction>(use.getUser()), "__multigrain_hand_out"));
    });
    changed = true;
  }
  return changed;
}

}  // namespace multigrain::checks
