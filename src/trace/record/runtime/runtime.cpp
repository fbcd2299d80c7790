#include "trace/record/runtime/runtime.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file_size_limit.h"
#include "base/write_at.h"

extern "C" void* __libc_malloc(size_t);
extern "C" void __libc_free(void*);

extern "C" {
// The instrumented code sets this before it calls an allocator.
__attribute__((visibility("default"))) __thread uint32_t __multigrain_record_allocation_site = 0;
}

namespace multigrain::trace::record {
namespace {

using raw::Kind;

// By so many ticks a thread may be ahead of the slowest when it enters a lock or does an atomic operation. Which thread
// comes first there is decided while the program runs, and it shall be the one that would come first if all threads ran
// at one speed. Between such places threads need not wait for each other, since the clocks alone order their
// references. The number is as small as context switches allow, because on few cores threads wait for each other once
// in so many ticks.
constexpr uint64_t kLead = 2048;
// After so many words of records the other threads are told how far this one is.
constexpr ptrdiff_t kStretch = 1024;
// The same under burst sampling, where such a stretch is what is kept or left out as a whole.
constexpr ptrdiff_t kSampledStretch = 128;
// Those of a kTime, of a kPrivate, and of a kCalls.
constexpr unsigned kWordsOfTime = 2;
// So many words must fit from `limit` on, the one behind the last record among them: those of a kTime, a kPrivate and a kCalls,
// and the longest record. An event or an atomic operation has fewer.
constexpr ptrdiff_t kReserve = 6 + raw::kMostWords;
// If a thread's clock stands still for so long and the thread sleeps, it is waiting for something that the runtime does not
// know of. If it could run, this machine has only not let it: on one that has other things to do, that takes long, too.
constexpr uint64_t kStallNs = 20'000'000;
// After so long a thread that could run is not waited for either: it may compute without references, or wait busily for what
// the runtime does not know of.
constexpr uint64_t kLongStallNs = 1'000'000'000;

// This is a number that threads have one after another, and its stream.
struct alignas(64) Processor {
  uint64_t published;   // the clock that other threads see
  uint64_t stalled_at;  // other threads do not wait for this one while `published` has this value
  uint32_t running;     // other threads wait for this one to keep pace
  uint32_t used;
  int32_t thread;  // the kernel's number of the thread; 0: it has not begun
  uint64_t* next;
  uint64_t* end;
  raw::ChunkHeader* chunk;  // the buffer
  uint64_t clock;
};

}  // namespace

// This is where synchronisation through an address left the clocks.
struct Slot {
  uint32_t lock;
  uint32_t reserved;
  uint64_t written;  // the clock after the last release or write
  uint64_t read;     // the clock after the last read
  uint64_t version;  // counts writes
};

// A record needs make_room() from `limit` on, because the recording is not active, other threads must be told how far this one is,
// the chunk is full, or the clock has jumped. publish_stack() says what `private_stack_bytes` means.
struct ThreadState : raw::State {
  uint64_t* end = nullptr;
  uint64_t stack_bytes = 0;
  uint64_t counted_clock = 0;     // the clock when references were counted last
  uint64_t counted_other = 0;     // and `other`
  uint64_t calls_of_records = 0;  // what the last kCalls says
  uint64_t* stretch = nullptr;    // from here on records are left out if no burst has part of them
  uint64_t stretch_clock = 0;     // the clock there
  Processor* processor = nullptr;
  Slot* held = nullptr;
  uint64_t spin_address = 0;
  uint64_t spin_version = 0;
  uint64_t* spin_next = nullptr;
  uint32_t spin_site = 0;
  bool jumped = false;  // the clock was set ahead, and the stream does not have its value yet
  bool busy = false;    // the thread is in the runtime
  bool ended = false;
  bool waiting = false;  // the thread spins
};

}  // namespace multigrain::trace::record

extern "C" {
__attribute__((visibility("default"))) __thread multigrain::trace::record::ThreadState __multigrain_record_state = {};
}

