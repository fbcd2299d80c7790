// These are conditions, semaphores, flags, barriers and trylock, each of which carries data from node to node.
#include <sched.h>

#include "program.h"

namespace {

constexpr unsigned kItems = 120;
constexpr unsigned kSlots = 4;
constexpr unsigned kRounds = 20;

struct Buffer {
  unsigned taken;
  unsigned put;
  unsigned slot[kSlots];
  uint64_t sum;
};
Buffer* buffer;       // guarded by `lock`
uint64_t* ring;       // token passing by semaphores and by flags
uint64_t* exclusive;  // guarded by `lock`, which is taken by trylock
mg_lock_t lock;
mg_cond_t not_full;
mg_cond_t not_empty;
mg_sem_t* turn;
mg_flag_t* stage;
mg_barrier_t barrier;
mg_barrier_t pair;

// Even processors produce, odd ones consume, through four slots.
void bounded_buffer() {
  const unsigned all = mg_processors();
  const unsigned producers = (all + 1) / 2;
  const unsigned consumers = all / 2;
  if (consumers == 0) return;
  const bool producer = mg_processor() % 2 == 0;
  const unsigned rank = mg_processor() / 2;
  const unsigned share = producer ? producers : consumers;
  for (unsigned i = rank; i < kItems; i += share) {
    mg_lock(lock);
    if (producer) {
      while (buffer->put - buffer->taken == kSlots) mg_cond_wait(not_full, lock);
      buffer->slot[buffer->put++ % kSlots] = i;
      mg_cond_signal(not_empty);
    } else {
      while (buffer->put == buffer->taken) mg_cond_wait(not_empty, lock);
      buffer->sum += buffer->slot[buffer->taken++ % kSlots];
      mg_cond_signal(not_full);
    }
    mg_unlock(lock);
  }
  mg_barrier(barrier);
  REQUIRE(buffer->sum == uint64_t{kItems} * (kItems - 1) / 2);
  REQUIRE(buffer->put == kItems && buffer->taken == kItems);
  mg_barrier(barrier);
}

void ring_of_semaphores() {
  const unsigned me = mg_processor();
  for (unsigned round = 0; round < kRounds; ++round) {
    mg_sem_wait(turn[me]);
    REQUIRE(*ring == uint64_t{round} * mg_processors() + me);
    ++*ring;
    mg_sem_post(turn[(me + 1) % mg_processors()]);
  }
  mg_barrier(barrier);
  // The last post is still there, and no other.
  if (me == 0) {
    REQUIRE(mg_sem_trywait(turn[0]) == 1);
    REQUIRE(mg_sem_trywait(turn[0]) == 0);
    *ring = 0;
  }
  mg_barrier(barrier);
}

void pipeline_of_flags() {
  const unsigned me = mg_processor();
  const unsigned all = mg_processors();
  for (uint32_t round = 1; round <= kRounds; ++round) {
    if (me != 0) mg_flag_wait(stage[me - 1], round);
    REQUIRE(*ring == uint64_t{round - 1} * all + me);
    ++*ring;
    mg_flag_set(stage[me], round);
    REQUIRE(mg_flag_get(stage[me]) == round);
    // No processor may set a flag again before the processors that wait for its value have seen it.
    mg_barrier(barrier);
  }
}

void trylock_until_taken() {
  for (unsigned round = 0; round < kRounds; ++round) {
    while (mg_trylock(lock) == 0) sched_yield();
    const uint64_t seen = *exclusive;
    REQUIRE(mg_trylock(lock) == 0);
    *exclusive = seen + 1;
    mg_unlock(lock);
  }
  mg_barrier(barrier);
  REQUIRE(*exclusive == uint64_t{kRounds} * mg_processors());
}

// This is a barrier of the first and the last processor only.
void barrier_of_two() {
  const unsigned me = mg_processor();
  const unsigned last = mg_processors() - 1;
  if (last == 0 || (me != 0 && me != last)) return;
  for (unsigned round = 0; round < kRounds; ++round) {
    if ((round % 2 == 0) == (me == 0)) ring[1] = round;
    mg_barrier(pair);
    REQUIRE(ring[1] == round);
    mg_barrier(pair);
  }
}

// All processors wait for one broadcast.
void broadcast() {
  const unsigned me = mg_processor();
  mg_lock(lock);
  if (me == mg_processors() - 1) {
    ring[2] = 77;
    mg_cond_broadcast(not_full);
  }
  while (ring[2] != 77) mg_cond_wait(not_full, lock);
  mg_unlock(lock);
}

void slave(void*) {
  bounded_buffer();
  ring_of_semaphores();
  pipeline_of_flags();
  trylock_until_taken();
  barrier_of_two();
  broadcast();
}

}  // namespace

int main() {
  const unsigned all = mg_processors();
  buffer = program::shared<Buffer>(1);
  ring = program::shared<uint64_t>(3);
  exclusive = program::shared<uint64_t>(1);
  lock = mg_lock_create();
  not_full = mg_cond_create();
  not_empty = mg_cond_create();
  turn = program::shared<mg_sem_t>(all);
  stage = program::shared<mg_flag_t>(all);
  for (unsigned p = 0; p < all; ++p) {
    turn[p] = mg_sem_create(p == 0 ? 1 : 0);
    stage[p] = mg_flag_create();
  }
  barrier = mg_barrier_create(0);
  pair = mg_barrier_create(2);
  program::run_on_all(slave);
  return 0;
}
