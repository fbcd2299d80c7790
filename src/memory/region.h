// This is this node's part of the shared region: its frames, and the two mappings of them.
//
// Frames live in a memfd. It is sparse, so a page costs memory from its first touch on, and nameless, so nothing is
// left behind. It is mapped twice. The application uses the *view*, which starts without any right, and only
// AccessRights (access_rights.h) changes that. The runtime uses the *alias*, which is always readable and writable, so
// that the runtime can fill a frame before any thread may see it, and compare a page after no thread may write it.
//
// Neither mapping is inherited by fork() (the child would bypass the protocol: the frames are MAP_SHARED), and neither
// goes into a core dump: the kernel would fault in, that is allocate, every page of a shared mapping that it dumps.
// Huge pages are refused, because one touch would then cost 2 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/ids.h"
#include "memory/layout.h"

namespace multigrain {

// These are the addresses of the two mappings. Nodes of one run must agree on `view`; tests with two regions in one
// process move one.
struct RegionPlacement {
  uintptr_t view = layout::kViewBase;
  uintptr_t alias = layout::kAliasBase;
};

class Region {
 public:
  // Reserves the region. `region_size` (bytes) is a multiple of `page_size`, which is a power of two from 4 KiB to 64
  // KiB. `frames_fd` is a memfd that becomes the Region's own, empty or of exactly `region_size` bytes; with -1 a memfd
  // is made. Errors: bad sizes; a range that something else occupies (the sentence says what); a limit of the process.
  // On error a frames_fd that was passed stays open, and the caller still owns it. Not async-signal-safe. Start-up
  // only.
  static Result<Region> create(uint64_t region_size, size_t page_size, int frames_fd = -1,
                               RegionPlacement placement = {});

  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  // Unmaps both mappings and closes the memfd.
  ~Region();

  // All functions below are async-signal-safe, and any thread may call them.

  [[nodiscard]] std::byte* base() const { return view_; }
  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] size_t page_size() const { return size_t{1} << page_shift_; }
  [[nodiscard]] unsigned page_shift() const { return page_shift_; }
  [[nodiscard]] uint64_t page_count() const { return size_ >> page_shift_; }
  [[nodiscard]] int frames_fd() const { return frames_fd_; }

  // Returns whether the address lies in the view.
  [[nodiscard]] bool contains(const void* address) const {
    return is_moved(address) || reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(view_) < size_;
  }
  // Returns the bytes from the region's start to an address in the view, which is also the address's place in the
  // memfd.
  [[nodiscard]] uint64_t offset_of(const void* address) const {
    if (is_moved(address)) return moved_offset_ + (reinterpret_cast<uintptr_t>(address) - moved_to_);
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(view_);
  }
  // Returns the page of an address that contains() accepts.
  [[nodiscard]] PageId page_of(const void* address) const { return PageId(offset_of(address) >> page_shift_); }
  // These return a page's first byte, as the application sees it and as the runtime does. `page` < page_count().
  [[nodiscard]] std::byte* view(PageId page) const {
    const uint64_t offset = page.value << page_shift_;
    if (offset - moved_offset_ < moved_bytes_)
      return reinterpret_cast<std::byte*>(moved_to_ + (offset - moved_offset_));
    return view_ + offset;
  }
  [[nodiscard]] std::byte* alias(PageId page) const { return alias_ + (page.value << page_shift_); }
  // Returns the runtime's address for an address in the view.
  [[nodiscard]] std::byte* alias_of(const void* address) const { return alias_ + offset_of(address); }
  // Returns whether [first, first + count) lies in the region.
  [[nodiscard]] bool has_pages(PageId first, uint64_t count) const {
    return first.value <= page_count() && count <= page_count() - first.value;
  }

  // From now on the view of these frames is elsewhere, for programs whose addresses are fixed. Called at start-up only,
  // once, on every node alike, before any right is granted. Errors: something else is there.
  Status move_view(PageId first, uint64_t count, uintptr_t to);

  // Maps these frames into the view again, without any right, in place of whatever was mapped over them there.
  void view_again(PageId first, uint64_t count);

  // Gives the memory of these frames back; they read as zeros through the alias afterwards. One system call. Pre: no
  // rights are granted on the pages, and no thread uses their frames.
  void discard_frames(PageId first, uint64_t count);

  // Returns the first run of pages of [first, first + count) whose frames have memory, because they were touched (in
  // part, for pages wider than the hardware's); nullopt if there is none. Two system calls.
  struct Run {
    PageId first;
    uint64_t count = 0;
  };
  [[nodiscard]] std::optional<Run> next_resident(PageId first, uint64_t count) const;

  // Returns how many bytes of memory the frames occupy now.
  [[nodiscard]] uint64_t resident_bytes() const;

 private:
  Region(std::byte* view, std::byte* alias, uint64_t size, unsigned page_shift, int frames_fd)
      : view_(view), alias_(alias), size_(size), page_shift_(page_shift), frames_fd_(frames_fd) {}
  void unmap();
  [[nodiscard]] bool is_moved(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - moved_to_ < moved_bytes_;
  }

  std::byte* view_;
  std::byte* alias_;
  uint64_t size_;
  unsigned page_shift_;
  int frames_fd_;
  // This part of the view is elsewhere.
  uint64_t moved_offset_ = 0;
  uint64_t moved_bytes_ = 0;
  uintptr_t moved_to_ = 0;
};

}  // namespace multigrain
