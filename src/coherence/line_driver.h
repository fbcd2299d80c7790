// This is the base class of both drivers of line protocols. It knows where a line, its word and its frame are, and the
// page of a line, and it makes accesses that find the line here. How a driver handles a miss, how it waits, and how it
// handles the first touch of a page differ between the protocols; docs/internals/fine-grain.md says what they have in
// common.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/config.h"
#include "coherence/hazard.h"
#include "coherence/line_frames.h"
#include "coherence/line_memory.h"
#include "coherence/run_history.h"
#include "coherence/run_streams.h"
#include "memory/sparse_table.h"
#include "profile/this_thread.h"
#include "status/costs.h"

namespace multigrain {

class LineDriver : public LineMemory {
 public:
  bool keeps(uintptr_t address) final { return keeps_page(page_at(address)); }
  bool keeps_page(PageId page) final;
  [[nodiscard]] std::atomic<uint64_t>* rights_epoch() final { return &lines_.hazards.rights_epoch(); }
  [[nodiscard]] const std::atomic<uint64_t>* hazard_waits() final { return &lines_.hazards.waits(); }

 protected:
  static constexpr uint64_t kReadable = MG_FINE_READABLE;
  static constexpr uint64_t kExclusive = MG_FINE_EXCLUSIVE;

  // `most_ahead` is how many pages behind one that is touched for the first time may be made ready with it; 0: none.
  LineDriver(const NodeServices& services, const LineServices& lines, unsigned most_ahead);

  [[nodiscard]] uint64_t line_of(uintptr_t address) const { return (address - view_) >> shift_; }
  [[nodiscard]] std::atomic<uint64_t>& word(uint64_t line) const { return lines_.table.word(line); }
  // Returns the runtime's address of an offset in the region.
  [[nodiscard]] std::byte* frame(uint64_t offset) const { return services_.region.alias(PageId(0)) + offset; }
  [[nodiscard]] PageId page_at(uintptr_t address) const {
    return PageId((address - view_) >> services_.region.page_shift());
  }
  // Counts the time until the object ends as that of a miss of the line. Its place in the program is not known here.
  [[nodiscard]] costs::FaultScope cost_of_miss(uint64_t line, bool stores) const {
    const uint64_t offset = line << shift_;
    const auto in_page = static_cast<uint32_t>(offset & (services_.region.page_size() - 1));
    return {offset >> services_.region.page_shift(), in_page, view_ + offset, stores, 0};
  }
  [[nodiscard]] uint64_t lines_of_page() const { return services_.region.page_size() >> shift_; }
  [[nodiscard]] static NodeId home_of(const LinePage& record) {
    return NodeId(static_cast<uint16_t>(record.home_plus_one.load(std::memory_order_relaxed) - 1));
  }
  // Returns whether the page before this one is at home where this one is, at another node. Then lines of that page which are
  // here have come from there, as lines of this one would.
  [[nodiscard]] bool follows_page_of_its_home(PageId page) const {
    const NodeId home = home_of(pages_[page]);
    return page.value != 0 && home != self_ && home_of(pages_[page.value - 1]) == home;
  }
  // Returns the grain of the page's memory, which is looked up once; nullopt if the page is not allocated.
  std::optional<Grain> grain_of(PageId page, LinePage& record);

  // Pages that the calling thread touches for the first time together: at a constant stride, their homes settled, and,
  // from lock() on, locked and untouched.
  struct FirstTouches {
    PageId first;
    RunStreams::Continued at;  // the stream to which the first belongs
    uint32_t begin = 0;        // 1: the first is touched already, the others follow
    uint32_t count = 0;
    std::array<LinePage*, 1 + Config::kMaxPrefetch> pages;

    [[nodiscard]] PageId page(uint32_t i) const { return page_at_stride(first, at.stride, i); }
  };
  // Settles the home of `page`, which the calling thread touches for the first time, and of the pages behind it that it
  // will touch next, if it has gone through memory with a constant stride until here. Waits for other nodes, perhaps. Returns
  // false if the page is not allocated.
  [[nodiscard]] bool settle_homes(PageId page, LinePage& record, FirstTouches& touches);
  // Does the same for the pages behind one that the calling thread has just touched.
  void settle_homes_behind(PageId page, LinePage& record, FirstTouches& touches);
  // Locks them, and keeps of those behind the first as many as are untouched and not locked by another thread. Returns
  // false, with nothing locked, if another thread has touched the first.
  [[nodiscard]] bool lock(FirstTouches& touches);
  // Fills the frames of those that are not at home here with the flag value, and makes all readable and writable.
  void make_ready(const FirstTouches& touches);
  // Says that they are touched, and unlocks them.
  void finish(const FirstTouches& touches);

  // Returns the number of the calling thread's hazards, by which histories know it; nullopt if it has none.
  [[nodiscard]] std::optional<uint64_t> hazard_slot() const {
    if (!lines_.hazards.contains(__multigrain_hazards)) return std::nullopt;
    return lines_.hazards.index_of(__multigrain_hazards);
  }
  // Must come before the next two. Start-up only.
  Result<void> start_learning_runs();
  // Returns how long the run should be with which the calling thread's miss of `line` is answered. run_came() must follow.
  [[nodiscard]] RunHistory::Length length_of_run(uint64_t line, bool stores);
  // The miss of `line` is being answered by a run of `units` lines or blocks, and `end` is the line behind them. The words of
  // the lines still say what they said before.
  void run_came(uint64_t line, uint32_t units, uint64_t end, bool stores);

  // Loads from the frame at `from`, if `has_right()`, called with a hazard over the line published, says that the line
  // may be read. Returns whether it did.
  template <typename HasRight>
  [[nodiscard]] static bool load_here(uint64_t line, const std::byte* from, std::span<std::byte> out,
                                      HasRight&& has_right) {
    publish_hazard(make_hazard(line, 1, false));
    const bool here = has_right();
    if (here && !out.empty()) {
      MULTIGRAIN_STEP(from);
      copy_out(out, from);
    }
    clear_hazard();
    return here;
  }
  // Publishes a hazard of stores over the line. Leaves it published, and returns true, if `has_right()` then says that
  // the node may store.
  template <typename HasRight>
  [[nodiscard]] static bool begin_store_here(uint64_t line, HasRight&& has_right) {
    publish_hazard(make_hazard(line, 1, true));
    if (has_right()) return true;
    clear_hazard();
    return false;
  }

  const NodeServices services_;
  const LineServices lines_;
  const NodeId self_;
  const uintptr_t view_;
  const unsigned shift_;
  SparseTable<LinePage> pages_;

 private:
  [[nodiscard]] bool settle_home(PageId page, LinePage& record, bool may_wait);
  void add_pages_behind(FirstTouches& touches);

  const unsigned most_ahead_;
  RunHistory run_history_;
  // Where the thread has touched pages one after the other. Initial-exec, since a fault handler must not allocate.
  [[gnu::tls_model("initial-exec")]] static constinit thread_local RunStreams t_first_touches;
};

}  // namespace multigrain
