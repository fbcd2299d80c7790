#include "memory/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "base/config.h"
#include "base/own_descriptors.h"

namespace multigrain {
namespace {

struct Closer {
  void operator()(FILE* file) const { std::fclose(file); }
};

// Returns what occupies a part of [start, start + size), as /proc/self/maps names it.
std::string occupant(uintptr_t start, uint64_t size) {
  const std::unique_ptr<FILE, Closer> maps(std::fopen("/proc/self/maps", "re"));
  char line[512];
  while (maps != nullptr && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    unsigned long low = 0;
    unsigned long high = 0;
    int name_at = 0;
    if (std::sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &low, &high, &name_at) < 2) continue;
    if (high <= start || low >= start + size) continue;
    std::string name = name_at > 0 ? std::string(line + name_at) : std::string();
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return fmt::format("{} at {:#x}-{:#x}", name.empty() ? "anonymous memory" : name, low, high);
  }
  return "something that is gone again";
}

// Keeps children and core dumps from having the mapping (region.h). Returns the errno, or 0.
int set_up(void* mapping, uint64_t size) {
  if (madvise(mapping, size, MADV_DONTFORK) != 0 || madvise(mapping, size, MADV_DONTDUMP) != 0) return errno;
  // A kernel without huge pages answers EINVAL.
  static_cast<void>(madvise(mapping, size, MADV_NOHUGEPAGE));
  return 0;
}

Result<std::byte*> map_frames(int fd, uintptr_t at, uint64_t size, int protection, std::string_view what,
                              uint64_t offset = 0, Region::Occupied occupied = Region::Occupied::kError) {
  void* const wanted = reinterpret_cast<void*>(at);
  const int fixed = occupied == Region::Occupied::kReplaced ? MAP_FIXED : MAP_FIXED_NOREPLACE;
  void* got = mmap(wanted, size, protection, MAP_SHARED | fixed | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  if (got == MAP_FAILED) {
    const int code = errno;
    if (code == EEXIST)
      return fail(
          "cannot map the {} of the shared region at {:#x}-{:#x}: {} is there; start the program with mgrun, which "
          "turns address randomisation off, or make the region smaller (MULTIGRAIN_REGION_SIZE)",
          what, at, at + size, occupant(at, size));
    if (code == ENOMEM)
      return fail(
          "cannot map the {} of the shared region at {:#x}-{:#x}: no address space; raise 'ulimit -v' (and the sysctl "
          "vm.max_map_count), or make the region smaller (MULTIGRAIN_REGION_SIZE)",
          what, at, at + size);
    return fail_errno(code, fmt::format("cannot map the {} of the shared region at {:#x}-{:#x}", what, at, at + size));
  }
  if (got != wanted) {
    munmap(got, size);
    return fail("cannot map the {} of the shared region at {:#x}: the kernel is older than 4.17", what, at);
  }
  // Kernels that know MAP_FIXED_NOREPLACE know the advice, so failure is a surprise.
  if (const int code = set_up(got, size); code != 0) {
    munmap(got, size);
    return fail_errno(code, fmt::format("cannot set up the {} of the shared region", what));
  }
  return static_cast<std::byte*>(got);
}

// Gives the memfd its size.
Status size_frames(int fd, uint64_t size) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "cannot use the descriptor of this node's frames");
  if (static_cast<uint64_t>(status.st_size) == size) return {};
  if (status.st_size != 0)
    return fail("this node's frames are {} bytes where the region has {}: the nodes disagree about its size",
                static_cast<uint64_t>(status.st_size), size);
  // Beyond this limit ftruncate would raise SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size)
    return fail(
        "the file size limit of {} bytes is below the region's {}: raise 'ulimit -f', or make the region smaller "
        "(MULTIGRAIN_REGION_SIZE)",
        limit.rlim_cur, size);
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) return fail_errno(errno, "cannot size this node's frames");
  return {};
}

}  // namespace

