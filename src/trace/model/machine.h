// These are machines of the cost model ([Bolosky], section 4.1.1), which say what a reference and a block move cost.
//
// Every cost is in units of one local reference. A machine has one memory a processor (which is a core, or a node with all of
// its cores: Machine::memory) and, where g and G are finite, a global memory that is equally far from all. Block moves cost a
// fixed part and a part for each byte (equation 7.1), so that one machine can be looked at with many block sizes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace multigrain::trace {

// This is a cost that a machine cannot pay, because it lacks the operation.
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Moving a block costs R = o + b s (equation 7.1), with s in bytes here.
struct MoveCost {
  double fixed = kInfinite;
  double per_byte = 0;
  [[nodiscard]] double at(uint64_t block_size) const { return fixed + per_byte * static_cast<double>(block_size); }
  friend bool operator==(const MoveCost&, const MoveCost&) = default;
};

// What has a memory of its own on a machine: a core, whose cache it is, or a node. Where no map says which cores a node has
// (thread_map.h), each is a node of its own.
enum class MemoryOf : uint8_t { kNode, kCore };

struct Machine {
  static constexpr unsigned kMaxProcessors = 1024;
  static constexpr uint64_t kMinBlockSize = 4;
  static constexpr uint64_t kMaxBlockSize = uint64_t{1} << 30;

  std::string name;
  std::string source;       // where the parameters come from, for people
  unsigned processors = 0;  // 0: as many as the trace has
  uint64_t block_size = 0;  // bytes
  double r = kInfinite;     // a reference to another processor's memory; infinite: there is no remote reference
  double g = kInfinite;     // a reference to global memory; infinite: there is no global memory
  MoveCost remote_move;     // R, from another processor's memory
  MoveCost global_move;     // G, to or from global memory
  MemoryOf memory = MemoryOf::kNode;
  double unit_ns = 0;  // the length of one unit of cost in nanoseconds, for people; 0: not known

  [[nodiscard]] double R() const { return remote_move.at(block_size); }
  [[nodiscard]] double G() const { return global_move.at(block_size); }
  [[nodiscard]] bool has_global() const { return std::isfinite(g) && std::isfinite(global_move.fixed); }
  [[nodiscard]] bool has_remote_reference() const { return std::isfinite(r); }
  [[nodiscard]] Machine with_block_size(uint64_t bytes) const;
  friend bool operator==(const Machine&, const Machine&) = default;
};

// Checks the rules of section 4.1.1, each named in its sentence: r > 1 and g > 1, r >= g, R <= 2G, R finite, a block
// size that is a power of two. The section also says R > 2r and G > 2g, which its own machine CC+ of Table 6.3 does not
// keep (R = 184, r = 102) and which nothing here needs: neither is checked.
Status validate(const Machine& machine);

// Reads a machine: {"name", "processors", "block_size", "r", "g", "R", "G", "memory", "unit_ns", "source"}; R and G are
// numbers or {"fixed", "per_byte"}. A cost that is left out or null is infinite; "memory" is "node" (which it is if it is left
// out) or "core". The machine that is returned is valid.
Result<Machine> machine_from_json(const nlohmann::json& json);
Result<Machine> machine_from_json(std::string_view text);
nlohmann::json to_json(const Machine& machine);

// These are the components of the five machines of chapter 6 (section 6.1.2), in units of cost.
struct Components {
  double latency = 50;            // lambda: one way through the network
  double software_overhead = 75;  // o_s: a trap, the decision and the return
  double hardware_overhead = 2;   // o_h: a decision of the cache controller
  double bytes_per_unit = 2;      // bandwidth of the network
};

// These are the rows of Table 6.2.
Machine cc_machine(uint64_t block_size = 64, const Components& components = {});
Machine cc_plus_machine(uint64_t block_size = 64, const Components& components = {});
Machine numa_machine(uint64_t block_size = 4096, const Components& components = {});
Machine dsm_machine(uint64_t block_size = 4096, const Components& components = {});
Machine dsm_plus_machine(uint64_t block_size = 4096, const Components& components = {});

// These are the machines known by name: "ace", "butterfly"; "cc", "cc+", "numa", "dsm", "dsm+"; "cache-lines",
// "two-socket", "two-socket-2m", "cxl2", "cxl3", "rdma", "page-dsm-4k", "page-dsm-2m".
const std::vector<Machine>& known_machines();
// Returns the five machines of chapter 6, from the best to the worst in Figure 6.1.
std::vector<Machine> chapter6_machines(const Components& components = {});
// Returns what is asked about if no machine is named: "cache-lines", a socket of today, and "two-socket", two of them.
std::vector<Machine> default_machines();
// Returns a machine by its name, or read from the file of that name if it ends in .json; an error lists the names.
Result<Machine> find_machine(std::string_view name);

}  // namespace multigrain::trace
