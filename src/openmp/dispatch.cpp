// Loops whose chunks a thread asks for one by one: dynamic, guided and ordered ones, and those of schedule(runtime).
#include <algorithm>
#include <type_traits>

#include "openmp/ordered.h"
#include "openmp/shared_loops.h"
#include "openmp/static_loops.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

// A schedule as the program has written it, or omp_set_schedule, or the environment.
struct Wanted {
  ScheduleKind kind;
  bool ordered;
  bool ascending;
  int64_t chunk;       // 0: none was given
  int64_t vector = 1;  // a simd loop's parts are multiples of this
};

Wanted understand(int32_t schedule, int64_t chunk, const Frame& frame) {
  Wanted wanted{ScheduleKind::kStatic, false, (schedule & kModifierMonotonic) != 0, std::max<int64_t>(chunk, 0)};
  schedule &= ~(kModifierMonotonic | kModifierNonmonotonic);
  if (schedule > kOrderedLower && schedule < kOrderedUpper) {
    wanted.ordered = true;
    schedule -= kOrderedOffset;
  }
  switch (schedule) {
    case kScheduleDynamic:
      wanted.kind = ScheduleKind::kDynamic;
      break;
    case kScheduleGuided:
    case kScheduleGuidedSimd:
      wanted.kind = ScheduleKind::kGuided;
      break;
    case kScheduleRuntime:
    case kScheduleRuntimeSimd: {
      const Schedule& set = frame.controls.schedule;
      // For a simd loop the compiler says the length of a vector.
      const int64_t vector = schedule == kScheduleRuntimeSimd ? std::max<int64_t>(chunk, 1) : 1;
      wanted.vector = vector;
      wanted.kind = set.kind;
      wanted.ascending = wanted.ascending || set.monotonic;
      wanted.chunk = set.chunk * vector;
      if (wanted.chunk == 0 && set.kind != ScheduleKind::kStatic && set.kind != ScheduleKind::kAuto)
        wanted.chunk = vector;
      break;
    }
    case kScheduleStatic:
    case kScheduleAuto:
      wanted.chunk = 0;
      break;
    default:
      break;
  }
  if (wanted.kind == ScheduleKind::kAuto) {
    wanted.kind = ScheduleKind::kStatic;
    wanted.chunk = 0;
  }
  return wanted;
}

// Returns the thread's part of a loop in equal parts. But for the last, it is a multiple of the vector's length.
Interval part_in_vectors(uint64_t iterations, const Frame& frame, uint64_t vector) {
  if (vector == 1) return part_of(iterations, frame.number, frame.threads);
  const Interval vectors = part_of(count_chunks(iterations, vector), frame.number, frame.threads);
  return iterations_of(vectors, vector, iterations);
}

// Chunks are given out every so many one where their order matters: each thread's turn then comes as soon as it can. So
// they are in an ordered loop of every schedule, and where iterations wait for each other.
void begin(Frame& frame, const Wanted& wanted, uint64_t iterations) {
  Loop& loop = frame.loop;
  loop = Loop();
  loop.iterations = iterations;
  loop.ordered = wanted.ordered && frame.threads != 1;
  loop.ascending = wanted.ascending;
  if (iterations == 0) return;
  const bool in_one_part = wanted.kind == ScheduleKind::kStatic && wanted.chunk == 0;
  if (frame.threads == 1) {
    loop.way = Loop::Way::kWhole;
    loop.whole = {0, iterations};
  } else if (in_one_part && !loop.ordered) {
    loop.whole = part_in_vectors(iterations, frame, static_cast<uint64_t>(wanted.vector));
    loop.way = loop.whole.empty() ? Loop::Way::kNone : Loop::Way::kWhole;
  } else {
    // An ordered loop without a chunk size has a chunk for each thread.
    loop.chunk = in_one_part ? count_chunks(iterations, frame.threads)
                             : static_cast<uint64_t>(std::max<int64_t>(wanted.chunk, 1));
    loop.chunks = count_chunks(iterations, loop.chunk);
    if (wanted.kind == ScheduleKind::kStatic || loop.ordered || frame.doacross.place != nullptr) {
      loop.way = Loop::Way::kCyclic;
      loop.cyclic = frame.number;
    } else {
      loop.way = Loop::Way::kBulk;
      loop.guided = wanted.kind == ScheduleKind::kGuided;
      loop.instance = frame.region << 32 | ++frame.loops;
      enter_node_loop(frame, loop);
    }
  }
}

// Returns the thread's next iterations; none if there are none, and then the loop is over for the thread.
Interval next(Frame& frame) {
  Loop& loop = frame.loop;
  if (loop.ordered) end_ordered_chunk(frame);
  Interval chunks;
  switch (loop.way) {
    case Loop::Way::kWhole:
      loop.way = Loop::Way::kNone;
      return loop.whole;
    case Loop::Way::kCyclic:
      if (loop.cyclic < loop.chunks) {
        chunks = {loop.cyclic, loop.cyclic + 1};
        loop.current = loop.cyclic;
        loop.in_chunk = loop.ordered;
        loop.cyclic += frame.threads;
      }
      break;
    case Loop::Way::kBulk:
      chunks = next_chunks(loop);
      break;
    case Loop::Way::kNone:
      break;
  }
  if (chunks.empty()) {
    loop.way = Loop::Way::kNone;
    if (loop.ordered) frame.ordered += static_cast<uint32_t>(loop.chunks);
    loop.ordered = false;
  }
  return iterations_of(chunks, loop.chunk, loop.iterations);
}

