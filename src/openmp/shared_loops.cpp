#include "openmp/shared_loops.h"

#include <pthread.h>

#include <mutex>

#include "openmp/memory.h"

namespace multigrain::openmp {

// A loop on this node (D4).
struct NodeLoop {
  std::mutex guard;
  // The C++ library has no condition that is made before any code runs.
  pthread_cond_t free = PTHREAD_COND_INITIALIZER;
  uint64_t instance = 0;  // 0: none
  uint32_t left = 0;      // threads of this node that have left it
  bool nothing_left = false;
  Interval bulk;
  TeamShape team;
  unsigned node = 0;  // this node's place in the team
};

namespace {

constinit std::array<NodeLoop, kLoopPlaces> g_loops{};

// Called under the lock: a node asks no more (D3).
void ask_no_more(SharedLoop& place, const TeamShape& team) {
  if (++place.told != team.nodes) return;
  place.told = 0;
  place.instance = 0;
  if (place.waiting != 0) mg_cond_broadcast(place.free);
}

// Called under the lock: makes the place the loop's.
void enter_shared(SharedLoop& place, const Loop& loop, const TeamShape& team) {
  while (place.instance != loop.instance) {
    if (place.instance == 0) {
      place.instance = loop.instance;
      begin_rest(place.rest, loop.chunks, team, loop.ascending);
      break;
    }
    ++place.waiting;
    mg_cond_wait(place.free, place.lock);
    --place.waiting;
  }
}

// Returns chunks for a node, or none, once, if nothing is left (D3).
Interval take_shared(SharedLoop& place, const Loop& loop, const TeamShape& team, unsigned node) {
  mg_lock(place.lock);
  enter_shared(place, loop, team);
  const Interval taken = take(place.rest, team, node, loop.ascending);
  if (taken.empty()) ask_no_more(place, team);
  mg_unlock(place.lock);
  return taken;
}

void leave_shared(SharedLoop& place, const Loop& loop, const TeamShape& team) {
  mg_lock(place.lock);
  enter_shared(place, loop, team);
  ask_no_more(place, team);
  mg_unlock(place.lock);
}

// Called under the guard: the thread leaves the loop.
void leave(NodeLoop& here, SharedLoop& place, const Loop& loop) {
  if (++here.left != here.team.threads_of(here.node)) return;
  if (!here.nothing_left) leave_shared(place, loop, here.team);
  here.instance = 0;
  pthread_cond_broadcast(&here.free);
}

}  // namespace

SharedLoops* make_shared_loops() {
  auto* const made = new_shared<SharedLoops>();
  for (SharedLoop& place : made->loop) {
    place.lock = mg_lock_create();
    place.free = mg_cond_create();
  }
  for (SharedDoacross& place : made->doacross) {
    place.lock = mg_lock_create();
    place.changed = mg_cond_create();
  }
  return made;
}

void enter_node_loop(const Frame& frame, Loop& loop) {
  NodeLoop& here = g_loops[loop.instance % kLoopPlaces];
  loop.node_loop = &here;
  const std::lock_guard hold(here.guard);
  while (here.instance != loop.instance && here.instance != 0)
    pthread_cond_wait(&here.free, here.guard.native_handle());
  if (here.instance == loop.instance) return;
  here.instance = loop.instance;
  here.left = 0;
  here.team = shape_of(frame);
  here.node = node_of(frame, here.team);
  here.bulk = own_share(loop.chunks, here.team, here.node, loop.ascending);
  here.nothing_left = rest_is_empty(loop.chunks, here.team, loop.ascending);
}

Interval next_chunks(Loop& loop) {
  NodeLoop& here = *loop.node_loop;
  SharedLoop& place = shared().loops->loop[loop.instance % kLoopPlaces];
  const std::lock_guard hold(here.guard);
  if (!loop.has_last && here.bulk.empty() && !here.nothing_left) {
    here.bulk = take_shared(place, loop, here.team, here.node);
    here.nothing_left = here.bulk.empty();
  }
  if (loop.has_last || here.bulk.empty()) {
    leave(here, place, loop);
    return {};
  }
  const Interval taken = take_of_bulk(here.bulk, here.team.threads_of(here.node), loop.guided);
  loop.has_last = taken.end == loop.chunks;
  return taken;
}

}  // namespace multigrain::openmp
