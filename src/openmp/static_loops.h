// Static schedules: which iterations are a thread's own, as compiled code asks for them. Nothing here knows of threads
// but their numbers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "openmp/abi.h"
#include "openmp/loop_math.h"

namespace multigrain::openmp {

// What compiled code is told: the first interval of the thread, how far it is from there to the next one, and whether
// the thread executes the loop's last iteration.
template <typename T>
struct StaticPart {
  T lower;
  T upper;
  std::make_signed_t<T> stride;
  bool has_last;
};

// Bounds between which no value lies, for a loop of either direction and any type.
template <typename T>
StaticPart<T> no_part(std::make_signed_t<T> step) {
  return step > 0 ? StaticPart<T>{1, 0, step, false} : StaticPart<T>{0, 1, step, false};
}

// Divides the loop from `lower` to `upper`, both included, in steps of `step`, by a schedule that is static (34, 92),
// static with a chunk size (33, 91), or static for vectors (45: one part each, a multiple of the chunk). 1 stands for a
// chunk size below it.
template <typename T>
StaticPart<T> static_part(int32_t schedule, T lower, T upper, std::make_signed_t<T> step, std::make_signed_t<T> chunk,
                          uint32_t number, uint32_t threads) {
  using S = std::make_signed_t<T>;
  const uint64_t count = count_iterations<T>(lower, upper, step);
  if (count == 0) return {lower, upper, step, false};
  const LoopBounds<T> bounds{lower, step};
  const uint64_t length = chunk < 1 ? 1 : static_cast<uint64_t>(chunk);
  if (schedule == kScheduleStaticChunked || schedule == kDistributeStaticChunked) {
    const uint64_t chunks = count_chunks(count, length);
    if (number >= chunks) return no_part<T>(step);
    const uint64_t begin = number * length;
    // Compiled code cuts the last interval at the loop's end. Here it must not go round the type's limit.
    const uint64_t end = count - begin < length ? count : begin + length;
    const bool cut = end - begin < length;
    const T stride = static_cast<T>(static_cast<T>(length * threads) * static_cast<T>(step));
    return {bounds.value(begin), cut ? upper : bounds.value(end - 1), static_cast<S>(stride),
            (chunks - 1) % threads == number};
  }
  Interval part = part_of(count, number, threads);
  if (schedule == kScheduleStaticBalancedChunked) {
    const uint64_t span = count_chunks(count_chunks(count, threads), length) * length;
    part = {std::min(count, number * span), std::min(count, (number + 1) * span)};
  }
  if (part.empty()) return no_part<T>(step);
  return {bounds.value(part.begin), bounds.value(part.end - 1), static_cast<S>(count), part.end == count};
}

}  // namespace multigrain::openmp
