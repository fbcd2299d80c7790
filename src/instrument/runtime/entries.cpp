// What compiled access checks call when they miss, and what opens a batch's windows (fine_grain.h; docs/fine-grain.md).
//
// None of these is called by signal handlers: programs' handlers must not touch shared memory (multigrain.h). But for
// polls and fences: there may be loops and atomics in a handler. errno is the program's, and kept: the program has only
// loaded or stored.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "coherence/line_protocol.h"
#include "coherence/window.h"
#include "instrument/runtime/good_lines.h"
#include "instrument/runtime/memory_access.h"
#include "instrument/runtime/windows.h"
#include "profile/virtual_time.h"

namespace multigrain {
namespace {

std::atomic<LineProtocol*> protocol_of_process{nullptr};

// Compiled code reads it all the time, and so it shares no cache line with anything that changes.
alignas(64) constinit const uint64_t nothing[8] = {};
// No protocol's, whatever the page table has from before one began.
alignas(64) constinit uint64_t losses_without_protocol = uint64_t{1} << 63 | MG_FINE_REMEMBERED;

void let_compiled_code_look_at(const uint64_t*& pointer, const std::atomic<uint64_t>* word) {
  static_assert(sizeof *word == sizeof(uint64_t) && std::atomic<uint64_t>::is_always_lock_free);
  __atomic_store_n(&pointer, word != nullptr ? reinterpret_cast<const uint64_t*>(word) : nothing, __ATOMIC_RELEASE);
}

}  // namespace

LineProtocol* line_protocol() {
  return protocol_of_process.load(std::memory_order_acquire);
}
void set_line_protocol(LineProtocol* protocol) {
  protocol_of_process.store(protocol, std::memory_order_release);
  let_compiled_code_look_at(__multigrain_mail, protocol != nullptr ? protocol->mail() : nullptr);
  let_compiled_code_look_at(__multigrain_outstanding, protocol != nullptr ? protocol->outstanding() : nullptr);
  std::atomic<uint64_t>* const losses = protocol != nullptr ? protocol->losses() : nullptr;
  __atomic_store_n(&__multigrain_losses,
                   losses != nullptr ? reinterpret_cast<uint64_t*>(losses) : &losses_without_protocol,
                   __ATOMIC_RELEASE);
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

// What every entry begins with. A processor that is here does not get back to a poll soon.
void enter() {
  if (__multigrain_windows == windows_of_nobody) [[unlikely]]
    __multigrain_windows = windows_of_thread;
  close_windows();
  if (__atomic_load_n(__atomic_load_n(&__multigrain_mail, __ATOMIC_RELAXED), __ATOMIC_RELAXED) == 0) [[likely]]
    return;
  if (LineProtocol* const protocol = line_protocol()) protocol->poll();
}

// What an entry begins with that a check which missed has called.
class Miss {
 public:
  Miss() { enter(); }

 private:
  const virtual_time::MissedCheck missed_;
  const KeepErrno keep_;
};

// In a signal handler's poll or fence, windows may be open that the interrupted code relies on.
bool any_window_open() {
  if (__multigrain_interrupted != nullptr) return true;
  uint64_t all = 0;
  for (unsigned i = 0; i < MG_FINE_WINDOWS; ++i) all |= window(i).load(std::memory_order_relaxed);
  return all != 0;
}

// A run's shared part: its lines from the first to the last, which its window names, and, if it has several rows, those,
// from the lowest on; what lies between them is not looked at. Without initial values: arrays of them are made for each
// piece of a loop.
struct Lines {
  uint64_t first, last;
  bool stores;
  uintptr_t begin, end, stride, rows;
  [[nodiscard]] bool any() const { return first <= last; }

  // Whether the function says so of the addresses of all parts.
  template <typename Function>
  bool all_of(Function&& function) const {
    for (uintptr_t row = 0; row < rows; ++row)
      if (!function(begin + row * stride, end + row * stride)) return false;
    return true;
  }
  // `since`: of multigrain_read_losses(), after a window over them was published.
  [[nodiscard]] bool are_good(uint64_t since) const {
    return rows == 1 ? all_good(first, last, stores, since) : all_rows_good(begin, end, stride, rows, stores, since);
  }
};

void find_lines_between(uintptr_t begin, uintptr_t end, Lines& lines) {
  begin = std::max(begin, uintptr_t{MG_FINE_VIEW_BASE});
  end = std::min(end, kViewEnd);
  lines.begin = begin, lines.end = end, lines.stride = 0, lines.rows = 1;
  if (begin < end)
    lines.first = line_of(begin), lines.last = line_of(end - 1);
  else
    lines.first = 1, lines.last = 0;
}

// False of a run whose lines no window can name.
bool find_lines(const mg_fine_run& run, Lines& lines) {
  lines.stores = run.stores != 0;
  if (run.rows == 1) [[likely]] {
    find_lines_between(run.begin, run.end, lines);
  } else {
    const bool falls = static_cast<intptr_t>(run.stride) < 0;
    const uintptr_t stride = falls ? -run.stride : run.stride;
    uintptr_t way;
    if (__builtin_mul_overflow(stride, run.rows - 1, &way) || way > kViewEnd) return false;
    const uintptr_t low = falls ? run.begin - way : run.begin;
    const uintptr_t high = falls ? run.end : run.end + way;
    find_lines_between(low, high, lines);
    if (lines.any() && stride > run.end - run.begin + (uintptr_t{1} << line_shift())) {
      if (low < MG_FINE_VIEW_BASE || high > kViewEnd) return false;
      lines.end = low + (run.end - run.begin), lines.stride = stride, lines.rows = run.rows;
    }
  }
  return !lines.any() || lines.last - lines.first < MG_FINE_WINDOW_MAX_LINES;
}

void bring(const Lines& lines) {
  const uintptr_t line = uintptr_t{1} << line_shift();
  lines.all_of([&](uintptr_t from, uintptr_t to) {
    const uintptr_t begin = from & ~(line - 1);
    const uintptr_t end = (to + line - 1) & ~(line - 1);
    if (LineProtocol* const protocol = line_protocol())
      protocol->bring(begin, end, lines.stores);
    else
      mark_writable(begin, end);
    look_again_at(begin, end);
    return true;
  });
}

bool all_are_good(std::span<const Lines> runs, uint64_t since) {
  return std::ranges::all_of(runs, [since](const Lines& run) { return !run.any() || run.are_good(since); });
}

// Publishes windows over all runs, and says whether all lines are good. If not, no window is open.
bool try_open(std::span<const Lines> runs, bool pages) {
  for (unsigned i = 0; i < runs.size(); ++i) {
    const Lines& lines = runs[i];
    const uint64_t word = lines.any() ? make_window(lines.first, lines.last - lines.first + 1, lines.stores) : 0;
    // One locked instruction for all: the last. As an exchange it is the fence, too.
    if (i + 1 < runs.size())
      window(i).store(word, std::memory_order_relaxed);
    else
      window(i).exchange(word, std::memory_order_seq_cst);
  }
  if (all_are_good(runs, pages ? multigrain_read_losses() : MG_FINE_NOT_REMEMBERED)) return true;
  close_windows();
  return false;
}

// Opens the held window, unless it is open. Returns what opening it did.
uint64_t hold() {
  if (window(MG_FINE_HELD_WINDOW).load(std::memory_order_relaxed) == 0) return __multigrain_hold_open();
  return multigrain_since;
}

// What the calling thread has looked at under its held window, by the place in a batch. While that stays open no right
// to these lines goes away, so the next piece of a loop need not look at them again: the next stage of a transform in
// place, the row that is subtracted from all others.
struct LookedAt {
  uint64_t opening = 0;  // which one it was; 0: none
  uint64_t first = 0, last = 0;
  bool stores = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local LookedAt looked_at[MG_FINE_WINDOWS];

// all_good() of lines that the held window is over.
bool all_good_under_held(unsigned place, uint64_t first, uint64_t last, bool stores, uint64_t since) {
  LookedAt& own = looked_at[place];
  const LookedAt now{multigrain_openings, first, last, stores};
  // Of what has been looked at, by the piece before at this place, or just now at the place before (a stencil's rows lie
  // over each other), only the rest is left.
  const auto leave_out = [&](const LookedAt& seen) {
    if (seen.opening != multigrain_openings || (stores && !seen.stores)) return false;
    if (seen.first <= first && last <= seen.last) return true;
    if (seen.first <= first && first <= seen.last)
      first = seen.last + 1;
    else if (seen.first <= last && last <= seen.last)
      last = seen.first - 1;
    return false;
  };
  if (leave_out(own)) return true;
  if (!(place != 0 && leave_out(looked_at[place - 1])) && !all_good(first, last, stores, since)) return false;
  own = now;
  return true;
}

// A batch that is refused this often goes access by access.
constexpr int kAttempts = 4;

// Stores whose values the protocol is offered.
constexpr size_t kLongestValue = 16;

// All lines of the runs, or false if there are more runs, or longer ones, than windows can say.
bool find_lines(std::span<const mg_fine_run> runs, std::array<Lines, MG_FINE_WINDOWS>& lines) {
  if (runs.size() > lines.size()) return false;
  for (size_t i = 0; i < runs.size(); ++i)
    if (!find_lines(runs[i], lines[i])) return false;
  return true;
}

// Of [address, address + size), the part up to the next border of a line, or of the view.
size_t within_line(uintptr_t address, size_t size) {
  if (!is_shared(address))
    return address < MG_FINE_VIEW_BASE ? std::min<size_t>(size, MG_FINE_VIEW_BASE - address) : size;
  const uintptr_t line = uintptr_t{1} << line_shift();
  return std::min<size_t>(size, line - (address & (line - 1)));
}

// Whether all that the value has of some word is the flag value's. It is the same in every word, so that what is in a
// byte says where it would come from.
bool has_flag(const std::byte* value, size_t size, uintptr_t address) {
  bool all_of_word = true;
  for (size_t i = 0; i < size; ++i) {
    const size_t within = (address + i) % 4;
    if (within == 0) all_of_word = true;
    all_of_word &= static_cast<uint8_t>(value[i]) == static_cast<uint8_t>(MG_FINE_FLAG32 >> 8 * within);
    if (all_of_word && (within == 3 || i + 1 == size)) return true;
  }
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
  window(0).exchange(make_window(line, 1, false));
  const bool good = (table_word(line).load() & MG_FINE_READABLE) != 0;
  if (good) copy_once(value, reinterpret_cast<const std::byte*>(address), size);
  window(0).store(0, std::memory_order_release);
  if (good && !has_flag(value, size, address)) return;
  protocol->load(address, std::span(value, size));
  look_again_at(address, address + size);
}

// Opens window 0 for stores over the line of a shared address, with the line exclusive; false. Or the protocol takes
// the store of `value` (none: it is not asked to), and no window is open; true.
bool open_line_or_hand_over(uintptr_t address, std::span<const std::byte> value) {
  const uint64_t line = line_of(address);
  window(0).exchange(make_window(line, 1, true));
  if (table_word(line).load() == MG_FINE_EXCLUSIVE) return false;
  window(0).store(0, std::memory_order_release);
  if (LineProtocol* const protocol = line_protocol()) {
    const bool offered = !value.empty() && value.size() <= kLongestValue;
    const bool taken = offered && protocol->store(address, value);
    if (!offered) protocol->open_store(address);
    look_again_at(address, address + 1);
    return taken;
  }
  mark_writable(address, address + 1);
  look_again_at(address, address + 1);
  window(0).exchange(make_window(line, 1, true));
  return false;
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
    if (!shared || !open_line_or_hand_over(address, {value, part})) {
      copy_once(reinterpret_cast<std::byte*>(address), value, part);
      if (shared) window(0).store(0, std::memory_order_release);
    }
    address += part, value += part, size -= part;
  }
}

bool open_batch(std::span<const mg_fine_run> runs, bool pages) {
  std::array<Lines, MG_FINE_WINDOWS> lines;
  if (!find_lines(runs, lines)) return false;
  const std::span<const Lines> used(lines.data(), runs.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (try_open(used, pages)) return true;
    for (const Lines& run : used)
      if (run.any() && !run.are_good(MG_FINE_NOT_REMEMBERED)) bring(run);
  }
  return try_open(used, pages);
}

void open_exclusive(uintptr_t address, size_t size) {
  if (line_of(address) == line_of(address + size - 1)) {
    open_line_or_hand_over(address, {});
    return;
  }
  // Nobody keeps all of several lines until they are all here. Who loses one waits, ever longer and each processor for
  // another time, so that not always the same two meet.
  const mg_fine_run run = {address, address + size, 1, 0, 1};
  const auto own = reinterpret_cast<uintptr_t>(__multigrain_windows) / sizeof(uint64_t) / MG_FINE_WINDOWS;
  for (unsigned refused = 0; !open_batch({&run, 1}); ++refused) {
    const uint64_t pause = (uint64_t{1} << std::min(refused, 10u)) + (own * 37 + refused * 11) % 64;
    for (uint64_t i = 0; i < pause; ++i) cpu_relax();
    if (refused > 4) sched_yield();
  }
}

void begin_access() {
  enter();
}

void begin_handler(uint64_t* windows) {
  __multigrain_interrupted = __multigrain_windows;
  __multigrain_windows = windows;
}

void end_handler(bool returned) {
  close_windows();
  __multigrain_windows = __multigrain_interrupted;
  __multigrain_interrupted = nullptr;
  // What the handler has looked at was looked at under its own windows.
  for (LookedAt& one : looked_at) one.opening = 0;
  if (!returned) close_windows();
}

}  // namespace checks
}  // namespace multigrain

