// Compiled access checks call these entries when they miss, and to publish a batch's hazards (instrument/abi.h;
// docs/internals/fine-grain.md).
//
// Signal handlers must not touch shared memory (multigrain.h), so they call none of these entries except polls and
// fences: there may be loops and atomics in a handler. All entries keep the program's errno, because to the program a
// miss is a load or a store.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/clock.h"
#include "base/error.h"
#include "base/keep_errno.h"
#include "coherence/hazard.h"
#include "instrument/runtime/entry.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "instrument/runtime/line_rights.h"
#include "instrument/runtime/memory_access.h"
#include "instrument/runtime/references.h"
#include "instrument/runtime/translation.h"
#include "profile/virtual_time.h"

namespace multigrain {
namespace {

std::atomic<LineProtocol*> protocol_of_process{nullptr};

// Compiled code reads this word all the time, so it shares no cache line with anything that changes.
alignas(64) constinit const uint64_t nothing[8] = {};
// The rights epoch while there is no line protocol. No protocol uses this value, so entries that the rights cache got
// before a protocol began are void under it.
alignas(64) constinit uint64_t epoch_without_protocol = uint64_t{1} << 63 | MG_FINE_EPOCH_CACHED;

// Requesters change this word when they begin to wait for a hazard of this node (LineProtocol::hazard_waits).
constinit const uint64_t* hazard_waits = nothing;
// What the calling thread has found there last.
[[gnu::tls_model("initial-exec")]] constinit thread_local uint64_t hazard_waits_seen = 0;

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
  let_compiled_code_look_at(__multigrain_pending_messages,
                            protocol != nullptr ? protocol->pending_messages() : nullptr);
  let_compiled_code_look_at(__multigrain_outstanding, protocol != nullptr ? protocol->outstanding() : nullptr);
  std::atomic<uint64_t>* const epoch = protocol != nullptr ? protocol->rights_epoch() : nullptr;
  __atomic_store_n(&__multigrain_rights_epoch,
                   epoch != nullptr ? reinterpret_cast<uint64_t*>(epoch) : &epoch_without_protocol, __ATOMIC_RELEASE);
  let_compiled_code_look_at(hazard_waits, protocol != nullptr ? protocol->hazard_waits() : nullptr);
}

namespace checks {
namespace {

// Before a thread has hazards of its own, it publishes hazards here, where no requester looks. That is right
// while no line protocol runs, and a line protocol gives every thread its own hazards before the thread runs
// code of the program.
alignas(64) constinit uint64_t unread_hazards[MG_FINE_HAZARDS];
// A thread uses these without a line protocol, so that threads do not contend for one cache line.
alignas(64) constinit thread_local uint64_t hazards_of_thread[MG_FINE_HAZARDS];

// Every entry begins with this. It also polls, because a processor that misses does not reach its next poll soon.
void enter() {
  if (__multigrain_hazards == unread_hazards) [[unlikely]]
    __multigrain_hazards = hazards_of_thread;
  clear_hazards();
  if (__atomic_load_n(__atomic_load_n(&__multigrain_pending_messages, __ATOMIC_RELAXED), __ATOMIC_RELAXED) == 0)
      [[likely]]
    return;
  if (LineProtocol* const protocol = line_protocol()) protocol->poll();
}

// An entry that is called when a check has missed begins with this.
class Miss {
 public:
  Miss() { enter(); }

 private:
  const virtual_time::MissedCheck missed_;
  const KeepErrno keep_;
};

// Tells whether the calling thread, or the code that its signal handler has interrupted, may have a hazard published. A
// poll or fence must not clear it then.
bool any_hazard_published() {
  if (__multigrain_interrupted_hazards != nullptr) return true;
  uint64_t all = 0;
  for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i) all |= hazard(i).load(std::memory_order_relaxed);
  return all != 0;
}

// The shared part of a run: its lines from the first to the last, which its hazard names, and, if it has several rows,
// the rows from the lowest on. Lines between the rows are not checked. The members have no initial values, because
// arrays of this are made for each piece of a loop.
struct Lines {
  uint64_t first, last;
  bool stores;
  uintptr_t begin, end, stride, rows;
  [[nodiscard]] bool any() const { return first <= last; }

