#include "guest/address_space.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>

#include "memory/layout.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

namespace multigrain::guest {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kTiB = uint64_t{1} << 40;
// The kernel puts position-independent executables, such as the host, above two thirds of the address space.
constexpr uint64_t kHostBegin = 0x5500'0000'0000;
// The low part of the region is for a program and its break. The host chooses addresses above it.
constexpr uint64_t kProgram = layout::kViewBase + 256 * kMiB;
constexpr Range kChosen{layout::kViewBase + kTiB, layout::kViewBase + layout::kMaxRegionSize};
// The kernel has this range for MAP_32BIT.
constexpr Range kLow{0x4000'0000, 0x8000'0000};

// Returns the lowest address that this kernel lets a process map.
uint64_t lowest_address() {
  uint64_t lowest = 0;
  std::ifstream("/proc/sys/vm/mmap_min_addr") >> lowest;
  return std::max(page_up(lowest), kPageSize);
}

long result_of(long result) {
  return result == -1 ? -errno : result;
}

}  // namespace

AddressSpace::AddressSpace()
    : nodes_(1),
      mappings_(std::make_unique<PrivateMappings>()),
      areas_({Range{lowest_address(), kHostBegin}}, kChosen) {}

AddressSpace::AddressSpace(const std::vector<Range>& allowed, std::unique_ptr<Mappings> mappings, unsigned nodes)
    : nodes_(nodes),
      mappings_(std::move(mappings)),
      areas_(allowed, Range{kChosen.begin, std::min(kChosen.end, allowed.back().end)}) {}

std::optional<Area> AddressSpace::locked_area_of(uint64_t address) const {
  const std::vector<Area> found = areas_.around(address);
  if (found.empty()) return std::nullopt;
  return found.front();
}

// The analysis is off because a thread that holds the lock may call this: it finds that the lock is not free.
std::optional<Range> AddressSpace::try_range_around(uint64_t address) MG_NO_THREAD_SAFETY_ANALYSIS {
  if (!mutex_.try_lock()) return std::nullopt;
  const auto range = areas_.range_around(address);
  mutex_.unlock();
  return range;
}

uint64_t AddressSpace::place_of_program() const {
  return kProgram;
}
uint64_t AddressSpace::top() const {
  return areas_.chosen().end;
}

Result<uint64_t> AddressSpace::place_of(uint64_t length) {
  const LockGuard hold(mutex_);
  const auto found = areas_.find_free(page_up(length));
  if (!found) return fail("there is no room for {} bytes in the guest's address space", length);
  return *found;
}

void AddressSpace::begin_break(uint64_t address) {
  const LockGuard hold(mutex_);
  break_begin_ = break_end_ = page_up(address);
}

// The highest part is node 0's. A node whose part is full gets any free range.
std::optional<uint64_t> AddressSpace::find_free(uint64_t bytes, unsigned node) const {
  const Range all = areas_.chosen();
  const uint64_t part = page_down((all.end - all.begin) / nodes_);
  const uint64_t end = all.end - node * part;
  const auto found = areas_.find_free(bytes, Range{end - part, end});
  return found ? found : areas_.find_free(bytes);
}

std::optional<uint64_t> AddressSpace::choose(uint64_t hint, uint64_t bytes, int flags, unsigned node) const {
  const Range hinted{page_down(hint), page_down(hint) + bytes};
  if (hint != 0 && areas_.is_allowed(hinted) && areas_.is_free(hinted)) return hinted.begin;
  if ((flags & MAP_32BIT) != 0) return areas_.find_free(bytes, kLow);
  // Huge pages have their own alignment.
  if ((flags & MAP_HUGETLB) != 0) {
    const unsigned shift = (static_cast<unsigned>(flags) >> MAP_HUGE_SHIFT) & 63;
    const uint64_t size = uint64_t{1} << (shift == 0 ? 21 : shift);
    const auto found = find_free(bytes + 2 * size, node);
    if (!found) return std::nullopt;
    return (*found + size - 1) & ~(size - 1);
  }
  return find_free(bytes, node);
}

long AddressSpace::locked_check_limits(const Area& added) const {
  return limits_.is_limited() ? limits_.check(areas_.all(), added) : 0;
}