template <typename T, typename S = std::make_signed_t<T>>
void init(int32_t schedule, T lower, T upper, S step, S chunk) {
  Frame& frame = *this_thread().frame;
  begin(frame, understand(schedule, chunk, frame), count_iterations<T>(lower, upper, step));
  frame.loop.lower = static_cast<uint64_t>(lower);
  frame.loop.step = step;
}

template <typename T, typename S = std::make_signed_t<T>>
int32_t next_of(int32_t* last, T* lower, T* upper, S* stride) {
  Frame& frame = *this_thread().frame;
  const Interval part = next(frame);
  // What `last` says of the thread's last chunk is looked at after the loop.
  if (part.empty()) return 0;
  const Loop& loop = frame.loop;
  const LoopBounds<T> bounds{static_cast<T>(loop.lower), static_cast<S>(loop.step)};
  *lower = bounds.value(part.begin);
  *upper = bounds.value(part.end - 1);
  if (stride != nullptr) *stride = static_cast<S>(loop.step);
  if (last != nullptr) *last = part.end == loop.iterations ? 1 : 0;
  return 1;
}

// The loop of a team in a league: first its part of the iterations, then these by the schedule.
template <typename T, typename S = std::make_signed_t<T>>
void init_distributed(int32_t schedule, int32_t* last, T lower, T upper, S step, S chunk) {
  const Thread& thread = this_thread();
  const StaticPart<T> team =
      static_part<T>(kDistributeStatic, lower, upper, step, 0, static_cast<uint32_t>(thread.team_number),
                     static_cast<uint32_t>(thread.teams));
  if (last != nullptr) *last = team.has_last ? 1 : 0;
  init<T>(schedule, team.lower, team.upper, step, chunk);
}

}  // namespace

MG_OPENMP_BEGIN

void __kmpc_dispatch_init_4(Ident*, int32_t, int32_t schedule, int32_t lower, int32_t upper, int32_t step,
                            int32_t chunk) {
  init<int32_t>(schedule, lower, upper, step, chunk);
}
void __kmpc_dispatch_init_4u(Ident*, int32_t, int32_t schedule, uint32_t lower, uint32_t upper, int32_t step,
                             int32_t chunk) {
  init<uint32_t>(schedule, lower, upper, step, chunk);
}
void __kmpc_dispatch_init_8(Ident*, int32_t, int32_t schedule, int64_t lower, int64_t upper, int64_t step,
                            int64_t chunk) {
  init<int64_t>(schedule, lower, upper, step, chunk);
}
void __kmpc_dispatch_init_8u(Ident*, int32_t, int32_t schedule, uint64_t lower, uint64_t upper, int64_t step,
                             int64_t chunk) {
  init<uint64_t>(schedule, lower, upper, step, chunk);
}

int32_t __kmpc_dispatch_next_4(Ident*, int32_t, int32_t* last, int32_t* lower, int32_t* upper, int32_t* stride) {
  return next_of(last, lower, upper, stride);
}
int32_t __kmpc_dispatch_next_4u(Ident*, int32_t, int32_t* last, uint32_t* lower, uint32_t* upper, int32_t* stride) {
  return next_of(last, lower, upper, stride);
}
int32_t __kmpc_dispatch_next_8(Ident*, int32_t, int32_t* last, int64_t* lower, int64_t* upper, int64_t* stride) {
  return next_of(last, lower, upper, stride);
}
int32_t __kmpc_dispatch_next_8u(Ident*, int32_t, int32_t* last, uint64_t* lower, uint64_t* upper, int64_t* stride) {
  return next_of(last, lower, upper, stride);
}

// Compiled code says here that an iteration of an ordered loop is over. A chunk is over when its thread asks for the next.
void __kmpc_dispatch_fini_4(Ident*, int32_t) {}
void __kmpc_dispatch_fini_4u(Ident*, int32_t) {}
void __kmpc_dispatch_fini_8(Ident*, int32_t) {}
void __kmpc_dispatch_fini_8u(Ident*, int32_t) {}
// The loop is over for the thread, which next() knows.
void __kmpc_dispatch_deinit(Ident*, int32_t) {}

void __kmpc_dist_dispatch_init_4(Ident*, int32_t, int32_t schedule, int32_t* last, int32_t lower, int32_t upper,
                                 int32_t step, int32_t chunk) {
  init_distributed<int32_t>(schedule, last, lower, upper, step, chunk);
}
void __kmpc_dist_dispatch_init_4u(Ident*, int32_t, int32_t schedule, int32_t* last, uint32_t lower, uint32_t upper,
                                  int32_t step, int32_t chunk) {
  init_distributed<uint32_t>(schedule, last, lower, upper, step, chunk);
}
void __kmpc_dist_dispatch_init_8(Ident*, int32_t, int32_t schedule, int32_t* last, int64_t lower, int64_t upper,
                                 int64_t step, int64_t chunk) {
  init_distributed<int64_t>(schedule, last, lower, upper, step, chunk);
}
void __kmpc_dist_dispatch_init_8u(Ident*, int32_t, int32_t schedule, int32_t* last, uint64_t lower, uint64_t upper,
                                  int64_t step, int64_t chunk) {
  init_distributed<uint64_t>(schedule, last, lower, upper, step, chunk);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