using namespace multigrain::checks;

__thread uint64_t* __multigrain_windows __attribute__((tls_model("initial-exec"))) = windows_of_nobody;
__thread uint64_t* __multigrain_interrupted __attribute__((tls_model("initial-exec"))) = nullptr;
constinit const uint64_t* __multigrain_mail = multigrain::nothing;
constinit const uint64_t* __multigrain_outstanding = multigrain::nothing;
constinit uint64_t* __multigrain_losses = &multigrain::losses_without_protocol;

namespace {

[[gnu::noinline]] uint64_t hold_otherwise(const mg_fine_run* runs, unsigned flagged) {
  const unsigned count = flagged & ~MG_FINE_WITHOUT_PAGES;
  std::array<Lines, MG_FINE_WINDOWS> lines;
  if (__multigrain_windows != windows_of_nobody && find_lines(std::span(runs, count), lines)) {
    const std::span<const Lines> used(lines.data(), count);
    if (std::ranges::any_of(used, &Lines::any)) {
      const uint64_t since = hold();
      if (all_are_good(used, count == flagged ? since : MG_FINE_NOT_REMEMBERED)) return since;
    }
  }
  window(MG_FINE_HELD_WINDOW).store(0, std::memory_order_release);
  return __multigrain_batch_open(runs, flagged) != 0 ? MG_FINE_NOT_HELD : 0;
}

[[gnu::noinline, gnu::cold]] int open_batch_slowly(const mg_fine_run* runs, unsigned count, bool pages) {
  const Miss miss;
  return open_batch(std::span(runs, count), pages) ? 1 : 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) uint64_t __multigrain_batch_hold(const mg_fine_run* runs,
                                                                                   unsigned flagged) {
  const unsigned count = flagged & ~MG_FINE_WITHOUT_PAGES;
  // Before each piece of a loop, so the usual runs, each within the view or private, have a way of their own.
  if (__multigrain_windows == windows_of_nobody || count > MG_FINE_WINDOWS) return hold_otherwise(runs, flagged);
  uint64_t since = 0;
  uint64_t remembered = MG_FINE_NOT_REMEMBERED;
  for (unsigned i = 0; i < count; ++i) {
    const mg_fine_run& run = runs[i];
    uintptr_t end = run.end;
    if (run.rows != 1) {
      uintptr_t way;
      if (static_cast<intptr_t>(run.stride) < 0 || __builtin_mul_overflow(run.stride, run.rows - 1, &way) ||
          __builtin_add_overflow(end, way, &end))
        return hold_otherwise(runs, flagged);
    }
    if (!is_shared(run.begin)) {
      if (touches_shared(run.begin, end)) return hold_otherwise(runs, flagged);
      continue;
    }
    if (!is_shared(end - 1)) return hold_otherwise(runs, flagged);
    if (since == 0) {
      since = hold();
      if (count == flagged) remembered = since;
    }
    // Nothing is remembered with MG_FINE_NOT_REMEMBERED.
    if (page_of(run.begin) == page_of(end - 1) && is_remembered(page_of(run.begin), run.stores != 0, remembered))
      continue;
    const bool good =
        run.rows == 1 ? all_good_under_held(i, line_of(run.begin), line_of(run.end - 1), run.stores != 0, remembered)
                      : all_rows_good(run.begin, run.end, run.stride, run.rows, run.stores != 0, remembered);
    if (!good) return hold_otherwise(runs, flagged);
  }
  return since != 0 ? since : hold_otherwise(runs, flagged);
}

// What the trampolines of these names call, with everything saved.
extern "C" uint64_t multigrain_load_miss(const void* address, unsigned size) {
  const Miss miss;
  uint64_t value = 0;
  load(reinterpret_cast<uintptr_t>(address), size, reinterpret_cast<std::byte*>(&value));
  return value;
}

extern "C" void multigrain_hold_look(const void* address, uint64_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uint64_t page = page_of(begin); page <= page_of(begin + size - 1); ++page) look_at_page(page, multigrain_since);
}

