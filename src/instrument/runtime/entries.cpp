// What compiled access checks call when they miss, and what opens a batch's windows (fine_grain.h; docs/fine-grain.md).
//
// None of these is called by signal handlers: programs' handlers must not touch shared memory (multigrain.h). errno is
// the program's, and kept: the program has only loaded or stored.
#include <emmintrin.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/error.h"
#include "coherence/line_protocol.h"
#include "instrument/runtime/memory_access.h"
#include "instrument/runtime/windows.h"

namespace multigrain {
namespace {

std::atomic<LineProtocol*> protocol_of_process{nullptr};

}  // namespace

LineProtocol* line_protocol() {
  return protocol_of_process.load(std::memory_order_acquire);
}
void set_line_protocol(LineProtocol* protocol) {
  protocol_of_process.store(protocol, std::memory_order_release);
}

namespace checks {
namespace {

// Before a thread has windows of its own its stores are announced here, where no requester looks: that is right while
// no line protocol runs, and one gives every thread its own before the thread runs code of the program.
alignas(64) constinit uint64_t windows_of_nobody[MG_FINE_WINDOWS];
// Without a line protocol: so that threads do not contend for a cache line.
alignas(64) constinit thread_local uint64_t windows_of_thread[MG_FINE_WINDOWS];

class KeepErrno {
 public:
  KeepErrno() : value_(errno) {}
  ~KeepErrno() { errno = value_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int value_;
};

// What every entry begins with.
void enter() {
  if (__multigrain_windows == windows_of_nobody) [[unlikely]]
    __multigrain_windows = windows_of_thread;
  close_windows();
}

uint64_t window_word(uint64_t first, uint64_t last, bool stores) {
  return first | (last - first + 1) * MG_FINE_WINDOW_LINE | (stores ? MG_FINE_WINDOW_STORES : 0);
}

// Whether all words of lines first .. last are MG_FINE_EXCLUSIVE, or have MG_FINE_READABLE.
bool all_good(uint64_t first, uint64_t last, bool stores) {
  const auto* const table = reinterpret_cast<const uint64_t*>(MG_FINE_TABLE_BASE);
  const uint64_t* word = table + first;
  const uint64_t* const end = table + last + 1;
  // The processor does not tear aligned words of a vector load, and the fence before keeps it from being early.
  if (stores) {
    const __m128i exclusive = _mm_set1_epi64x(MG_FINE_EXCLUSIVE);
    __m128i differ = _mm_setzero_si128();
    for (; end - word >= 8; word += 8) {
      for (int i = 0; i < 8; i += 2)
        differ = _mm_or_si128(
            differ, _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(word + i)), exclusive));
    }
    uint64_t rest = 0;
    for (; word < end; ++word) rest |= *word ^ MG_FINE_EXCLUSIVE;
    differ = _mm_or_si128(differ, _mm_unpackhi_epi64(differ, differ));
    return (static_cast<uint64_t>(_mm_cvtsi128_si64(differ)) | rest) == 0;
  }
  __m128i common = _mm_set1_epi64x(-1);
  for (; end - word >= 8; word += 8) {
    for (int i = 0; i < 8; i += 2)
      common = _mm_and_si128(common, _mm_loadu_si128(reinterpret_cast<const __m128i*>(word + i)));
  }
  uint64_t rest = ~uint64_t{0};
  for (; word < end; ++word) rest &= *word;
  common = _mm_and_si128(common, _mm_unpackhi_epi64(common, common));
  return (static_cast<uint64_t>(_mm_cvtsi128_si64(common)) & rest & MG_FINE_READABLE) != 0;
}

// A run's shared part, in lines.
struct Lines {
  uint64_t first = 1, last = 0;
  bool stores = false;
  [[nodiscard]] bool any() const { return first <= last; }
};

Lines lines_of(const mg_fine_run& run) {
  const uintptr_t begin = std::max(run.begin, uintptr_t{MG_FINE_VIEW_BASE});
  const uintptr_t end = std::min(run.end, kViewEnd);
  if (begin >= end) return {};
  return {line_of(begin), line_of(end - 1), run.stores != 0};
}

void bring(const Lines& lines) {
  const unsigned shift = line_shift();
  const uintptr_t begin = MG_FINE_VIEW_BASE + (lines.first << shift);
  const uintptr_t end = MG_FINE_VIEW_BASE + ((lines.last + 1) << shift);
  if (LineProtocol* const protocol = line_protocol())
    protocol->bring(begin, end, lines.stores);
  else
    mark_writable(begin, end);
}

// Publishes windows over all runs, and says whether all lines are good. If not, no window is open.
bool try_open(std::span<const Lines> runs) {
  for (unsigned i = 0; i < runs.size(); ++i) {
    const Lines& lines = runs[i];
    window(i).store(lines.any() ? window_word(lines.first, lines.last, lines.stores) : 0, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Lines& lines : runs) {
    if (lines.any() && !all_good(lines.first, lines.last, lines.stores)) {
      close_windows();
      return false;
    }
  }
  return true;
}

// A batch that is refused this often goes access by access.
constexpr int kAttempts = 4;


// Of [address, address + size), the part up to the next border of a line, or of the view.
size_t within_line(uintptr_t address, size_t size) {
  if (!is_shared(address)) return address < MG_FINE_VIEW_BASE ? std::min<size_t>(size, MG_FINE_VIEW_BASE - address) : size;
  const uintptr_t line = uintptr_t{1} << line_shift();
  return std::min<size_t>(size, line - (address & (line - 1)));
}

bool has_flag(const std::byte* value, size_t size, uintptr_t address) {
  // The flag value is the same in every word, so that what is in a byte says where it comes from.
  static constexpr std::array<uint8_t, 4> kFlag = {MG_FINE_FLAG32 & 0xff, MG_FINE_FLAG32 >> 8 & 0xff,
                                                   MG_FINE_FLAG32 >> 16 & 0xff, MG_FINE_FLAG32 >> 24};
  for (size_t i = 0; i < size; ++i)
    if (static_cast<uint8_t>(value[i]) == kFlag[(address + i) % 4]) return true;
  return false;
}

void load_within_line(uintptr_t address, size_t size, std::byte* value) {
  LineProtocol* const protocol = is_shared(address) ? line_protocol() : nullptr;
  if (protocol == nullptr) {
    std::memcpy(value, reinterpret_cast<const void*>(address), size);
    return;
  }
  // Mostly the line is here, and only its neighbours of a group of loads were not. A value that looks like the flag is
  // for the protocol to judge, which also counts false misses.
  const uint64_t line = line_of(address);
  window(0).exchange(window_word(line, line, false));
  const bool good = (table_word(line).load() & MG_FINE_READABLE) != 0;
  if (good) copy_once(value, reinterpret_cast<const std::byte*>(address), size);
  window(0).store(0, std::memory_order_release);
  if (good && !has_flag(value, size, address)) return;
  protocol->load(address, std::span(value, size));
}

// Opens window 0 for stores over the line of a shared address, with the line exclusive.
void open_line(uintptr_t address) {
  const uint64_t line = line_of(address);
  window(0).exchange(window_word(line, line, true));
  if (table_word(line).load() == MG_FINE_EXCLUSIVE) return;
  window(0).store(0, std::memory_order_release);
  if (LineProtocol* const protocol = line_protocol()) {
    protocol->open_store(address);
    return;
  }
  mark_writable(address, address + 1);
  window(0).exchange(window_word(line, line, true));
}

}  // namespace

// --- Loads and stores of any size ---------------------------------------------------------------------------------

void load(uintptr_t address, size_t size, std::byte* value) {
  while (size > 0) {
    const size_t part = within_line(address, size);
    load_within_line(address, part, value);
    address += part, value += part, size -= part;
  }
}

void store(uintptr_t address, size_t size, const std::byte* value) {
  while (size > 0) {
    const size_t part = within_line(address, size);
    const bool shared = is_shared(address);
    if (shared) open_line(address);
    copy_once(reinterpret_cast<std::byte*>(address), value, part);
    if (shared) window(0).store(0, std::memory_order_release);
    address += part, value += part, size -= part;
  }
}

bool open_batch(std::span<const mg_fine_run> runs) {
  std::array<Lines, MG_FINE_WINDOWS> lines;
  if (runs.size() > lines.size()) return false;
  for (size_t i = 0; i < runs.size(); ++i) {
    lines[i] = lines_of(runs[i]);
    if (lines[i].any() && lines[i].last - lines[i].first >= MG_FINE_WINDOW_MAX_LINES) return false;
  }
  const std::span<const Lines> used(lines.data(), runs.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (try_open(used)) return true;
    for (const Lines& run : used)
      if (run.any() && !all_good(run.first, run.last, run.stores)) bring(run);
  }
  return try_open(used);
}

void begin_access() {
  enter();
}

}  // namespace checks
}  // namespace multigrain