void AddressSpace::take_account(const Account& account) {
  const LockGuard hold(mutex_);
  for (const Range range : account.reserved)
    if (!areas_.is_reserved(range.begin)) areas_.reserve(range);
  for (const Area& area : account.areas) areas_.map(area);
  break_begin_ = account.break_begin;
  break_end_ = account.break_end;
}

bool AddressSpace::has_file_in(uint64_t begin, uint64_t bytes) {
  const LockGuard hold(mutex_);
  const uint64_t first = page_down(begin);
  const uint64_t end = page_up(begin + std::max<uint64_t>(bytes, 1));
  if (end <= first) return false;
  return std::ranges::any_of(areas_.in({first, end}), [](const Area& area) { return area.file != 0; });
}

long AddressSpace::map(uint64_t address, uint64_t length, int rights, int flags, int fd, uint64_t offset,
                       unsigned node) {
  const LockGuard hold(mutex_);
  const uint64_t bytes = page_up(length);
  const int type = flags & MAP_TYPE;
  if (type != MAP_SHARED && type != MAP_PRIVATE && type != MAP_SHARED_VALIDATE) return -EINVAL;
  // Nothing can be mapped, but the kernel knows which error comes first.
  if (length == 0) return result_of(syscall(SYS_mmap, 0, 0, rights, flags, fd, static_cast<off_t>(offset)));
  if (bytes < length) return -ENOMEM;
  const bool is_fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
  if (is_fixed) {
    if (address % kPageSize != 0) return -EINVAL;
    const Range range{address, address + bytes};
    if (!areas_.is_allowed(range)) return address < lowest_address() ? -EPERM : -ENOMEM;
    if ((flags & MAP_FIXED_NOREPLACE) != 0 && !areas_.is_free(range)) return -EEXIST;
  } else {
    const auto found = choose(address, bytes, flags, node);
    if (!found) return -ENOMEM;
    address = *found;
  }
  // The guest's account of areas says which addresses are free, since the host has no mappings of its own here.
  const int placed = (flags & ~(MAP_32BIT | MAP_FIXED_NOREPLACE)) | MAP_FIXED;
  Area area{.range = {address, address + bytes}, .rights = rights, .is_shared = type != MAP_PRIVATE};
  if (const long refused = locked_check_limits(area); refused != 0) return refused;
  const std::vector<Area> before = areas_.in(area.range);
  const long result = mappings_->map(area, placed, fd, offset, before);
  if (result < 0) return result;
  areas_.map(area);
  call_sites_.forget(area.range);
  return static_cast<long>(address);
}

long AddressSpace::unmap(uint64_t address, uint64_t length) {
  const LockGuard hold(mutex_);
  const Range range{address, address + page_up(length)};
  if (length == 0 || address % kPageSize != 0 || range.end <= range.begin) return -EINVAL;
  // The guest has nothing beyond the ranges in which it may have areas.
  if (!areas_.is_in_allowed(range)) return range.end >= uint64_t{1} << 47 ? -EINVAL : 0;
  for (const Range part : areas_.without_reserved(range)) {
    const uint64_t bytes = part.end == range.end ? length - (part.begin - range.begin) : part.end - part.begin;
    if (const long result = mappings_->unmap(part, bytes, areas_.in(part)); result != 0) return result;
    areas_.unmap(part);
    call_sites_.forget(part);
  }
  return 0;
}

long AddressSpace::protect(uint64_t address, uint64_t length, int rights, int key) {
  const LockGuard hold(mutex_);
  Range range{address, address + page_up(length)};
  if (address % kPageSize != 0 || range.end < range.begin) return -EINVAL;
  if ((rights & PROT_GROWSDOWN) != 0) {
    // Only the first stack can grow downwards, and the host has mapped it as a whole.
    const std::vector<Area> around = areas_.around(address);
    if (around.empty() || around.front().range.end != areas_.chosen().end) return -EINVAL;
    range.begin = around.front().range.begin;
    length = range.end - range.begin;
    rights &= ~PROT_GROWSDOWN;
  }
  if (range.begin != range.end && !areas_.is_allowed(range)) return -ENOMEM;
  std::vector<Area> areas = areas_.in(range);
  // Where the guest gets the right to write, it must find its code as it was.
  if ((rights & PROT_WRITE) != 0) locked_restore_sites(range);
  const long result = mappings_->protect(range, length, rights, key, areas);
  if (result != 0) return result;
  // Mappings::protect() may have changed other members of an area with its rights.
  for (Area& area : areas) {
    area.rights = rights & ~(PROT_GROWSDOWN | PROT_GROWSUP);
    areas_.map(area);
  }
  return 0;
}

