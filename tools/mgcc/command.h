// What mgcc makes of its command line.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace multigrain::compiler {

enum class Show { kNothing, kAll, kCompile, kLink };

// How the user's arguments are to be understood.
struct Request {
  Show show = Show::kNothing;
  bool help = false;
  bool version = false;                // our own
  bool checks = true;                  // -fno-multigrain-checks
  bool links = false;                  // the compiler would link
  bool openmp = false;                 // -fopenmp, which needs the compiler's runtime for it
  bool sanitizes_undefined = false;    // -fsanitize=undefined
  std::vector<std::string> arguments;  // for the compiler
  // For the pass.
  std::string optimisations;  // what -fmultigrain-checks= said, the last word on each last
  bool polls = true;
  bool sequential = false;
  bool asm_is_error = false;
  bool explain = false;
  std::string unchecked_call;  // "ignore", "warn" or "error"; empty: the pass's default
};

// Takes out what is ours. An error says which option makes no sense.
Result<Request> understand(const std::vector<std::string>& arguments);

// Where the compiler and what it needs are.
struct Places {
  std::string compiler;
  std::string includes;
  std::string pass;     // the plugin
  std::string library;  // the folder of libmultigrain.so
};

std::vector<std::string> compile_flags(const Request& request, const Places& places);
std::vector<std::string> link_flags(const Places& places);
// The whole command.
std::vector<std::string> command(const Request& request, const Places& places);
// As a shell would read it.
std::string quoted(const std::vector<std::string>& words);

}  // namespace multigrain::compiler