namespace multigrain::trace::record {
namespace {

ThreadState& self() {
  return __multigrain_record_state;
}

constexpr size_t kSlots = size_t{1} << 16;

bool g_active = false;
bool g_started = false;
raw::Control* g_control = nullptr;
int g_chunks_fd = -1;
int g_descriptions_fd = -1;
Slot g_slots[kSlots];
Processor g_processors[raw::kMaxProcessors];
uint32_t g_next_site = 1;
uint32_t g_next_group = 0;
uint32_t g_lock = 0;  // guards processor numbers and descriptions

template <typename T>
T load(const T& from) {
  return __atomic_load_n(&from, __ATOMIC_ACQUIRE);
}
template <typename T>
void store(T& to, T value) {
  __atomic_store_n(&to, value, __ATOMIC_RELEASE);
}

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// Ends the recording. The program goes on without it.
void stop(int error, uint64_t clock) {
  int32_t none = 0;
  __atomic_compare_exchange_n(&g_control->error, &none, error, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  uint64_t seen = load(g_control->stop_clock);
  while (clock < seen && !__atomic_compare_exchange_n(&g_control->stop_clock, &seen, clock, false, __ATOMIC_ACQ_REL,
                                                      __ATOMIC_ACQUIRE)) {
  }
  store(g_active, false);
}

// Returns the file's offset of a chunk that nobody has.
off_t take_chunk() {
  const uint32_t index = __atomic_fetch_add(&g_control->chunks, 1u, __ATOMIC_ACQ_REL);
  return static_cast<off_t>((uint64_t{index} + 1) * raw::kChunkBytes);
}

// Returns 0, or an errno value.
int make_buffer(Processor& p) {
  const off_t offset = take_chunk();
  {
    const FileSizeLimitIsAnError limit;
    if (const int error = posix_fallocate(g_chunks_fd, offset, static_cast<off_t>(raw::kChunkBytes)); error != 0)
      return error;
  }
  void* const chunk = mmap(nullptr, raw::kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, g_chunks_fd, offset);
  if (chunk == MAP_FAILED) return errno;
  p.chunk = static_cast<raw::ChunkHeader*>(chunk);
  p.chunk->processor = static_cast<uint16_t>(&p - g_processors);
  p.chunk->is_buffer = 1;
  store(p.chunk->magic, raw::kChunkMagic);
  return 0;
}

// The copy's header comes behind its records, and the buffer is emptied behind the header. Returns 0, or an errno value; then
// all records are in the buffer.
int copy_buffer(raw::ChunkHeader& buffer) {
  const off_t offset = take_chunk();
  raw::ChunkHeader header = buffer;
  header.is_buffer = 0;
  const int error =
      write_at(g_chunks_fd, &buffer + 1, raw::kChunkBytes - sizeof header, offset + static_cast<off_t>(sizeof header));
  if (error != 0) return error;
  if (const int torn = write_at(g_chunks_fd, &header, sizeof header, offset); torn != 0) return torn;
  store(*reinterpret_cast<uint64_t*>(&buffer + 1), uint64_t{0});
  store(buffer.sequence, header.sequence + 1);
  return 0;
}

bool new_chunk(ThreadState& t) {
  Processor& p = *t.processor;
  if (const int error = p.chunk == nullptr ? make_buffer(p) : copy_buffer(*p.chunk); error != 0) {
    stop(error, t.clock);
    return false;
  }
  t.next = t.stretch = reinterpret_cast<uint64_t*>(p.chunk + 1);
  t.end = t.next + raw::kWordsOfChunk;
  return true;
}

// Writes the head of a record whose other words are there, and of which `words` are all. There must be one more.
inline void finish_record(ThreadState& t, uint64_t head, unsigned words) {
  t.next[words] = 0;
  store(t.next[0], head);
  t.next += words;
}

// Adds what the thread has recorded to what all have, and stops the recording at the limit. The clock at which it is reached is
// estimated: a group of references may be far longer than what was left.
void count_references(ThreadState& t) {
  const uint64_t ticks = t.clock - t.counted_clock;
  const uint64_t mine = ticks - (t.other - t.counted_other);
  t.counted_clock = t.clock;
  t.counted_other = t.other;
  const uint64_t limit = g_control->reference_limit;
  if (limit == 0 || mine == 0) return;
  const uint64_t all = __atomic_add_fetch(&g_control->references, mine, __ATOMIC_ACQ_REL);
  if (all <= limit) return;
  const uint64_t excess = all - limit < mine ? all - limit : mine;
  stop(EOVERFLOW, t.clock - static_cast<uint64_t>(static_cast<double>(ticks) * static_cast<double>(excess) /
                                                  static_cast<double>(mine)));
}

// Decides what becomes of the records since the last call: under burst sampling they are left out, unless a burst has part of
// them (the recorder takes what it has, to the tick). Then the next record has their place, and the clock's value before it.
void settle(ThreadState& t) {
  const Bursts& bursts = g_control->bursts;
  if (bursts.is_on() && t.next != t.stretch && bursts.before(t.clock) == bursts.before(t.stretch_clock)) {
    const uint64_t others = t.other - t.counted_other;
    __atomic_fetch_add(&g_control->skipped, t.clock - t.counted_clock - others, __ATOMIC_RELAXED);
    t.counted_clock = t.clock;
    t.counted_other = t.other;
    store(t.stretch[0], uint64_t{0});
    t.next = t.stretch;
    t.jumped = true;
    t.spin_next = nullptr;  // another record may end there
    t.calls_of_records = ~uint64_t{0};
  } else {
    count_references(t);
  }
  t.stretch = t.next;
  t.stretch_clock = t.clock;
}

// Returns whether the kernel would run the thread, or does. These are system calls and not functions of the C library, at
// which a thread could be cancelled.
bool could_run(int32_t thread) {
  if (thread == 0) return true;
  char text[256];
  snprintf(text, sizeof text, "/proc/self/task/%d/stat", thread);
  const long file = syscall(SYS_openat, AT_FDCWD, text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const long length = syscall(SYS_read, file, text, sizeof text - 1);
  syscall(SYS_close, file);
  if (length <= 0) return false;
  text[length] = '\0';
  // NUMBER (NAME) STATE; a name may have parentheses and spaces.
  const char* const end = strrchr(text, ')');
  return end != nullptr && end[1] == ' ' && end[2] == 'R';
}

void pace(ThreadState& t) {
  Processor& mine = *t.processor;
  store(mine.published, t.clock);
  Processor* waited_for = nullptr;
  uint64_t waited_clock = 0;
  uint64_t since = 0;
  while (load(g_active)) {
    const uint32_t count = load(g_control->processors);
    Processor* slowest = nullptr;
    uint64_t clock = ~uint64_t{0};
    for (uint32_t i = 0; i < count; ++i) {
      Processor& p = g_processors[i];
      if (load(p.running) == 0 || &p == &mine) continue;
      const uint64_t published = load(p.published);
      if (published < clock && published != load(p.stalled_at)) slowest = &p, clock = published;
    }
    if (slowest == nullptr || t.clock <= clock + kLead) return;
    if (slowest != waited_for || clock != waited_clock) {
      waited_for = slowest, waited_clock = clock, since = now_ns();
    } else if (const uint64_t stood = now_ns() - since;
               stood > kStallNs && (stood > kLongStallNs || !could_run(load(slowest->thread)))) {
      store(slowest->stalled_at, clock);
    }
    sched_yield();
  }
}

// Records that the clock was set, if it was.
void put_jump(ThreadState& t) {
  if (!t.jumped) return;
  t.next[1] = t.clock;
  finish_record(t, raw::head_of(Kind::kTime, 0, 0), kWordsOfTime);
  t.jumped = false;
}

// Makes room for kReserve words. Returns false if nothing is recorded.
bool make_room(ThreadState& t) {
  if (!load(g_active) || t.ended || t.busy) {
    if (t.busy && g_control != nullptr) __atomic_fetch_add(&g_control->dropped, 1u, __ATOMIC_RELAXED);
    t.limit = t.next;
    return false;
  }
  if (t.processor == nullptr) begin_thread(reserve_processor(0), 0);
  if (t.processor == nullptr) return false;
  const InRuntime inside;
  store(t.processor->published, t.clock);
  settle(t);
  if (!load(g_active) || (t.end - t.next < kReserve + kWordsOfTime && !new_chunk(t))) {
    t.limit = t.next;
    return false;
  }
  put_jump(t);
  uint64_t* const stretch = t.next + (g_control->bursts.is_on() ? kSampledStretch : kStretch);
  t.limit = t.end - kReserve < stretch ? t.end - kReserve : stretch;
  if (t.limit <= t.next) t.limit = t.next + 1;
  return true;
}

// Returns how many private references a record can take, and has taken now.
uint64_t take_private(ThreadState& t) {
  uint64_t count = t.private_references;
  if (count > UINT32_MAX) count = UINT32_MAX;
  t.private_references -= count;
  t.clock += count;
  t.other += count;
  return count;
}

// Records a reference for which there is room.
inline void put(ThreadState& t, Kind kind, uint64_t address, uint32_t size, uint32_t site) {
  if (t.calls != t.calls_of_records) {
    t.next[1] = t.calls;
    finish_record(t, raw::head_of(Kind::kCalls, 0, 0), kWordsOfTime);
    t.calls_of_records = t.calls;
  }
  t.next[1] = raw::tail_of(site, take_private(t));
  ++t.clock;
  finish_record(t, raw::head_of(kind, address, size), raw::kWordsOfReference);
}

inline bool on_private_stack(const ThreadState& t, uint64_t address) {
  return address - t.stack_low < t.private_stack_bytes;
}

// Another thread may learn now of all objects that the calling one has on its stack: it creates a thread, releases a lock, or
// writes an atomic variable. Until it does such a thing again, what it puts below its present frame is its own. Where
// functions return and others are called meanwhile, the stack has new objects at addresses of old ones; these count as
// published, too, which costs records and nothing else.
__attribute__((always_inline)) inline void publish_stack() {
  ThreadState& t = self();
  const uint64_t used = reinterpret_cast<uint64_t>(__builtin_frame_address(0)) - t.stack_low;
  if (used < t.stack_bytes) t.private_stack_bytes = used;
}

// Returns whether there is room for a record, or could be made.
inline bool have_room(ThreadState& t) {
  if (t.next < t.limit) [[likely]]
    return true;
  if (!make_room(t)) return false;
  if (t.waiting) {
    t.waiting = false;
    store(t.processor->running, 1u);
  }
  return true;
}

inline void reference(Kind kind, uint64_t address, uint32_t size, uint32_t site) {
  ThreadState& t = self();
  if (on_private_stack(t, address)) {
    ++t.private_references;
    return;
  }
  if (have_room(t)) put(t, kind, address, size, site);
}

// Records a group's references one by one, since some are to the thread's own stack.
void expand(const raw::GroupDescription& group, const uint64_t* addresses, uint64_t iterations) {
  const uint32_t first_site = *group.first_site;
  for (uint64_t left = iterations; left-- > 0;) {
    self().private_references += group.private_references;
    for (uint32_t i = 0; i < group.accesses; ++i) {
      const raw::AccessDescription& access = group.access[i];
      uint64_t address = addresses[access.base] + static_cast<uint64_t>(access.offset);
      if (group.strides != nullptr) address -= left * static_cast<uint64_t>(group.strides[access.base]);
      reference(static_cast<Kind>(access.kind), address, access.bytes, first_site + access.site);
    }
  }
}

Slot& slot_of(uint64_t address) {
  return g_slots[(address * 0x9e3779b97f4a7c15u) >> 48];
}

void join_clock(ThreadState& t, uint64_t clock) {
  if (clock <= t.clock) return;
  t.other += clock - t.clock;
  t.clock = clock;
  t.jumped = true;
  t.limit = t.next;
}

}  // namespace

bool active() {
  return load(g_active);
}

void lock_word(uint32_t& word) {
  for (unsigned spins = 0; __atomic_exchange_n(&word, 1u, __ATOMIC_ACQUIRE) != 0; ++spins) {
    if (spins >= 64) sched_yield();
  }
}
void unlock_word(uint32_t& word) {
  __atomic_store_n(&word, 0u, __ATOMIC_RELEASE);
}

InRuntime::InRuntime() : nested_(self().busy) {
  self().busy = true;
}
InRuntime::~InRuntime() {
  self().busy = nested_;
}

void set_running(bool running) {
  Processor* const p = self().processor;
  if (p == nullptr || (running && self().ended)) return;
  if (running) store(p->published, self().clock);
  store(p->running, uint32_t{running});
}

uint32_t own_processor() {
  const Processor* const p = self().processor;
  return p == nullptr || self().ended ? kNoProcessor : static_cast<uint32_t>(p - g_processors);
}

void resume(uint32_t processor, uint64_t clock) {
  if (processor == kNoProcessor) return;
  Processor& p = g_processors[processor];
  store(p.published, clock);
  store(p.running, 1u);
}

Blocked::Blocked() {
  set_running(false);
}
Blocked::~Blocked() {
  set_running(true);
}

uint64_t thread_clock() {
  // A thread that is created now comes after the private references since the last record, too.
  return self().clock + self().private_references;
}

uint64_t publish_clock() {
  publish_stack();
  return thread_clock();
}

void advance_clock(uint64_t clock) {
  join_clock(self(), clock);
}

void keep_pace() {
  ThreadState& t = self();
  if (!load(g_active) || t.processor == nullptr || t.busy) return;
  const InRuntime inside;
  pace(t);
}

void record_event(Kind kind, uint64_t address, uint64_t value, uint32_t site) {
  ThreadState& t = self();
  if (!load(g_active) || t.ended || t.busy) return;
  if (t.processor == nullptr) begin_thread(reserve_processor(0), 0);
  if (t.processor == nullptr) return;
  const InRuntime inside;
  const bool sampled = g_control->bursts.is_on();
  if (sampled) settle(t);
  if (t.end - t.next < kReserve && !new_chunk(t)) {
    t.limit = t.next;
    return;
  }
  t.next[1] = raw::tail_of(site, take_private(t));
  ++t.clock;
  ++t.other;
  t.next[2] = t.clock;
  t.next[3] = value;
  finish_record(t, raw::head_of(kind, address, 0), raw::kWordsOfEvent);
  if (sampled) t.stretch = t.next, t.stretch_clock = t.clock;  // events stay
  t.jumped = false;
  if (t.waiting) {
    t.waiting = false;
    store(t.processor->running, 1u);
  }
  t.limit = t.next;  // the next reference then calls make_room()
}

void publish_through(uint64_t address) {
  if (!load(g_active)) return;
  publish_stack();
  const uint64_t clock = thread_clock();
  Slot& slot = slot_of(address);
  lock_word(slot.lock);
  if (slot.written < clock) slot.written = clock;
  ++slot.version;
  unlock_word(slot.lock);
}

void observe_through(uint64_t address) {
  if (!load(g_active)) return;
  Slot& slot = slot_of(address);
  lock_word(slot.lock);
  const uint64_t clock = slot.written;
  unlock_word(slot.lock);
  join_clock(self(), clock);
}

void release_through(uint64_t address) {
  if (!load(g_active)) return;
  record_event(Kind::kRelease, address, 0, 0);
  publish_through(address);
}

void acquire_through(uint64_t address) {
  if (!load(g_active)) return;
  observe_through(address);
  record_event(Kind::kAcquire, address, 0, 0);
}

namespace {

// Returns a number for a thread that begins at `clock`; kMaxProcessors: all are in use. The caller holds g_lock.
//
// A number's stream has one thread after another, so a thread that began with the number of one that ended later, by the
// clocks, would wait for that. Whether such a number is free depends on which of the two ran first on the host; the trace may
// not. Only if there is no other number does the thread get the one of which it waits least.
uint32_t free_processor(uint64_t clock) {
  uint32_t earliest = raw::kMaxProcessors;
  for (uint32_t number = 0; number < raw::kMaxProcessors; ++number) {
    const Processor& p = g_processors[number];
    if (load(p.used) != 0) continue;
    if (p.clock <= clock) return number;
    if (earliest == raw::kMaxProcessors || p.clock < g_processors[earliest].clock) earliest = number;
  }
  return earliest;
}

}  // namespace

uint32_t reserve_processor(uint64_t clock) {
  if (!load(g_active)) return kNoProcessor;
  lock_word(g_lock);
  const uint32_t number = free_processor(clock);
  if (number < raw::kMaxProcessors) {
    Processor& p = g_processors[number];
    p.used = 1;
    store(p.thread, 0);
    store(p.published, p.clock > clock ? p.clock : clock);
    store(p.running, 1u);
    if (number >= g_control->processors) store(g_control->processors, number + 1);
  }
  unlock_word(g_lock);
  if (number < raw::kMaxProcessors) return number;
  stop(EUSERS, clock);
  return kNoProcessor;
}

void give_up_processor(uint32_t processor) {
  if (processor == kNoProcessor) return;
  Processor& p = g_processors[processor];
  store(p.running, 0u);
  store(p.used, 0u);
}

void begin_thread(uint32_t processor, uint64_t clock) {
  if (processor == kNoProcessor) return;
  ThreadState& t = self();
  uint64_t low = 0;
  size_t bytes = 0;
  {
    const InRuntime inside;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
      void* address = nullptr;
      if (pthread_attr_getstack(&attributes, &address, &bytes) == 0) low = reinterpret_cast<uint64_t>(address);
      pthread_attr_destroy(&attributes);
    }
  }
  Processor& p = g_processors[processor];
  t.stack_low = low;
  t.stack_bytes = t.private_stack_bytes = bytes;
  t.processor = &p;
  store(p.thread, static_cast<int32_t>(syscall(SYS_gettid)));
  t.next = t.limit = t.stretch = p.next;
  t.end = p.end;
  t.clock = t.counted_clock = t.stretch_clock = p.clock > clock ? p.clock : clock;
  t.other = t.counted_other = 0;
  t.calls_of_records = ~uint64_t{0};
  t.jumped = false;
  t.ended = false;
  record_event(Kind::kStart, low, bytes, 0);
}

uint64_t end_thread() {
  ThreadState& t = self();
  if (t.processor == nullptr || t.ended) return t.clock;
  record_event(Kind::kEnd, 0, 0, 0);
  count_references(t);
  t.ended = true;
  Processor& p = *t.processor;
  p.next = t.next;
  p.end = t.end;
  p.clock = t.clock;
  t.next = t.limit = t.end = nullptr;
  t.stack_bytes = t.private_stack_bytes = 0;
  store(p.running, 0u);
  store(p.used, 0u);
  return t.clock;
}

namespace {

bool describe(const void* bytes, size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(g_descriptions_fd, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      stop(written < 0 ? errno : ENOSPC, self().clock);
      return false;
    }
    at += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// Numbers `count` things from `next` on, which the lock guards, and tells the recorder what they are. `fill` describes them, in
// `bytes` bytes, by calls of the function that it is given. Returns false on failure; otherwise `first` is the first number.
template <typename Fill>
bool describe_all(raw::Description kind, uint32_t& next, uint32_t count, size_t bytes, uint32_t& first, Fill&& fill) {
  bytes += 2 * sizeof(uint32_t);
  auto* const buffer = static_cast<char*>(__libc_malloc(sizeof(raw::DescriptionHeader) + bytes));
  if (buffer == nullptr) {
    stop(ENOMEM, self().clock);
    return false;
  }
  lock_word(g_lock);
  first = next;
  next += count;
  const raw::DescriptionHeader header = {kind, static_cast<uint32_t>(bytes)};
  char* at = buffer;
  const auto append = [&at](const void* from, size_t size) {
    memcpy(at, from, size);
    at += size;
  };
  append(&header, sizeof header);
  append(&first, sizeof first);
  append(&count, sizeof count);
  fill(append);
  const bool good = describe(buffer, static_cast<size_t>(at - buffer));
  unlock_word(g_lock);
  __libc_free(buffer);
  return good;
}

// Numbers `count` sites and tells the recorder what they are. Returns 0 on failure.
uint32_t describe_sites(const raw::SiteDescription* sites, uint32_t count) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i)
    bytes += sizeof(uint32_t) + strlen(sites[i].file) + strlen(sites[i].function) + strlen(sites[i].name) + 3;
  uint32_t first = 0;
  const bool good = describe_all(raw::Description::kSites, g_next_site, count, bytes, first, [&](const auto& append) {
    for (uint32_t i = 0; i < count; ++i) {
      append(&sites[i].line, sizeof sites[i].line);
      append(sites[i].file, strlen(sites[i].file) + 1);
      append(sites[i].function, strlen(sites[i].function) + 1);
      append(sites[i].name, strlen(sites[i].name) + 1);
    }
  });
  return good ? first : 0;
}

// Numbers the module's groups and tells the recorder what they are. Returns false on failure.
bool describe_groups(const raw::ModuleDescription& module) {
  const auto count = static_cast<uint32_t>(module.groups);
  size_t bytes = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const raw::GroupDescription& group = *module.group[i];
    bytes += 4 * sizeof(uint32_t) + sizeof(uint64_t) + group.accesses * sizeof(raw::AccessDescription) +
             (group.strides != nullptr ? group.bases * sizeof(int64_t) : 0);
  }
  uint32_t first = 0;
  const bool good = describe_all(raw::Description::kGroups, g_next_group, count, bytes, first, [&](const auto& append) {
    for (uint32_t i = 0; i < count; ++i) {
      const raw::GroupDescription& group = *module.group[i];
      const uint32_t numbers[4] = {group.accesses, group.bases, group.strides != nullptr ? 1u : 0u, 0};
      append(numbers, sizeof numbers);
      append(&group.private_references, sizeof group.private_references);
      if (group.strides != nullptr) append(group.strides, group.bases * sizeof(int64_t));
      for (uint32_t j = 0; j < group.accesses; ++j) {
        raw::AccessDescription access = group.access[j];
        access.site += *group.first_site;
        append(&access, sizeof access);
      }
    }
  });
  if (good) *module.first_group = first;
  return good;
}

// Which calls led to a function: the last of them, at a site of a caller to which others led. A recursive function would lead to
// ever more; so a call from a function that is among those that led to its caller goes on from where that one was called first.
struct Calls {
  uint32_t before;  // the number of those that led to the caller
  uint32_t site;
  const void* function;  // that they led to, as far as is known: a function that has made a call
};
// A call of a caller to which these calls led, and the number of both.
struct CallFrom {
  uint64_t key;  // the number of those before, and the site << 32; 0: none
  uint32_t calls;
};
constexpr size_t kCallsFrom = size_t{4} * raw::kMostCalls;
Calls g_calls[raw::kMostCalls];
CallFrom g_calls_from[kCallsFrom];  // a table with open addresses
uint32_t g_next_calls = 1;
uint32_t g_used_calls_from = 0;

CallFrom& call_from(uint64_t key) {
  size_t i = (key * 0x9e3779b97f4a7c15u) >> 46;
  static_assert(kCallsFrom == size_t{1} << 18);
  for (;; i = (i + 1) % kCallsFrom) {
    const uint64_t found = load(g_calls_from[i].key);
    if (found == key || found == 0) return g_calls_from[i];
  }
}

// Returns the number of the call with those before it; 0 if there are too many.
uint32_t number_calls(uint32_t before, uint32_t site, const void* function) {
  const uint64_t key = uint64_t{site} << 32 | before;
  if (const CallFrom& known = call_from(key); load(known.key) == key) return known.calls;
  lock_word(g_lock);
  uint32_t from = before;
  if (before != 0) {
    g_calls[before].function = function;
    for (uint32_t i = g_calls[before].before; i != 0; i = g_calls[i].before) {
      if (g_calls[i].function == function) from = i;
    }
  }
  uint32_t number = 0;
  if (g_used_calls_from + 2 < kCallsFrom / 2) {
    const auto note = [](CallFrom& entry, uint64_t its_key, uint32_t its_number) {
      if (load(entry.key) == its_key) return;
      entry.calls = its_number;
      store(entry.key, its_key);
      ++g_used_calls_from;
    };
    const uint64_t first_key = uint64_t{site} << 32 | from;
    CallFrom& first = call_from(first_key);
    if (load(first.key) == first_key) {
      number = first.calls;
    } else if (g_next_calls < raw::kMostCalls) {
      number = g_next_calls++;
      g_calls[number] = {from, site, nullptr};
      const struct {
        raw::DescriptionHeader header;
        uint32_t number, before, site;
      } description = {{raw::Description::kCalls, 3 * sizeof(uint32_t)}, number, from, site};
      describe(&description, sizeof description);
    }
    note(first, first_key, number);
    note(call_from(key), key, number);
  }
  unlock_word(g_lock);
  return number;
}

// These are sites of calls that the pass did not see, which are those of libraries. Each calling function has one.
struct Caller {
  void* address;
  uint32_t site;
};
constexpr size_t kCallers = 4096;
Caller g_callers[kCallers];
uint32_t g_callers_lock = 0;

void in_child_of_fork() {
  // The child must not write into the parent's streams.
  g_active = false;
  self().limit = self().next;
}

__attribute__((constructor(101))) void start() {
  if (g_started) return;
  g_started = true;
  const char* const environment = secure_getenv(raw::kEnvironment);
  int chunks = -1;
  int descriptions = -1;
  if (environment == nullptr || sscanf(environment, "%d,%d", &chunks, &descriptions) != 2) return;
  // Programs that this program starts are not part of the trace.
  unsetenv(raw::kEnvironment);
  fcntl(chunks, F_SETFD, FD_CLOEXEC);
  fcntl(descriptions, F_SETFD, FD_CLOEXEC);
  void* const control = mmap(nullptr, sizeof(raw::Control), PROT_READ | PROT_WRITE, MAP_SHARED, chunks, 0);
  if (control == MAP_FAILED) return;  // attached stays 0, which the recorder reports
  g_control = static_cast<raw::Control*>(control);
  if (g_control->version != raw::kVersion || g_control->attached != 0) return;
  g_control->attached = 1;
  g_chunks_fd = chunks;
  g_descriptions_fd = descriptions;
  pthread_atfork(nullptr, nullptr, in_child_of_fork);
  store(g_active, true);
  begin_thread(reserve_processor(0), 0);
}

__attribute__((destructor(101))) void finish() {
  if (load(g_active)) end_thread();
}

}  // namespace

