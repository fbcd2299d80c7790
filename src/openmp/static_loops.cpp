#include "openmp/static_loops.h"

#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

template <typename T>
void store(const StaticPart<T>& part, int32_t* last, T* lower, T* upper, std::make_signed_t<T>* stride) {
  if (last != nullptr) *last = part.has_last ? 1 : 0;
  *lower = part.lower;
  *upper = part.upper;
  if (stride != nullptr) *stride = part.stride;
}

template <typename T, typename S = std::make_signed_t<T>>
void init(int32_t schedule, int32_t* last, T* lower, T* upper, S* stride, S step, S chunk) {
  const Thread& thread = this_thread();
  schedule &= ~(kModifierMonotonic | kModifierNonmonotonic);
  if (schedule > kOrderedLower && schedule < kOrderedUpper) schedule -= kOrderedOffset;
  const bool distributes = schedule == kDistributeStatic || schedule == kDistributeStaticChunked;
  const auto number = distributes ? static_cast<uint32_t>(thread.team_number) : thread.frame->number;
  const auto threads = distributes ? static_cast<uint32_t>(thread.teams) : thread.frame->threads;
  store(static_part<T>(schedule, *lower, *upper, step, chunk, number, threads), last, lower, upper, stride);
}

// Divides a loop over the teams of the league, and what falls to the team over its threads.
template <typename T, typename S = std::make_signed_t<T>>
void init_distributed(int32_t schedule, int32_t* last, T* lower, T* upper, T* team_upper, S* stride, S step, S chunk) {
  const Thread& thread = this_thread();
  const StaticPart<T> team =
      static_part<T>(kDistributeStatic, *lower, *upper, step, 0, static_cast<uint32_t>(thread.team_number),
                     static_cast<uint32_t>(thread.teams));
  *team_upper = team.upper;
  schedule &= ~(kModifierMonotonic | kModifierNonmonotonic);
  StaticPart<T> own =
      static_part<T>(schedule, team.lower, team.upper, step, chunk, thread.frame->number, thread.frame->threads);
  own.has_last = own.has_last && team.has_last;
  store(own, last, lower, upper, stride);
}

// Gives the team its chunks, every so many one.
template <typename T, typename S = std::make_signed_t<T>>
void init_team(int32_t* last, T* lower, T* upper, S* stride, S step, S chunk) {
  const Thread& thread = this_thread();
  store(static_part<T>(kDistributeStaticChunked, *lower, *upper, step, chunk, static_cast<uint32_t>(thread.team_number),
                       static_cast<uint32_t>(thread.teams)),
        last, lower, upper, stride);
}

}  // namespace

MG_OPENMP_BEGIN

void __kmpc_for_static_init_4(Ident*, int32_t, int32_t schedule, int32_t* last, int32_t* lower, int32_t* upper,
                              int32_t* stride, int32_t step, int32_t chunk) {
  init(schedule, last, lower, upper, stride, step, chunk);
}
void __kmpc_for_static_init_4u(Ident*, int32_t, int32_t schedule, int32_t* last, uint32_t* lower, uint32_t* upper,
                               int32_t* stride, int32_t step, int32_t chunk) {
  init(schedule, last, lower, upper, stride, step, chunk);
}
void __kmpc_for_static_init_8(Ident*, int32_t, int32_t schedule, int32_t* last, int64_t* lower, int64_t* upper,
                              int64_t* stride, int64_t step, int64_t chunk) {
  init(schedule, last, lower, upper, stride, step, chunk);
}
void __kmpc_for_static_init_8u(Ident*, int32_t, int32_t schedule, int32_t* last, uint64_t* lower, uint64_t* upper,
                               int64_t* stride, int64_t step, int64_t chunk) {
  init(schedule, last, lower, upper, stride, step, chunk);
}
void __kmpc_for_static_fini(Ident*, int32_t) {}

void __kmpc_dist_for_static_init_4(Ident*, int32_t, int32_t schedule, int32_t* last, int32_t* lower, int32_t* upper,
                                   int32_t* team_upper, int32_t* stride, int32_t step, int32_t chunk) {
  init_distributed(schedule, last, lower, upper, team_upper, stride, step, chunk);
}
void __kmpc_dist_for_static_init_4u(Ident*, int32_t, int32_t schedule, int32_t* last, uint32_t* lower, uint32_t* upper,
                                    uint32_t* team_upper, int32_t* stride, int32_t step, int32_t chunk) {
  init_distributed(schedule, last, lower, upper, team_upper, stride, step, chunk);
}
void __kmpc_dist_for_static_init_8(Ident*, int32_t, int32_t schedule, int32_t* last, int64_t* lower, int64_t* upper,
                                   int64_t* team_upper, int64_t* stride, int64_t step, int64_t chunk) {
  init_distributed(schedule, last, lower, upper, team_upper, stride, step, chunk);
}
void __kmpc_dist_for_static_init_8u(Ident*, int32_t, int32_t schedule, int32_t* last, uint64_t* lower, uint64_t* upper,
                                    uint64_t* team_upper, int64_t* stride, int64_t step, int64_t chunk) {
  init_distributed(schedule, last, lower, upper, team_upper, stride, step, chunk);
}

void __kmpc_team_static_init_4(Ident*, int32_t, int32_t* last, int32_t* lower, int32_t* upper, int32_t* stride,
                               int32_t step, int32_t chunk) {
  init_team(last, lower, upper, stride, step, chunk);
}
void __kmpc_team_static_init_4u(Ident*, int32_t, int32_t* last, uint32_t* lower, uint32_t* upper, int32_t* stride,
                                int32_t step, int32_t chunk) {
  init_team(last, lower, upper, stride, step, chunk);
}
void __kmpc_team_static_init_8(Ident*, int32_t, int32_t* last, int64_t* lower, int64_t* upper, int64_t* stride,
                               int64_t step, int64_t chunk) {
  init_team(last, lower, upper, stride, step, chunk);
}
void __kmpc_team_static_init_8u(Ident*, int32_t, int32_t* last, uint64_t* lower, uint64_t* upper, int64_t* stride,
                                int64_t step, int64_t chunk) {
  init_team(last, lower, upper, stride, step, chunk);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
