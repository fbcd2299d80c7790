#include "runtime/program_image.h"

#include <cxxabi.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "checkpoint/files.h"
#include "memory/layout.h"
#include "runtime/interpose/threads.h"
#include "runtime/interpreter.h"
#include "runtime/node.h"
#include "runtime/private/private_heap.h"
#include "runtime/private/touched_pages.h"
#include "status/node_status.h"

namespace multigrain {

constinit Nanoseconds g_time_before_checkpoint = 0;

namespace {

using checkpoint::kPrivatePage;

// The record: this, a ThreadRecord for each processor, a PartRecord for each part but the heap, and then what SyncImage has.
struct RecordHead {
  uint64_t code;
  uint64_t heap_bytes;
  uint64_t environment;  // the value of `environ`
  uint64_t time;
  uint64_t threads;
  uint64_t parts;
};
struct ThreadRecord {
  program_stacks::Context context;
  uint64_t block;
  uint64_t function;
};
struct PartOfMemory {
  uint64_t begin;
  uint64_t length;
};

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& to) : to_(to) {}
  template <typename Value>
  void one(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to_.insert(to_.end(), bytes.begin(), bytes.end());
  }
  template <typename Value>
  void list(const std::vector<Value>& values) {
    one(uint64_t{values.size()});
    for (const Value& value : values) one(value);
  }

 private:
  std::vector<std::byte>& to_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> rest) : rest_(rest) {}
  template <typename Value>
  [[nodiscard]] bool one(Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    if (rest_.size() < sizeof value) return false;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return true;
  }
  template <typename Value>
  [[nodiscard]] bool list(std::vector<Value>& values, uint64_t count) {
    if (count > rest_.size() / sizeof(Value)) return false;
    values.resize(count);
    for (Value& value : values)
      if (!one(value)) return false;
    return true;
  }
  template <typename Value>
  [[nodiscard]] bool list(std::vector<Value>& values) {
    uint64_t count;
    return one(count) && list(values, count);
  }
  [[nodiscard]] bool is_at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

std::byte* bytes_at(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}
uintptr_t begin_of(const Range& range) {
  return reinterpret_cast<uintptr_t>(range.begin);
}

bool in_stacks(uint64_t address) {
  const unsigned processors = Node::get()->config().processors_per_node;
  for (unsigned place = 0; place < processors; ++place)
    if (program_stacks::of_processor(place).contains(address)) return true;
  return false;
}

std::string what_is_open(int descriptor) {
  char name[256];
  const ssize_t length = readlink(fmt::format("/proc/self/fd/{}", descriptor).c_str(), name, sizeof name);
  return length <= 0 ? "?" : std::string(name, static_cast<size_t>(length));
}

}  // namespace

bool ProgramImage::is_wanted(const Config& config) {
  return !(config.checkpoint.empty() && config.restart.empty()) && !interpreter::is_here() &&
         !program_uses("mg_checkpoint") && !program_uses("mg_restored");
}

const char* ProgramImage::unkept_function() {
  // Memory that the program maps, or gets from the break; contexts, which have the C library's guard of pointers; timers; a state of
  // random numbers that cannot be asked for.
  for (const char* const name : {"mmap", "mmap64", "mremap", "shmat", "brk", "sbrk", "setjmp", "_setjmp", "__sigsetjmp",
                                 "getcontext", "setitimer", "timer_create", "alarm", "lcong48"})
    if (program_uses(name)) return name;
  return nullptr;
}

void ProgramImage::note_beginning() {
  descriptors_ = open_descriptors();
  code_ = code_fingerprint();
}

std::set<int> ProgramImage::open_descriptors() const {
  std::set<int> open;
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return open;
  while (const dirent* const entry = readdir(directory)) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name && *end == '\0' && number != dirfd(directory)) open.insert(static_cast<int>(number));
  }
  closedir(directory);
  return open;
}

// --- A checkpoint

void ProgramImage::note_thread(unsigned place) {
  Thread& thread = threads_[place];
  thread.block = program_stacks::thread_block();
  thread.function = this_status()->function.load(std::memory_order_relaxed);
  thread.variables.clear();
  for_each_thread_variables(
      [](void* list, const Range& range) { static_cast<std::vector<Range>*>(list)->push_back(range); },
      &thread.variables);
  // The C++ library has the exceptions here that the thread is handling.
  thread.variables.push_back({reinterpret_cast<std::byte*>(abi::__cxa_get_globals()), 2 * sizeof(void*)});
  thread.variables.push_back({reinterpret_cast<std::byte*>(&errno), sizeof errno});
}