uint32_t allocation_site(void* caller) {
  const uint32_t noted = __multigrain_record_allocation_site;
  if (noted != 0) {
    __multigrain_record_allocation_site = 0;
    return noted;
  }
  const InRuntime inside;
  size_t i = (reinterpret_cast<uint64_t>(caller) * 0x9e3779b97f4a7c15u) >> 52;
  lock_word(g_callers_lock);
  for (size_t probes = 0; probes < 64; ++probes, i = (i + 1) % kCallers) {
    if (g_callers[i].address == caller || g_callers[i].address == nullptr) break;
  }
  if (g_callers[i].address == nullptr) {
    Dl_info info = {};
    if (dladdr(caller, &info) == 0) info = {};
    const raw::SiteDescription site = {info.dli_fname != nullptr ? info.dli_fname : "",
                                       info.dli_sname != nullptr ? info.dli_sname : "", "", 0, 0};
    g_callers[i] = {caller, describe_sites(&site, 1)};
  }
  const uint32_t site = g_callers[i].address == caller ? g_callers[i].site : 0;
  unlock_word(g_callers_lock);
  return site;
}

}  // namespace multigrain::trace::record

using namespace multigrain::trace::record;
namespace raw = multigrain::trace::raw;

// Instrumented code calls the functions below. The pass knows their names and types.

