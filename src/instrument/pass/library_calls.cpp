#include "library_calls.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include "atomics.h"
#include "shared.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// memory_functions.h and fine_grain.h: the same signature, with a prefix.
const StringSet<>& wrapped() {
  static const StringSet<> names = {"memcpy",   "memmove", "memset", "mempcpy", "memcmp",   "bcmp",     "memchr",
                                    "strlen",   "strnlen", "strcmp", "strncmp", "strcpy",   "stpcpy",   "strncpy",
                                    "strcat",   "strchr",  "strrchr", "strstr", "strdup",   "qsort",    "sprintf",
                                    "snprintf", "vsprintf", "vsnprintf", "fgets",
                                    "strtol",   "strtoul", "strtoll", "strtoull", "strtof", "strtod",  "strtold",
                                    "scanf",    "fscanf",  "sscanf",  "vscanf",   "vfscanf", "vsscanf",
                                    // Of the C++ library: nodes of trees and lists (runtime/containers.cpp).
                                    "_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base",
                                    "_ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base",
                                    "_ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base",
                                    "_ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base",
                                    "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_",
                                    "_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_",
                                    "_ZNSt8__detail15_List_node_base7_M_hookEPS0_",
                                    "_ZNSt8__detail15_List_node_base9_M_unhookEv",
                                    "_ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_",
                                    "_ZNSt8__detail15_List_node_base10_M_reverseEv",
                                    "_ZNSt8__detail15_List_node_base4swapERS0_S1_"};
  return names;
}

// Functions that read strings and keep none of them: which arguments are strings (a bit each), and whether the variable
// arguments may be.
struct Strings {
  unsigned fixed;
  bool variable;
};
const StringMap<Strings>& string_readers() {
  static const StringMap<Strings> readers = {
      {"printf", {1, true}},   {"fprintf", {2, true}}, {"dprintf", {2, true}}, {"sprintf", {2, true}},
      {"snprintf", {4, true}}, {"puts", {1, false}},   {"perror", {1, false}}, {"atoi", {1, false}},
      {"atol", {1, false}},    {"atoll", {1, false}},  {"atof", {1, false}},   {"fopen", {3, false}},
      {"getenv", {1, false}},  {"remove", {1, false}}, {"rename", {3, false}}, {"system", {1, false}},
      {"setenv", {3, false}},  {"strcasecmp", {3, false}}, {"strncasecmp", {3, false}}};
  return readers;
}

// Only what printf will take for a string; of a format that is not constant, every pointer might be one.
bool is_string_conversion(const CallBase& call, unsigned format_argument, unsigned argument) {
  StringRef format;
  if (!getConstantStringInfo(call.getArgOperand(format_argument), format)) return false;
  unsigned at = format_argument + 1;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    if (++i < format.size() && format[i] == '%') continue;
    for (; i < format.size() && !isAlpha(format[i]); ++i)
      if (format[i] == '*') ++at;
    while (i < format.size() && StringRef("hlLqjzt").contains(format[i])) ++i;
    if (i >= format.size()) break;
    if (at == argument) return format[i] == 's';
    ++at;
  }
  return false;
}

// Under which names the C library's headers declare them.
StringRef without_prefix(StringRef name) {
  for (const char* prefix : {"__isoc99_", "__isoc23_"}) name.consume_front(prefix);
  return name;
}

// Whether a function may reach shared memory by its arguments.
bool reaches_shared(const CallBase& call, StringRef name) {
  // Nodes that are shared may hang on one that is not.
  if (name.starts_with("_ZNSt8__detail15_List_node_base") || name.contains("_Rb_tree_")) return true;
  // Through the list of arguments.
  if (name.starts_with("v") && name.ends_with("scanf")) return true;
  // A stream is the C library's.
  return any_of(drop_begin(call.args(), name == "fscanf" ? 1 : 0), [](const Use& argument) {
    return argument->getType()->isPointerTy() && may_be_shared(argument.get());
  });
}

}  // namespace

bool redirect_library_call(CallBase& call) {
  Function* const callee = call.getCalledFunction();
  if (callee == nullptr || callee->isIntrinsic() || !callee->isDeclaration()) return false;
  if (redirect_atomic_call(call)) return true;
  Module& module = *call.getModule();
  const StringRef name = without_prefix(callee->getName());
  bool changed = false;
  if (const auto reader = string_readers().find(name); reader != string_readers().end()) {
    const Strings& strings = reader->second;
    const unsigned fixed = callee->getFunctionType()->getNumParams();
    for (unsigned i = 0; i < call.arg_size(); ++i) {
      const bool is_string = i < fixed ? (strings.fixed >> i & 1) != 0
                                       : strings.variable && is_string_conversion(call, fixed - 1, i);
      if (!is_string || !call.getArgOperand(i)->getType()->isPointerTy() || !may_be_shared(call.getArgOperand(i)))
        continue;
      IRBuilder<> builder(&call);
      auto* const pointer = builder.getPtrTy();
      call.setArgOperand(i, builder.CreateCall(module.getOrInsertFunction("__multigrain_string", pointer, pointer),
                                               {call.getArgOperand(i)}));
      changed = true;
    }
  }
  if (!wrapped().contains(name) || !reaches_shared(call, name)) return changed;
  call.setCalledFunction(module.getOrInsertFunction(("__multigrain_" + name).str(), callee->getFunctionType()));
  // What the compiler knew of the library's function does not hold for one that may wait for other nodes.
  call.setAttributes(AttributeList());
  return true;
}

}  // namespace multigrain::checks
