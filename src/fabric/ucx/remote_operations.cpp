#include "fabric/ucx/remote_operations.h"

#include "base/clock.h"
#include "base/futex.h"
#include "fabric/copy_words.h"
#include "fabric/ucx/start_requests.h"

namespace multigrain::ucx {
namespace {

constexpr Nanoseconds kOperationSpin = 60'000;      // a thread polls this long for its operation before it sleeps
constexpr Nanoseconds kOperationSleep = 1'000'000;  // it sleeps this long at most if no other thread makes progress
constexpr Nanoseconds kWatchedSleep = 20'000;       // it sleeps this long at most if another thread makes progress

// `operand` and `result` stay where they are until the operation is complete.
void* start_atomic(Peer& peer, ucp_rkey_h key, SegmentId segment, uint64_t offset, ucp_atomic_op_t what,
                   const void* operand, uint64_t* result, ucp_request_param_t& parameters) MG_REQUIRES(inside_ucx) {
  parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  parameters.datatype = ucp_dt_make_contig(sizeof(uint64_t));
  parameters.reply_buffer = result;
  return ucp_atomic_op_nbx(peer.connection.endpoint, what, operand, 1, peer.segments.base[index(segment)] + offset, key,
                           &parameters);
}

}  // namespace

RemoteOperations::RemoteOperations(Parts& parts) : parts_(parts) {
  for (unsigned i = 0; i < kOperations; ++i) {
    operations_[i].operations = this;
    operations_[i].next_free = static_cast<uint16_t>(i + 1 < kOperations ? i + 2 : 0);
  }
  free_ = 1;
}

// --- The table

Completion RemoteOperations::begin(UcxLock& lock, Operation*& operation) {
  while (free_ == 0) lock.progress();
  operation = &operations_[free_ - 1u];
  const Completion completion{uint64_t{free_} | uint64_t{operation->word.load() >> 1} << 16};
  free_ = operation->next_free;
  operation->parts = 1;
  return completion;
}

void RemoteOperations::end_part(Operation& operation) {
  if (--operation.parts != 0) return;
  const uint32_t generation = operation.word.load(std::memory_order_relaxed) >> 1;
  const uint32_t old = operation.word.exchange((generation + 1) << 1, std::memory_order_seq_cst);
  operation.next_free = free_;
  free_ = static_cast<uint16_t>(&operation - operations_.data() + 1);
  if ((old & 1) != 0) futex_wake(operation.word, FutexScope::kProcess);
}

Operation* RemoteOperations::awaiting(unsigned node, uint64_t completion) {
  const uint64_t slot = completion & 0xffff;
  if (slot - 1 >= kOperations) return nullptr;
  Operation& operation = operations_[slot - 1];
  const bool same = operation.word.load(std::memory_order_relaxed) >> 1 == completion >> 16;
  return same && operation.awaits_node == node + 1 ? &operation : nullptr;
}

void RemoteOperations::peer_failed(unsigned node) {
  for (Operation& operation : operations_) {
    if (operation.awaits_node != node + 1) continue;
    operation.awaits_node = 0;
    end_part(operation);
  }
}

bool RemoteOperations::is_complete(Completion completion) const {
  if (completion.id == 0) return true;
  const uint64_t slot = completion.id & 0xffff;
  MG_CHECK(slot <= kOperations, completion.id);
  return operations_[slot - 1].word.load(std::memory_order_acquire) >> 1 != completion.id >> 16;
}

// --- Waiting

void RemoteOperations::wait(Completion completion) {
  if (is_complete(completion)) return;
  {
    const Polling::ProgressScope progressing(parts_.polling);
    if (wait_polling(completion)) return;
  }
  wait_asleep(completion);
}

// Polls for a bounded time. The caller has a ProgressScope. Returns whether the operation is complete.
bool RemoteOperations::wait_polling(Completion completion) {
  if (is_complete(completion)) return true;
  Nanoseconds start = monotonic_ns();
  do {
    if (parts_.polling.progress()) {
      start = monotonic_ns();
    } else {
      cpu_relax();
    }
    if (is_complete(completion)) return true;
  } while (monotonic_ns() - start < kOperationSpin);
  return false;
}

// Waits for an operation that takes long. The service thread, or a thread that polls, makes progress meanwhile. But the
// polling thread may be this very thread, in an outer scope, and without a service thread there may be no other. So
// this thread makes progress from time to time.
void RemoteOperations::wait_asleep(Completion completion) {
  std::atomic<uint32_t>& word = operations_[(completion.id & 0xffff) - 1].word;
  const auto pending = static_cast<uint32_t>(completion.id >> 16) << 1;
  while (!is_complete(completion)) {
    if (parts_.polling.progress()) continue;
    const Nanoseconds limit = parts_.polling.a_thread_progresses() ? kWatchedSleep : kOperationSleep;
    uint32_t expected = pending;
    if (word.compare_exchange_strong(expected, pending | 1, std::memory_order_seq_cst) || expected == (pending | 1))
      futex_wait(word, pending | 1, FutexScope::kProcess, limit);
  }
}

// Starts an operation and waits for it. The scope begins before the request goes out, so that the answer does not wake
// the service thread.
template <typename Start>
void RemoteOperations::carry_out(Start&& start) {
  Completion completion;
  {
    const Polling::ProgressScope progressing(parts_.polling);
    completion = start();
    if (wait_polling(completion)) return;
  }
  wait_asleep(completion);
}

// --- Puts and gets

// Runs `start(peer, key, piece offset, piece length, parameters)` for every chunk that the range touches.
template <typename Start>
Completion RemoteOperations::start_operation(NodeId node, SegmentId segment, uint64_t offset, uint64_t length,
                                             Start&& start) {
  if (!parts_.segments.get_keys(node, segment, offset, length)) return {};
  return start_requests(node, [&](Peer& peer, ucp_request_param_t& parameters, auto&& take) {
    for (uint64_t done = 0; done < length;) {
      const uint64_t here = Segments::in_one_chunk(segment, offset + done, length - done);
      take(start(peer, parts_.segments.remote_key(node.value, segment, offset + done), done, here, parameters));
      done += here;
    }
  });
}

Completion RemoteOperations::start_put(NodeId to, SegmentId segment, uint64_t offset,
                                       std::span<const std::byte> bytes) {
  parts_.segments.check_range(to, segment, offset, bytes.size());
  if (bytes.empty()) return {};
  if (to.value == parts_.context.self) {
    put_words(parts_.segments.own(segment, offset), bytes.data(), bytes.size());
    return {};
  }
  const uint64_t size = bytes.size();
  // A single word is put by an atomic swap, which stores it once: where UCX copies in software it may store the word
  // twice, and would undo the update of a node that has taken a lock in between. No thread reads the old value.
  if (size == sizeof(uint64_t) && offset % sizeof(uint64_t) == 0)
    return start_operation(to, segment, offset, size,
                           [&](Peer& peer, ucp_rkey_h key, uint64_t, uint64_t, ucp_request_param_t& parameters) {
                             inside_ucx.assume_held();
                             return start_atomic(peer, key, segment, offset, UCP_ATOMIC_OP_SWAP, bytes.data(),
                                                 &discarded_, parameters);
                           });
  return start_operation(
      to, segment, offset, size,
      [&](Peer& peer, ucp_rkey_h key, uint64_t done, uint64_t length, ucp_request_param_t& parameters) -> void* {
        inside_ucx.assume_held();
        const ucp_ep_h endpoint = peer.connection.endpoint;
        void* const request = ucp_put_nbx(endpoint, bytes.data() + done, length,
                                          peer.segments.base[index(segment)] + offset + done, key, &parameters);
        if (done + length != size || UCS_PTR_IS_ERR(request)) return request;
        // UCX has completed a put when the buffer is free again, but the put is visible at the target only when the
        // endpoint has been flushed. So a flush follows the last put; it ends after all requests that were started
        // before it. The put is a part that its callback ends, so it is counted here; the caller counts the flush.
        if (UCS_PTR_IS_PTR(request)) ++static_cast<Operation*>(parameters.user_data)->parts;
        return ucp_ep_flush_nbx(endpoint, &parameters);
      });
}

Completion RemoteOperations::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  parts_.segments.check_range(from, segment, offset, bytes.size());
  if (bytes.empty()) return {};
  if (from.value == parts_.context.self) {
    get_words(bytes.data(), parts_.segments.own(segment, offset), bytes.size());
    return {};
  }
  return start_operation(
      from, segment, offset, bytes.size(),
      [&](Peer& peer, ucp_rkey_h key, uint64_t done, uint64_t length, ucp_request_param_t& parameters) {
        inside_ucx.assume_held();
        return ucp_get_nbx(peer.connection.endpoint, bytes.data() + done, length,
                           peer.segments.base[index(segment)] + offset + done, key, &parameters);
      });
}

