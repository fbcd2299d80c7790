#include "coherence/line_driver.h"

#include <algorithm>

#include "base/thread_annotations.h"
#include "coherence/hazard_words.h"
#include "profile/virtual_time.h"

namespace multigrain {

namespace {

// A hardware page of flag values.
constinit const std::array<uint64_t, Config::kMinPageSize / sizeof(uint64_t)> g_flags = [] {
  std::array<uint64_t, Config::kMinPageSize / sizeof(uint64_t)> flags{};
  flags.fill(MG_FINE_FLAG64);
  return flags;
}();

}  // namespace

constinit thread_local RunStreams LineDriver::t_first_touches{};

LineDriver::LineDriver(const NodeServices& services, const LineServices& lines, unsigned most_ahead)
    : services_(services),
      lines_(lines),
      self_(services.fabric.self()),
      view_(reinterpret_cast<uintptr_t>(services.region.base())),
      shift_(lines.table.line_shift()),
      most_ahead_(std::min(most_ahead, Config::kMaxPrefetch)) {}

bool LineDriver::keeps_page(PageId page) {
  return page.value < pages_.count() && grain_of(page, pages_[page]) == Grain::kLine;
}

// When the page turns out to be of a page protocol, this sets its lines' words so that compiled checks of its stores
// pass from now on: faults find what the page protocol has to know. Several threads may do this at once, and all find
// the same.
std::optional<Grain> LineDriver::grain_of(PageId page, LinePage& record) {
  if (const uint8_t known = record.grain.load(std::memory_order_acquire); known != 0)
    return static_cast<Grain>(known - 1);
  const std::optional<Grain> grain = services_.homes.grain_of(page);
  if (!grain) return std::nullopt;
  size_t block_lines = 1;
  if (*grain == Grain::kPage) {
    const uint64_t first = page.value * lines_of_page();
    for (uint64_t line = first; line < first + lines_of_page(); ++line)
      word(line).store(kExclusive, std::memory_order_release);
  } else {
    block_lines = std::max<size_t>(services_.homes.block_size_of(page) >> shift_, 1);
  }
  record.block_lines.store(static_cast<uint32_t>(block_lines), std::memory_order_relaxed);
  record.grain.store(static_cast<uint8_t>(1 + static_cast<uint8_t>(*grain)), std::memory_order_release);
  return grain;
}

bool LineDriver::settle_home(PageId page, LinePage& record, bool may_wait) {
  if (record.home_plus_one.load(std::memory_order_relaxed) != 0) return true;
  std::optional<NodeId> home = services_.homes.home_of(page);
  if (!home && may_wait) home = services_.homes.claim_home(page);
  if (home) record.home_plus_one.store(static_cast<uint16_t>(home->value + 1), std::memory_order_relaxed);
  return home.has_value();
}

bool LineDriver::settle_homes(PageId page, LinePage& record, FirstTouches& touches) {
  if (!settle_home(page, record, true)) return false;
  touches.first = page;
  touches.pages[0] = &record;
  touches.count = 1;
  add_pages_behind(touches);
  return true;
}

void LineDriver::settle_homes_behind(PageId page, LinePage& record, FirstTouches& touches) {
  touches.first = page;
  touches.pages[0] = &record;
  touches.begin = touches.count = 1;
  add_pages_behind(touches);
}

void LineDriver::add_pages_behind(FirstTouches& touches) {
  // In virtual time, first touches cost what they cost one by one.
  if (most_ahead_ == 0 || virtual_time::on()) return;
  // With a hazard published the thread waits for no other node if it need not.
  const bool may_wait = !has_published_hazard();
  touches.at = t_first_touches.continued_at(touches.first, most_ahead_);
  const PageRange stretch = services_.homes.stretch_of(touches.first);
  for (; touches.count <= touches.at.due; ++touches.count) {
    const PageId next = touches.page(touches.count);
    if (next.value >= pages_.count() || !stretch.contains(next)) break;
    LinePage& behind = pages_[next];
    if (behind.touched.load(std::memory_order_relaxed) || grain_of(next, behind) != Grain::kLine ||
        !settle_home(next, behind, may_wait))
      break;
    touches.pages[touches.count] = &behind;
  }
}

// Clang's analysis cannot follow how many locks the caller holds afterwards, nor that it depends on the result.
bool LineDriver::lock(FirstTouches& touches) MG_NO_THREAD_SAFETY_ANALYSIS {
  if (touches.begin == 0) {
    touches.pages[0]->lock.lock();
    if (touches.pages[0]->touched.load(std::memory_order_relaxed)) {
      touches.pages[0]->lock.unlock();
      return false;
    }
  }
  uint32_t locked = 1;
  for (; locked < touches.count; ++locked) {
    LinePage& behind = *touches.pages[locked];
    if (!behind.lock.try_lock()) break;
    if (behind.touched.load(std::memory_order_relaxed)) {
      behind.lock.unlock();
      break;
    }
  }
  touches.count = locked;
  return true;
}

void LineDriver::make_ready(const FirstTouches& touches) {
  const auto is_home = [&](uint32_t i) { return home_of(*touches.pages[i]) == self_; };
  const bool together = touches.at.stride == 1;
  // One call brings consecutive frames into being. No other node writes to the frame of a page that is at home elsewhere
  // before this node has a copy of a line, for which its page must be touched.
  for (uint32_t i = touches.begin, next; i < touches.count; i = next) {
    next = i + 1;
    while (together && next < touches.count && is_home(next) == is_home(i)) ++next;
    if (is_home(i)) {
      services_.rights.grant_write_first(touches.page(i), next - i);
    } else {
      services_.region.make_frames(touches.page(i), next - i, reinterpret_cast<const std::byte*>(g_flags.data()));
      services_.region.map_alias(touches.page(i), next - i);
      services_.rights.grant_write(touches.page(i), next - i);
    }
    this_profile().count_rights(RightsChange::kGrantWrite, next - i);
  }
}

void LineDriver::finish(const FirstTouches& touches) MG_NO_THREAD_SAFETY_ANALYSIS {
  for (uint32_t i = touches.begin; i < touches.count; ++i) {
    touches.pages[i]->touched.store(true, std::memory_order_release);
    touches.pages[i]->lock.unlock();
  }
  if (most_ahead_ != 0) t_first_touches.expect(touches.first, touches.at, touches.count);
}

Result<void> LineDriver::start_learning_runs() {
  auto history = RunHistory::create(services_.region.page_count() * lines_of_page(), words::kHazardSlots);
  if (!history) return tl::unexpected(history.error());
  run_history_ = std::move(*history);
  return {};
}

RunHistory::Length LineDriver::length_of_run(uint64_t line, bool stores) {
  const std::optional<uint64_t> thread = hazard_slot();
  return thread ? run_history_.length_at(*thread, line, stores) : RunHistory::Length{};
}

void LineDriver::run_came(uint64_t line, uint32_t units, uint64_t end, bool stores) {
  const std::optional<uint64_t> thread = hazard_slot();
  if (!thread) return;
  const auto word_of = [&](uint64_t number) { return word(number).load(std::memory_order_relaxed); };
  const bool may_go_on = (end & (lines_of_page() - 1)) != 0 && word_of(end) == word_of(line);
  run_history_.came(*thread, end, units, stores, may_go_on);
}

}  // namespace multigrain
