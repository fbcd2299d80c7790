// Measures where a processor's time goes, and counts what happens.
//
// Every nanosecond of a processor is in exactly one category: those of [MGS], section 5.2.1 (User, Lock, Barrier and
// MGS, which is called protocol here), plus the wait for data. Time for changing access rights and for diffs is
// measured inside them, as [GeNIMA] does. The categories add up to the measured time by construction: a switch takes
// one time stamp and both ends one interval and begins the next with it.
//
// Each thread has one ProcessorProfile, in memory that the runtime supplies. Only its owner writes it; any thread may
// take a snapshot. Nothing here allocates, locks or calls the system except snapshot(), which may yield the core. To
// forget the past (mg_profile_reset) is to take a snapshot with which later ones are compared: the owner, perhaps
// asleep in a barrier, need not take part.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "profile/virtual_time.h"
#include "timeline/timeline.h"

namespace multigrain {

enum class Category : uint8_t {
  kUser,      // the program's own code, hardware coherence included
  kDataWait,  // waiting for a page or a copy of one
  kLock,      // executing and waiting in locks
  // Executing and waiting in barriers, and in other synchronisation that waits for all processors.
  kBarrier,
  // The protocol's own work: fault entry, transitions, handlers, twins, diffs, rights.
  kProtocol,
  // A service thread without work is in this category; no processor ever is.
  kIdle,
  // System calls of a program that knows nothing of processors (src/guest), waiting in them included.
  kSystem,
  kStopped,  // not measured: before start() and after stop()
};
inline constexpr size_t kCategoryCount = 7;  // those that are measured

// Parts of the categories that are also measured by themselves. They are not added to the categories.
enum class SubTime : uint8_t {
  kRights,  // changing access rights
  kDiffs,   // making, encoding and applying diffs
};
inline constexpr size_t kSubTimeCount = 2;

enum class Counter : uint8_t {
  // Faults
  kReadFaults,   // read faults that asked the home
  kWriteFaults,  // write faults on pages without a copy
  kUpgrades,     // write faults on pages that were readable
  // Faults that found the page resident with enough rights in the node.
  kLocalFaults,
  // Pages
  kPagesFetched,
  // Those of the faults and requests that were made ahead of the program.
  kPrefetches,
  kInvalidations,  // copies taken away by the home
  kTwins,
  kDiffs,       // diffs made that were not empty
  kEmptyDiffs,  // comparisons that found no change
  kDiffBytes,   // encoded bytes of the diffs made
  kDiffLines,   // lines of 64 bytes that they change
  kDiffsApplied,
  kSingleWriterGrants,
  kSingleWriterBreaks,
  // Access rights: calls, and pages that they covered
  kGrantReads,
  kGrantReadPages,
  kGrantWrites,
  kGrantWritePages,
  kRevokeWrites,
  kRevokeWritePages,
  kRevokes,
  kRevokePages,
  // Synchronisation
  kReleases,          // releases that found something to release
  kPagesReleased,     // pages in the delayed update queue then
  kLocksLocal,        // locks taken that the node held
  kLocksRemote,       // locks taken that came from another node
  kDeferredReleases,  // unlocks that left their release to when another node wants the lock
  kBarriers,          // arrivals
  kRendezvous,        // arrivals at barriers that the program does not know of
  // Lazy release consistency
  kAcquires,  // acquires that had notices to apply
  kNotices,   // notices made; one names consecutive pages
  // Acquires that came too late for a log, and invalidated everything.
  kNoticesLost,
  // Diffs deposited because a notice named a page that was dirty.
  kEarlyDeposits,
  // Groups of pages fetched ahead, the last of which was never used.
  kWastedPrefetches,
  // Times that a home lost count of which nodes have fetched its pages.
  kFetchLogOverflows,
  // Pages whose home is now the node that writes them.
  kHomesMoved,
  // Pages whose home is here that lines keep coherent from a barrier on.
  kPagesToLines,
  // Pages that a notice named, and that got what had changed because they were in use.
  kUpdates,
  // Placed pages. At a home: requests that the policy sent to the requester's memory, and to global memory, and those about
  // pages that are pinned.
  kDecidedLocal,
  kDecidedGlobal,
  kRequestsPinned,
  // Grants, by what the page becomes ([Bolosky], Figure 3.3).
  kBecameReadOnly,
  kBecameLocalWritable,
  kBecameGlobalWritable,
  kSyncs,       // writers told to give a page back, and to keep a copy
  kFlushes,     // nodes told to give a copy up
  kUnmaps,      // nodes told to stop using a page in global memory
  kZeroFills,   // pages filled with zeros where they are used, since nobody had written them
  kGlobalMaps,  // pages in another node's memory that this node has mapped
  kThaws,       // pages in global memory about which the policy is asked again
  // References of this node to pages in another node's memory. Those that the hardware makes, where pages are mapped, cannot be counted.
  kRemoteLoads,
  kRemoteStores,
  kRemoteAtomics,
  // Fine grain
  kTwoHopMisses,    // lines that came from their home, or to it
  kThreeHopMisses,  // lines that came from a third node
  kStoreMisses,     // misses of both kinds, for a store
  kRightsAhead,     // misses of both kinds, and upgrades, for a load that brings the right to store along
  kLineUpgrades,    // lines that were here, and became exclusive
  kLinesFound,      // misses that another processor of the node had ended
  kFalseMisses,     // loads of data that equal the flag value
  kLinesMoved,      // lines brought here
  // Copies of other nodes that stores of this node invalidated.
  kLinesInvalidated,
  // Tries to lock a directory entry that was locked already.
  kLockRetries,
  // Scans of another node's hazards that found a hazard to wait for.
  kHazardWaits,
  // Virtual time (fabric/emulation/calendar.h)
  kIntervalsForgotten,  // busy times of links and handlers that a calendar had no room for
  kForgottenTimes,      // requests for a time that a calendar had forgotten: each may overlap with another
  // Programs that know nothing of Multigrain (src/guest)
  kSystemCalls,  // of the program
  kFutexCalls,   // those of them that are futex()
  // Requests of threads away from node 0 to node 0: for calls, areas and signals.
  kCallsAtHome,
};
inline constexpr size_t kCounterCount = static_cast<size_t>(Counter::kCallsAtHome) + 1;
inline constexpr size_t kMessageTypes = 256;

enum class RightsChange : uint8_t { kGrantRead, kGrantWrite, kRevokeWrite, kRevoke };

// Returns a time stamp: ticks() of base/clock.h, or nanoseconds of the thread's virtual clock.
inline uint64_t time_stamp() {
  return virtual_time::on() ? virtual_time::now() : ticks();
}
// Returns the same for work that may be charged to another processor.
inline uint64_t work_stamp() {
  return virtual_time::on() ? virtual_time::work_ns() : ticks();
}
// Returns how many units of time stamps make a microsecond.
inline double time_stamps_per_us() {
  return virtual_time::on() ? 1000.0 : ticks_per_us();
}

// The contents of one thread's profile at a moment. Times are in time_stamp()s.
struct ProfileSnapshot {
  std::array<uint64_t, kCategoryCount> ticks{};
  std::array<uint64_t, kSubTimeCount> sub_ticks{};
  std::array<uint64_t, kCounterCount> counters{};
  std::array<uint64_t, kMessageTypes> messages{};
  std::array<uint64_t, kMessageTypes> message_bytes{};