MG_RECORD_EXPORT void __multigrain_record_module(const raw::ModuleDescription* module) {
  start();  // this object file's constructors may run before the runtime's, if that is linked statically
  if (!active() || module->version != raw::kVersion) return;
  const InRuntime inside;
  const uint32_t first = describe_sites(module->site, module->sites);
  if (first == 0) return;
  *module->first_site = first;
  if (!describe_groups(*module)) return;
  self().busy = inside.nested();
  for (uint64_t i = 0; i < module->globals; ++i) {
    const raw::GlobalDescription& global = module->global[i];
    record_event(raw::Kind::kAllocate, reinterpret_cast<uint64_t>(global.address), global.bytes, first + global.site);
  }
}

// The code could not write the group's record, which is in the thread's spare words.
MG_RECORD_EXPORT void __multigrain_record_group(const raw::GroupDescription* group) {
  ThreadState& t = self();
  // A signal handler may use the spare words, too.
  uint64_t record[raw::kMostWords];
  memcpy(record, t.spare, sizeof record);
  const bool is_loop = group->strides != nullptr;
  const unsigned first = is_loop ? 2 : 1;
  const uint64_t iterations = is_loop ? record[1] : 1;
  for (uint32_t i = 0; i < group->bases; ++i)
    if (on_private_stack(t, record[first + i])) return expand(*group, record + first, iterations);
  if (!have_room(t)) return;
  if (t.private_references != 0) {
    t.next[1] = take_private(t);
    finish_record(t, raw::head_of(Kind::kPrivate, 0, 0), kWordsOfTime);
  }
  const unsigned words = first + group->bases;
  memcpy(t.next + 1, record + 1, (words - 1) * sizeof *record);
  const uint64_t privates = iterations * group->private_references;
  t.clock += iterations * group->accesses + privates;
  t.other += privates;
  finish_record(t, record[0], words);
}

