// What of --races and --check needs libraries that most runs do without: Zydis, to decode instructions, and libdw, to name
// functions and lines. It is a module (fabric/module.h), which such runs load.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "races/decode.h"
#include "status/node_status.h"

namespace multigrain::races {

// Names places in this process's program. One thread uses it.
class Places {
 public:
  virtual ~Places() = default;
  // Returns, for instance, "append at list.c:20", or without debug information "append+0x12 in prog".
  virtual std::string instruction(uint64_t address) = 0;
  // The same for the call that returns to the address, and for the outermost of the functions that are inlined there.
  virtual std::string call(uint64_t return_address) = 0;
  // Returns, for instance, "byte 16 of a block of 4096 bytes at 0x200000001000, allocated by node 0 at a.c:7", or nothing
  // if no block is known there.
  virtual std::string block(uint64_t address) = 0;
  // Returns the line where an object of synchronisation was made, by its handle, or nothing if that is not known.
  virtual std::string made(uint64_t handle) = 0;
};

struct Module {
  DecodeInstruction decode;
  std::unique_ptr<Places> (*places)(const NodeStatus& own);
};

inline constexpr const char* kModuleName = "races";
inline constexpr const char* kModuleSymbol = "multigrain_races_module";

}  // namespace multigrain::races

// Returns the module.
extern "C" const multigrain::races::Module* multigrain_races_module();
