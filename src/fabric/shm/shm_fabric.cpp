#include "fabric/shm/shm_fabric.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "fabric/copy_words.h"
#include "fabric/wait.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

constexpr unsigned kBatch = 32;                      // a poll() handles at most so many messages
constexpr unsigned kFullRingSpins = 2000;            // a sender without room polls so often before it sleeps
constexpr Nanoseconds kFullRingSleep = 50'000;       // and then sleeps for so long between polls
constexpr Nanoseconds kOverflowRetry = 100'000;      // the service thread tries a full ring again after this time
constexpr Nanoseconds kTimerWorthSleeping = 20'000;  // the service thread spins if it would sleep for less

// Says that this thread is inside a message handler. It is initial-exec because the first use of dynamic TLS may call
// malloc, and this may be the fault handler.
[[gnu::tls_model("initial-exec")]] thread_local bool t_handling = false;

// __builtin_prefetch fetches for reading only, unless the compiler may assume a processor with this instruction. On a
// processor without it, the instruction does nothing.
void prefetch_for_write(const void* line) {
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
}

// Does what `copy_words` does (put_words() or get_words()), but where that pays, the C library's vectors move what lies
// between the ends: if source and target are aligned alike, the vectors move whole words.
template <typename CopyWords>
void copy_shared(std::byte* to, const std::byte* from, size_t length, CopyWords&& copy_words) {
  constexpr size_t kWorthACall = 128;
  const size_t head = bytes_to_word(to);
  if (length >= kWorthACall && head == bytes_to_word(from)) {
    const size_t body = (length - head) / kWordBytes * kWordBytes;
    copy_words(to, from, head);
    std::memcpy(to + head, from + head, body);
    to += head + body, from += head + body, length -= head + body;
  }
  copy_words(to, from, length);
}

}  // namespace

Result<std::unique_ptr<ShmFabric>> ShmFabric::attach(int job_fd, NodeId self, const std::vector<int>& frames_fds,
                                                     uint64_t region_size) {
  Result<JobMemory> job = JobMemory::map(job_fd);
  if (!job) return tl::unexpected(job.error());
  return attach(std::move(*job), self, frames_fds, region_size);
}

Result<std::unique_ptr<ShmFabric>> ShmFabric::attach(JobMemory job, NodeId self, const std::vector<int>& frames_fds,
                                                     uint64_t region_size) {
  const unsigned nodes = job.header().nodes;
  if (self.value >= nodes) return fail("node {} cannot join a job of {} nodes", self.value, nodes);
  if (!frames_fds.empty() && frames_fds.size() != nodes)
    return fail("a job of {} nodes needs {} frames descriptors, not {}", nodes, nodes, frames_fds.size());
  uint32_t earlier = 0;
  // This refuses a second process (or a second fabric) of one node, which would read the same rings.
  if (!job.header().node[self.value].pid.compare_exchange_strong(earlier, static_cast<uint32_t>(getpid())))
    return fail("node {} has been started already, as process {}", self.value, earlier);
  std::atomic<uint32_t>& pid = job.header().node[self.value].pid;
  Status opened;
  std::unique_ptr<ShmFabric> fabric;
  try {
    fabric.reset(new ShmFabric(std::move(job), self));
    opened = fabric->open_mappings(frames_fds, region_size);
  } catch (const std::bad_alloc&) {
    return fail("no memory for the queues of {} nodes", nodes);
  }
  if (!opened) {
    pid.store(0);
    return tl::unexpected(opened.error());
  }
  return fabric;
}

ShmFabric::ShmFabric(JobMemory job, NodeId self)
    : job_(std::move(job)),
      self_(self),
      nodes_(job_.header().nodes),
      bell_(&job_.doorbell(self)),
      own_work_(Doorbell::own_work(self.value, nodes_)),
      outgoing_(nodes_),
      incoming_(nodes_) {
  const size_t ring_bytes = job_.header().ring_bytes;
  for (uint16_t peer = 0; peer < nodes_; ++peer) {
    if (peer == self.value) continue;
    const NodeId other(peer);
    outgoing_[peer].ring.bind(job_.ring_data(self, other), &job_.ring_head(self, other), ring_bytes);
    incoming_[peer].ring.bind(job_.ring_data(other, self), &job_.ring_head(other, self), ring_bytes, other);
  }
  exported_[static_cast<size_t>(SegmentId::kWords)] = {job_.words(self), job_.header().words_bytes};
}

