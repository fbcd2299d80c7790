// Here the rights are mapped onto what Linux does with a shared memfd mapping that is registered for MISSING, MINOR and
// WP:
//
//   no right      there is no page-table entry. An access finds the page in the page cache (a minor fault) or not (a
//                 missing fault). With UFFD_FEATURE_SIGBUS either becomes SIGBUS on the accessing thread at once, with
//                 the exact address and no message on the descriptor.
//   read          there is an entry with the uffd-wp bit. A write becomes SIGBUS likewise.
//   read, write   there is an entry without it.
//
// UFFDIO_CONTINUE installs entries for pages of the page cache. It stops at the first one that it cannot install:
//   EEXIST        there is an entry already.
//   EFAULT        the page is not in the page cache: no thread has touched the frame. (The error is not ENOENT, which
//                 it returns for an address outside of any registered mapping.)
//   EAGAIN        `mapped` > 0: so many bytes were installed before one of the above; go on behind them. Otherwise the
//                 page was being swapped in, or moved; try again.
// UFFDIO_WRITEPROTECT sets or clears the bit in a range's entries, and flushes TLBs before it returns. Where there is
// no entry, setting leaves a marker in its place, which changes nothing: an access still faults, and a CONTINUE
// replaces the marker. MADV_DONTNEED removes entries (they are shared: the page cache keeps the data), leaving such a
// marker if the bit was set, and flushes TLBs before it returns.
//
// All three take the mapping lock for reading or not at all, which is why two threads do not wait for each other. When
// the kernel swaps a page out it removes the entry by itself: a fault on a page with sufficient rights follows.
// Fault-around and khugepaged would install entries that no call granted, but leave such mappings alone.
#include "memory/userfault/userfault_rights.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/keep_errno.h"
#include "base/own_descriptors.h"
#include "memory/hardware_page.h"
#include "memory/page_fault.h"

// These are newer than the headers of Debian 12. The values are the kernel's interface.
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP ((__u64)1 << 1)
#endif

namespace multigrain::userfault {
namespace {

constexpr uint64_t kNeeded =
    UFFD_FEATURE_SIGBUS | UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
// The feature is not used. It came with Linux 6.4, as UFFDIO_CONTINUE_MODE_WP did, which has no feature bit of its own.
constexpr uint64_t kSignOfContinueWriteProtected = UFFD_FEATURE_WP_UNPOPULATED;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::string kernel_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "unknown";
}

Result<Descriptor> open_descriptor() {
  // USER_MODE_ONLY: faults of system calls cannot be handled anyway, and without the flag the kernel wants privileges
  // or vm.unprivileged_userfaultfd=1.
  const long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd >= 0) return Descriptor(own_descriptors::keep(static_cast<int>(fd)));
  switch (errno) {
    case ENOSYS:
      return fail("userfaultfd is not built into this kernel ({}, CONFIG_USERFAULTFD)", kernel_release());
    case EPERM:
    case EACCES:
      return fail(
          "userfaultfd is forbidden here: a container's seccomp profile or a security module denies the system call "
          "(for Docker, --security-opt seccomp=... with a profile that allows userfaultfd; the sysctl "
          "vm.unprivileged_userfaultfd is not what denies it, since only user-mode faults are asked for)");
    case EINVAL:
      return fail("this kernel ({}) is older than 6.4, which userfaultfd access rights need", kernel_release());
    default:
      return fail_errno(errno, "cannot open a userfaultfd");
  }
}

// Opens a descriptor on which the needed features are enabled.
Result<Descriptor> open_with_features() {
  // A request for an unknown feature fails without saying which. So the features are asked for first, on another
  // descriptor, because they can be chosen only once.
  Result<Descriptor> probe = open_descriptor();
  if (!probe) return probe;
  uffdio_api api{};
  api.api = UFFD_API;
  if (ioctl(probe->get(), UFFDIO_API, &api) != 0) return fail_errno(errno, "userfaultfd does not speak this interface");
  if ((api.features & kNeeded) != kNeeded || (api.features & kSignOfContinueWriteProtected) == 0)
    return fail("userfaultfd of this kernel ({}) lacks features {:#x}: it needs Linux 6.4 with shared-memory support",
                kernel_release(), (kNeeded | kSignOfContinueWriteProtected) & ~api.features);

  Result<Descriptor> fd = open_descriptor();
  if (!fd) return fd;
  api = uffdio_api{};
  api.api = UFFD_API;
  api.features = kNeeded;
  if (ioctl(fd->get(), UFFDIO_API, &api) != 0) return fail_errno(errno, "userfaultfd refuses features that it offers");
  return fd;
}