Result<Region> Region::create(uint64_t region_size, size_t page_size, int frames_fd, RegionPlacement placement) {
  if (!std::has_single_bit(page_size) || page_size < Config::kMinTranslatedPageSize || page_size > Config::kMaxPageSize)
    return fail("the page size is {}; it must be a power of two from {} to {}", page_size,
                Config::kMinTranslatedPageSize, Config::kMaxPageSize);
  if (region_size == 0 || region_size % page_size != 0 || region_size > layout::kMaxRegionSize)
    return fail("the region size is {}; it must be a multiple of the page size, {}, and at most {}", region_size,
                page_size, layout::kMaxRegionSize);
  const bool own = frames_fd < 0;
  if (own) {
    frames_fd = own_descriptors::keep(memfd_create("multigrain-frames", MFD_CLOEXEC));
    if (frames_fd < 0) return fail_errno(errno, "cannot make the memory file of this node's frames");
  }
  const auto give_up = [&](Error error) {
    if (own) close(frames_fd);
    return tl::unexpected<Error>(std::move(error));
  };
  if (Status sized = size_frames(frames_fd, region_size); !sized) return give_up(sized.error());
  Result<std::byte*> view = map_frames(frames_fd, placement.view, region_size, PROT_NONE, "view");
  if (!view) return give_up(view.error());
  Result<std::byte*> alias = map_frames(frames_fd, placement.alias, region_size, PROT_READ | PROT_WRITE, "alias");
  if (!alias) {
    munmap(*view, region_size);
    return give_up(alias.error());
  }
  return Region(*view, *alias, region_size, static_cast<unsigned>(std::countr_zero(page_size)), frames_fd);
}

Region::Region(Region&& other) noexcept
    : view_(other.view_),
      alias_(other.alias_),
      size_(other.size_),
      page_shift_(other.page_shift_),
      frames_fd_(other.frames_fd_) {
  take(other);
}

Region& Region::operator=(Region&& other) noexcept {
  if (this != &other) {
    unmap();
    take(other);
  }
  return *this;
}

// Takes what the other region owns, which is none afterwards.
void Region::take(Region& other) {
  view_ = std::exchange(other.view_, nullptr);
  alias_ = std::exchange(other.alias_, nullptr);
  size_ = std::exchange(other.size_, 0);
  page_shift_ = other.page_shift_;
  frames_fd_ = std::exchange(other.frames_fd_, -1);
  moved_ = other.moved_;
  moved_count_ = other.moved_count_.exchange(0);
}

Region::~Region() {
  unmap();
}

void Region::unmap() {
  if (view_ == nullptr) return;
  munmap(view_, size_);
  munmap(alias_, size_);
  // Where something was replaced (a program's globals), the process cannot go on without what took its place.
  for (const Moved& part : *this)
    if (part.occupied == Occupied::kError) munmap(reinterpret_cast<void*>(part.to), part.bytes);
  close(frames_fd_);
}

Status Region::move_view(PageId first, uint64_t count, uintptr_t to, Occupied occupied) {
  const uint32_t parts = moved_count_.load(std::memory_order_relaxed);
  MG_CHECK(has_pages(first, count) && parts < kMaxMoved, first.value, count, parts);
  const uint64_t bytes = count << page_shift_;
  const uint64_t offset = first.value << page_shift_;
  const Result<std::byte*> moved =
      map_frames(frames_fd_, to, bytes, PROT_NONE, "part with fixed addresses", offset, occupied);
  if (!moved) return tl::unexpected<Error>(moved.error());
  // The old view of these frames has no rights, and no mechanism that could give them any.
  mprotect(view(first), bytes, PROT_NONE);
  moved_[parts] = {.offset = offset, .bytes = bytes, .to = to, .occupied = occupied};
  moved_count_.store(parts + 1, std::memory_order_release);
  return {};
}

void Region::view_again(PageId first, uint64_t count) {
  MG_CHECK(has_pages(first, count), first.value, count);
  const auto offset = static_cast<off_t>(first.value << page_shift_);
  void* const got =
      mmap(view(first), count << page_shift_, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, frames_fd_, offset);
  if (got == MAP_FAILED || set_up(got, count << page_shift_) != 0)
    panic("cannot map a part of the shared region again (errno, page, pages)", static_cast<uint64_t>(errno),
          first.value, count);
}