long AddressSpace::remap(uint64_t address, uint64_t old_length, uint64_t new_length, int flags, uint64_t new_address,
                         unsigned node) {
  const LockGuard hold(mutex_);
  if (address % kPageSize != 0 || new_length == 0) return -EINVAL;
  const Range old{address, address + page_up(old_length)};
  const uint64_t bytes = page_up(new_length);
  if (bytes < new_length || old.end < old.begin) return -EINVAL;
  if (!areas_.is_allowed({old.begin, std::max(old.end, old.begin + kPageSize)})) return -EFAULT;
  const std::vector<Area> before = areas_.in({old.begin, std::max(old.end, old.begin + kPageSize)});
  if (before.empty()) return -EFAULT;
  if ((flags & MREMAP_FIXED) != 0) {
    if (new_address % kPageSize != 0 || (flags & MREMAP_MAYMOVE) == 0) return -EINVAL;
    if (!areas_.is_allowed({new_address, new_address + bytes})) return -ENOMEM;
  } else if ((flags & MREMAP_DONTUNMAP) == 0 && bytes <= old.end - old.begin) {
    const long shrunk = mappings_->remap(old, old_length, new_length, flags, 0, before, {});
    if (shrunk < 0) return shrunk;
    if (bytes < old.end - old.begin) areas_.unmap({old.begin + bytes, old.end});
    return static_cast<long>(address);
  } else if ((flags & MREMAP_DONTUNMAP) == 0 && areas_.is_free({old.end, old.begin + bytes}) && old.begin != old.end &&
             areas_.is_allowed({old.begin, old.begin + bytes})) {
    Area more = before.back();
    more.range = {old.end, old.begin + bytes};
    if (const long refused = locked_check_limits(more); refused != 0) return refused;
    const long grown = mappings_->remap(old, old_length, new_length, flags & ~MREMAP_MAYMOVE, 0, before, {});
    if (grown >= 0) {
      Area area = before.back();
      area.offset += area.range.end - area.range.begin;
      area.range = {old.end, old.begin + bytes};
      areas_.map(area);
      return static_cast<long>(address);
    }
    if ((flags & MREMAP_MAYMOVE) == 0) return grown;
    new_address = 0;
  }
  if ((flags & MREMAP_MAYMOVE) == 0) return (flags & MREMAP_DONTUNMAP) != 0 ? -EINVAL : -ENOMEM;
  if ((flags & MREMAP_FIXED) == 0) {
    const auto found = choose(new_address, bytes, 0, node);
    if (!found) return -ENOMEM;
    new_address = *found;
  }
  Area wanted = before.front();
  wanted.range = {new_address, new_address + bytes};
  if (const long refused = locked_check_limits(wanted); refused != 0) return refused;
  const std::vector<Area> replaced = areas_.in({new_address, new_address + bytes});
  // A jump is relative to its own address, so a changed site cannot be moved.
  locked_restore_sites(old);
  const long moved = mappings_->remap(old, old_length, new_length, flags | MREMAP_FIXED, new_address, before, replaced);
  if (moved < 0) return moved;
  if ((flags & MREMAP_DONTUNMAP) == 0 && old.begin != old.end) areas_.unmap(old);
  Area area = before.front();
  area.range = {new_address, new_address + bytes};
  areas_.map(area);
  call_sites_.forget(area.range);
  return static_cast<long>(new_address);
}

