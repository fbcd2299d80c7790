// These are the parts of the pass that -fmultigrain-* options switch on or off (docs/user/mgcc.md). mgcc hands the
// options to the plugin (tools/mgcc/command.cpp).
#pragma once

namespace multigrain::checks {

struct Options {
  bool group_loads = true;   // one branch for several loads
  bool narrow = true;        // loads of 1 and 2 bytes are checked by their own values
  bool batch_stores = true;  // several stores share hazards
  bool loops = true;         // hazards are published around loops
  bool nests = true;         // hazards are published around nests of loops
  bool rows = true;          // only the lines of the rows that a nest accesses are checked
  bool expand = true;        // short memory copies are made in line
  bool prefetch = true;      // a compare-and-swap loop gets its line once, before it begins
  bool polls = true;         // loops poll
  bool hold = true;          // one hazard covers the stores of several iterations
  bool arguments = true;     // arguments that are private in all calls have no checks
  bool pages = true;         // the rights cache takes the place of checks of lines
  bool updates = true;       // a load and a store of the same place are checked together
  bool versions = true;      // loops have versions for objects that turn out to be private
  bool verify = false;       // the runtime tests before each access under hazards that a hazard covers it
  bool sequential = false;   // plain accesses stay in order, with a fence behind each store
  bool asm_is_error = false;
  // How the compiler reports calls that may hand shared memory to libraries' functions without checks.
  enum class Unchecked { kIgnore, kWarn, kError };
  Unchecked unchecked_call = Unchecked::kWarn;
  bool translate = false;   // look-ups in translation tables take the place of checks
  bool explain = false;     // the compiler says why a loop has no hazards
  bool references = false;  // checks whether pages are in other nodes' memory take their place
  // Then each access is looked up by itself.
  [[nodiscard]] bool looks_up() const { return translate || references; }
};

// Returns the options of the command line. An unknown word ends the compilation with a sentence.
const Options& options();

}  // namespace multigrain::checks
