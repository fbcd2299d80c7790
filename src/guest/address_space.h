// The guest's address space: its areas, and the mappings of this node. The memory calls of a guest end here.
//
// The range in which the host chooses addresses is where the shared region of other programs is (memory/layout.h). A
// guest may also have fixed addresses below the host's own mappings, which are where the system puts a program that can
// be anywhere, and above: so programs that cannot be moved have their place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "guest/areas.h"
#include "guest/call_sites.h"
#include "guest/mappings.h"
#include "guest/space_limits.h"

namespace multigrain::guest {

class AddressSpace {
 public:
  // Of a guest on one node.
  AddressSpace();
  // Of a guest that may have areas in `allowed` alone.
  // `nodes`: how many it runs on. Addresses that the host chooses for a thread are in the part of its node, so that memory
  // which a node gives up and allocates again is at home there still.
  AddressSpace(const std::vector<Range>& allowed, std::unique_ptr<Mappings> mappings, unsigned nodes);
  // The area of this address, whole. The caller holds the lock (lock()).
  [[nodiscard]] std::optional<Area> locked_area_of(uint64_t address) const MG_REQUIRES(mutex_);

  // Where the area of this address begins and ends. Nothing also if the lock is not free; the caller may have it.
  [[nodiscard]] std::optional<Range> try_range_around(uint64_t address) MG_EXCLUDES(mutex_);

  // As the system calls of these names, with guest addresses; each returns what the system would: -errno for an error.
  // Any thread.
  long map(uint64_t address, uint64_t length, int rights, int flags, int fd, uint64_t offset, unsigned node = 0)
      MG_EXCLUDES(mutex_);
  long unmap(uint64_t address, uint64_t length) MG_EXCLUDES(mutex_);
  // `key`: a protection key (pkey_mprotect), or -1.
  long protect(uint64_t address, uint64_t length, int rights, int key = -1) MG_EXCLUDES(mutex_);
  long remap(uint64_t address, uint64_t old_length, uint64_t new_length, int flags, uint64_t new_address,
             unsigned node = 0) MG_EXCLUDES(mutex_);
  long set_break(uint64_t address) MG_EXCLUDES(mutex_);
  // As madvise(MADV_DONTNEED) of memory that is not a file's.
  long discard(uint64_t address, uint64_t length) MG_EXCLUDES(mutex_);
  // As madvise(), of memory that is this process's alone.
  long advise(uint64_t address, uint64_t length, int advice) MG_EXCLUDES(mutex_);
  // As msync() and mincore(), of a guest on several nodes. The latter says only whether all of it is mapped.
  long sync(uint64_t address, uint64_t length, int flags) MG_EXCLUDES(mutex_);
  long check_mapped(uint64_t address, uint64_t length) MG_EXCLUDES(mutex_);
  long attach(int segment, uint64_t address, int flags) MG_EXCLUDES(mutex_);
  long detach(uint64_t address) MG_EXCLUDES(mutex_);

  // Call sites (call_sites.h). What becomes of a call that has arrived by a signal: `context` is that of the guest behind its
  // `syscall` instruction. Often it is worth to change the site, if the guest cannot write there.
  void see_call(const ucontext_t& context) MG_EXCLUDES(mutex_);
  // See CallSites::step_over().
  bool step_over(gregset_t& registers) MG_EXCLUDES(mutex_);
  [[nodiscard]] const CallSite* site_of_stub(uint64_t instruction) const MG_NO_THREAD_SAFETY_ANALYSIS {
    return call_sites_.site_of_stub(instruction);
  }
  // From now on all calls arrive by signals.
  void trap_all_calls() MG_EXCLUDES(mutex_);

  // For the loader: reserves that many bytes (a multiple of kPageSize) for a program that can be anywhere, with room for
  // its break to grow, and for its interpreter.
  [[nodiscard]] uint64_t place_of_program() const;
  [[nodiscard]] Result<uint64_t> place_of(uint64_t length) MG_EXCLUDES(mutex_);
  // Whether the guest can have something there at all.
  [[nodiscard]] bool can_have(uint64_t begin, uint64_t end) MG_EXCLUDES(mutex_) {
    const LockGuard hold(mutex_);
    return areas_.is_allowed({begin, end});
  }
  // Where the break starts: behind the program.
  void begin_break(uint64_t address) MG_EXCLUDES(mutex_);
  [[nodiscard]] uint64_t top() const MG_NO_THREAD_SAFETY_ANALYSIS;  // constant

  // The guest's part of /proc/self/maps, from the system's.
  [[nodiscard]] std::string describe(std::string_view maps) MG_EXCLUDES(mutex_);

  // The guest's limits, where they are not the system's.
  [[nodiscard]] SpaceLimits& limits() { return limits_; }

  // How much the guest has mapped.
  [[nodiscard]] uint64_t mapped_bytes() MG_EXCLUDES(mutex_);

  // All areas, and other mappings from now on that are at the same addresses. The caller holds the lock.
  [[nodiscard]] std::vector<Area> locked_areas() const MG_REQUIRES(mutex_) { return areas_.all(); }
  void locked_use(std::unique_ptr<Mappings> mappings) MG_REQUIRES(mutex_) { mappings_ = std::move(mappings); }

  // Around fork(): no other thread may be in the middle of a change.
  void lock() MG_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() MG_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  enum class Change { kDone, kLater, kNever };
  Change change_site(uint64_t call, const ucontext_t& context) MG_EXCLUDES(mutex_);
  bool locked_add_arena(uint64_t call) MG_REQUIRES(mutex_);
  // The sites of the range are as the guest's files have them.
  void locked_restore_sites(Range range) MG_REQUIRES(mutex_);

  // Whether the guest's limits allow an area more: 0 or -ENOMEM.
  [[nodiscard]] long locked_check_limits(const Area& added) const MG_REQUIRES(mutex_);
  // 0 or -ENOMEM.
  [[nodiscard]] long check_whole(Range range) const MG_REQUIRES(mutex_);
  // A free range for as many bytes: at the hint if that is free, else where the flags want it, or in the part of the node.
  [[nodiscard]] std::optional<uint64_t> choose(uint64_t hint, uint64_t bytes, int flags, unsigned node) const
      MG_REQUIRES(mutex_);
  [[nodiscard]] std::optional<uint64_t> find_free(uint64_t bytes, unsigned node) const MG_REQUIRES(mutex_);

  const unsigned nodes_;
  SpaceLimits limits_;
  Mutex mutex_;
  std::unique_ptr<Mappings> mappings_ MG_GUARDED_BY(mutex_);
  Areas areas_ MG_GUARDED_BY(mutex_);
  uint64_t break_begin_ MG_GUARDED_BY(mutex_) = 0;
  uint64_t break_end_ MG_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, uint64_t> attached_ MG_GUARDED_BY(mutex_);  // bytes of System V segments, by address
  Arrivals arrivals_;
  CallSites call_sites_ MG_GUARDED_BY(mutex_);
};

}  // namespace multigrain::guest