// Returns what the code keeps of a call that it is about to make, and to whose caller these calls led.
MG_RECORD_EXPORT uint64_t __multigrain_record_call(uint64_t before, raw::CallDescription* call) {
  const uint64_t from = before >> raw::kCallsShift;
  if (self().busy || !g_started || (active() && *call->first_site == 0)) return from;  // not for long
  uint64_t known = from;
  if (active()) {
    const InRuntime inside;
    const uint32_t site = *call->first_site + call->site;
    known |= uint64_t{number_calls(static_cast<uint32_t>(from), site, call->function)} << raw::kCallsShift;
  }
  __atomic_store_n(&call->known, known, __ATOMIC_RELAXED);
  return known;
}

// A copy or a fill is recorded word by word, as the model of [Bolosky] counts (section 4.1). An address of 0: that side
// is private.
MG_RECORD_EXPORT void __multigrain_record_range(uint64_t to, uint64_t from, uint64_t bytes, uint32_t site) {
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t aligned = 8 - ((to != 0 ? to : from) + done) % 8;
    const uint64_t size = aligned < bytes - done ? aligned : bytes - done;
    if (from != 0) reference(raw::Kind::kRead, from + done, static_cast<uint32_t>(size), site);
    if (to != 0) reference(raw::Kind::kWrite, to + done, static_cast<uint32_t>(size), site);
    done += size;
  }
}