Status ProgramImage::why_not(Sync&) const {
  if (program_globals().empty()) return fail("the program shares its globals (mg_share_globals)");
  if (counted_threads() != 0) return fail("the program has started threads of its own");
  if (code_fingerprint() != code_) return fail("the program has loaded a library since it began (dlopen)");
  for (unsigned place = 0; place < config_.processors_per_node; ++place) {
    const unsigned processor = config_.node.value * config_.processors_per_node + place;
    if (node_status()->processor[place].held.load(std::memory_order_relaxed) != 0)
      return fail("processor {} holds a lock at the barrier", processor);
    const uint64_t stack = threads_[place].context.rsp;
    if (!program_stacks::of_processor(place).contains(stack))
      return fail("processor {} is not on the stack that it was given", processor);
    if (processor != 0 && !program_stacks::of_thread(place).contains(threads_[place].block))
      return fail("processor {} has gone on with another thread (pthread_exit)", processor);
  }
  for (const int descriptor : open_descriptors()) {
    if (descriptors_.contains(descriptor)) continue;
    const std::string what = what_is_open(descriptor);
    // The main thread of another node watches the process of node 0 from some moment on.
    if (config_.node != NodeId(0) && what == "anon_inode:[pidfd]") continue;
    return fail("the program has opened descriptor {} ({}), which would be gone", descriptor, what);
  }
  return {};
}

Status ProgramImage::find(Sync& sync) {
  // What the program has printed is not printed again.
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  if (Status can = why_not(sync); !can) return can;
  parts_.clear();
  for (unsigned place = 0; place < config_.processors_per_node; ++place) {
    const uint64_t end = program_stacks::of_processor(place).end;
    const uint64_t begin = threads_[place].context.rsp;
    parts_.push_back({bytes_at(begin), end - begin});
    parts_.insert(parts_.end(), threads_[place].variables.begin(), threads_[place].variables.end());
  }
  parts_.insert(parts_.end(), program_globals().begin(), program_globals().end());
  std::ranges::sort(parts_, {}, &Range::begin);
  // Where the C++ library is part of the executable, so are its thread-local variables.
  std::vector<Range> apart;
  for (const Range& part : parts_) {
    const uintptr_t end = begin_of(part) + part.length;
    if (!apart.empty() && begin_of(part) <= begin_of(apart.back()) + apart.back().length)
      apart.back().length = std::max(begin_of(apart.back()) + apart.back().length, end) - begin_of(apart.back());
    else
      apart.push_back(part);
  }
  parts_ = std::move(apart);
  const SyncImage objects = sync.image();
  const HeapFreeze frozen;
  write_record(objects, frozen.image().size());
  return {};
}

// The generators are asked by being given another state for a moment: they return where the one before is, and bring that up to date.
ProgramImage::Random ProgramImage::random_numbers() {
  Random random{};
  std::array<char, 8> moment{};
  char* const state = initstate(1, moment.data(), moment.size());
  random.state = reinterpret_cast<uint64_t>(state);
  // A state that the program has given is in its memory.
  if (!in_private_heap(random.state, 1) && !in_program_globals(random.state, 1) && !in_stacks(random.state))
    std::memcpy(random.default_state.data(), state, random.default_state.size());
  setstate(state);
  std::array<unsigned short, 3> any{};
  const unsigned short* const before = seed48(any.data());
  std::copy_n(before, 3, random.of_48_bits.begin());
  any = random.of_48_bits;
  seed48(any.data());
  return random;
}

void ProgramImage::go_on_with(const Random& random) {
  std::array<char, 8> moment{};
  char* const state = initstate(1, moment.data(), moment.size());
  if (reinterpret_cast<uint64_t>(state) == random.state)
    std::memcpy(state, random.default_state.data(), random.default_state.size());
  setstate(reinterpret_cast<char*>(random.state));
  std::array<unsigned short, 3> of_48_bits = random.of_48_bits;
  seed48(of_48_bits.data());
}

void ProgramImage::write_record(const SyncImage& sync, size_t heap_bytes) {
  record_.clear();
  Writer record(record_);
  record.one(RecordHead{.code = code_,
                        .heap_bytes = heap_bytes,
                        .environment = reinterpret_cast<uint64_t>(environ),
                        .time = g_time_before_checkpoint + monotonic_ns() - Node::get()->started_at(),
                        .threads = threads_.size(),
                        .parts = parts_.size()});
  for (const Thread& thread : threads_) record.one(ThreadRecord{thread.context, thread.block, thread.function});
  for (const Range& part : parts_) record.one(PartOfMemory{begin_of(part), part.length});
  for (const HandleSource::Image& source : sync.sources) {
    record.one(uint64_t{source.free});
    record.list(source.next_free);
    record.list(source.generation);
  }
  record.list(sync.semaphores);
  record.list(sync.flags);
  record.one(random_numbers());
}