// Registers the mapping for all faults. Returns false, and sets errno, on failure.
bool watch(int fd, const std::byte* begin, uint64_t size) {
  uffdio_register request{};
  request.range.start = reinterpret_cast<uint64_t>(begin);
  request.range.len = size;
  request.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd, UFFDIO_REGISTER, &request) != 0) return false;
  constexpr uint64_t kOperations = (uint64_t{1} << _UFFDIO_CONTINUE) | (uint64_t{1} << _UFFDIO_WRITEPROTECT);
  errno = ENOTSUP;
  return (request.ioctls & kOperations) == kOperations;
}

class UserfaultRights final : public AccessRights {
 public:
  UserfaultRights(const Region& region, Descriptor fd) : region_(region), fd_(std::move(fd)) {}

  ~UserfaultRights() override {
    // The protection changes first: without the registration the view would be open for an instant.
    mprotect(region_.base(), region_.size(), PROT_NONE);
    uffdio_range range{reinterpret_cast<uint64_t>(region_.base()), region_.size()};
    ioctl(fd_.get(), UFFDIO_UNREGISTER, &range);
  }

  void grant_read(PageId first, uint64_t count) override {
    const KeepErrno saved;
    install(first, count, UFFDIO_CONTINUE_MODE_WP);
  }

  void grant_write(PageId first, uint64_t count) override {
    const KeepErrno saved;
    if (install(first, count, 0)) unprotect(first, count);
  }

  void grant_write_first(PageId first, uint64_t count) override {
    const KeepErrno saved;
    MG_CHECK(region_.has_pages(first, count), first.value, count);
    region_.for_each_stretch(first, count, [&](const std::byte* begin, uint64_t bytes) {
      make_stretch(reinterpret_cast<uint64_t>(begin), bytes);
    });
  }

  void upgrade(PageId first, uint64_t count) override {
    const KeepErrno saved;
    unprotect(first, count);
  }

  void revoke_write(PageId first, uint64_t count) override {
    const KeepErrno saved;
    write_protect(first, count, UFFDIO_WRITEPROTECT_MODE_WP);
  }

  void revoke(PageId first, uint64_t count) override {
    const KeepErrno saved;
    MG_CHECK(region_.has_pages(first, count), first.value, count);
    region_.for_each_stretch(first, count, [&](std::byte* begin, uint64_t bytes) {
      if (madvise(begin, bytes, MADV_DONTNEED) != 0)
        panic("the kernel refused to take a page's rights (errno, page, pages); is its memory locked?",
              static_cast<uint64_t>(errno), first.value, count);
    });
  }

  void watch_again(PageId first, uint64_t count) override {
    const KeepErrno saved;
    if (!watch(fd_.get(), region_.view(first), count << region_.page_shift()))
      panic("userfaultfd cannot watch a part of the shared region again (errno, page, pages)",
            static_cast<uint64_t>(errno), first.value, count);
  }

  void open_moved(PageId first, uint64_t count) override {
    watch_again(first, count);
    const KeepErrno saved;
    // From here on the registration decides, not the mapping (make(), below).
    if (mprotect(region_.view(first), count << region_.page_shift(), PROT_READ | PROT_WRITE) != 0)
      panic("cannot open a part of the shared region (errno, page, pages)", static_cast<uint64_t>(errno), first.value,
            count);
  }

  void let_others_map() override { others_map_ = true; }
  void let_pages_be_elsewhere() override { are_elsewhere_ = true; }

  [[nodiscard]] std::string_view name() const override { return "userfault"; }
  [[nodiscard]] int fault_signal() const override { return SIGBUS; }

