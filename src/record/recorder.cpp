#include "record/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file_size_limit.h"
#include "base/own_descriptors.h"
#include "base/write_at.h"

namespace multigrain::record {
namespace {

// The calling thread's stream; nullptr: it has made no reference yet.
[[gnu::tls_model("initial-exec")]] thread_local void* t_stream = nullptr;

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::create(const char* file, NodeId self, const Region& region) {
  const int fd = own_descriptors::keep(open(file, O_RDWR | O_CLOEXEC));
  if (fd < 0) return fail_errno(errno, fmt::format("--record: cannot open the recording '{}'", file));
  void* const mapped = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, "--record: cannot map the recording");
  auto& control = *static_cast<Control*>(mapped);
  if (control.magic != kMagic) return fail("--record: '{}' is no recording of this version's mgrun", file);
  std::unique_ptr<Recorder> recorder(new Recorder(fd, self, region, control));
  auto granted = SparseTable<Grants>::create(region.page_count(), "clocks of the recorded pages");
  if (!granted) return tl::unexpected(granted.error());
  recorder->granted_at_ = std::move(*granted);
  auto streams = SparseTable<Stream>::create(kMaxStreams, "recorded threads");
  if (!streams) return tl::unexpected(streams.error());
  recorder->streams_ = std::move(*streams);
  control.page_size.store(static_cast<uint32_t>(region.page_size()));
  control.attached.fetch_add(1);
  if (self == NodeId(0))
    if (Status described = recorder->describe_mappings(); !described) return tl::unexpected(described.error());
  return recorder;
}

// --- The clock

uint64_t Recorder::take_clock(uint64_t than) {
  uint64_t seen = control_.clock.load();
  uint64_t taken;
  do taken = std::max(seen, than) + 1;
  while (!control_.clock.compare_exchange_weak(seen, taken));
  return taken;
}

void Recorder::raise_clock(uint64_t to) {
  uint64_t seen = control_.clock.load();
  while (seen < to && !control_.clock.compare_exchange_weak(seen, to)) {
  }
}

uint64_t Recorder::latest_published() const {
  const uint32_t count = stream_count_.load();
  uint64_t latest = 0;
  for (uint32_t i = 0; i < count; ++i) latest = std::max(latest, streams_[i].published.load());
  return latest;
}

void Recorder::released() {
  raise_clock(latest_published());
}

void Recorder::acquired() {
  Stream& stream = own_stream();
  stream.next = std::max(stream.next, control_.clock.load() + 1);
  stream.published.store(stream.next, std::memory_order_release);
}

// --- References

// A thread's first reference comes after whatever has happened: somebody has started the thread.
inline Recorder::Stream& Recorder::own_stream() {
  return t_stream != nullptr ? *static_cast<Stream*>(t_stream) : new_stream();
}

Recorder::Stream& Recorder::new_stream() {
  const uint32_t number = stream_count_.fetch_add(1);
  if (number >= kMaxStreams) die(1, "--record: the node has had more threads than a recording has room for:", number);
  Stream& stream = streams_[number];
  stream.number = number;
  stream.next = control_.clock.load() + 1;
  stream.published.store(stream.next);
  t_stream = &stream;
  return stream;
}

inline uint64_t Recorder::granted_at(uint64_t address, bool writes) const {
  const Grants& grants = granted_at_[region_.page_of(reinterpret_cast<const void*>(address))];
  return (writes ? grants.to_write : grants.to_read).load(std::memory_order_acquire);
}

void Recorder::reference(const void* address, uint64_t bytes, bool writes, const void* caller) {
  if (bytes == 0) return;
  Stream& stream = own_stream();
  const auto first = reinterpret_cast<uint64_t>(address);
  if (!region_.contains(address)) {
    ++stream.private_references;
    return;
  }
  const uint64_t page_size = region_.page_size();
  if ((first & (page_size - 1)) + bytes > page_size) [[unlikely]]
    return record_pages(stream, first, bytes, writes, caller);
  record(stream, first, static_cast<uint32_t>(bytes), writes, std::max(stream.next, granted_at(first, writes)), caller);
}

// Says whether all ticks of a reference are between bursts. Clocks never fall in a stream.
inline bool Recorder::is_left_out(Stream& stream, uint64_t clock, uint64_t ticks) const {
  if (clock >= stream.interval_end) [[unlikely]] {
    const uint64_t number = clock / bursts_.interval;
    stream.burst = bursts_.begin_of(number);
    stream.interval_end = (number + 1) * bursts_.interval;
  }
  if (ticks != 1) return bursts_.before(clock) == bursts_.before(clock + ticks);
  return clock < stream.burst || clock - stream.burst >= bursts_.burst;
}

inline void Recorder::record(Stream& stream, uint64_t address, uint32_t bytes, bool writes, uint64_t clock,
                             const void* caller) {
  // Copies and fills count as so many references of a word.
  const uint64_t ticks = ticks_of(bytes);
  const uint64_t next = clock + ticks;
  if (bursts_.is_on() && is_left_out(stream, clock, ticks)) {
    if (stream.place.chunk == nullptr) new_chunk(stream.place, ChunkKind::kReferences, stream.number);
    stream.place.chunk->left_out += ticks;
    stream.private_references = 0;
    stream.next = next;
    stream.published.store(next, std::memory_order_release);
    return;
  }
  auto& to = make_room<ReferenceRecord>(stream.place, ChunkKind::kReferences, stream.number);
  to.address = address | (writes ? kWrites : 0);
  to.caller = reinterpret_cast<uint64_t>(caller);
  to.bytes = bytes;
  to.private_references = static_cast<uint32_t>(std::min<uint64_t>(stream.private_references, UINT32_MAX));
  stream.private_references -= to.private_references;
  to.clock.store(clock, std::memory_order_release);
  stream.next = next;
  stream.published.store(next, std::memory_order_release);
}

// An access that crosses pages, mostly a copy. Each page's part has been made at some time since the record before: those whose
// pages were granted later get the clocks of the grants, and come in their order. What is granted meanwhile is not looked at
// again, so that each part is recorded once.
void Recorder::record_pages(Stream& stream, uint64_t address, uint64_t bytes, bool writes, const void* caller) {
  const uint64_t page_size = region_.page_size();
  const uint64_t first = address & ~(page_size - 1);
  const uint64_t count = (((address + bytes - 1) & ~(page_size - 1)) - first) / page_size + 1;
  constexpr uint64_t kOnStack = 512;
  uint64_t on_stack[kOnStack];
  uint64_t* clocks = on_stack;
  if (count > kOnStack) {
    void* const memory =
        mmap(nullptr, count * sizeof *clocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die(1, "--record: no memory for the parts of a copy (pages):", count);
    clocks = static_cast<uint64_t*>(memory);
  }
  const uint64_t base = stream.next;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t from = std::max(first + i * page_size, address);
    clocks[i] = region_.contains(reinterpret_cast<const void*>(from)) ? std::max(base, granted_at(from, writes)) : 0;
    if (clocks[i] == 0) ++stream.private_references;
  }
  uint64_t latest = base;
  for (uint64_t clock = base; clock != UINT64_MAX;) {
    uint64_t following = UINT64_MAX;
    for (uint64_t i = 0; i < count; ++i) {
      if (clocks[i] > clock) following = std::min(following, clocks[i]);
      if (clocks[i] != clock) continue;
      const uint64_t from = std::max(first + i * page_size, address);
      const uint64_t to = std::min(first + (i + 1) * page_size, address + bytes);
      record(stream, from, static_cast<uint32_t>(to - from), writes, clock, caller);
    }
    latest = clock;
    clock = following;
  }
  if (count > kOnStack) munmap(clocks, count * sizeof *clocks);
  stream.next = std::max(latest + 1, base + (bytes + 7) / 8);
  stream.published.store(stream.next, std::memory_order_release);
}

// --- Events

uint64_t Recorder::number_of(PageId page) const {
  return reinterpret_cast<uint64_t>(region_.view(page)) / region_.page_size();
}

void Recorder::add_event(PageId page, EventRecord& event, uint64_t later_than) {
  const LockGuard hold(events_lock_);
  const uint64_t clock = take_clock(later_than);
  if (event.kind == EventKind::kGranted) {
    Grants& grants = granted_at_[page];
    grants.to_read.store(clock, std::memory_order_release);
    if (event.right != static_cast<uint8_t>(placement::State::kRead))
      grants.to_write.store(clock, std::memory_order_release);
  }
  auto& to = make_room<EventRecord>(events_, ChunkKind::kEvents, 0);
  to.page = number_of(page);
  to.policy_page = page.value;
  to.now = event.now;
  to.holders = event.holders;
  to.node = event.node;
  to.kind = event.kind;
  to.right = event.right;
  to.answer = event.answer;
  to.placement = event.placement;
  to.clock.store(clock, std::memory_order_release);
}

void Recorder::decided(PageId page, const placement::Directory& directory, NodeId from, placement::Access access,
                       uint64_t now, placement::Location answer) {
  EventRecord event;
  event.kind = EventKind::kDecided;
  event.node = from.value;
  event.now = now;
  event.holders = directory.holders.bits();
  event.placement = static_cast<uint8_t>(directory.placement);
  event.right = static_cast<uint8_t>(access);
  event.answer = static_cast<uint8_t>(answer);
  add_event(page, event, 0);
}

void Recorder::pinned(PageId page, Pin pin) {
  EventRecord event;
  event.kind = EventKind::kPinned;
  event.node = self_.value;
  event.answer = static_cast<uint8_t>(pin);
  add_event(page, event, 0);
}

void Recorder::granted(PageId page, placement::State right) {
  has_right(page, EventKind::kGranted, right, 0);
}

void Recorder::lowered(PageId page, placement::State right) {
  has_right(page, EventKind::kLowered, right, latest_published());
}

void Recorder::has_right(PageId page, EventKind kind, placement::State right, uint64_t later_than) {
  EventRecord event;
  event.kind = kind;
  event.node = self_.value;
  event.right = static_cast<uint8_t>(right);
  add_event(page, event, later_than);
}

// --- The file

template <typename Record>
Record& Recorder::make_room(Place& place, ChunkKind kind, uint32_t stream) {
  if (static_cast<size_t>(place.end - place.next) < sizeof(Record)) [[unlikely]]
    new_chunk(place, kind, stream);
  auto& record = *reinterpret_cast<Record*>(place.next);
  place.next += sizeof(Record);
  // The buffer has been used before: its records end behind this one.
  if (static_cast<size_t>(place.end - place.next) >= sizeof(Record))
    reinterpret_cast<Record*>(place.next)->clock.store(0, std::memory_order_relaxed);
  return record;
}

void Recorder::new_chunk(Place& place, ChunkKind kind, uint32_t stream) {
  if (place.chunk == nullptr)
    make_buffer(place, kind, stream);
  else
    copy_buffer(place);
  place.next = reinterpret_cast<std::byte*>(place.chunk + 1);
  place.end = reinterpret_cast<std::byte*>(place.chunk) + kChunkBytes;
}

namespace {

[[noreturn]] void die_of_file(int error, off_t offset) {
  die(1, "--record: the recording cannot grow, since its disk is full, or a file must not be so large (errno, bytes):",
      static_cast<uint64_t>(error), static_cast<uint64_t>(offset));
}

}  // namespace

// The file reads as zeros where nobody has written.
void Recorder::make_buffer(Place& place, ChunkKind kind, uint32_t stream) {
  const auto offset = static_cast<off_t>((control_.chunks.fetch_add(1) + 1) * kChunkBytes);
  int error = 0;
  {
    const FileSizeLimitIsAnError limit;
    do error = fallocate(fd_, 0, offset, static_cast<off_t>(kChunkBytes)) == 0 ? 0 : errno;
    while (error == EINTR);
  }
  if (error != 0) die_of_file(error, offset);
  void* const mapped = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, offset);
  if (mapped == MAP_FAILED) die(1, "--record: cannot map the recording (errno):", static_cast<uint64_t>(errno));
  place.chunk = static_cast<ChunkHeader*>(mapped);
  place.chunk->node = self_.value;
  place.chunk->is_buffer = 1;
  place.chunk->stream = stream;
  place.chunk->kind.store(kind, std::memory_order_release);
}