extern "C" void multigrain_store_miss(void* address) {
  const Miss miss;
  open_line_or_hand_over(reinterpret_cast<uintptr_t>(address), {});
}

extern "C" uint64_t multigrain_store_value_miss(void* address, uint64_t low, uint64_t high, unsigned size) {
  const Miss miss;
  const std::array value = {low, high};
  const auto bytes = std::as_bytes(std::span(value)).first(size);
  return open_line_or_hand_over(reinterpret_cast<uintptr_t>(address), bytes) ? 1 : 0;
}

extern "C" void multigrain_poll_miss() {
  const KeepErrno keep;
  if (any_window_open()) return;
  enter();
}

extern "C" void multigrain_fence_miss() {
  const KeepErrno keep;
  if (any_window_open()) return;
  enter();
  if (multigrain::LineProtocol* const protocol = multigrain::line_protocol()) protocol->fence();
}

extern "C" void multigrain_prefetch_exclusive_miss(const void* address) {
  const Miss miss;
  if (multigrain::LineProtocol* const protocol = multigrain::line_protocol())
    protocol->prefetch_exclusive(reinterpret_cast<uintptr_t>(address));
}

extern "C" void multigrain_load_range_miss(const void* address, size_t size, void* value) {
  const Miss miss;
  load(reinterpret_cast<uintptr_t>(address), size, static_cast<std::byte*>(value));
}