ShmFabric::~ShmFabric() {
  const LocalExport& pages = exported_[static_cast<size_t>(SegmentId::kPages)];
  if (pages.base != nullptr) munmap(pages.base, pages.length);
}

void ShmFabric::unmap_pages_of_peers() const {
  for (const PeerMappings* mappings : {&mappings_, &line_mappings_, &page_mappings_}) mappings->unmap_pages();
}

Status ShmFabric::open_mappings(const std::vector<int>& frames_fds, uint64_t region_size) {
  std::array<uint64_t, NodeSet::kCapacity> lines_at{};
  std::array<uint64_t, NodeSet::kCapacity> pages_at{};
  for (uint16_t node = 0; node < nodes_; ++node) {
    lines_at[node] = job_.lines_at(NodeId(node));
    pages_at[node] = job_.pages_at(NodeId(node));
  }
  const JobHeader& header = job_.header();
  Status opened = line_mappings_.open(job_.tables_fd(), {lines_at.data(), nodes_}, header.lines_bytes);
  if (!opened) return opened;
  opened = page_mappings_.open(job_.tables_fd(), {pages_at.data(), nodes_}, header.pages_bytes);
  if (!opened) return opened;
  void* const own_pages = mmap(nullptr, header.pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                               job_.tables_fd(), static_cast<off_t>(pages_at[self_.value]));
  if (own_pages == MAP_FAILED) return fail_errno(errno, "cannot map the page table of this node");
  // A child that inherited it would change what other nodes read, and a core dump would allocate all of it.
  madvise(own_pages, header.pages_bytes, MADV_DONTFORK);
  madvise(own_pages, header.pages_bytes, MADV_DONTDUMP);
  export_segment(SegmentId::kPages, static_cast<std::byte*>(own_pages), header.pages_bytes);
  if (frames_fds.empty()) return {};
  frames_length_ = region_size;
  return mappings_.open(frames_fds, region_size);
}

void ShmFabric::export_segment(SegmentId segment, std::byte* base, uint64_t length) {
  MG_CHECK(segment < SegmentId::kCount);
  exported_[static_cast<size_t>(segment)] = {base, length};
}

std::span<std::byte> ShmFabric::words() const {
  return {job_.words(self_), job_.header().words_bytes};
}

void ShmFabric::check_aborted() const {
  const uint32_t aborted = job_.header().aborted.load(std::memory_order_relaxed);
  // The node writes no message: the launcher has said why, and a line from each node would bury that.
  if (aborted != 0) [[unlikely]]
    _exit(kAbortedStatus);
}

// --- Memory

uint64_t ShmFabric::segment_length(NodeId node, SegmentId segment) const {
  if (node == self_) {
    const LocalExport& own = exported_[static_cast<size_t>(segment)];
    if (own.base != nullptr) return own.length;
  }
  switch (segment) {
    case SegmentId::kWords:
      return job_.header().words_bytes;
    case SegmentId::kLines:
      return job_.header().lines_bytes;
    case SegmentId::kPages:
      return job_.header().pages_bytes;
    default:
      return frames_length_;
  }
}

void ShmFabric::check_range(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) const {
  if (node.value >= nodes_) panic("a remote operation names a node that does not exist:", node.value);
  if (segment >= SegmentId::kCount)
    panic("a remote operation names a segment that does not exist:", static_cast<uint64_t>(segment));
  const uint64_t end = segment_length(node, segment);
  if (length > end || offset > end - length)
    panic("a remote operation is outside of what the node exports (node, offset, length):", node.value, offset, length);
}

