#include "runtime/shared_globals.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include "runtime/interpose/syscalls.h"
#include "runtime/message_types.h"
#include "runtime/private/touched_pages.h"
#include "sync/handle.h"

namespace multigrain {
namespace {

static_assert(Region::kMaxMoved <= detail::kMaxSharedParts && kGlobalsPage == TouchedPages::kPage);

uint64_t bytes_of(std::span<const Range> parts) {
  uint64_t bytes = 0;
  for (const Range& part : parts) bytes += part.length;
  return bytes;
}

// A copy of the globals' pages.
class Copy {
 public:
  explicit Copy(uint64_t bytes)
      : bytes_(bytes),
        begin_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Copy() {
    if (exists()) ::munmap(begin_, bytes_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;
  [[nodiscard]] bool exists() const { return begin_ != MAP_FAILED; }
  [[nodiscard]] std::byte* begin() const { return static_cast<std::byte*>(begin_); }

 private:
  const uint64_t bytes_;
  void* const begin_;
};

// A set of pages, outside of the malloc heap: it is used where a program forks or ends.
class PageSet {
 public:
  explicit PageSet(uint64_t pages) : bytes_(pages / 8 + 1) {}

  void add(uint64_t page) { bytes_[page / 8] |= static_cast<uint8_t>(1u << page % 8); }
  // Calls visit(page) for each, in ascending order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (uint64_t at = 0; at < bytes_.size(); ++at)
      for (unsigned rest = bytes_[at]; rest != 0; rest &= rest - 1)
        visit(at * 8 + static_cast<unsigned>(std::countr_zero(rest)));
  }

 private:
  SparseArray<uint8_t> bytes_;
};

// Copies the pages that are not zero: what is zero and was never touched stays without memory on either side. A page of
// initial values need not have been touched: whether the kernel maps it with its neighbours depends on what of the
// executable is in the page cache.
void copy_pages(std::byte* to, const std::byte* from, uint64_t bytes) {
  TouchedPages touched;
  for (uint64_t at = 0; at < bytes; at += kGlobalsPage) {
    const bool may_hold_values = is_from_file(from + at) || touched.touched(reinterpret_cast<uintptr_t>(from + at));
    if (may_hold_values && !all_zero(from + at, kGlobalsPage)) std::memcpy(to + at, from + at, kGlobalsPage);
  }
}

}  // namespace

SharedGlobals::SharedGlobals(Fabric& fabric, const WaitPolicy& policy, Region& region, AccessRights& rights,
                             SharedHeap& heap, Protocol& protocol)
    : fabric_(fabric), policy_(policy), region_(region), rights_(rights), heap_(heap), protocol_(protocol) {
  fabric.set_handler(
      runtime_message::kShareGlobals,
      [](void* self, const Message& message) { static_cast<SharedGlobals*>(self)->on_share(message); }, this);
  fabric.set_handler(
      runtime_message::kGlobalsShared,
      [](void* self, const Message& message) { static_cast<SharedGlobals*>(self)->on_shared(message); }, this);
}

Status SharedGlobals::share(const Placement& placement) {
  if (shared_) return {};
  if (region_.page_size() != kGlobalsPage)
    return fail("globals can only be shared in pages of {} bytes, and this run has pages of {} (--page-size)",
                kGlobalsPage, region_.page_size());
  const std::span<const Range> parts = pages_of_globals();
  if (parts.empty()) return {};
  if (parts.size() > Region::kMaxMoved)
    return fail("the program's own libraries have globals in {} places; at most {} can be shared", parts.size(),
                Region::kMaxMoved);
  if (globals_hold_environment())
    return fail(
        "`environ` of the C library is among the program's globals, and each node has its own: call getenv() instead, "
        "or link the program with -Wl,-z,nocopyreloc");
  const uint64_t bytes = bytes_of(parts);
  const Copy copy(bytes);
  if (!copy.exists()) return fail_errno(errno, "no memory for a copy of the program's globals");
  const auto memory = heap_.allocate(bytes, kGlobalsPage, placement);
  if (!memory) return tl::unexpected<Error>(memory.error());
  const PageId first = region_.page_of(memory->address);

  MessageHeader header;
  header.type = runtime_message::kShareGlobals;
  header.word = {first.value, bytes, globals_fingerprint()};
  for (uint16_t n = 1; n < fabric_.nodes(); ++n) fabric_.send(NodeId(n), header, SendContext::kOrdinary);
  wait_until(fabric_, policy_, answered_,
             [this] { return answers_.load(std::memory_order_acquire) + 1 == fabric_.nodes(); });

  uint64_t done = 0;
  for (const Range& part : parts) {
    copy_pages(copy.begin() + done, part.begin, part.length);
    done += part.length;
  }
  map(first);
  // From here to the end of the loop the globals are zero, and so are the executable's slots for functions of
  // libraries: only this library's code runs, which has slots of its own.
  done = 0;
  for (const Range& part : parts) {
    copy_pages(part.begin, copy.begin() + done, part.length);
    done += part.length;
  }
  globals_are_shared();
  return {};
}

void SharedGlobals::map(PageId first) {
  first_ = first;
  for (const Range& part : pages_of_globals()) {
    const uint64_t count = part.length / kGlobalsPage;
    const auto to = reinterpret_cast<uintptr_t>(part.begin);
    if (const Status moved = region_.move_view(first, count, to, Region::Occupied::kReplaced); !moved)
      die(1, {"the program's globals cannot be shared: ", moved.error().message.c_str()});
    rights_.open_moved(first, count);
    // Debuggers look for globals in core files.
    ::madvise(part.begin, part.length, MADV_DODUMP);
    add_shared_part(part.begin, part.length);
    first.value += count;
  }
  shared_ = true;
}

void SharedGlobals::on_share(const Message& message) {
  const auto& word = message.header.word;
  if (message.from != NodeId(0) || shared_ || word[1] != bytes_of(pages_of_globals()) ||
      !region_.has_pages(PageId(word[0]), word[1] / kGlobalsPage))
    panic("globals were to be shared that are not this node's; sender, page, bytes:", message.from.value, word[0],
          word[1]);
  if (word[2] != globals_fingerprint())
    die(1,
        "the program's globals cannot be shared: this node runs another executable than node 0, or has it or a library "
        "at other addresses (is address randomisation on?), or another kind of processor");
  map(PageId(word[0]));
  globals_are_shared();
  MessageHeader header;
  header.type = runtime_message::kGlobalsShared;
  fabric_.send(message.from, header, SendContext::kHandler);
}

void SharedGlobals::on_shared(const Message& message) {
  if (fabric_.self() != NodeId(0) || answers_.load() + 1 >= fabric_.nodes())
    panic("a node shares its globals without being asked; node:", message.from.value);
  answered_.mark();
  answers_.fetch_add(1, std::memory_order_release);
  answered_.notify();
}

// Reads the pages of [first, first + count) that have been touched, so that this node's frames have them. Which those are is found out
// before the first one is read: the protocol reads ahead, and so touches further ones.
void SharedGlobals::bring_here(PageId first, uint64_t count) {
  PageSet touched(count);
  const size_t size = region_.page_size();
  heap_.for_each_touched(region_.base() + first.value * size, count * size, [&](const std::byte* page, size_t) {
    touched.add(static_cast<uint64_t>(page - region_.base()) / size - first.value);
  });
  touched.for_each([&](uint64_t i) {
    const PageId page(first.value + i);
    if (!heap_.find(page)) return;
    static_cast<void>(*static_cast<volatile const std::byte*>(region_.view(page)));
    protocol_.fill_frame(page);
  });
}

void SharedGlobals::end() {
  if (!shared_) return;
  bring_here(first_, bytes_of(pages_of_globals()) / kGlobalsPage);
  // Threads of the program may still run, and the protocol for them: it leaves the globals alone from here on.
  rights_.let_others_map();
  for (const Range& part : pages_of_globals()) take_private(part);
  forget_shared_parts();
}

// The frame of a page holds what the program may see while the page is readable.
void SharedGlobals::before_fork() {
  if (copies_all_)
    bring_here(PageId(0), region_.page_count());
  else if (shared_)
    bring_here(first_, bytes_of(pages_of_globals()) / kGlobalsPage);
}

void SharedGlobals::in_forked_child() {
  if (!shared_) return;
  for (const Range& part : pages_of_globals()) take_private(part);
  forget_shared_parts();
  if (copies_all_) take_region_private();
}

// The child has nothing there: the region is left out of forks.
void SharedGlobals::take_region_private() {
  void* const got = ::mmap(region_.base(), region_.size(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) die(1, "no memory for a forked child's copy of what the program's threads share");
  copy_frames(PageId(0), region_.size() / region_.page_size(), region_.base());
}

void SharedGlobals::take_private(const Range& part) {
  const PageId first = region_.page_of(part.begin);
  const uint64_t count = part.length / kGlobalsPage;
  void* const got = ::mmap(part.begin, part.length, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) die(1, "no memory for a copy of the program's globals");
  copy_frames(first, count, part.begin);
}

void SharedGlobals::copy_frames(PageId first, uint64_t count, std::byte* to) {
  const size_t size = region_.page_size();
  PageId next = first;
  while (const auto run = region_.next_resident(next, first.value + count - next.value)) {
    for (next = run->first; next.value < run->first.value + run->count; ++next.value) {
      const auto offset = static_cast<off_t>(next.value * size);
      if (::pread(region_.frames_fd(), to + (next.value - first.value) * size, size, offset) !=
          static_cast<ssize_t>(size))
        die(1, "cannot read the program's shared memory; errno", static_cast<uint64_t>(errno));
    }
  }
}

}  // namespace multigrain