long AddressSpace::set_break(uint64_t address) {
  const LockGuard hold(mutex_);
  if (address < break_begin_) return static_cast<long>(break_end_);
  const uint64_t now = page_up(break_end_);
  const uint64_t wanted = page_up(address);
  if (wanted > now) {
    const Range more{now, wanted};
    if (!areas_.is_allowed(more) || !areas_.is_free(more)) return static_cast<long>(break_end_);
    Area area{.range = more, .rights = PROT_READ | PROT_WRITE, .is_shared = false};
    if (locked_check_limits(area) != 0) return static_cast<long>(break_end_);
    if (mappings_->map(area, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0, {}) != 0)
      return static_cast<long>(break_end_);
    areas_.map(area);
  } else if (wanted < now) {
    const Range less{wanted, now};
    mappings_->unmap(less, now - wanted, areas_.in(less));
    areas_.unmap(less);
  }
  break_end_ = address;
  return static_cast<long>(address);
}

long AddressSpace::discard(uint64_t address, uint64_t length) {
  const LockGuard hold(mutex_);
  const Range range{address, address + length};
  if (range.end < range.begin || !areas_.is_allowed({range.begin, std::max(range.end, range.begin + kPageSize)}))
    return -ENOMEM;
  return mappings_->discard(range, areas_.in(range));
}

long AddressSpace::advise(uint64_t address, uint64_t length, int advice) {
  // The lock keeps sites from being changed meanwhile: where the guest drops its own copy of a file's page, the file's
  // content is back.
  const LockGuard hold(mutex_);
  return result_of(madvise(reinterpret_cast<void*>(address), length, advice));
}

void AddressSpace::see_call(const ucontext_t& context) {
  const uint64_t call = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]) - CallSites::kSyscall;
  if (!arrivals_.is_often(call)) return;
  switch (change_site(call, context)) {
    case Change::kNever:
      arrivals_.set_unchangeable(call);
      return;
    case Change::kLater:
    case Change::kDone:
      // If calls arrive by signals again, the site was not changed yet, or it has been restored.
      arrivals_.start_again(call);
  }
}

AddressSpace::Change AddressSpace::change_site(uint64_t call, const ucontext_t& context) {
  // Another thread's change of the address space may take long. The call does not wait for it.
  if (!mutex_.try_lock()) return Change::kLater;
  const LockGuard hold(mutex_, std::adopt_lock);
  const auto number = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RAX]);
  const std::vector<Area> around = areas_.around(call);
  if (call_sites_.is_closed() || around.empty()) return Change::kNever;
  const Area& area = around.front();
  constexpr int kCode = PROT_READ | PROT_EXEC;
  if (area.rights != kCode || !mappings_->has_own_code(area) || CallSites::bytes_before(call, number) == 0 ||
      !learn_register_format(context))
    return Change::kNever;
  if (!call_sites_.has_room_near(call) && !locked_add_arena(call)) return Change::kNever;
  return call_sites_.change(call, number, area.rights) ? Change::kDone : Change::kNever;
}

bool AddressSpace::locked_add_arena(uint64_t call) {
  if (!call_sites_.can_add_arena()) return false;
  const auto allowed = areas_.allowed_around(call);
  if (!allowed) return false;
  const Range below{std::max(allowed->begin, call - std::min(call, CallSites::kReach)), call};
  const Range above{call, std::min(allowed->end, call + CallSites::kReach)};
  // The range below comes first, since a program's break grows upwards.
  for (const Range within : {below, above}) {
    const auto begin = areas_.find_free(CallSites::kArenaBytes, within);
    if (!begin) continue;
    const Range arena{*begin, *begin + CallSites::kArenaBytes};
    if (mappings_->map_for_host(arena) != 0) return false;
    areas_.reserve(arena);
    call_sites_.add_arena(arena.begin);
    return true;
  }
  return false;
}

void AddressSpace::locked_restore_sites(Range range) {
  for (const Area& area : areas_.in(range)) call_sites_.restore(area.range, area.rights);
}

bool AddressSpace::step_over(gregset_t& registers) {
  const LockGuard hold(mutex_);
  return call_sites_.step_over(registers);
}

void AddressSpace::trap_all_calls() {
  const LockGuard hold(mutex_);
  call_sites_.close();
}

long AddressSpace::check_whole(Range range) const {
  if (range.end < range.begin) return -ENOMEM;
  if (range.begin == range.end) return 0;
  if (!areas_.is_allowed(range)) return -ENOMEM;
  uint64_t mapped_to = range.begin;
  for (const Area& area : areas_.in(range)) {
    if (area.range.begin > mapped_to) return -ENOMEM;
    mapped_to = area.range.end;
  }
  return mapped_to < range.end ? -ENOMEM : 0;
}