// The lanes of a vector instruction with a mask: lane i is of `size` bytes at address + i * size, and is done if bit i of
// `lanes` is set. `access`: 1 reads, 2 writes.
MG_RECORD_EXPORT void __multigrain_record_lanes(uint64_t address, uint32_t site, uint32_t size, uint32_t access,
                                                uint64_t lanes) {
  const raw::Kind kind = access == 1 ? raw::Kind::kRead : raw::Kind::kWrite;
  for (; lanes != 0; lanes &= lanes - 1)
    reference(kind, address + static_cast<uint64_t>(__builtin_ctzll(lanes)) * size, size, site);
}

// The same for an instruction whose lanes lie one after another in memory, without those that are not done.
MG_RECORD_EXPORT void __multigrain_record_packed_lanes(uint64_t address, uint32_t site, uint32_t size, uint32_t access,
                                                       uint64_t lanes) {
  const raw::Kind kind = access == 1 ? raw::Kind::kRead : raw::Kind::kWrite;
  const auto count = static_cast<unsigned>(__builtin_popcountll(lanes));
  for (unsigned i = 0; i < count; ++i) reference(kind, address + uint64_t{i} * size, size, site);
}

// The instrumented code calls these around an atomic or volatile operation: `access` 1 reads, 2 writes, 3 does both.
// Operations on one address are in the trace in the order in which they are done, because the slot is locked meanwhile.
MG_RECORD_EXPORT void __multigrain_record_atomic_begin(uint64_t address, uint32_t site, uint32_t size,
                                                       uint32_t access) {
  ThreadState& t = self();
  t.held = nullptr;
  if (!active() || t.busy) return;
  if (on_private_stack(t, address)) {
    t.private_references += access == 3 ? 2 : 1;
    return;
  }
  if ((access & 2) != 0) publish_stack();
  if (t.next >= t.limit && !t.jumped && !make_room(t)) return;
  if (t.jumped && t.end - t.next < kReserve && !make_room(t)) return;
  keep_pace();
  Slot& slot = slot_of(address);
  lock_word(slot.lock);
  t.held = &slot;
  if (access == 1 && t.spin_next == t.next && t.spin_address == address && t.spin_site == site &&
      t.spin_version == slot.version) {
    // This is busy waiting whose result cannot have changed. On a machine where references take longer there would be
    // fewer, so these references say nothing ([Bolosky], section 2.3.1). The read that sees the change is recorded.
    __atomic_fetch_add(&g_control->spins, 1u, __ATOMIC_RELAXED);
    if (!t.waiting) {
      t.waiting = true;
      t.limit = t.next;  // the next reference counts it as running again
      store(t.processor->running, 0u);
    }
    return;
  }
  if (t.waiting) {
    t.waiting = false;
    store(t.processor->running, 1u);
  }
  uint64_t after = slot.written;
  if (access != 1 && slot.read > after) after = slot.read;
  if (after > t.clock) t.other += after - t.clock, t.clock = after, t.jumped = true;
  put_jump(t);
  if ((access & 1) != 0) put(t, raw::Kind::kRead, address, size, site);
  if ((access & 2) != 0) {
    put(t, raw::Kind::kWrite, address, size, site);
    slot.written = t.clock;
    ++slot.version;
  }
  if (access == 1 && slot.read < t.clock) slot.read = t.clock;
  if (t.limit <= t.next) t.limit = t.next;
  // A read waits only if it follows a read. A read after the thread's own write may be the next round of a counter, for
  // example.
  t.spin_address = access == 1 ? address : 0;
  t.spin_site = site;
  t.spin_version = slot.version;
  t.spin_next = t.next;
}

MG_RECORD_EXPORT void __multigrain_record_atomic_end() {
  ThreadState& t = self();
  if (t.held == nullptr) return;
  unlock_word(t.held->lock);
  t.held = nullptr;
}