std::byte* ShmFabric::at(NodeId node, SegmentId segment, uint64_t offset, uint64_t& run) {
  if (node == self_) {
    const LocalExport& own = exported_[static_cast<size_t>(segment)];
    if (own.base != nullptr) {
      run = own.length - offset;
      return own.base + offset;
    }
  }
  if (segment == SegmentId::kWords) {
    run = job_.header().words_bytes - offset;
    return job_.words(node) + offset;
  }
  switch (segment) {
    case SegmentId::kLines:
      return line_mappings_.at(node, offset, run);
    case SegmentId::kPages:
      return page_mappings_.at(node, offset, run);
    default:
      return mappings_.at(node, offset, run);
  }
}

void ShmFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  check_range(to, segment, offset, bytes.size());
  while (!bytes.empty()) {
    uint64_t run = 0;
    std::byte* const target = at(to, segment, offset, run);
    const size_t here = bytes.size() < run ? bytes.size() : run;
    copy_shared(target, bytes.data(), here, put_words);
    bytes = bytes.subspan(here);
    offset += here;
  }
}

void ShmFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  check_range(from, segment, offset, bytes.size());
  while (!bytes.empty()) {
    uint64_t run = 0;
    const std::byte* const source = at(from, segment, offset, run);
    const size_t here = bytes.size() < run ? bytes.size() : run;
    copy_shared(bytes.data(), source, here, get_words);
    bytes = bytes.subspan(here);
    offset += here;
  }
}

Completion ShmFabric::start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) {
  uint64_t end = 0;
  for (const Piece& piece : pieces) end = std::max(end, uint64_t{piece.offset} + piece.length);
  check_range(to, segment, offset, end);
  if (end == 0) return {};
  uint64_t run = 0;
  std::byte* const target = at(to, segment, offset, run);
  // A page lies in one mapping; a range that does not is put piece by piece.
  if (run < end) return Fabric::start_put_pieces(to, segment, offset, pieces);
  for (const Piece& piece : pieces) copy_shared(target + piece.offset, piece.bytes, piece.length, put_words);
  return {};
}

std::byte* ShmFabric::memory_of(NodeId to, SegmentId segment, uint64_t offset, uint64_t length) {
  check_range(to, segment, offset, length);
  uint64_t run = 0;
  std::byte* const target = at(to, segment, offset, run);
  return run < length ? nullptr : target;
}

Completion ShmFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  put(to, segment, offset, bytes);
  return {};
}

Completion ShmFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  get(from, segment, offset, bytes);
  return {};
}

bool ShmFabric::is_complete(Completion completion) {
  MG_CHECK(completion.id == 0, completion.id);
  return true;
}

void ShmFabric::wait(Completion completion) {
  MG_CHECK(completion.id == 0, completion.id);
}

std::atomic_ref<uint64_t> ShmFabric::word(NodeId node, SegmentId segment, uint64_t offset) {
  if (offset % sizeof(uint64_t) != 0)
    panic("a remote atomic is not on a multiple of 8 bytes (node, offset):", node.value, offset);
  check_range(node, segment, offset, sizeof(uint64_t));
  uint64_t run = 0;
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(at(node, segment, offset, run)));
}

uint64_t ShmFabric::load_own(SegmentId segment, uint64_t offset) {
  return word(self_, segment, offset).load(std::memory_order_seq_cst);
}

uint64_t ShmFabric::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  return word(at, segment, offset).exchange(value, std::memory_order_seq_cst);
}

uint64_t ShmFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  return word(at, segment, offset).fetch_add(addend, std::memory_order_seq_cst);
}

uint64_t ShmFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                     uint64_t desired) {
  word(at, segment, offset).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
  return expected;
}

// --- Messages

void ShmFabric::set_handler(MessageType type, MessageHandler handler, void* context) {
  Handler& entry = handlers_[type];
  MG_CHECK(handler != nullptr, type);
  MG_CHECK(entry.function.load(std::memory_order_relaxed) == nullptr, type);
  entry.context = context;
  entry.function.store(handler, std::memory_order_release);
}

void ShmFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                     SendContext context, Nanoseconds not_before) {
  MG_CHECK(to.value < nodes_ && to != self_, to.value);
  MG_CHECK(payload.size() <= kMaxPayload, payload.size());
  MG_CHECK(context == SendContext::kHandler || !t_handling);
  if (slice.length != 0) check_range(self_, slice.segment, slice.offset, slice.length);

  Record record{};
  record.word = Record::make_word(RecordKind::kMessage, payload.size(), slice.segment);
  record.not_before = not_before;
  record.header = header;
  record.slice_offset = slice.offset;
  record.slice_length = slice.length;
  if (try_send(to, record, payload, context == SendContext::kHandler)) return;

  begin_polling();
  for (unsigned tries = 0; !try_send(to, record, payload, false); ++tries) {
    if (poll() != 0) continue;
    if (tries < kFullRingSpins) {
      cpu_relax();
    } else {
      sleep_ns(kFullRingSleep);
    }
  }
  end_polling();
}

// Puts the record into the ring, behind messages that overflowed earlier. If there is no room, the record is queued if
// `keep` is set; otherwise this returns false.
bool ShmFabric::try_send(NodeId to, const Record& record, std::span<const std::byte> payload, bool keep) {
  Outgoing& out = outgoing_[to.value];
  Doorbell& bell = job_.doorbell(to);
  // The two lines that this thread is about to take from the receiver, doorbell and record, travel at the same time.
  prefetch_for_write(&bell);
  bool overflowed = false;
  {
    const LockGuard guard(out.lock);
    prefetch_for_write(out.ring.next());
    const bool behind = !out.overflow.empty() && !out.overflow.drain_into(out.ring, pool_);
    if (behind || !out.ring.try_push(record, payload)) {
      if (!keep) return false;
      out.overflow.append(pool_, record, payload);
      overflowing().insert(to.value);
      overflowed = true;
    }
  }
  bell.announce(self_.value, nodes_);
  // A thread must send the queued messages later: the argument of doorbell.h, with overflowing_ in the place of
  // pending.
  if (overflowed) bell_->wake_unless_polled();
  return true;
}

void ShmFabric::flush_overflow() {
  overflowing().for_each_from(0, 0, [&](unsigned to) {
    Outgoing& out = outgoing_[to];
    // A thread that holds the lock sends the queue along itself, if there is room.
    if (!out.lock.try_lock()) return true;
    if (out.overflow.drain_into(out.ring, pool_)) overflowing().erase(to);
    out.lock.unlock();
    job_.doorbell(NodeId(static_cast<uint16_t>(to))).announce(self_.value, nodes_);
    return true;
  });
}