void ProgramImage::for_each_page(size_t page_size,
                                 const std::function<void(PageId, std::span<const std::byte>)>& add) const {
  std::vector<std::byte> page(page_size);
  constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t current = kNone;
  const auto flush = [&] {
    if (current != kNone && !all_zero(page.data(), page_size)) add(PageId(kPrivatePage | current), page);
    std::ranges::fill(page, std::byte{0});
  };
  const auto see = [&](const Range& part) {
    const uintptr_t end = begin_of(part) + part.length;
    for (uintptr_t at = begin_of(part); at < end;) {
      if (at / page_size != current) {
        flush();
        current = at / page_size;
      }
      const uintptr_t until = std::min<uintptr_t>(end, (current + 1) * page_size);
      std::memcpy(&page[at % page_size], bytes_at(at), until - at);
      at = until;
    }
  };
  // The heap's bytes come where they are in the order.
  const uint64_t heap_bytes = reinterpret_cast<const RecordHead*>(record_.data())->heap_bytes;
  const auto see_heap = [&] {
    TouchedPages pages;
    for (uint64_t at = 0; at < heap_bytes; at += TouchedPages::kPage)
      if (pages.touched(layout::kPrivateHeapBase + at))
        see({bytes_at(layout::kPrivateHeapBase + at), TouchedPages::kPage});
  };
  bool heap_is_done = false;
  for (const Range& part : parts_) {
    if (!heap_is_done && begin_of(part) > layout::kPrivateHeapBase) {
      see_heap();
      heap_is_done = true;
    }
    see(part);
  }
  if (!heap_is_done) see_heap();
  flush();
}

// --- The later run

Status ProgramImage::read(std::span<const std::byte> bytes) {
  const auto senseless = [] { return fail("the checkpoint's record of private memory makes no sense"); };
  Reader record(bytes);
  RecordHead head;
  std::vector<ThreadRecord> threads;
  std::vector<PartOfMemory> parts;
  if (!record.one(head) || !record.list(threads, head.threads) || !record.list(parts, head.parts)) return senseless();
  SyncImage sync;
  for (HandleSource::Image& source : sync.sources) {
    uint64_t free;
    if (!record.one(free) || !record.list(source.next_free) || !record.list(source.generation)) return senseless();
    source.free = static_cast<uint32_t>(free);
  }
  Random random;
  if (!record.list(sync.semaphores) || !record.list(sync.flags) || !record.one(random) || !record.is_at_end())
    return senseless();
  if (head.threads != config_.processors_per_node)
    return fail("the checkpoint has {} processors a node, and this run has {} (--procs-per-node)", head.threads,
                config_.processors_per_node);
  if (head.code != code_fingerprint())
    return fail(
        "the program's or its libraries' code is not where it was: the libraries or the limit of the stack (ulimit -s) are "
        "others than those of the run that wrote the checkpoint");
  for (unsigned place = 0; place < threads.size(); ++place) {
    if (!program_stacks::of_processor(place).contains(threads[place].context.rsp))
      return fail("the checkpoint has a larger stack than this run has (ulimit -s)");
    threads_[place].context = threads[place].context;
    threads_[place].block = threads[place].block;
    threads_[place].function = threads[place].function;
  }
  uint64_t end = 0;
  parts_.clear();
  for (const PartOfMemory& part : parts) {
    if (part.begin < end || part.length > ~part.begin) return senseless();
    end = part.begin + part.length;
    parts_.push_back({bytes_at(part.begin), part.length});
  }
  heap_bytes_ = head.heap_bytes;
  environment_ = head.environment;
  g_time_before_checkpoint = head.time;
  sync_ = std::move(sync);
  random_ = random;
  return {};
}

void ProgramImage::begin_writing() {
  receive_heap_begin(heap_bytes_);
  for (const Range& part : parts_) std::memset(part.begin, 0, part.length);
}

Status ProgramImage::write(PageId page, std::span<const std::byte> bytes) {
  const uint64_t address = (page.value & ~kPrivatePage) * bytes.size();
  const uint64_t end = address + bytes.size();
  const uint64_t heap_end = layout::kPrivateHeapBase + heap_bytes_;
  bool is_known = false;
  if (address >= layout::kPrivateHeapBase && address < heap_end) {
    receive_heap_bytes(address - layout::kPrivateHeapBase, bytes.first(std::min<uint64_t>(end, heap_end) - address));
    is_known = true;
  }
  // The first part that ends behind the page's beginning.
  auto part = std::ranges::lower_bound(parts_, address, {}, [](const Range& p) { return begin_of(p) + p.length - 1; });
  for (; part != parts_.end() && begin_of(*part) < end; ++part) {
    const uint64_t from = std::max<uint64_t>(address, begin_of(*part));
    const uint64_t until = std::min<uint64_t>(end, begin_of(*part) + part->length);
    std::memcpy(bytes_at(from), &bytes[from - address], until - from);
    is_known = true;
  }
  if (!is_known) return fail("the checkpoint has a page of private memory that there is not");
  return {};
}

Status ProgramImage::finish_writing(Sync& sync) {
  receive_heap_end();
  environ = reinterpret_cast<char**>(environment_);
  go_on_with(random_);
  return sync.restore(sync_);
}

int ProgramImage::go_on(unsigned place) {
  const Thread& thread = threads_[place];
  // A pointer to a thread-local variable, or the address of the C library's errno, may be anywhere.
  if (program_stacks::thread_block() != thread.block)
    die(2, "--restart: the thread's variables are not at the addresses that the checkpoint has; its processor:",
        Node::get()->processors().current());
  this_status()->function.store(thread.function, std::memory_order_relaxed);
  return program_stacks::resume(thread.context);
}

}  // namespace multigrain