  [[nodiscard]] uint64_t total_ticks() const;
  // Returns what happened since `earlier`, a snapshot of the same profile.
  [[nodiscard]] ProfileSnapshot since(const ProfileSnapshot& earlier) const;
};

class alignas(64) ProcessorProfile {
 public:
  ProcessorProfile() = default;
  ProcessorProfile(const ProcessorProfile&) = delete;
  ProcessorProfile& operator=(const ProcessorProfile&) = delete;

  // --- For the owner alone. These take a few nanoseconds and are async-signal-safe, also when the signal interrupts
  // one of them.

  // Ends the interval of the current category, begins one of `category`, and returns the category that ended. Works on
  // a stopped profile too: a fault on a thread that is not measured counts nothing but its own handling.
  Category enter(Category category) { return enter_at(category, time_stamp()); }
  // Does the same for a caller that has taken the time stamp. `now` must not be before that of an earlier call.
  Category enter_at(Category category, uint64_t now);
  // These begin and end measuring. They may alternate any number of times.
  void start(Category category = Category::kUser) { enter(category); }
  void stop() { enter(Category::kStopped); }

  void add_sub_time(SubTime part, uint64_t elapsed_ticks) { add(sub_ticks_[static_cast<size_t>(part)], elapsed_ticks); }
  void count(Counter counter, uint64_t n = 1) { add(counters_[static_cast<size_t>(counter)], n); }
  // Counts a change of access rights that covered `pages` pages.
  void count_rights(RightsChange change, uint64_t pages);
  // Counts a message that is handed to the fabric, with `bytes` of payload and header.
  void count_message(uint8_t type, uint64_t bytes) {
    add(messages_[type], 1);
    add(message_bytes_[type], bytes);
  }