void RemoteOperations::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  if (to.value == parts_.context.self) {
    start_put(to, segment, offset, bytes);
  } else {
    carry_out([&] { return start_put(to, segment, offset, bytes); });
  }
}

void RemoteOperations::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  if (from.value == parts_.context.self) {
    start_get(from, segment, offset, bytes);
  } else {
    carry_out([&] { return start_get(from, segment, offset, bytes); });
  }
}

// --- Atomics

uint64_t RemoteOperations::atomic(NodeId at, SegmentId segment, uint64_t offset, ucp_atomic_op_t what, uint64_t operand,
                                  uint64_t result) {
  carry_out([&] {
    return start_operation(at, segment, offset, sizeof(uint64_t),
                           [&](Peer& peer, ucp_rkey_h key, uint64_t, uint64_t, ucp_request_param_t& parameters) {
                             inside_ucx.assume_held();
                             return start_atomic(peer, key, segment, offset, what, &operand, &result, parameters);
                           });
  });
  return result;
}

uint64_t RemoteOperations::load_own(SegmentId segment, uint64_t offset) {
  parts_.segments.check_word(NodeId(parts_.context.self), segment, offset);
  return parts_.segments.own_word(segment, offset).load(std::memory_order_seq_cst);
}

uint64_t RemoteOperations::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  parts_.segments.check_word(at, segment, offset);
  if (at.value == parts_.context.self)
    return parts_.segments.own_word(segment, offset).exchange(value, std::memory_order_seq_cst);
  return atomic(at, segment, offset, UCP_ATOMIC_OP_SWAP, value, 0);
}

