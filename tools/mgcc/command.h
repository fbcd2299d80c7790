// mgcc turns its command line into a command of Clang: it takes out its own options, and adds the plugin, the
// headers and the library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace multigrain::compiler {

enum class Show { kNothing, kAll, kCompile, kLink };

enum class Reaction : uint8_t { kNone, kWarn, kFail };

// The requests in the user's arguments.
struct Request {
  Show show = Show::kNothing;
  bool help = false;
  bool version = false;              // Multigrain's version
  bool checks = true;                // -fno-multigrain-checks
  bool threads = false;              // -fmultigrain-threads: the program was written for threads of one machine
  bool count = false;                // -fmultigrain-count
  bool translate = false;            // -fmultigrain-translate
  bool references = false;           // -fmultigrain-references
  bool races = false;                // -fmultigrain-races
  bool count_memory = false;         // -fmultigrain-count=memory
  bool links = false;                // the compiler would link
  bool openmp = false;               // -fopenmp, which needs an OpenMP runtime
  bool sanitizes_undefined = false;  // -fsanitize=undefined
  Reaction unchecked_object =
      Reaction::kWarn;                 // to an object file without checks that is linked with others that have them
  std::vector<std::string> arguments;  // for the compiler
  // With -fmultigrain-threads, the options about OpenMP other than -fopenmp itself. They are not among `arguments`.
  std::vector<std::string> openmp_options;
  // The following members are options of the pass.
  std::string optimisations;  // the lists of all -fmultigrain-checks=; of contradicting words the last counts
  bool polls = true;
  bool sequential = false;
  bool asm_is_error = false;
  bool explain = false;
  std::string unchecked_call;  // "ignore", "warn" or "error"; empty: the pass's default
};

// Separates mgcc's own options from the compiler's arguments. An error says which option makes no sense.
Result<Request> understand(const std::vector<std::string>& arguments);

// The places of the compiler and of the files that it needs.
struct Places {
  std::string compiler;
  std::string includes;
  std::string pass;          // the plugin of the checks
  std::string threads_pass;  // the plugin of -fmultigrain-threads
  std::string count_pass;    // the plugin of -fmultigrain-count
  std::string races_pass;    // the plugin of -fmultigrain-races
  std::string library;       // the folder of libmultigrain.so
};

std::vector<std::string> compile_flags(const Request& request, const Places& places);
std::vector<std::string> link_flags(const Request& request, const Places& places);
// Returns the whole command.
std::vector<std::string> command(const Request& request, const Places& places);
// Returns whether it is an option of Clang whose value is the next argument. That argument is then no input file.
bool takes_value(std::string_view option);
// Returns the words as one line that a shell reads as these words.
std::string quoted(const std::vector<std::string>& words);

}  // namespace multigrain::compiler