  [[nodiscard]] std::optional<Fault> decode(int signal, const siginfo_t* info, const void* context) const override {
    const PageFaultCode code(context);
    const bool is_missing = signal == SIGBUS && info->si_code == BUS_ADRERR && region_.contains(info->si_addr);
    if (!is_missing && !is_being_mapped(signal, info, code)) return std::nullopt;
    return Fault{static_cast<std::byte*>(info->si_addr), region_.page_of(info->si_addr), code.is_write()};
  }

 private:
  // Returns whether a thread has met a page between view_again() and open_moved(). What has no rights for good, the old view of
  // a part that was moved, is no such page.
  [[nodiscard]] bool is_being_mapped(int signal, const siginfo_t* info, const PageFaultCode& code) const {
    if (!are_elsewhere_ || signal != SIGSEGV || info->si_code != SEGV_ACCERR || code.is_fetch()) return false;
    if (!region_.contains(info->si_addr)) return false;
    const auto into_page = static_cast<const std::byte*>(info->si_addr) - region_.view(region_.page_of(info->si_addr));
    return into_page >= 0 && static_cast<size_t>(into_page) < region_.page_size();
  }

  // Installs the entries that are missing. Returns whether any entry was there before.
  bool install(PageId first, uint64_t count, uint64_t mode) const {
    MG_CHECK(region_.has_pages(first, count), first.value, count);
    bool any_present = false;
    region_.for_each_stretch(first, count, [&](const std::byte* begin, uint64_t bytes) {
      any_present |= install_stretch(reinterpret_cast<uint64_t>(begin), bytes, mode);
    });
    return any_present;
  }

  bool install_stretch(uint64_t at, uint64_t bytes, uint64_t mode) const {
    const uint64_t end = at + bytes;
    bool any_present = false;
    uint64_t missing = 0;  // where a frame was missing last
    while (at < end) {
      uffdio_continue request{};
      request.range.start = at;
      request.range.len = end - at;
      request.mode = mode | UFFDIO_CONTINUE_MODE_DONTWAKE;  // with SIGBUS no thread sleeps on the descriptor
      if (ioctl(fd_.get(), UFFDIO_CONTINUE, &request) == 0) return any_present;
      switch (errno) {
        case EEXIST:
          any_present = true;
          at += kHardwarePage;
          break;
        case EAGAIN:
          if (request.mapped > 0)
            at += static_cast<uint64_t>(request.mapped);
          else
            sched_yield();
          break;
        case EFAULT:
          make_frames(at, std::exchange(missing, at) == at ? at + kHardwarePage : end);
          break;
        case ENOMEM:
          die(1, "out of memory for the page tables of the shared region: use fewer nodes on this machine");
        case ENOENT:
          if (others_map_) {
            at += kHardwarePage;
            break;
          }
          [[fallthrough]];
        default:
          panic("userfaultfd refused to install a page (errno, address)", static_cast<uint64_t>(errno), at);
      }
    }
    return any_present;
  }

  // Makes frames and installs entries for them, writable, by one call. Where a frame exists, or anything else is in the
  // way, this installs the entry as grant_write() does.
  void make_stretch(uint64_t at, uint64_t bytes) const {
    const uint64_t end = at + bytes;
    while (at < end) {
      uffdio_zeropage request{};
      request.range.start = at;
      request.range.len = end - at;
      request.mode = UFFDIO_ZEROPAGE_MODE_DONTWAKE;
      if (ioctl(fd_.get(), UFFDIO_ZEROPAGE, &request) == 0) return;
      if (request.zeropage > 0) {
        at += static_cast<uint64_t>(request.zeropage);
        continue;
      }
      if (install_stretch(at, kHardwarePage, 0)) unprotect_stretch(at, kHardwarePage);
      at += kHardwarePage;
    }
  }

