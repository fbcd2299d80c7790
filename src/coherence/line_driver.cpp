#include "coherence/line_driver.h"

#include <algorithm>

namespace multigrain {

LineDriver::LineDriver(const NodeServices& services, const LineServices& lines)
    : services_(services),
      lines_(lines),
      self_(services.fabric.self()),
      view_(reinterpret_cast<uintptr_t>(services.region.base())),
      shift_(lines.table.line_shift()) {}

bool LineDriver::keeps(uintptr_t address) {
  const PageId page = page_at(address);
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

}  // namespace multigrain