unsigned ShmFabric::poll() {
  MG_CHECK(!t_handling);
  if (overflowing_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    flush_overflow();
  unsigned handled = 0;
  for_each_waiting(first_source_.load(std::memory_order_relaxed), [&](unsigned source) {
    if (source >= nodes_ || source == self_.value) panic("the doorbell was rung by a node that cannot be:", source);
    handled += drain(source, kBatch - handled);
    first_source_.store(source + 1, std::memory_order_relaxed);
    return handled < kBatch;
  });
  if (handled == 0) check_aborted();
  return handled;
}

unsigned ShmFabric::drain(unsigned source, unsigned limit) {
  Incoming& in = incoming_[source];
  const Nanoseconds due = in.due.load(std::memory_order_relaxed);
  if (due != 0 && due > monotonic_ns()) return 0;
  if (in.token.load(std::memory_order_relaxed) != 0 || in.token.exchange(1, std::memory_order_seq_cst) != 0) return 0;

  // The record's line travels while this thread takes the doorbell's line back from the sender.
  __builtin_prefetch(in.ring.next(), 0);
  unsigned handled = 0;
  bool more = false;
  const SourceGroups sources = bell_->sources(nodes_);
  sources.erase(source);
  in.due.store(0, std::memory_order_relaxed);
  while (const Record* record = in.ring.front()) {
    if (handled == limit) {
      more = true;
      break;
    }
    if (record->not_before != 0 && !carries_arrivals_ && record->not_before > monotonic_ns()) {
      in.due.store(record->not_before, std::memory_order_relaxed);
      more = true;
      break;
    }
    handle(source, *record, in.ring);
    in.ring.pop();
    ++handled;
  }
  if (handled != 0) in.drains.store(in.drains.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (more) sources.insert(source);
  in.token.store(0, std::memory_order_seq_cst);
  if (sources.has_any_of_group(source)) bell_->wake_unless_polled();
  return handled;
}

std::optional<ShmFabric::Arrived> ShmFabric::first_arrived() {
  std::optional<Arrived> first;
  const SourceGroups sources = bell_->sources(nodes_);
  for_each_waiting(0, [&](unsigned source) {
    if (source >= nodes_) panic("the doorbell was rung by a node that cannot be:", source);
    RingConsumer& ring = incoming_[source].ring;
    const Record* record = ring.front();
    if (record == nullptr) {
      // The sender publishes a message before it sets the bit, so a message that this look misses sets it again.
      sources.erase(source);
      record = ring.front();
      if (record == nullptr) return true;
      sources.insert(source);
    }
    // Sources come in ascending order.
    if (!first || record->not_before < first->arrival) first = Arrived{source, record->not_before};
    return true;
  });
  return first;
}

void ShmFabric::handle_one(unsigned source) {
  MG_CHECK(!t_handling && carries_arrivals_);
  RingConsumer& ring = incoming_[source].ring;
  const Record* const record = ring.front();
  MG_CHECK(record != nullptr, source);
  handle(source, *record, ring);
  ring.pop();
}

NodeSet ShmFabric::flush() {
  NodeSet before;
  if (!holds_back()) return before;
  overflowing().for_each_from(0, 0, [&](unsigned to) {
    before.insert(NodeId(static_cast<uint16_t>(to)));
    return true;
  });
  flush_overflow();
  return before;
}

void ShmFabric::handle(unsigned source, const Record& record, RingConsumer& ring) {
  const NodeId from(static_cast<uint16_t>(source));
  const RemoteSlice slice{ring.slice_segment(), record.slice_offset, record.slice_length};
  if (slice.length != 0) {
    if (slice.segment >= SegmentId::kCount) panic("a message with an impossible slice came from node", source);
    const uint64_t end = segment_length(from, slice.segment);
    if (slice.length > end || slice.offset > end - slice.length)
      panic("a message with a slice outside of its sender's memory came from node (and offset, length)", source,
            slice.offset, slice.length);
  }
  const Handler& handler = handlers_[record.header.type];
  const MessageHandler function = handler.function.load(std::memory_order_acquire);
  if (function == nullptr)
    panic("a message of a type that nobody handles came from node (and its type)", source, record.header.type);
  t_handling = true;
  function(handler.context, Message{from, record.header, ring.payload(), slice, record.not_before});
  t_handling = false;
}

// --- Polling

void ShmFabric::begin_polling() {
  bell_->begin_polling();
}

void ShmFabric::end_polling() {
  const uint32_t left = bell_->end_polling();
  MG_CHECK((left & Doorbell::kCount) != Doorbell::kCount);
  if (left == 0 &&
      (bell_->pending.load(std::memory_order_seq_cst) != 0 || overflowing_.load(std::memory_order_seq_cst) != 0))
    bell_->wake_unless_polled();
}

void ShmFabric::begin_computing() {
  bell_->computing.fetch_add(1, std::memory_order_seq_cst);
}

void ShmFabric::end_computing() {
  const uint32_t before = bell_->computing.fetch_sub(1, std::memory_order_seq_cst);
  MG_CHECK(before != 0);
  if (before == 1 && bell_->pending.load(std::memory_order_seq_cst) != 0) bell_->wake_unless_polled();
}

Nanoseconds ShmFabric::next_work() {
  Nanoseconds when = kNever;
  for_each_waiting(0, [&](unsigned source) {
    const Incoming& in = incoming_[source];
    if (in.token.load(std::memory_order_seq_cst) != 0) return true;
    when = std::min(when, in.due.load(std::memory_order_relaxed));
    return when != 0;
  });
  if (when == 0) return 0;
  if (overflowing_.load(std::memory_order_seq_cst) != 0) {
    const Nanoseconds retry = monotonic_ns() + kOverflowRetry;
    if (retry < when) when = retry;
  }
  return when;
}

void ShmFabric::serve() {
  if (!precise_timers_) {
    // By default the kernel may end a timed sleep 50 microseconds late, which is a whole modelled network latency.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    precise_timers_ = true;
  }
  while (true) {
    const uint32_t seen = bell_->wakes.load(std::memory_order_seq_cst);
    check_aborted();
    if (stop_serving_.exchange(false, std::memory_order_seq_cst)) return;
    if (has_own_work() && !bell_->is_attended()) return;
    Nanoseconds when = kNever;
    if (bell_->begin_service()) {
      unsigned handled = 0;
      const uint64_t drains_of_others = drains() - own_drains_;
      const uint64_t wakes = EventCount::wakes_by_this_thread();
      do {
        while (const unsigned batch = poll()) {
          handled += batch;
          // A processor that has begun to wait handles the rest itself.
          if (others_poll()) break;
        }
        if (handled == 0) cpu_relax();
      } while (handled == 0 && lingers());
      if (handled != 0) {
        served_at_ = ticks();
        has_woken_ = EventCount::wakes_by_this_thread() != wakes;
      }
      // Other threads that drain rings at the same time are counted with this one, which is near enough.
      own_drains_ = drains() - drains_of_others;
      const uint32_t left = bell_->end_polling();
      if (left == 0) when = next_work();
      if (handled != 0) return;
    }
    if (when == kNever) {
      sleep_until_woken(seen);
      if (has_own_work()) return;
    } else {
      const Nanoseconds now = monotonic_ns();
      if (when > now + kTimerWorthSleeping) {
        futex_wait(bell_->wakes, seen, FutexScope::kMachine, when - now - kTimerWorthSleeping / 2);
        if (has_own_work()) return;
      } else {
        cpu_relax();
      }
    }
  }
}

// Whether the service thread, which is counted among the pollers, looks once more for messages before it sleeps.
bool ShmFabric::lingers() const {
  return served_at_ != 0 && !has_woken_ && ticks() - served_at_ < linger_ticks_ &&
         bell_->computing.load(std::memory_order_relaxed) == 0 && !others_poll() &&
         !stop_serving_.load(std::memory_order_relaxed) && !has_own_work();
}

uint64_t ShmFabric::drains() const {
  uint64_t sum = 0;
  for (unsigned source = 0; source < nodes_; ++source) sum += incoming_[source].drains.load(std::memory_order_relaxed);
  return sum;
}

void ShmFabric::sleep_until_woken(uint32_t seen) {
  const uint64_t others = drains() - own_drains_;
  const Nanoseconds interval = attention_.next(own_drains_ != own_before_, others != others_before_,
                                               bell_->computing.load(std::memory_order_seq_cst));
  own_before_ = own_drains_;
  others_before_ = others;
  if (interval != 0) {
    bell_->attended.store(1, std::memory_order_seq_cst);
    futex_wait(bell_->wakes, seen, FutexScope::kMachine, interval);
  } else if (bell_->attended.load(std::memory_order_relaxed) != 0) {
    // A sender that has seen this has not woken the thread, which looks once more.
    bell_->attended.store(0, std::memory_order_seq_cst);
  } else {
    futex_wait(bell_->wakes, seen, FutexScope::kMachine);
  }
}

void ShmFabric::mark_own_work(bool is_left) {
  if (is_left)
    bell_->pending.fetch_or(own_work_, std::memory_order_seq_cst);
  else
    bell_->pending.fetch_and(~own_work_, std::memory_order_seq_cst);
}

void ShmFabric::wake_service() {
  stop_serving_.store(true, std::memory_order_seq_cst);
  bell_->wake();
}

}  // namespace multigrain