extern "C" void multigrain_store_range_miss(void* address, size_t size, const void* value) {
  const Miss miss;
  store(reinterpret_cast<uintptr_t>(address), size, static_cast<const std::byte*>(value));
}

extern "C" uint64_t multigrain_batch_miss(const mg_fine_run* runs, unsigned count) {
  const multigrain::virtual_time::MissedCheck missed;
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
                                                                              unsigned flagged) {
  const unsigned count = flagged & ~MG_FINE_WITHOUT_PAGES;
  const bool pages = count == flagged;
  // Mostly all lines are here: nothing is waited for, and no window of the caller was open.
  std::array<Lines, MG_FINE_WINDOWS> lines;
  if (count != 0 && __multigrain_windows != windows_of_nobody && find_lines(std::span(runs, count), lines) &&
      try_open(std::span(lines.data(), count), pages))
    return 1;
  return open_batch_slowly(runs, count, pages);
}

extern "C" __attribute__((visibility("default"))) void __multigrain_spin(void) {
  // Bounded spinning, then the core is somebody else's for a while: it may be who is waited for. A call long after the
  // last one is of another wait.
  constexpr unsigned kSpins = 256;
  constexpr uint64_t kPauseTicks = 20'000;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local unsigned spins = 0;
  [[gnu::tls_model("initial-exec")]] static constinit thread_local uint64_t last = 0;
  const KeepErrno keep;
  spins = multigrain::ticks() - last > kPauseTicks ? 0 : spins + 1;
  if (auto* const protocol = multigrain::line_protocol()) protocol->spin();
  if (spins < kSpins)
    multigrain::cpu_relax();
  else
    sched_yield();
  last = multigrain::ticks();
}