  // --- For any thread.

  [[nodiscard]] Category current() const { return current_.load(std::memory_order_relaxed); }
  // Reads everything, the interval that is open included. The times are consistent with each other; a counter may miss
  // what happens meanwhile. Waits while the owner is inside enter(), so it is not for signal handlers.
  void snapshot(ProfileSnapshot& out) const { snapshot_at(out, nullptr); }
  // Reads everything as it would be at time stamp `*now`, which the owner must not have passed; nullptr
  // means at present.
  void snapshot_at(ProfileSnapshot& out, const uint64_t* now) const;

 private:
  using Word = std::atomic<uint64_t>;

  // The addition is one instruction, so that a signal falls before it or after it. The instruction is not a locked one,
  // because only the owner writes.
  static void add(Word& word, uint64_t n) { asm volatile("addq %1, %0" : "+m"(word) : "er"(n) : "cc", "memory"); }

  // The version is odd while the owner is inside enter(). x86 keeps the order of one thread's stores, so readers
  // need no more.
  Word version_{0};
  std::atomic<Category> current_{Category::kStopped};
  // For each category, the sum of the time stamps at which it was left, less those at which it was entered. So a
  // signal handler that switches categories between two instructions of enter() leaves every sum right. The last sum
  // is kStopped's.
  std::array<Word, kCategoryCount + 1> ticks_{};
  std::array<Word, kSubTimeCount> sub_ticks_{};
  std::array<Word, kCounterCount> counters_{};
  std::array<Word, kMessageTypes> messages_{};
  std::array<Word, kMessageTypes> message_bytes_{};
};

inline Category ProcessorProfile::enter_at(Category category, uint64_t now) {
  add(version_, 1);
  const Category previous = current_.load(std::memory_order_relaxed);
  add(ticks_[static_cast<size_t>(previous)], now);
  add(ticks_[static_cast<size_t>(category)], 0 - now);
  current_.store(category, std::memory_order_relaxed);
  add(version_, 1);
  if (timeline::Track* const track = timeline::this_track()) [[unlikely]]
    track->switched(static_cast<uint8_t>(previous), previous != Category::kIdle && previous != Category::kStopped, now);
  return previous;
}

inline void ProcessorProfile::count_rights(RightsChange change, uint64_t pages) {
  const size_t calls = static_cast<size_t>(Counter::kGrantReads) + 2 * static_cast<size_t>(change);
  add(counters_[calls], 1);
  add(counters_[calls + 1], pages);
}

// Keeps the thread in `category` for as long as it lives, and then returns it to the category before.
class CategoryScope {
 public:
  CategoryScope(ProcessorProfile& profile, Category category) : profile_(profile), previous_(profile.enter(category)) {}
  ~CategoryScope() { profile_.enter(previous_); }
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  ProcessorProfile& profile_;
  const Category previous_;
};

// Adds its lifetime to a part. No category may be entered meanwhile: waiting is no part of the work.
class SubTimeScope {
 public:
  SubTimeScope(ProcessorProfile& profile, SubTime part) : profile_(profile), part_(part), start_(work_stamp()) {}
  ~SubTimeScope() { profile_.add_sub_time(part_, work_stamp() - start_); }
  SubTimeScope(const SubTimeScope&) = delete;
  SubTimeScope& operator=(const SubTimeScope&) = delete;

 private:
  ProcessorProfile& profile_;
  const SubTime part_;
  const uint64_t start_;
};

}  // namespace multigrain