  // The hardware page at `at` is not in the page cache, so perhaps those behind it, up to `end`, are not either.
  void make_frames(uint64_t at, uint64_t end) const {
    void* const address = reinterpret_cast<void*>(at);
    if (end - at > kHardwarePage) {
      const PageId first = region_.page_of(address);
      const PageId last = region_.page_of(reinterpret_cast<void*>(end - 1));
      if (region_.make_frames(first, last.value - first.value + 1)) return;
    }
    // A read brings a zeroed page into the page cache, since a shared mapping has no common zero page.
    static_cast<void>(*reinterpret_cast<volatile std::byte*>(region_.alias_of(address)));
  }

  // Clears the bit. For shared mappings the kernel (up to 6.18 at least) still leaves the entry read-only: the next
  // write faults once more, and the kernel resolves that alone, at 0.7 us a hardware page. It is cheaper to ask for all
  // of a wider range at once. This may fail, for an entry that was swapped out meanwhile, which does not matter.
  void unprotect(PageId first, uint64_t count) const {
    MG_CHECK(region_.has_pages(first, count), first.value, count);
    region_.for_each_stretch(first, count, [&](const std::byte* begin, uint64_t bytes) {
      unprotect_stretch(reinterpret_cast<uint64_t>(begin), bytes);
    });
  }
  void unprotect_stretch(uint64_t begin, uint64_t bytes) const {
    write_protect_stretch(begin, bytes, 0);
    if (bytes > kHardwarePage) static_cast<void>(madvise(reinterpret_cast<void*>(begin), bytes, MADV_POPULATE_WRITE));
  }

  void write_protect(PageId first, uint64_t count, uint64_t mode) const {
    MG_CHECK(region_.has_pages(first, count), first.value, count);
    region_.for_each_stretch(first, count, [&](const std::byte* begin, uint64_t bytes) {
      write_protect_stretch(reinterpret_cast<uint64_t>(begin), bytes, mode);
    });
  }

  void write_protect_stretch(uint64_t begin, uint64_t bytes, uint64_t mode) const {
    uffdio_writeprotect request{};
    request.range.start = begin;
    request.range.len = bytes;
    // DONTWAKE may not be combined with protecting (EINVAL), which wakes no thread either.
    request.mode = mode != 0 ? mode : UFFDIO_WRITEPROTECT_MODE_DONTWAKE;
    while (ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &request) != 0) {
      if (errno == ENOMEM)
        die(1, "out of memory for the page tables of the shared region: use fewer nodes on this machine");
      if (errno == ENOENT && others_map_) return write_protect_one_by_one(begin, bytes, mode);
      if (errno != EAGAIN)
        panic("userfaultfd refused to change a page's rights (errno, address, bytes)", static_cast<uint64_t>(errno),
              begin, bytes);
      sched_yield();
    }
  }

  // Changes pages one by one, because other code has mapped some of them.
  void write_protect_one_by_one(uint64_t begin, uint64_t bytes, uint64_t mode) const {
    const uint64_t page = region_.page_size();
    if (bytes == page) return;
    for (uint64_t at = begin; at < begin + bytes; at += page) write_protect_stretch(at, page, mode);
  }

  const Region& region_;
  Descriptor fd_;
  std::atomic<bool> others_map_{false};
  std::atomic<bool> are_elsewhere_{false};
};

}  // namespace

Status available() {
  Result<Descriptor> fd = open_with_features();
  if (!fd) return tl::unexpected(fd.error());
  return {};
}

Result<std::unique_ptr<AccessRights>> make(const Region& region) {
  Result<Descriptor> fd = open_with_features();
  if (!fd) return tl::unexpected(fd.error());
  if (!watch(fd->get(), region.base(), region.size())) {
    if (errno != ENOTSUP) return fail_errno(errno, "userfaultfd cannot watch the shared region");
    return fail("userfaultfd of this kernel ({}) cannot continue or write-protect shared memory", kernel_release());
  }
  // From here on the registration decides, not the mapping, so the mapping must allow everything.
  if (mprotect(region.base(), region.size(), PROT_READ | PROT_WRITE) != 0)
    return fail_errno(errno, "cannot open the view of the shared region");
  return std::make_unique<UserfaultRights>(region, std::move(*fd));
}

}  // namespace multigrain::userfault