using namespace multigrain::checks;

__thread uint64_t* __multigrain_windows __attribute__((tls_model("initial-exec"))) = windows_of_nobody;

// What the trampolines of these names call, with everything saved.
extern "C" uint64_t multigrain_load_miss(const void* address, unsigned size) {
  const KeepErrno keep;
  enter();
  uint64_t value = 0;
  load(reinterpret_cast<uintptr_t>(address), size, reinterpret_cast<std::byte*>(&value));
  return value;
}

extern "C" void multigrain_store_miss(void* address) {
  const KeepErrno keep;
  enter();
  open_line(reinterpret_cast<uintptr_t>(address));
}

extern "C" uint64_t multigrain_batch_miss(const mg_fine_run* runs, unsigned count) {
  return static_cast<uint64_t>(__multigrain_batch_open(runs, count));
}

extern "C" __attribute__((visibility("default"))) void __multigrain_load(const void* address, size_t size,
                                                                         void* value) {
  const KeepErrno keep;
  enter();
  load(reinterpret_cast<uintptr_t>(address), size, static_cast<std::byte*>(value));
}

extern "C" __attribute__((visibility("default"))) void __multigrain_store(void* address, size_t size,
                                                                          const void* value) {
  const KeepErrno keep;
  enter();
  store(reinterpret_cast<uintptr_t>(address), size, static_cast<const std::byte*>(value));
}

extern "C" __attribute__((visibility("default"))) int __multigrain_batch_open(const mg_fine_run* runs,
                                                                              unsigned count) {
  const KeepErrno keep;
  enter();
  return open_batch(std::span(runs, count)) ? 1 : 0;
}

extern "C" __attribute__((visibility("default"))) void __multigrain_batch_close(void) {
  close_windows();
}