uint64_t RemoteOperations::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  parts_.segments.check_word(at, segment, offset);
  if (at.value == parts_.context.self)
    return parts_.segments.own_word(segment, offset).fetch_add(addend, std::memory_order_seq_cst);
  return atomic(at, segment, offset, UCP_ATOMIC_OP_ADD, addend, 0);
}

Completion RemoteOperations::start_fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend,
                                             uint64_t& old) {
  parts_.segments.check_word(at, segment, offset);
  if (at.value == parts_.context.self) {
    old = parts_.segments.own_word(segment, offset).fetch_add(addend, std::memory_order_seq_cst);
    return {};
  }
  // UCX takes the addend from the place in which it puts the old value.
  old = addend;
  return start_operation(at, segment, offset, sizeof(uint64_t),
                         [&](Peer& peer, ucp_rkey_h key, uint64_t, uint64_t, ucp_request_param_t& parameters) {
                           inside_ucx.assume_held();
                           return start_atomic(peer, key, segment, offset, UCP_ATOMIC_OP_ADD, &old, &old, parameters);
                         });
}

uint64_t RemoteOperations::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                            uint64_t desired) {
  parts_.segments.check_word(at, segment, offset);
  if (at.value == parts_.context.self) {
    parts_.segments.own_word(segment, offset).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
    return expected;
  }
  // UCX takes the new value from the place in which it puts the old one.
  return atomic(at, segment, offset, UCP_ATOMIC_OP_CSWAP, expected, desired);
}

}  // namespace multigrain::ucx
