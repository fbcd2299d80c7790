// The guest's address space: the account of its areas, and the mappings on this node that stand behind them. All memory
// calls of a guest end here, since the host and not the kernel decides which addresses the guest gets.
//
// The host chooses addresses in the range where other programs of Multigrain have their shared region
// (memory/layout.h). A guest may also have fixed addresses anywhere below the host's own mappings, which begin where
// the kernel puts position-independent programs. So programs that cannot be moved find their addresses free.
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
  // Makes the address space of a guest on one node.
  AddressSpace();
  // Makes that of a guest on `nodes` nodes, which may have areas in `allowed` alone. For a thread, the host chooses
  // addresses in the part of the thread's node, so that memory which the node gives up and allocates again still has
  // its home there.
  AddressSpace(const std::vector<Range>& allowed, std::unique_ptr<Mappings> mappings, unsigned nodes);
  // Returns the whole area that has this address. The caller holds the lock (lock()).
  [[nodiscard]] std::optional<Area> locked_area_of(uint64_t address) const MG_REQUIRES(mutex_);

  // Returns where the area of this address begins and ends; nothing if there is none, or if the lock is not free. The
  // calling thread may hold the lock itself.
  [[nodiscard]] std::optional<Range> try_range_around(uint64_t address) MG_EXCLUDES(mutex_);

  // These do what the system calls of these names do, with guest addresses. Each returns what the kernel would: -errno
  // for an error. Any thread may call them.
  long map(uint64_t address, uint64_t length, int rights, int flags, int fd, uint64_t offset, unsigned node = 0)
      MG_EXCLUDES(mutex_);
  long unmap(uint64_t address, uint64_t length) MG_EXCLUDES(mutex_);
  // `key` is a protection key (pkey_mprotect), or -1.
  long protect(uint64_t address, uint64_t length, int rights, int key = -1) MG_EXCLUDES(mutex_);
  long remap(uint64_t address, uint64_t old_length, uint64_t new_length, int flags, uint64_t new_address,
             unsigned node = 0) MG_EXCLUDES(mutex_);
  long set_break(uint64_t address) MG_EXCLUDES(mutex_);
  // Does what madvise(MADV_DONTNEED) does, for memory that is not a file's.
  long discard(uint64_t address, uint64_t length) MG_EXCLUDES(mutex_);
  // Does what madvise() does, for memory that is this process's alone.
  long advise(uint64_t address, uint64_t length, int advice) MG_EXCLUDES(mutex_);
  // These do what msync() and mincore() do, for a guest on several nodes. check_mapped() says only whether the whole
  // range is mapped.
  long sync(uint64_t address, uint64_t length, int flags) MG_EXCLUDES(mutex_);
  long check_mapped(uint64_t address, uint64_t length) MG_EXCLUDES(mutex_);
  long attach(int segment, uint64_t address, int flags) MG_EXCLUDES(mutex_);
  long detach(uint64_t address) MG_EXCLUDES(mutex_);

  // Call sites (call_sites.h): counts a call that has arrived by a signal. If calls arrive often from its site, and the
  // guest cannot write there, this changes the site. `context` is the guest's, behind the `syscall` instruction.
  void see_call(const ucontext_t& context) MG_EXCLUDES(mutex_);
  // See CallSites::step_over().
  bool step_over(gregset_t& registers) MG_EXCLUDES(mutex_);
  [[nodiscard]] const CallSite* site_of_stub(uint64_t instruction) const MG_NO_THREAD_SAFETY_ANALYSIS {
    return call_sites_.site_of_stub(instruction);
  }
  // Makes all calls arrive by signals from now on.
  void trap_all_calls() MG_EXCLUDES(mutex_);

  // The loader maps a program that can be anywhere at place_of_program(), where its break has room to grow, and the
  // program's interpreter at place_of(), which returns a free range of that many bytes.
  [[nodiscard]] uint64_t place_of_program() const;
  [[nodiscard]] Result<uint64_t> place_of(uint64_t length) MG_EXCLUDES(mutex_);
  // Returns whether the guest can have areas in the whole range.
  [[nodiscard]] bool can_have(uint64_t begin, uint64_t end) MG_EXCLUDES(mutex_) {
    const LockGuard hold(mutex_);
    return areas_.is_allowed({begin, end});
  }
  // Sets where the break starts, which is behind the program.
  void begin_break(uint64_t address) MG_EXCLUDES(mutex_);
  [[nodiscard]] uint64_t top() const MG_NO_THREAD_SAFETY_ANALYSIS;  // constant, so no lock is needed

  // Returns the guest's part of /proc/self/maps. `maps` is the kernel's.
  [[nodiscard]] std::string describe(std::string_view maps) MG_EXCLUDES(mutex_);

  // Returns those limits of the guest that the host keeps in the kernel's place.
  [[nodiscard]] SpaceLimits& limits() { return limits_; }

  // Returns how many bytes the guest has mapped.
  [[nodiscard]] uint64_t mapped_bytes() MG_EXCLUDES(mutex_);

  // The caller of these holds the lock. locked_areas() returns all areas; locked_use() replaces the mappings by others
  // that are at the same addresses.
  [[nodiscard]] std::vector<Area> locked_areas() const MG_REQUIRES(mutex_) { return areas_.all(); }
  // What the account says, for a process that goes on elsewhere with the same addresses.
  struct Account {
    std::vector<Area> areas;
    std::vector<Range> reserved;
    uint64_t break_begin = 0;
    uint64_t break_end = 0;
  };
  [[nodiscard]] Account locked_account() const MG_REQUIRES(mutex_) {
    return {.areas = areas_.all(), .reserved = areas_.reserved(), .break_begin = break_begin_, .break_end = break_end_};
  }
  // Takes such an account over. The areas are mapped already; the break is set, too.
  void take_account(const Account& account) MG_EXCLUDES(mutex_);
  // Returns whether a part of the range is an area of a file.
  [[nodiscard]] bool has_file_in(uint64_t begin, uint64_t bytes) MG_EXCLUDES(mutex_);
  void locked_use(std::unique_ptr<Mappings> mappings) MG_REQUIRES(mutex_) { mappings_ = std::move(mappings); }

  // A thread that forks holds this lock meanwhile, since no other thread may be in the middle of a change then.
  void lock() MG_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() MG_RELEASE(mutex_) { mutex_.unlock(); }

 private:
  enum class Change { kDone, kLater, kNever };
  Change change_site(uint64_t call, const ucontext_t& context) MG_EXCLUDES(mutex_);
  bool locked_add_arena(uint64_t call) MG_REQUIRES(mutex_);
  // Makes the sites of the range what they are in the guest's files.
  void locked_restore_sites(Range range) MG_REQUIRES(mutex_);

  // Returns 0, or -ENOMEM if the guest's limits do not allow another area.
  [[nodiscard]] long locked_check_limits(const Area& added) const MG_REQUIRES(mutex_);
  // Returns 0, or -ENOMEM if not all of the range is mapped.
  [[nodiscard]] long check_whole(Range range) const MG_REQUIRES(mutex_);
  // Returns a free range of that many bytes: at the hint if that is free, else where the flags want it, or in the part
  // of the node.
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
  std::map<uint64_t, uint64_t> attached_ MG_GUARDED_BY(mutex_);  // bytes of each System V segment, by address
  Arrivals arrivals_;
  CallSites call_sites_ MG_GUARDED_BY(mutex_);
};

}  // namespace multigrain::guest
