// The threads of a program, the teams that they form, and what the nodes share of them.
//
// Thread 0 is the thread of main(). The others, the workers, are processors of the run, which the first region with
// more than one thread starts (mg_spawn), in the order of their numbers; they stay until main() has ended. Threads that the
// program has created by other means are alone: their regions have one thread.
//
//   T1  Between two regions every worker is in the barrier of all threads. The master says what the next region is before it
//       comes to that barrier (fork): it writes the Region, unless the workers expect what it is (region_history.h). A
//       worker looks at the Region afterwards. At the region's end all threads come to the barrier once more (join), those
//       that are not in the team at once. So a Region is written only while no worker reads it. Regions are numbered by
//       all threads alike, since all workers come to each.
//   T2  Between fork and join the threads of a team synchronise by the team's barrier, the locks and flags of Shared, and
//       by nothing else: each of these is a release and an acquire. What is in Shared is written under the lock or
//       between the barriers that its comment names. No hardware atomic is used across nodes.
//   T3  A Thread and its Frames are private: only the thread itself looks at them. They are in the memory of its node,
//       which other nodes do not have.
//   T4  Worksharing constructs are met by all threads of a team in the same order. So each thread numbers them by itself,
//       and a construct's number names it on all nodes.
#pragma once

#include <multigrain/multigrain.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "openmp/abi.h"
#include "openmp/controls.h"
#include "openmp/loop_shares.h"
#include "openmp/region_history.h"

namespace multigrain::openmp {

struct NamedLocks;
struct SharedLoops;
struct TaskBoard;
struct ThreadprivateTable;
struct Task;
struct TaskGroup;
struct NodeLoop;
struct SharedDoacross;

// What the master tells the workers of a region (T1).
struct Region {
  uint64_t changed_at;  // the number, from 1, of the last region that was written here; all later ones were expected
  RegionHead head;
  void* argument[kMaxArguments];
};

// Is in shared memory, and begins as zero.
struct Shared {
  mg_barrier_t all;         // of all threads
  mg_sem_t begin;           // has a unit for each worker when it is known whether they are needed
  uint32_t threads;         // workers and the master; 0: there are no workers yet
  bool program_has_tasks;   // some part of the program creates tasks
  TeamShape shape;          // of a team of all threads
  mg_barrier_t* of_some;    // of teams of so many threads; made by the master at the first fork of such a team
  mg_flag_t ordered;        // ordered.cpp
  Region region;            // T1
  void* copied;             // copyprivate's list, between two barriers
  NamedLocks* named_locks;  // the others are described where they are defined
  SharedLoops* loops;
  TaskBoard* tasks;
  ThreadprivateTable* threadprivate;
};

// The loop with a dynamic or ordered schedule in which a thread is (dispatch.cpp).
struct Loop {
  enum class Way : uint8_t {
    kNone,    // no chunk is left
    kWhole,   // one interval, which is the thread's own
    kCyclic,  // every so many chunks one
    kBulk     // out of the node's bulk
  };
  Way way = Way::kNone;
  bool ordered = false;
  bool guided = false;
  bool ascending = false;
  bool has_last = false;  // kBulk: the thread has taken the last chunk (L5)
  uint64_t iterations = 0;
  uint64_t chunk = 1;
  uint64_t chunks = 0;
  Interval whole;       // kWhole
  uint64_t cyclic = 0;  // kCyclic: the next chunk
  uint64_t instance = 0;
  NodeLoop* node_loop = nullptr;
  // ordered.cpp: the chunk that the thread executes, whether it has one, and whether its turn has come.
  uint64_t current = 0;
  bool in_chunk = false;
  bool has_turn = false;
  // The variable's first value and step, as bits of its type.
  uint64_t lower = 0;
  int64_t step = 1;
};

// The loop nest with ordered(n) in which a thread is (ordered.cpp).
inline constexpr int32_t kMaxDimensions = 16;
struct Doacross {
  SharedDoacross* place = nullptr;  // null: the thread is in none
  uint64_t* own = nullptr;          // bits of the iterations that the thread itself has done; private
  size_t own_bytes = 0;
  Interval unpublished;       // words of `own` that others may not have
  uint64_t published_at = 0;  // ns
  int32_t dimensions = 0;
  std::array<DoacrossDimension, kMaxDimensions> dimension;
};

// An implicit task: what a thread is in a region.
struct Frame {
  Frame* outer = nullptr;
  uint32_t threads = 1;  // of its team
  uint32_t number = 0;   // in its team
  int32_t level = 0;
  int32_t active_level = 0;
  Controls controls;
  uint64_t region = 0;          // its number, from 1
  uint64_t loops = 0;           // dynamic loops that the thread has come to (T4)
  uint32_t ordered = 0;         // chunks of ordered loops that were before the loop in which the thread is (T4)
  uint64_t doacross_loops = 0;  // T4
  Loop loop;
  Doacross doacross{};
  Task* task = nullptr;  // which it executes; null: the implicit task, which has had no use for a Task yet
  TaskGroup* group = nullptr;
};

struct Thread {
  enum class Kind : uint8_t { kNew, kMain, kWorker, kForeign };
  Kind kind = Kind::kNew;
  int32_t global = 0;           // the number by which compiled code names it
  uint32_t wanted_threads = 0;  // num_threads of the next region; 0: none was given
  uint32_t wanted_teams = 0;    // as much for the next league
  uint32_t wanted_limit = 0;
  int32_t team_number = 0;
  int32_t teams = 1;
  Frame* frame = nullptr;
  Frame* free_frames = nullptr;
  Frame initial;
  // The nestable locks that it holds.
  struct Nested {
    mg_lock_t lock;
    uint32_t depth;
  };
  std::array<Nested, 32> nested{};
};

// Returns the calling thread.
Thread& this_thread();

// Returns what all nodes share. A node that has no worker, and is not node 0, has one of its own.
Shared& shared();
// Fills a new one (parts.cpp).
void make_parts(Shared& all);

// Runs the region by a team of as many threads as `wanted`, the controls and the run allow.
void fork(Thread& thread, Microtask microtask, uint32_t arguments, void* const* argument);

// These two put the thread into a region of one thread, and take it out.
void begin_alone(Thread& thread);
void end_alone(Thread& thread);

// A barrier of the thread's team: all its tasks are complete at its end. Nothing for a team of one.
void team_barrier(Thread& thread);
// Does the same without a look at tasks.
void bare_team_barrier(const Frame& frame);

// Returns which threads of the team are on which node, and the place of the thread's node among these.
TeamShape shape_of(const Frame& frame);
unsigned node_of(const Frame& frame, const TeamShape& shape);

// Calls a region's body.
void call(Microtask microtask, int32_t global, uint32_t arguments, void* const* argument);

}  // namespace multigrain::openmp
