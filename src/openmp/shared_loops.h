// The loops with a dynamic schedule that are under way, in shared memory and in the memory of each node: carries out what
// loop_shares.h decides.
//
//   D1  A loop's instance is the number of its region and its number in the region (T4). Its place is instance mod the
//       number of places, in the shared table and in each node's own.
//   D2  A shared place is guarded by its lock. It belongs to the instance that it names, or to none. The first node that
//       wants something of a loop takes the place for it, and waits for that until the loop before it is over.
//   D3  A node is told once, by an empty interval, that nothing is left, and asks no more; or all its threads have left
//       before (L5). When all nodes of the team have come to that, the place belongs to no loop.
//   D4  A node's place is guarded by the node's mutex, which is in private memory, and belongs to an instance until all
//       threads of the team that are on this node have been told that nothing is left.
#pragma once

#include <multigrain/multigrain.h>

#include <array>
#include <cstdint>

#include "openmp/loop_shares.h"
#include "openmp/team.h"

namespace multigrain::openmp {

inline constexpr unsigned kLoopPlaces = 16;

// Is in shared memory, on pages of its own. `lock` guards the rest (D2).
struct alignas(4096) SharedLoop {
  mg_lock_t lock;
  mg_cond_t free;
  uint64_t instance;  // 0: none
  uint32_t told;      // nodes that know that nothing is left
  uint32_t waiting;   // nodes that wait for the place
  LoopRest rest;
};

// ordered(n): which iterations are done, a bit for each, in an allocation of its own.
struct alignas(4096) SharedDoacross {
  mg_lock_t lock;
  mg_cond_t changed;
  uint64_t instance;  // 0: none
  uint64_t* done;
  uint32_t left;  // threads that have left the loop
  uint32_t waiting;
};

struct SharedLoops {
  std::array<SharedLoop, kLoopPlaces> loop;
  std::array<SharedDoacross, kLoopPlaces> doacross;
};

SharedLoops* make_shared_loops();

// A thread comes to a loop with Way::kBulk, of which `loop` says the rest.
void enter_node_loop(const Frame& frame, Loop& loop);
// Returns the thread's next chunks; none if nothing is left, and then the thread has left the loop.
Interval next_chunks(Loop& loop);

}  // namespace multigrain::openmp