// The copy's header comes behind its records, and the buffer is emptied behind the header.
void Recorder::copy_buffer(Place& place) {
  const auto offset = static_cast<off_t>((control_.chunks.fetch_add(1) + 1) * kChunkBytes);
  ChunkHeader& buffer = *place.chunk;
  ChunkHeader header;
  header.kind.store(buffer.kind.load(std::memory_order_relaxed), std::memory_order_relaxed);
  header.node = buffer.node;
  header.stream = buffer.stream;
  header.sequence = buffer.sequence;
  int error = write_at(fd_, &buffer + 1, kChunkBytes - sizeof header, offset + static_cast<off_t>(sizeof header));
  if (error == 0) error = write_at(fd_, &header, sizeof header, offset);
  if (error != 0) die_of_file(error, offset);
  // The clock is the first word of all records.
  reinterpret_cast<std::atomic<uint64_t>*>(&buffer + 1)->store(0, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  ++buffer.sequence;
}

// What is loaded later has no names in the trace.
Status Recorder::describe_mappings() {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return fail_errno(errno, "--record: cannot read /proc/self/maps");
  Place place;
  for (;;) {
    if (place.end - place.next < 2) {
      new_chunk(place, ChunkKind::kMappings, 0);
      std::memset(place.next, 0, static_cast<size_t>(place.end - place.next));
    }
    const ssize_t got = read(maps, place.next, static_cast<size_t>(place.end - place.next - 1));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    place.next += got;
  }
  close(maps);
  if (place.chunk != nullptr) munmap(place.chunk, kChunkBytes);
  return {};
}

}  // namespace multigrain::record