long AddressSpace::check_mapped(uint64_t address, uint64_t length) {
  const LockGuard hold(mutex_);
  if (address % kPageSize != 0) return -EINVAL;
  return check_whole({address, address + page_up(length)});
}

long AddressSpace::sync(uint64_t address, uint64_t length, int flags) {
  const LockGuard hold(mutex_);
  const bool is_both = (flags & MS_ASYNC) != 0 && (flags & MS_SYNC) != 0;
  if ((flags & ~(MS_ASYNC | MS_SYNC | MS_INVALIDATE)) != 0 || is_both || address % kPageSize != 0) return -EINVAL;
  const Range range{address, address + page_up(length)};
  if (const long wrong = check_whole(range); wrong != 0) return wrong;
  if (range.begin == range.end) return 0;
  for (const Area& area : areas_.in(range)) {
    if (area.file == 0) continue;
    const uint64_t bytes = area.range.end - area.range.begin;
    if (msync(reinterpret_cast<void*>(area.range.begin), bytes, flags) != 0) return -errno;
  }
  return 0;
}

long AddressSpace::attach(int segment, uint64_t address, int flags) {
  const LockGuard hold(mutex_);
  shmid_ds about{};
  if (shmctl(segment, IPC_STAT, &about) != 0) {
    // shmat() itself knows best what is wrong, and maps nothing if it fails.
    void* const wrong = shmat(segment, nullptr, flags);
    if (wrong == reinterpret_cast<void*>(-1)) return -errno;
    shmdt(wrong);
    return -EACCES;
  }
  const uint64_t bytes = page_up(about.shm_segsz);
  if (address == 0) {
    const auto found = choose(0, bytes, 0, 0);
    if (!found) return -ENOMEM;
    address = *found;
  } else {
    if ((flags & SHM_RND) != 0) address = page_down(address);
    if (address % kPageSize != 0) return -EINVAL;
    const Range range{address, address + bytes};
    if (!areas_.is_allowed(range)) return -EINVAL;
    if ((flags & SHM_REMAP) == 0 && !areas_.is_free(range)) return -EINVAL;
  }
  Area area{
      .range = {address, address + bytes},
      .rights = PROT_READ | ((flags & SHM_RDONLY) != 0 ? 0 : PROT_WRITE) | ((flags & SHM_EXEC) != 0 ? PROT_EXEC : 0),
      .is_shared = true};
  if (const long refused = locked_check_limits(area); refused != 0) return refused;
  if (const long result = mappings_->attach(area, segment, flags, areas_.in(area.range)); result != 0) return result;
  call_sites_.forget(area.range);
  areas_.map(area);
  attached_[address] = bytes;
  return static_cast<long>(address);
}

long AddressSpace::detach(uint64_t address) {
  const LockGuard hold(mutex_);
  const auto found = attached_.find(address);
  if (found == attached_.end()) return -EINVAL;
  const std::vector<Area> before = areas_.in({address, address + found->second});
  if (const long result = mappings_->detach(address, before); result != 0) return result;
  areas_.unmap({address, address + found->second});
  attached_.erase(found);
  return 0;
}

uint64_t AddressSpace::mapped_bytes() {
  const LockGuard hold(mutex_);
  uint64_t bytes = 0;
  for (const Area& area : areas_.all()) bytes += area.range.end - area.range.begin;
  return bytes;
}

std::string AddressSpace::describe(std::string_view maps) {
  const LockGuard hold(mutex_);
  std::string described;
  while (!maps.empty()) {
    const size_t end = maps.find('\n');
    const std::string_view line = maps.substr(0, end == std::string_view::npos ? maps.size() : end + 1);
    maps.remove_prefix(line.size());
    uint64_t begin = 0;
    std::from_chars(line.data(), line.data() + line.size(), begin, 16);
    if (areas_.is_reserved(begin)) continue;
    // The guest uses the host's vdso.
    if (begin < kHostBegin || line.find("[vdso]") != std::string_view::npos ||
        line.find("[vvar") != std::string_view::npos)
      described += line;
  }
  return described;
}

}  // namespace multigrain::guest
