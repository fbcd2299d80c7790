// Parallel regions and leagues of teams, as compiled code begins them.
//
// The teams of a league run one after the other, each with all processors: teams do not synchronise with each other.
#include <algorithm>
#include <cstdarg>

#include "openmp/memory.h"
#include "openmp/team.h"

namespace multigrain::openmp {
namespace {

struct Arguments {
  void* value[kMaxArguments];
};

void collect(Arguments& arguments, int32_t count, va_list list) {
  if (count < 0 || static_cast<uint32_t>(count) > kMaxArguments)
    end_run("a parallel region uses more than 512 variables of its surroundings:", static_cast<unsigned long>(count));
  for (int32_t i = 0; i < count; ++i) arguments.value[i] = va_arg(list, void*);
}

void run_league(Thread& thread, Microtask microtask, uint32_t count, void* const* argument) {
  const GlobalControls& global = global_controls();
  const uint32_t teams = std::max(1u, thread.wanted_teams != 0 ? thread.wanted_teams : global.teams);
  const uint32_t limit = thread.wanted_limit != 0 ? thread.wanted_limit : global.teams_thread_limit;
  thread.wanted_teams = thread.wanted_limit = 0;
  const int32_t outer_number = thread.team_number, outer_teams = thread.teams;
  for (uint32_t team = 0; team < teams; ++team) {
    begin_alone(thread);
    Frame& frame = *thread.frame;
    --frame.level;  // a league is no region
    if (limit != 0) frame.controls.thread_limit = std::min(frame.controls.thread_limit, limit);
    thread.team_number = static_cast<int32_t>(team);
    thread.teams = static_cast<int32_t>(teams);
    call(microtask, thread.global, count, argument);
    end_alone(thread);
  }
  thread.team_number = outer_number;
  thread.teams = outer_teams;
}

}  // namespace

MG_OPENMP_BEGIN

int32_t __kmpc_global_thread_num(Ident*) {
  return this_thread().global;
}
int32_t __kmpc_global_num_threads(Ident*) {
  return static_cast<int32_t>(std::max(1u, shared().threads));
}
int32_t __kmpc_bound_thread_num(Ident*) {
  return static_cast<int32_t>(this_thread().frame->number);
}
int32_t __kmpc_bound_num_threads(Ident*) {
  return static_cast<int32_t>(this_thread().frame->threads);
}
int32_t __kmpc_in_parallel(Ident*) {
  return this_thread().frame->active_level > 0 ? 1 : 0;
}
int32_t __kmpc_ok_to_fork(Ident*) {
  return 1;
}
void __kmpc_begin(Ident*, int32_t) {}
void __kmpc_end(Ident*) {}

void __kmpc_push_num_threads(Ident*, int32_t, int32_t threads) {
  this_thread().wanted_threads = static_cast<uint32_t>(std::max(threads, 0));
}
// Processors are where mgrun has put them.
void __kmpc_push_proc_bind(Ident*, int32_t, int32_t) {}

void __kmpc_fork_call(Ident*, int32_t count, Microtask microtask, ...) {
  Arguments arguments;
  va_list list;
  va_start(list, microtask);
  collect(arguments, count, list);
  va_end(list);
  fork(this_thread(), microtask, static_cast<uint32_t>(count), arguments.value);
}

void __kmpc_fork_call_if(Ident*, int32_t count, Microtask microtask, int32_t condition, void* argument) {
  Thread& thread = this_thread();
  const uint32_t arguments = count > 0 && argument != nullptr ? 1 : 0;
  if (condition == 0) thread.wanted_threads = 1;
  fork(thread, microtask, arguments, &argument);
}

void __kmpc_serialized_parallel(Ident*, int32_t) {
  begin_alone(this_thread());
}
void __kmpc_end_serialized_parallel(Ident*, int32_t) {
  end_alone(this_thread());
}

void __kmpc_push_num_teams(Ident*, int32_t, int32_t teams, int32_t threads) {
  Thread& thread = this_thread();
  thread.wanted_teams = static_cast<uint32_t>(std::max(teams, 0));
  thread.wanted_limit = static_cast<uint32_t>(std::max(threads, 0));
}
void __kmpc_push_num_teams_51(Ident* place, int32_t global, int32_t, int32_t most, int32_t threads) {
  __kmpc_push_num_teams(place, global, most, threads);
}
void __kmpc_set_thread_limit(Ident*, int32_t, int32_t threads) {
  Frame& frame = *this_thread().frame;
  if (threads > 0) frame.controls.thread_limit = static_cast<uint32_t>(threads);
}

void __kmpc_fork_teams(Ident*, int32_t count, Microtask microtask, ...) {
  Arguments arguments;
  va_list list;
  va_start(list, microtask);
  collect(arguments, count, list);
  va_end(list);
  run_league(this_thread(), microtask, static_cast<uint32_t>(count), arguments.value);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
