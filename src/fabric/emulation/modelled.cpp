#include "fabric/emulation/modelled.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace multigrain {
namespace {

// A sleep may end this much too late, so the thread spins for the last part of a wait.
constexpr Nanoseconds kSpin = 50'000;

}  // namespace

Nanoseconds ModelledFabric::occupy(Nanoseconds now, uint64_t bytes) {
  const Nanoseconds busy = model_.occupancy_ns + model_.transfer_ns(bytes);
  Nanoseconds free = link_free_.load(std::memory_order_relaxed);
  Nanoseconds left = 0;
  do {
    left = std::max(now, free) + busy;
  } while (!link_free_.compare_exchange_weak(free, left, std::memory_order_relaxed));
  return left;
}

Nanoseconds ModelledFabric::charge(NodeId node, Nanoseconds start, uint64_t bytes) {
  if (node == self()) return 0;
  operations_.fetch_add(1, std::memory_order_relaxed);
  operation_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return occupy(start, bytes) + 2 * model_.latency_ns;
}

void ModelledFabric::wait_until(Nanoseconds when) {
  const Nanoseconds start = monotonic_ns();
  if (when <= start) return;
  Nanoseconds now = start;
  if (when - start > kSpin) {
    const int saved = errno;
    const Nanoseconds wake = when - kSpin;
    const timespec time{static_cast<time_t>(wake / 1'000'000'000u), static_cast<long>(wake % 1'000'000'000u)};
    // A signal may end the sleep early; the time is absolute, so the thread sleeps again.
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
    }
    errno = saved;
  }
  while ((now = monotonic_ns()) < when) cpu_relax();
  waited_.fetch_add(now - start, std::memory_order_relaxed);
}

ModelledFabric::Counters ModelledFabric::counters() const {
  return {messages_.load(std::memory_order_relaxed),      message_bytes_.load(std::memory_order_relaxed),
          operations_.load(std::memory_order_relaxed),    operation_bytes_.load(std::memory_order_relaxed),
          message_delay_.load(std::memory_order_relaxed), waited_.load(std::memory_order_relaxed)};
}

void ModelledFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  wait(start_put(to, segment, offset, bytes));
}

void ModelledFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  wait(start_get(from, segment, offset, bytes));
}

// A completion's id is the time at which the model completes it. These functions wait for the fabric inside at once,
// because it is taken to be faster than the network that is emulated.
Completion ModelledFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  const Nanoseconds start = monotonic_ns();
  inner().wait(inner().start_put(to, segment, offset, bytes));
  return {charge(to, start, bytes.size())};
}

Completion ModelledFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  const Nanoseconds start = monotonic_ns();
  inner().wait(inner().start_get(from, segment, offset, bytes));
  return {charge(from, start, bytes.size())};
}

Completion ModelledFabric::start_put_pieces(NodeId to, SegmentId segment, uint64_t offset,
                                            std::span<const Piece> pieces) {
  const Nanoseconds start = monotonic_ns();
  inner().wait(inner().start_put_pieces(to, segment, offset, pieces));
  return {charge(to, start, bytes_on_network(pieces))};
}

Completion ModelledFabric::start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                               uint64_t& old) {
  const Nanoseconds start = monotonic_ns();
  old = inner().fetch_and_set(at, segment, offset, value);
  return {charge(at, start, sizeof old)};
}

Completion ModelledFabric::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend,
                                           uint64_t& old) {
  const Nanoseconds start = monotonic_ns();
  old = inner().fetch_add(at, segment, offset, addend);
  return {charge(at, start, sizeof old)};
}

// The earlier operation has been carried out, though the caller may not know its result yet. So both operations are
// under way at once.
Completion ModelledFabric::start_get_after(Completion, NodeId from, SegmentId segment, uint64_t offset,
                                           std::span<std::byte> bytes) {
  return start_get(from, segment, offset, bytes);
}

bool ModelledFabric::is_complete(Completion completion) {
  return completion.id <= monotonic_ns();
}

void ModelledFabric::wait(Completion completion) {
  if (completion.id != 0) wait_until(completion.id);
}

uint64_t ModelledFabric::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  const Nanoseconds start = monotonic_ns();
  const uint64_t old = inner().fetch_and_set(at, segment, offset, value);
  wait({charge(at, start, sizeof(uint64_t))});
  return old;
}

uint64_t ModelledFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  const Nanoseconds start = monotonic_ns();
  const uint64_t old = inner().fetch_add(at, segment, offset, addend);
  wait({charge(at, start, sizeof(uint64_t))});
  return old;
}

uint64_t ModelledFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                          uint64_t desired) {
  const Nanoseconds start = monotonic_ns();
  const uint64_t old = inner().compare_and_swap(at, segment, offset, expected, desired);
  wait({charge(at, start, sizeof(uint64_t))});
  return old;
}

void ModelledFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                          SendContext context, Nanoseconds not_before) {
  const uint64_t bytes = payload.size() + slice.length;
  const Nanoseconds now = monotonic_ns();
  const Nanoseconds arrival = occupy(now, bytes) + model_.latency_ns;
  messages_.fetch_add(1, std::memory_order_relaxed);
  message_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  message_delay_.fetch_add(arrival - now, std::memory_order_relaxed);
  inner().send(to, header, payload, slice, context, std::max(arrival, not_before));
}

}  // namespace multigrain