int Region::view_elsewhere(PageId first, uint64_t count, int frames_fd) {
  MG_CHECK(has_pages(first, count), first.value, count);
  const int saved = errno;
  int failed = 0;
  for_each_stretch(first, count, [&](std::byte* begin, uint64_t bytes) {
    void* const got = mmap(begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, frames_fd,
                           static_cast<off_t>(offset_of(begin)));
    if (failed == 0) failed = got == MAP_FAILED ? errno : set_up(got, bytes);
  });
  errno = saved;
  return failed;
}

bool Region::make_frames(PageId first, uint64_t count) const {
  MG_CHECK(has_pages(first, count), first.value, count);
  const int saved = errno;
  const bool made = fallocate(frames_fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first.value << page_shift_),
                              static_cast<off_t>(count << page_shift_)) == 0;
  errno = saved;
  return made;
}

void Region::make_frames(PageId first, uint64_t count, const std::byte* pattern) const {
  MG_CHECK(has_pages(first, count), first.value, count);
  constexpr size_t kPieces = 64;
  std::array<iovec, kPieces> pieces;
  pieces.fill({.iov_base = const_cast<std::byte*>(pattern), .iov_len = Config::kMinPageSize});
  const int saved = errno;
  uint64_t at = first.value << page_shift_;
  const uint64_t end = at + (count << page_shift_);
  while (at < end) {
    const auto some = static_cast<int>(std::min<uint64_t>((end - at) / Config::kMinPageSize, kPieces));
    const ssize_t written = pwritev(frames_fd_, pieces.data(), some, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    // Without memory the process ends where it touches the frame, as it would have ended without this call.
    if (written < static_cast<ssize_t>(Config::kMinPageSize)) break;
    at += static_cast<uint64_t>(written) & ~uint64_t{Config::kMinPageSize - 1};
  }
  for (; at < end; at += Config::kMinPageSize) std::memcpy(alias_ + at, pattern, Config::kMinPageSize);
  errno = saved;
}

void Region::map_alias(PageId first, uint64_t count) const {
  // The kernel maps what it has of an aligned stretch of this size where one page of it is read.
  constexpr uint64_t kTogether = 65536;
  const uint64_t begin = first.value << page_shift_;
  const uint64_t end = begin + (count << page_shift_);
  const volatile std::byte* const frames = alias_;
  for (uint64_t at = begin; at < end; at = (at / kTogether + 1) * kTogether) static_cast<void>(frames[at]);
}

void Region::unmap_alias_pages() const {
  // Advice: where the kernel does not take it, the end of the process takes longer.
  (void)madvise(alias_, size_, MADV_DONTNEED);
}

void Region::discard_frames(PageId first, uint64_t count) {
  MG_CHECK(has_pages(first, count), first.value, count);
  if (count == 0) return;
  const int saved = errno;
  // The kernel unmaps the pages from the view and the alias of every process before it frees them.
  while (fallocate(frames_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(first.value << page_shift_), static_cast<off_t>(count << page_shift_)) != 0)
    if (errno != EINTR)
      panic("cannot give frames back (errno, page, pages)", static_cast<uint64_t>(errno), first.value, count);
  errno = saved;
}

std::optional<Region::Run> Region::next_resident(PageId first, uint64_t count) const {
  MG_CHECK(has_pages(first, count), first.value, count);
  const auto start = static_cast<off_t>(first.value << page_shift_);
  const auto end = static_cast<off_t>((first.value + count) << page_shift_);
  // No code uses the descriptor's position, so concurrent calls do not disturb each other.
  const off_t data = lseek(frames_fd_, start, SEEK_DATA);
  if (data < 0 || data >= end) return std::nullopt;
  const off_t hole = std::min(lseek(frames_fd_, data, SEEK_HOLE), end);
  const PageId from(static_cast<uint64_t>(data) >> page_shift_);
  const uint64_t past = (static_cast<uint64_t>(hole) + page_size() - 1) >> page_shift_;
  return Run{from, past - from.value};
}

uint64_t Region::resident_bytes() const {
  struct stat status{};
  MG_CHECK(fstat(frames_fd_, &status) == 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

}  // namespace multigrain
