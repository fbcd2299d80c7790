// What -fmultigrain-* options switch (tools/mgcc/options; docs/user/mgcc.md).
#pragma once

namespace multigrain::checks {

struct Options {
  bool group_loads = true;   // one branch for several loads
  bool narrow = true;        // loads of 1 and 2 bytes are told by their own value
  bool batch_stores = true;  // one hazard for several stores
  bool loops = true;         // hazards around loops
  bool nests = true;         // hazards around nests of loops
  bool rows = true;          // of what a nest accesses only the rows' lines are looked at
  bool expand = true;        // short memory copies in line
  bool prefetch = true;      // a line for a compare-and-swap loop, once
  bool polls = true;         // in loops
  bool hold = true;          // one hazard for the stores of several iterations
  bool arguments = true;     // arguments that are private in all calls have no checks
  bool pages = true;         // the rights cache takes the place of checks of lines
  bool versions = true;      // loops have versions for objects that turn out to be private
  bool verify = false;       // a call before each access under hazards, which ends the program if none covers it
  bool sequential = false;   // plain accesses stay in order, with a fence behind each store
  bool asm_is_error = false;
  // What is said of calls that hand what may be shared to libraries' functions without checks.
  enum class Unchecked { kIgnore, kWarn, kError };
  Unchecked unchecked_call = Unchecked::kWarn;
  bool explain = false;  // say why a loop has no hazards
};

// What the command line says; an unknown word ends the compilation with a sentence.
const Options& options();

}  // namespace multigrain::checks
