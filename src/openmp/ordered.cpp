#include "openmp/ordered.h"

#include <algorithm>

#include "openmp/memory.h"
#include "openmp/shared_loops.h"

namespace multigrain::openmp {
namespace {

void wait_for_turn(const Frame& frame, Loop& loop) {
  if (loop.has_turn) return;
  mg_flag_wait(shared().ordered, frame.ordered + static_cast<uint32_t>(loop.current));
  loop.has_turn = true;
}

}  // namespace

void end_ordered_chunk(Frame& frame) {
  Loop& loop = frame.loop;
  if (!loop.in_chunk) return;
  wait_for_turn(frame, loop);
  mg_flag_set(shared().ordered, frame.ordered + static_cast<uint32_t>(loop.current) + 1);
  loop.in_chunk = loop.has_turn = false;
}

// --- ordered(n): iterations wait for iterations that the program names.

namespace {

uint64_t size_of(const DoacrossDimension& dimension) {
  return count_iterations<int64_t>(dimension.lower, dimension.upper, dimension.step);
}

// Returns the number of the iteration, or of none if it is outside of the nest.
bool number_of(const Doacross& nest, const int64_t* vector, uint64_t& number) {
  number = 0;
  for (int32_t i = 0; i < nest.dimensions; ++i) {
    const DoacrossDimension& dimension = nest.dimension[static_cast<size_t>(i)];
    const bool up = dimension.step > 0;
    if (up ? vector[i] < dimension.lower || vector[i] > dimension.upper
           : vector[i] > dimension.lower || vector[i] < dimension.upper)
      return false;
    const uint64_t distance = up ? static_cast<uint64_t>(vector[i]) - static_cast<uint64_t>(dimension.lower)
                                 : static_cast<uint64_t>(dimension.lower) - static_cast<uint64_t>(vector[i]);
    const uint64_t step = up ? static_cast<uint64_t>(dimension.step) : 0 - static_cast<uint64_t>(dimension.step);
    number = number * size_of(dimension) + distance / step;
  }
  return true;
}

bool has_bit(const uint64_t* bits, uint64_t number) {
  return (bits[number / 64] >> (number % 64) & 1) != 0;
}

// The first thread of the team that comes takes the place, when the loop before it is over.
void enter(SharedDoacross& place, uint64_t instance, uint64_t iterations) {
  mg_lock(place.lock);
  while (place.instance != instance) {
    if (place.instance == 0) {
      place.instance = instance;
      place.left = 0;
      place.done = new_shared<uint64_t>(iterations / 64 + 1);
      break;
    }
    ++place.waiting;
    mg_cond_wait(place.changed, place.lock);
    --place.waiting;
  }
  mg_unlock(place.lock);
}

// Called under the lock: makes known what the thread has done.
void publish(Doacross& nest) {
  const SharedDoacross& place = *nest.place;
  for (uint64_t word = nest.unpublished.begin; word < nest.unpublished.end; ++word) place.done[word] |= nest.own[word];
  nest.unpublished = {};
  nest.published_at = mg_time_ns();
  if (place.waiting != 0) mg_cond_broadcast(place.changed);
}

void note_done(Doacross& nest, uint64_t number) {
  nest.own[number / 64] |= uint64_t{1} << number % 64;
  Interval& words = nest.unpublished;
  const uint64_t word = number / 64;
  words =
      words.empty() ? Interval{word, word + 1} : Interval{std::min(words.begin, word), std::max(words.end, word + 1)};
}

}  // namespace

void publish_iterations() {
  Doacross& nest = this_thread().frame->doacross;
  if (nest.place == nullptr || nest.unpublished.empty()) return;
  const mg_lock_t lock = nest.place->lock;
  mg_lock(lock);
  publish(nest);
  mg_unlock(lock);
}

MG_OPENMP_BEGIN

void __kmpc_ordered(Ident*, int32_t) {
  Frame& frame = *this_thread().frame;
  if (frame.threads != 1 && frame.loop.in_chunk) wait_for_turn(frame, frame.loop);
}
void __kmpc_end_ordered(Ident*, int32_t) {}

void __kmpc_doacross_init(Ident*, int32_t, int32_t dimensions, const DoacrossDimension* dimension) {
  Frame& frame = *this_thread().frame;
  if (frame.threads == 1) return;
  const uint64_t instance = frame.region << 32 | ++frame.doacross_loops;
  if (dimensions > kMaxDimensions)
    end_run("ordered(n) of more than 16 loops; n is", static_cast<unsigned long>(dimensions));
  Doacross& nest = frame.doacross;
  nest.place = &shared().loops->doacross[instance % kLoopPlaces];
  nest.dimensions = dimensions;
  nest.unpublished = {};
  nest.published_at = 0;
  uint64_t iterations = 1;
  for (int32_t i = 0; i < dimensions; ++i) {
    nest.dimension[static_cast<size_t>(i)] = dimension[i];
    iterations *= size_of(dimension[i]);
  }
  nest.own_bytes = (iterations / 64 + 1) * sizeof(uint64_t);
  nest.own = static_cast<uint64_t*>(allocate_private(nest.own_bytes));
  enter(*nest.place, instance, iterations);
}

void __kmpc_doacross_wait(Ident*, int32_t, const int64_t* vector) {
  Frame& frame = *this_thread().frame;
  Doacross& nest = frame.doacross;
  uint64_t number = 0;
  if (frame.threads == 1 || !number_of(nest, vector, number) || has_bit(nest.own, number)) return;
  SharedDoacross& place = *nest.place;
  mg_lock(place.lock);
  if (!nest.unpublished.empty()) publish(nest);
  while (!has_bit(place.done, number)) {
    ++place.waiting;
    mg_cond_wait(place.changed, place.lock);
    --place.waiting;
  }
  mg_unlock(place.lock);
}

void __kmpc_doacross_post(Ident*, int32_t, const int64_t* vector) {
  Frame& frame = *this_thread().frame;
  Doacross& nest = frame.doacross;
  uint64_t number = 0;
  if (frame.threads == 1 || !number_of(nest, vector, number)) return;
  note_done(nest, number);
  if (mg_time_ns() - nest.published_at >= kPublishEveryNs) publish_iterations();
}

void __kmpc_doacross_fini(Ident*, int32_t) {
  Frame& frame = *this_thread().frame;
  if (frame.threads == 1) return;
  publish_iterations();
  SharedDoacross& place = *frame.doacross.place;
  free_private(frame.doacross.own, frame.doacross.own_bytes);
  frame.doacross.place = nullptr;
  mg_lock(place.lock);
  if (++place.left == frame.threads) {
    free_shared(place.done);
    place.done = nullptr;
    place.instance = 0;
    if (place.waiting != 0) mg_cond_broadcast(place.changed);
  }
  mg_unlock(place.lock);
}

MG_OPENMP_END

}  // namespace multigrain::openmp
