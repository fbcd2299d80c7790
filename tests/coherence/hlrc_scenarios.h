// The small machines and programs on which HLRC's driver is explored. The programs are free of data races: so each read
// has one legal value, the last that was written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hlrc_driver_mutants.h"

namespace multigrain::hlrc::explored {

inline constexpr unsigned kMaxWords = 2;
inline constexpr unsigned kMaxPages = 3;
inline constexpr unsigned kMaxNodes = 3;
inline constexpr unsigned kMaxProcessors = 4;
inline constexpr unsigned kMaxLocks = 4;
// The longest block of gathered notices: its head, a word for each writer, and one for each run of pages.
inline constexpr unsigned kGatheredWords = 2 + kMaxNodes + kMaxPages;

enum class OpType : uint8_t {
  kRead,  // and check the value
  kWrite,
  kLock,           // acquires from the node that let it go last
  kUnlock,         // releases
  kBarrier,        // of all processors: releases, and acquires from all
  kEndSerialPart,  // other nodes' processors run from now on
  kCatchUp         // applies what has been released, and is no processor, but a thread of the runtime
};
struct Op {
  OpType type = OpType::kRead;
  uint8_t page = 0;  // or the lock
  uint8_t word = 0;
  uint16_t value = 0;
};
using Program = std::vector<Op>;

struct Scenario {
  std::string name;
  std::vector<unsigned> homes;       // of each page
  std::vector<unsigned> processors;  // of each processor, its node
  std::vector<Program> programs;     // of each processor
  bool fetch_ahead = false;          // a fetch of a page brings the frame of the next
  bool runs = false;                 // pages that moved together move together again
  bool chains = false;               // pages that were fetched one after the other are fetched together again
  bool updates = false;              // any page may count as in use, or not
  uint64_t log_capacity = 0;         // entries of a node's write notices; 0: as many as ship
  uint64_t fetch_log_capacity = 0;   // entries of a node at a home; 0: as many as ship
  // Homes move at barriers, which are those of all processors; otherwise barriers are as those of some processors are.
  bool homes_follow = false;
  // Notices are gathered along the tree of such a barrier, whose nodes have at most so many children and whose root is another
  // node each time; 0: they are not. Every node has processors.
  unsigned gathers_by = 0;
  uint64_t episode_capacity = 0;  // runs of pages that a node says it has written; 0: as many as ship
  bool to_lines = false;          // pages move to lines, at the first such barrier after a diff of theirs
  bool takes_minutes = false;
  bool is_reduced = true;  // R1 and R2 of hlrc_driver_world.h
  Mutant mutant = Mutant::kNone;
};

[[nodiscard]] std::vector<Scenario> scenarios();
// Those of them that take less.
[[nodiscard]] std::vector<Scenario> short_scenarios();
// The one that a mutant shows on.
[[nodiscard]] std::vector<Scenario> scenarios_of(Mutant mutant);
// The random program of a seed, in which every word has a lock.
[[nodiscard]] Scenario random_scenario(unsigned seed);

}  // namespace multigrain::hlrc::explored
