// This says which function and line an instruction of a running process belongs to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/trace.h"

namespace multigrain::trace {

// This is one range of a process's address space, as /proc/PID/maps tells it.
struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  bool executable = false;
  std::string path;  // the file, or "[stack]" and the like; empty: anonymous memory
};
std::vector<Mapping> mappings_of(pid_t process);
// The same of the text of such a file.
std::vector<Mapping> mappings_in(const std::string& maps);

// These are the functions and variables of all files that a process has mapped, from their ELF symbol tables. Names of C++ are
// readable.
class Symbols {
 public:
  // A variable that a program can write, and all threads share.
  struct Variable {
    uint64_t begin;
    uint64_t bytes;
    std::string name;
    std::string file;  // of the program or the library
  };
  void load(pid_t process) { load(mappings_of(process)); }
  void load(const std::vector<Mapping>& mappings);
  // In order of address; they do not overlap.
  [[nodiscard]] const std::vector<Variable>& variables() const { return variables_; }
  // Returns where a function of that name (of the symbol table's) begins, in every file that defines it.
  [[nodiscard]] std::vector<uint64_t> find(std::string_view name) const;
  // Returns the file (of the program, not its source) and the function of an instruction, without its line.
  [[nodiscard]] Site site_of(uint64_t address) const;
  // Returns source files and lines of instructions, as far as addr2line is there and finds any; sites[i] is that of
  // addresses[i].
  void add_lines(const std::vector<uint64_t>& addresses, std::vector<Site>& sites) const;

 private:
  struct Function {
    uint64_t begin;
    uint64_t end;
    std::string name;
  };
  struct Module {
    uint64_t begin;
    uint64_t end;
    uint64_t bias;  // the address in the process minus the address in the file
    std::string path;
  };
  void load_module(const Module& module);
  [[nodiscard]] const Module* module_of(uint64_t address) const;

  std::vector<Module> modules_;
  std::vector<Function> functions_;  // in order of address
  std::vector<Variable> variables_;
};

}  // namespace multigrain::trace
