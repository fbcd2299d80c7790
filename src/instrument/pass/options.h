// What -fmultigrain-* options switch (tools/mgcc/options; docs/mgcc.md).
#pragma once

namespace multigrain::checks {

struct Options {
  bool group_loads = true;   // one branch for several loads
  bool batch_stores = true;  // one window for several stores
  bool loops = true;         // windows around loops
  bool nests = true;         // windows around nests of loops
  bool expand = true;        // short memory copies in line
  bool sequential = false;   // a fence behind each store
  bool asm_is_error = false;
  bool explain = false;      // say why a loop has no windows
};

// What the command line says; an unknown word ends the compilation with a sentence.
const Options& options();

}  // namespace multigrain::checks