  // Calls the function with the addresses of each row until it returns false. Returns whether it returned true for all.
  template <typename Function>
  bool all_of(Function&& function) const {
    for (uintptr_t row = 0; row < rows; ++row)
      if (!function(begin + row * stride, end + row * stride)) return false;
    return true;
  }
  // Tells whether this node has the rights to all lines. `epoch` is what multigrain_read_rights_epoch() returned after
  // a hazard over these lines was published.
  [[nodiscard]] bool have_rights(uint64_t epoch) const {
    if (translates()) [[unlikely]]
      return all_of([this](uintptr_t from, uintptr_t to) { return is_translated(from, to, stores); });
    return rows == 1 ? lines_have_rights(first, last, stores, epoch)
                     : rows_have_rights(begin, end, stride, rows, stores, epoch);
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

// Finds the lines of a run. Returns false if no hazard can name them.
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
  return !lines.any() || lines.last - lines.first < MG_FINE_HAZARD_MAX_LINES;
}

void fetch_lines(const Lines& lines) {
  const uintptr_t line = uintptr_t{1} << line_shift();
  lines.all_of([&](uintptr_t from, uintptr_t to) {
    const uintptr_t begin = from & ~(line - 1);
    const uintptr_t end = (to + line - 1) & ~(line - 1);
    if (translates()) {
      // Nothing is allocated there: the access faults here, where the object is not going to be accessed otherwise.
      if (!translate(from, to, lines.stores)) static_cast<void>(*reinterpret_cast<const volatile char*>(from));
    } else if (LineProtocol* const protocol = line_protocol())
      protocol->fetch_lines(begin, end, lines.stores);
    else
      mark_writable(begin, end);
    drop_incomplete_pages(begin, end);
    return true;
  });
}

bool all_have_rights(std::span<const Lines> runs, uint64_t epoch) {
  return std::ranges::all_of(runs, [epoch](const Lines& run) { return !run.any() || run.have_rights(epoch); });
}

// Publishes hazards over all runs, and returns whether this node has the rights to all their lines. If it has not,
// clears the hazards.
bool try_begin_batch(std::span<const Lines> runs, bool pages) {
  for (unsigned i = 0; i < runs.size(); ++i) {
    const Lines& lines = runs[i];
    const uint64_t word = lines.any() ? make_hazard(lines.first, lines.last - lines.first + 1, lines.stores) : 0;
    // Only the last hazard is published by a locked instruction, which is the full fence for all of them.
    if (i + 1 < runs.size())
      hazard(i).store(word, std::memory_order_relaxed);
    else
      hazard(i).exchange(word, std::memory_order_seq_cst);
  }
  if (all_have_rights(runs, pages ? multigrain_read_rights_epoch() : MG_FINE_CACHE_UNUSABLE)) return true;
  clear_hazards();
  return false;
}

// Publishes the loop hazard, unless it is published already. Returns the result of the publication. Where a requester has
// begun to wait for a hazard of this node since the calling thread has last looked, the thread clears the loop hazard and
// publishes it again: the pieces of a loop before this one need it no more, and the requester would wait for those to come.
uint64_t ensure_loop_hazard() {
  const uint64_t waits = __atomic_load_n(__atomic_load_n(&hazard_waits, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  const std::atomic_ref<uint64_t> own = hazard(MG_FINE_LOOP_HAZARD);
  if (own.load(std::memory_order_relaxed) != 0 && waits == hazard_waits_seen) return multigrain_loop_hazard_epoch;
  hazard_waits_seen = waits;
  own.store(0, std::memory_order_release);
  return multigrain_publish_loop_hazard();
}

// The lines that the calling thread has checked under its loop hazard, by the index of their run in a batch. While that
// hazard is published, the node keeps its rights to them, so the next piece of a loop need not check them again. Such
// lines are those of the next stage of a transform in place, or of the row that is subtracted from all others.
struct CheckedLines {
  uint64_t loop_hazard = 0;  // multigrain_loop_hazards_published at the check; 0: none are checked
  uint64_t first = 0, last = 0;
  bool stores = false;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local CheckedLines checked_lines[MG_FINE_HAZARDS];

// Does what lines_have_rights() does, for lines that the loop hazard covers. `index` is that of their run in the batch.
bool lines_have_rights_under_loop_hazard(unsigned index, uint64_t first, uint64_t last, bool stores, uint64_t epoch) {
  CheckedLines& own = checked_lines[index];
  const CheckedLines now{multigrain_loop_hazards_published, first, last, stores};
  // Lines need not be checked again if the piece before has checked them for the run at this index, or if this batch
  // has just checked them for the run before (a stencil's rows overlap).
  const auto leave_out = [&](const CheckedLines& seen) {
    if (seen.loop_hazard != multigrain_loop_hazards_published || (stores && !seen.stores)) return false;
    if (seen.first <= first && last <= seen.last) return true;
    if (seen.first <= first && first <= seen.last)
      first = seen.last + 1;
    else if (seen.first <= last && last <= seen.last)
      last = seen.first - 1;
    return false;
  };
  if (leave_out(own)) return true;
  if (!(index != 0 && leave_out(checked_lines[index - 1])) && !lines_have_rights(first, last, stores, epoch))
    return false;
  own = now;
  return true;
}

// A batch that could not begin this often is made access by access.
constexpr int kAttempts = 4;

// The protocol is offered the values of stores of up to this many bytes.
constexpr size_t kLongestValue = 16;

// Finds all lines of the runs. Returns false if there are more runs than hazards, or longer ones than hazards can name.
bool find_lines(std::span<const mg_fine_run> runs, std::array<Lines, MG_FINE_HAZARDS>& lines) {
  if (runs.size() > lines.size()) return false;
  for (size_t i = 0; i < runs.size(); ++i)
    if (!find_lines(runs[i], lines[i])) return false;
  return true;
}

// Returns the length of the part of [address, address + size) up to the next border of a line, or of the view.
size_t within_line(uintptr_t address, size_t size) {
  if (!is_shared(address))
    return address < MG_FINE_VIEW_BASE ? std::min<size_t>(size, MG_FINE_VIEW_BASE - address) : size;
  const uintptr_t line = uintptr_t{1} << line_shift();
  return std::min<size_t>(size, line - (address & (line - 1)));
}

// Tells whether all bytes that the value has of some word are those of the flag value. The flag value is the same in
// every word, so a byte's address alone says which byte of the flag value it would be.
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

// Returns with hazard 0 published over the part of a line, and the access allowed.
void publish_translated(uintptr_t address, size_t size, bool stores) {
  while (true) {
    hazard(0).exchange(make_hazard(line_of(address), 1, stores));
    if (is_translated(address, address + size, stores)) return;
    hazard(0).store(0, std::memory_order_release);
    if (!translate(address, address + size, stores)) return;
  }
}

void load_within_line(uintptr_t address, size_t size, std::byte* value) {
  if (is_shared(address) && translates()) [[unlikely]] {
    publish_translated(address, size, false);
    copy_once(value, reinterpret_cast<const std::byte*>(address), size);
    hazard(0).store(0, std::memory_order_release);
    return;
  }
  LineProtocol* const protocol = is_shared(address) ? line_protocol() : nullptr;
  if (protocol == nullptr) {
    std::memcpy(value, reinterpret_cast<const void*>(address), size);
    return;
  }
  // Mostly the line is valid here, and another load of the same group missed. If the value looks like the flag value,
  // the protocol decides whether it is a false miss, and counts it.
  const uint64_t line = line_of(address);
  hazard(0).exchange(make_hazard(line, 1, false));
  const bool is_readable = (table_word(line).load() & MG_FINE_READABLE) != 0;
  if (is_readable) copy_once(value, reinterpret_cast<const std::byte*>(address), size);
  hazard(0).store(0, std::memory_order_release);
  if (is_readable && !has_flag(value, size, address)) return;
  protocol->load(address, std::span(value, size));
  drop_incomplete_pages(address, address + size);
}

// Either makes the line of a shared address exclusive, with hazard 0 published for stores over it, and returns false.
// Or the protocol takes the store of `value`: then no hazard is published, and it returns true. An empty `value` is not
// offered to the protocol.
bool begin_store_or_hand_over(uintptr_t address, std::span<const std::byte> value) {
  if (translates()) [[unlikely]] {
    publish_translated(address, 1, true);
    return false;
  }
  const uint64_t line = line_of(address);
  hazard(0).exchange(make_hazard(line, 1, true));
  if (table_word(line).load() == MG_FINE_EXCLUSIVE) return false;
  hazard(0).store(0, std::memory_order_release);
  if (LineProtocol* const protocol = line_protocol()) {
    const bool offered = !value.empty() && value.size() <= kLongestValue;
    const bool taken = offered && protocol->store(address, value);
    if (!offered) protocol->begin_store(address);
    drop_incomplete_pages(address, address + 1);
    return taken;
  }
  mark_writable(address, address + 1);
  drop_incomplete_pages(address, address + 1);
  hazard(0).exchange(make_hazard(line, 1, true));
  return false;
}

// Calls `attempt`, which is to get rights to [address, address + size) under a hazard, until it returns true. A node that
// fetches several lines may lose one before it has them all. A processor to which that happens waits, each time longer, and
// not for the same time as other processors, so that the same two do not collide again and again.
template <typename Attempt>
void attempt_until_it_succeeds(uintptr_t address, size_t size, Attempt&& attempt) {
  const bool in_turn = virtual_time::takes_turns();
  const auto own = in_turn ? ordered::participant()
                           : reinterpret_cast<uintptr_t>(__multigrain_hazards) / sizeof(uint64_t) / MG_FINE_HAZARDS;
  for (unsigned refused = 0; !attempt(); ++refused) {
    // Where nothing is allocated no attempt succeeds. The program's access would fault there, and this does.
    static_cast<void>(*reinterpret_cast<const volatile char*>(address));
    static_cast<void>(*reinterpret_cast<const volatile char*>(address + size - 1));
    const uint64_t pause = (uint64_t{1} << std::min(refused, 10u)) + (own * 37 + refused * 11) % 64;
    if (in_turn) {
      constexpr Nanoseconds kRelax = 10;
      virtual_time::wait_until_time(virtual_time::stamp() + pause * kRelax);
      continue;
    }
    for (uint64_t i = 0; i < pause; ++i) cpu_relax();
    if (refused > 4) sched_yield();
  }
}

}  // namespace

// --- Loads and stores of any size ---------------------------------------------------------------------------------

void load(uintptr_t address, size_t size, std::byte* value) {
  if (refers()) [[unlikely]]
    return load_by_reference(address, size, value);
  while (size > 0) {
    const size_t part = within_line(address, size);
    load_within_line(address, part, value);
    address += part, value += part, size -= part;
  }
}

void store(uintptr_t address, size_t size, const std::byte* value) {
  if (refers()) [[unlikely]]
    return store_by_reference(address, size, value);
  while (size > 0) {
    const size_t part = within_line(address, size);
    const bool shared = is_shared(address);
    if (!shared || !begin_store_or_hand_over(address, {value, part})) {
      copy_once(reinterpret_cast<std::byte*>(address), value, part);
      if (shared) hazard(0).store(0, std::memory_order_release);
    }
    address += part, value += part, size -= part;
  }
}

bool begin_batch(std::span<const mg_fine_run> runs, bool pages) {
  std::array<Lines, MG_FINE_HAZARDS> lines;
  if (!find_lines(runs, lines)) return false;
  const std::span<const Lines> used(lines.data(), runs.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (try_begin_batch(used, pages)) return true;
    for (const Lines& run : used)
      if (run.any() && !run.have_rights(MG_FINE_CACHE_UNUSABLE)) fetch_lines(run);
  }
  return try_begin_batch(used, pages);
}

void publish_over_object(uintptr_t address, size_t size) {
  if (line_of(address) == line_of(address + size - 1)) {
    begin_store_or_hand_over(address, {});
    return;
  }
  const mg_fine_run run = {address, address + size, 1, 0, 1};
  attempt_until_it_succeeds(address, size, [&run] { return begin_batch({&run, 1}); });
}

void begin_access() {
  enter();
}

void begin_handler(uint64_t* hazards) {
  __multigrain_interrupted_hazards = __multigrain_hazards;
  __multigrain_hazards = hazards;
}

void end_handler(bool returned) {
  clear_hazards();
  __multigrain_hazards = __multigrain_interrupted_hazards;
  __multigrain_interrupted_hazards = nullptr;
  // The handler has checked lines under its own hazards, which are cleared now.
  for (CheckedLines& one : checked_lines) one.loop_hazard = 0;
  if (!returned) clear_hazards();
}

}  // namespace checks
}  // namespace multigrain

using multigrain::KeepErrno;
using namespace multigrain::checks;

__thread uint64_t* __multigrain_hazards __attribute__((tls_model("initial-exec"))) = unread_hazards;
__thread uint64_t* __multigrain_interrupted_hazards __attribute__((tls_model("initial-exec"))) = nullptr;
constinit const uint64_t* __multigrain_pending_messages = multigrain::nothing;
constinit const uint64_t* __multigrain_outstanding = multigrain::nothing;
constinit uint64_t* __multigrain_rights_epoch = &multigrain::epoch_without_protocol;

namespace {

[[gnu::noinline]] uint64_t begin_batch_in_loop_slow_path(const mg_fine_run* runs, unsigned count_and_flags) {
  const unsigned count = count_and_flags & ~MG_FINE_WITHOUT_RIGHTS_CACHE;
  std::array<Lines, MG_FINE_HAZARDS> lines;
  if (__multigrain_hazards != unread_hazards && find_lines(std::span(runs, count), lines)) {
    const std::span<const Lines> used(lines.data(), count);
    if (std::ranges::any_of(used, &Lines::any)) {
      const uint64_t epoch = ensure_loop_hazard();
      if (all_have_rights(used, count == count_and_flags ? epoch : MG_FINE_CACHE_UNUSABLE)) return epoch;
    }
  }
  hazard(MG_FINE_LOOP_HAZARD).store(0, std::memory_order_release);
  return __multigrain_batch_begin(runs, count_and_flags) != 0 ? MG_FINE_NO_LOOP_HAZARD : 0;
}

[[gnu::noinline, gnu::cold]] int begin_batch_slow_path(const mg_fine_run* runs, unsigned count, bool pages) {
  const Miss miss;
  return begin_batch(std::span(runs, count), pages) ? 1 : 0;
}

}  // namespace

MG_ENTRY uint64_t __multigrain_batch_begin_in_loop(const mg_fine_run* runs, unsigned count_and_flags) {
  const unsigned count = count_and_flags & ~MG_FINE_WITHOUT_RIGHTS_CACHE;
  // Compiled code calls this before each piece of a loop, so the usual runs, each of them wholly shared or
  // private, have a fast path.
  if (__multigrain_hazards == unread_hazards || count > MG_FINE_HAZARDS)
    return begin_batch_in_loop_slow_path(runs, count_and_flags);
  uint64_t epoch = 0;
  uint64_t cached = MG_FINE_CACHE_UNUSABLE;
  for (unsigned i = 0; i < count; ++i) {
    const mg_fine_run& run = runs[i];
    uintptr_t end = run.end;
    if (run.rows != 1) {
      uintptr_t way;
      if (static_cast<intptr_t>(run.stride) < 0 || __builtin_mul_overflow(run.stride, run.rows - 1, &way) ||
          __builtin_add_overflow(end, way, &end))
        return begin_batch_in_loop_slow_path(runs, count_and_flags);
    }
    if (!is_shared(run.begin)) {
      if (touches_shared(run.begin, end)) return begin_batch_in_loop_slow_path(runs, count_and_flags);
      continue;
    }
    if (!is_shared(end - 1)) return begin_batch_in_loop_slow_path(runs, count_and_flags);
    if (epoch == 0) {
      epoch = ensure_loop_hazard();
      if (count == count_and_flags) cached = epoch;
    }
    // If `cached` is MG_FINE_CACHE_UNUSABLE, no entry matches, because none is made in that epoch.
    if (page_of(run.begin) == page_of(end - 1) && is_cached(page_of(run.begin), run.stores != 0, cached)) continue;
    const bool has_rights =
        run.rows == 1
            ? lines_have_rights_under_loop_hazard(i, line_of(run.begin), line_of(run.end - 1), run.stores != 0, cached)
            : rows_have_rights(run.begin, run.end, run.stride, run.rows, run.stores != 0, cached);
    if (!has_rights) return begin_batch_in_loop_slow_path(runs, count_and_flags);
  }
  return epoch != 0 ? epoch : begin_batch_in_loop_slow_path(runs, count_and_flags);
}

// The trampolines of these names (__multigrain_...) save all registers and call these functions.
extern "C" uint64_t multigrain_load_miss(const void* address, unsigned size) {
  const Miss miss;
  uint64_t value = 0;
  load(reinterpret_cast<uintptr_t>(address), size, reinterpret_cast<std::byte*>(&value));
  return value;
}

extern "C" void multigrain_cache_rights(const void* address, uint64_t size) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (multigrain_loop_hazard_epoch == MG_FINE_CACHE_UNUSABLE) return;
  for (uint64_t page = page_of(begin); page <= page_of(begin + size - 1); ++page)
    cache_rights_of_page(page, multigrain_loop_hazard_epoch);
}

// Makes the lines of the shared memory exclusive. Returns with the loop hazard published.
extern "C" uint64_t multigrain_hold_miss(const void* address, uint64_t size) {
  const Miss miss;
  const auto at = reinterpret_cast<uintptr_t>(address);
  Lines lines;
  lines.stores = true;
  find_lines_between(at, at + size, lines);
  uint64_t epoch = MG_FINE_NO_LOOP_HAZARD;
  attempt_until_it_succeeds(at, size, [&] {
    // Hazard 0 keeps a single line here until the loop hazard is published. But a requester that has revoked the right before
    // that waits for hazard 0 alone, so the line's word is looked at once more.
    if (lines.first == lines.last)
      begin_store_or_hand_over(at, {});
    else
      fetch_lines(lines);
    epoch = multigrain_publish_loop_hazard();
    const bool has_rights = lines.have_rights(MG_FINE_CACHE_UNUSABLE);
    hazard(0).store(0, std::memory_order_release);
    if (!has_rights) hazard(MG_FINE_LOOP_HAZARD).store(0, std::memory_order_release);
    return has_rights;
  });
  return epoch;
}

// Returns with hazard 0 published over the lines of the shared memory, which are exclusive.
extern "C" void multigrain_begin_stores_miss(void* address, uint64_t size) {
  const Miss miss;
  publish_over_object(reinterpret_cast<uintptr_t>(address), size);
}

extern "C" void multigrain_store_miss(void* address) {
  const Miss miss;
  begin_store_or_hand_over(reinterpret_cast<uintptr_t>(address), {});
}

// Makes a store of 1, 2, 4 or 8 bytes within a line.
extern "C" void multigrain_store_small_miss(void* address, uint64_t value, unsigned size) {
  const Miss miss;
  store(reinterpret_cast<uintptr_t>(address), size, reinterpret_cast<const std::byte*>(&value));
}

extern "C" void multigrain_poll_miss() {
  const KeepErrno keep;
  if (any_hazard_published()) return;
  enter();
}

extern "C" void multigrain_fence_miss() {
  const KeepErrno keep;
  if (any_hazard_published()) return;
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
  clear_hazards();  // the loop hazard may be published
  return static_cast<uint64_t>(__multigrain_batch_begin(runs, count));
}

MG_ENTRY void __multigrain_load(const void* address, size_t size, void* value) {
  const KeepErrno keep;
  enter();
  load(reinterpret_cast<uintptr_t>(address), size, static_cast<std::byte*>(value));
}

MG_ENTRY void __multigrain_store(void* address, size_t size, const void* value) {
  const KeepErrno keep;
  enter();
  store(reinterpret_cast<uintptr_t>(address), size, static_cast<const std::byte*>(value));
}

MG_ENTRY int __multigrain_batch_begin(const mg_fine_run* runs, unsigned count_and_flags) {
  const unsigned count = count_and_flags & ~MG_FINE_WITHOUT_RIGHTS_CACHE;
  const bool pages = count == count_and_flags;
  // Mostly the node has the rights to all lines, so that there is nothing to wait for. The caller has
  // no hazard published.
  std::array<Lines, MG_FINE_HAZARDS> lines;
  if (count != 0 && __multigrain_hazards != unread_hazards && find_lines(std::span(runs, count), lines) &&
      try_begin_batch(std::span(lines.data(), count), pages))
    return 1;
  return begin_batch_slow_path(runs, count, pages);
}

MG_ENTRY void __multigrain_spin(void) {
  // The thread spins for a bounded time, and then yields its core, perhaps to the thread for which it waits. A call
  // long after the last one belongs to another wait.
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
