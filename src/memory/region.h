// This is this node's part of the shared region: its frames, and the two mappings of them.
//
// Frames live in a memfd. It is sparse, so a page costs memory from its first touch on, and nameless, so nothing is
// left behind. It is mapped twice. The application uses the *view*, which starts without any right, and only
// AccessRights (access_rights.h) changes that. The runtime uses the *alias*, which is always readable and writable, so
// that the runtime can fill a frame before any thread may see it, and compare a page after no thread may write it.
//
// Parts of the view can be elsewhere, where addresses are fixed: a guest's, or a program's globals (move_view()).
//
// Neither mapping is inherited by fork() (the child would bypass the protocol: the frames are MAP_SHARED), and neither
// goes into a core dump: the kernel would fault in, that is allocate, every page of a shared mapping that it dumps.
// Huge pages are refused, because one touch would then cost 2 MiB.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
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
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(view_) < size_ ||
           moved_at(address) != nullptr;
  }
  // Returns the bytes from the region's start to an address in the view, which is also the address's place in the
  // memfd.
  [[nodiscard]] uint64_t offset_of(const void* address) const {
    if (const Moved* const part = moved_at(address))
      return part->offset + (reinterpret_cast<uintptr_t>(address) - part->to);
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(view_);
  }
  // Returns the page of an address that contains() accepts.
  [[nodiscard]] PageId page_of(const void* address) const { return PageId(offset_of(address) >> page_shift_); }
  // These return a page's first byte, as the application sees it and as the runtime does. `page` < page_count().
  [[nodiscard]] std::byte* view(PageId page) const {
    const uint64_t offset = page.value << page_shift_;
    for (const Moved& part : *this)
      if (offset - part.offset < part.bytes) return reinterpret_cast<std::byte*>(part.to + (offset - part.offset));
    return view_ + offset;
  }
  [[nodiscard]] std::byte* alias(PageId page) const { return alias_ + (page.value << page_shift_); }
  // Returns the runtime's address for an address in the view.
  [[nodiscard]] std::byte* alias_of(const void* address) const { return alias_ + offset_of(address); }
  // Returns whether [first, first + count) lies in the region.
  [[nodiscard]] bool has_pages(PageId first, uint64_t count) const {
    return first.value <= page_count() && count <= page_count() - first.value;
  }

  // Calls change(first byte, bytes) for each part of the view of [first, first + count) whose addresses follow each
  // other: there is more than one where a border of a moved part lies between the pages.
  template <typename Change>
  void for_each_stretch(PageId first, uint64_t count, Change&& change) const {
    while (count != 0) {
      const uint64_t pages = contiguous(first, count);
      change(view(first), pages << page_shift_);
      first.value += pages;
      count -= pages;
    }
  }

  // From now on the view of these frames is at `to`, for programs whose addresses are fixed. What is mapped there is
  // an error, or replaced, and lost. Called on every node alike, at most kMaxMoved times, by one thread at a time,
  // before any right on these pages is granted; other threads may use the rest of the region meanwhile. Errors:
  // something else is there; the kernel refuses, and then what was to be replaced may be gone. Not async-signal-safe.
  enum class Occupied : uint8_t { kError, kReplaced };
  static constexpr size_t kMaxMoved = 64;
  Status move_view(PageId first, uint64_t count, uintptr_t to, Occupied occupied = Occupied::kError);

  // Maps these frames into the view again, without any right, in place of whatever was mapped over them there.
  void view_again(PageId first, uint64_t count);

  // Maps the same pages of another node's frames, whose memory file this is, over the view of these pages. Threads may read and
  // write there at once, whatever rights the pages had. view_again() and AccessRights::open_moved() undo it. Returns the
  // error number if the kernel refuses, mostly because a process has no more mappings, else 0.
  [[nodiscard]] int view_elsewhere(PageId first, uint64_t count, int frames_fd);

  // Gives these frames memory, if they have none, so that access rights to all of them can be granted by few calls: to touch
  // them one by one takes three times as long. One system call. If it fails, which this returns, the frames get their
  // memory where they are touched.
  bool make_frames(PageId first, uint64_t count) const;
  // The same for frames whose contents are not needed: every piece of them becomes `pattern`, which is kMinPageSize bytes long.
  // Pre: no rights are granted on the pages, and no thread of any node uses their frames.
  void make_frames(PageId first, uint64_t count, const std::byte* pattern) const;
  // Maps frames that have memory into the alias, several by one fault of the kernel's.
  void map_alias(PageId first, uint64_t count) const;

  // Empties the page tables of the alias, which the kernel would do at the end of the process. The frames keep what they hold, and
  // those that are accessed again are mapped again. One system call.
  void unmap_alias_pages() const;

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
  // A part of the view that is elsewhere.
  struct Moved {
    uint64_t offset = 0;  // in the region, bytes
    uint64_t bytes = 0;
    uintptr_t to = 0;
    Occupied occupied = Occupied::kError;
  };

  void unmap();
  void take(Region& other);
  [[nodiscard]] const Moved* begin() const { return moved_.data(); }
  [[nodiscard]] const Moved* end() const { return moved_.data() + moved_count_.load(std::memory_order_acquire); }
  [[nodiscard]] const Moved* moved_at(const void* address) const {
    for (const Moved& part : *this)
      if (reinterpret_cast<uintptr_t>(address) - part.to < part.bytes) return &part;
    return nullptr;
  }
  // Returns how many of these pages, from the first one on, follow each other in the view. Pre: count > 0.
  [[nodiscard]] uint64_t contiguous(PageId first, uint64_t count) const {
    const uint64_t offset = first.value << page_shift_;
    uint64_t bytes = count << page_shift_;
    for (const Moved& part : *this) {
      if (offset - part.offset < part.bytes) return std::min(bytes, part.offset + part.bytes - offset) >> page_shift_;
      if (part.offset > offset) bytes = std::min(bytes, part.offset - offset);
    }
    return bytes >> page_shift_;
  }

  std::byte* view_;
  std::byte* alias_;
  uint64_t size_;
  unsigned page_shift_;
  int frames_fd_;
  // The entries before the count do not change, so other threads may read them.
  std::array<Moved, kMaxMoved> moved_{};
  std::atomic<uint32_t> moved_count_{0};
};

}  // namespace multigrain
