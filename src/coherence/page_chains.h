// Learns in which order processors visit pages that lie anywhere: those of a list, a tree or a graph, which a program follows from
// pointer to pointer, and often again in the same order.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "base/ids.h"
#include "memory/sparse_table.h"

namespace multigrain {

namespace hlrc {
struct Explored;
}

// A link says which page a processor missed right after another one. Links that have been right twice are followed: they
// make a chain, whose pages come with the page of a fault. The last of them comes without rights, so that a fault on it shows
// that the processor went through the chain; then the next one may be twice as long. A fault anywhere else says that the chain
// was left before its end, and its first link is not followed again until it has been right once more.
//
// A hint: processors of a node change a link at the same time, and lose each other's changes. A link has 4 bytes a page.
// All but create() is async-signal-safe.
class PageChains {
 public:
  static constexpr uint32_t kLongest = 16;  // pages behind that of the fault

  // When a link is followed.
  enum class Follow : uint8_t {
    kNever,
    kLearned,
    kAtOnce,  // in tests: when it is known
  };

  // The pages of a chain, in their order, without that of the fault.
  struct Pages {
    uint32_t count = 0;
    std::array<PageId, kLongest> page{};
  };

  // Where a processor is. A value that is all zero at the beginning, and has no padding.
  struct Walk {
    uint64_t first_plus_one = 0;  // the page of the last fault; 0: it is not known
    uint64_t last_plus_one = 0;   // the last page that came with it, or the same page
    uint64_t depth = 0;           // the last chain that was gone through had so many pages

    [[nodiscard]] bool has_chain() const { return last_plus_one != first_plus_one; }
  };

  // Makes links for so many pages. Start-up only. Errors: a table that cannot be reserved.
  static Result<PageChains> create(uint64_t pages, Follow follow) {
    PageChains chains;
    chains.follow_ = follow;
    if (follow == Follow::kNever) return chains;
    auto links = SparseTable<Link>::create(pages, "links between pages");
    if (!links) return tl::unexpected(links.error());
    chains.links_ = std::move(*links);
    return chains;
  }
  // Makes an object that follows no link.
  PageChains() = default;

  [[nodiscard]] bool learns() const { return follow_ != Follow::kNever; }

  // The processor has missed `page`. Returns the pages that it will probably miss next. brought() or leave() must follow.
  [[nodiscard]] Pages behind(Walk& walk, PageId page) {
    const uint64_t here = page.value + 1;
    if (walk.has_chain()) {
      if (here == walk.last_plus_one) {
        walk.depth = std::min<uint64_t>(2 * walk.depth, kLongest);
      } else {
        walk.depth = kShortest;
        links_[walk.first_plus_one - 1].doubt();
      }
    } else if (walk.first_plus_one != 0 && walk.first_plus_one != here) {
      links_[walk.first_plus_one - 1].learn(here);
    }
    return chain_from(page, std::max<uint64_t>(walk.depth, kShortest));
  }
  // `last` is the last page that came with `page`, without rights; the same page if none did.
  static void brought(Walk& walk, PageId page, PageId last) {
    walk.first_plus_one = page.value + 1;
    walk.last_plus_one = last.value + 1;
  }
  // What the processor missed belongs to no chain.
  static void leave(Walk& walk) { walk = {.depth = walk.depth}; }

 private:
  friend struct hlrc::Explored;  // tests/coherence/hlrc_driver_state.h
  static constexpr uint64_t kShortest = 2;

  // The page that was missed next, and how sure that is.
  class Link {
   public:
    // 0: none that is to be followed.
    [[nodiscard]] uint64_t next_plus_one(uint32_t at_least) const {
      const uint32_t value = value_.load(std::memory_order_relaxed);
      return value >> kPageBits >= at_least ? value & kPageMask : 0;
    }
    void learn(uint64_t page_plus_one) {
      if (page_plus_one > kPageMask) return;  // beyond 4 TiB of pages of 4 KiB nothing is learnt
      const uint32_t value = value_.load(std::memory_order_relaxed), sure = value >> kPageBits;
      if ((value & kPageMask) == page_plus_one)
        set(value & kPageMask, std::min(sure + 1, kSurest));
      else if (sure > 1)
        set(value & kPageMask, sure - 1);
      else
        set(static_cast<uint32_t>(page_plus_one), 1);
    }
    void doubt() {
      const uint32_t value = value_.load(std::memory_order_relaxed);
      if (value >> kPageBits > 0) set(value & kPageMask, 1);
    }

   private:
    static constexpr unsigned kPageBits = 30;
    static constexpr uint32_t kPageMask = (1u << kPageBits) - 1;
    static constexpr uint32_t kSurest = 3;
    void set(uint32_t page_plus_one, uint32_t sure) {
      value_.store(sure << kPageBits | page_plus_one, std::memory_order_relaxed);
    }
    std::atomic<uint32_t> value_;
  };

  [[nodiscard]] Pages chain_from(PageId page, uint64_t depth) const {
    Pages pages;
    for (PageId at = page; pages.count < depth;) {
      const uint64_t next = links_[at].next_plus_one(follow_ == Follow::kAtOnce ? 1 : 2);
      if (next == 0) break;
      at = PageId(next - 1);
      // A circle.
      if (at == page ||
          std::find(pages.page.begin(), pages.page.begin() + pages.count, at) != pages.page.begin() + pages.count)
        break;
      pages.page[pages.count++] = at;
    }
    return pages;
  }

  Follow follow_ = Follow::kNever;
  SparseTable<Link> links_;
};

}  // namespace multigrain
