#include "view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>

#include "report/origins.h"
#include "report/symbols.h"

namespace multigrain {
namespace {

constexpr std::array kCategories = {"user", "data wait", "lock", "barrier", "protocol"};
constexpr size_t kHottest = 6;

const ProcessorProfile& profile_of(const NodeStatus& node, size_t place) {
  return *reinterpret_cast<const ProcessorProfile*>(node.profile[place].bytes);
}

ProfileSnapshot snapshot_of(const NodeStatus& node, size_t place) {
  ProfileSnapshot snapshot;
  profile_of(node, place).snapshot(snapshot);
  return snapshot;
}

uint64_t faults(const ProfileSnapshot& profile) {
  uint64_t sum = 0;
  for (const Counter counter : {Counter::kReadFaults, Counter::kWriteFaults, Counter::kUpgrades, Counter::kLocalFaults,
                                Counter::kTwoHopMisses, Counter::kThreeHopMisses, Counter::kLineUpgrades})
    sum += profile.counters[static_cast<size_t>(counter)];
  return sum;
}

uint64_t sum_of(const std::array<uint64_t, kMessageTypes>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

const char* life_of(const ProcessorStatus& processor) {
  switch (processor.life.load(std::memory_order_acquire)) {
    case Life::kNotStarted:
      return "not started";
    case Life::kReturned:
      return "has returned";
    case Life::kRuns:
      break;
  }
  return "";
}

}  // namespace

View::View(const Job& job) : job_(job) {
  for (NodeStatus* const node : job.nodes) {
    auto off = costs::Mode::kOff;
    node->costs.mode.compare_exchange_strong(off, costs::Mode::kOn, std::memory_order_relaxed);
  }
}

void View::hottest(std::string& text) {
  costs::Rows rows;
  std::vector<const NodeStatus*> nodes;
  for (const NodeStatus* const node : job_.nodes) {
    if (!node->is_attached()) continue;
    nodes.push_back(node);
    costs::append_rows(node->costs, node->node, rows);
  }
  if (nodes.empty() || rows.pages.empty()) return;
  // Symbols are read only if a block has come that has no name yet.
  std::optional<Symbols> symbols;
  const auto name_of = [&](uint64_t site) -> const std::string& {
    const auto [entry, is_new] = names_.try_emplace(site);
    if (is_new) {
      if (!symbols) symbols.emplace(Symbols::of_process(static_cast<pid_t>(nodes.front()->pid)));
      entry->second = symbols->line_of_call(site);
    }
    return entry->second;
  };
  struct Heat {
    uint64_t faults = 0;
    uint64_t ns = 0;
  };
  // The pages with the most time stand for all: to name each of a million would take longer than an interval.
  std::ranges::sort(rows.pages, [](const costs::PageRow& a, const costs::PageRow& b) { return a.ns > b.ns; });
  if (rows.pages.size() > 256) rows.pages.resize(256);
  const uint32_t shift = nodes.front()->costs.page_shift.load(std::memory_order_relaxed);
  std::map<std::string, Heat> heat;
  for (const costs::PageRow& row : rows.pages) {
    std::string name = "other shared memory";
    if (row.page != costs::kOtherPages) {
      const uint64_t address = nodes.front()->region + (row.page << shift) + row.last;
      const auto block = find_block(nodes, address);
      if (block && block->made != 0 && block->size != 0 && address - block->key < block->size)
        name = name_of(block->made);
    }
    heat[name].faults += row.reads + row.writes;
    heat[name].ns += row.ns;
  }
  std::vector<std::pair<std::string, Heat>> sorted(heat.begin(), heat.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  text += "\nMemory by the time in its faults, since its node began to count:\n";
  for (size_t i = 0; i < std::min(kHottest, sorted.size()); ++i)
    fmt::format_to(std::back_inserter(text), "{:>10.1f} ms {:>9} faults  {}\n",
                   static_cast<double>(sorted[i].second.ns) / 1e6, sorted[i].second.faults, sorted[i].first);
}

std::string View::frame(unsigned lines, unsigned columns) {
  const Nanoseconds now = monotonic_ns();
  const double seconds = when_ == 0 ? 0 : static_cast<double>(now - when_) / 1e9;
  std::vector<Counts> counts(job_.nodes.size());
  std::string processors, nodes;
  unsigned all = 1, per_node = 1;
  std::string protocol = "?";
  Nanoseconds started = now;
  for (size_t n = 0; n < job_.nodes.size(); ++n) {
    const NodeStatus& node = *job_.nodes[n];
    if (!node.is_attached()) continue;
    const unsigned count = std::min(node.processors, Config::kMaxProcessorsPerNode);
    all = node.nodes;
    per_node = count;
    protocol = std::string(node.protocol, strnlen(node.protocol, sizeof node.protocol));
    started = std::min<Nanoseconds>(started, node.started);
    counts[n].service = snapshot_of(node, Config::kMaxProcessorsPerNode);
    for (unsigned i = 0; i < count; ++i) counts[n].processors.push_back(snapshot_of(node, i));
    const bool is_new = before_.size() != counts.size() || before_[n].processors.size() != count;
    if (is_new || seconds == 0) continue;
    uint64_t node_faults = 0, messages = 0, bytes = 0;
    const auto add = [&](const ProfileSnapshot& delta) {
      node_faults += faults(delta);
      messages += sum_of(delta.messages);
      bytes += sum_of(delta.message_bytes);
    };
    add(counts[n].service.since(before_[n].service));
    for (unsigned i = 0; i < count; ++i) {
      const ProfileSnapshot delta = counts[n].processors[i].since(before_[n].processors[i]);
      add(delta);
      fmt::format_to(std::back_inserter(processors), "{:>9} {:>4}", node.first_processor + i, node.node);
      const uint64_t total = std::max<uint64_t>(1, delta.total_ticks());
      for (size_t c = 0; c < kCategories.size(); ++c)
        fmt::format_to(std::back_inserter(processors), " {:>8.0f}%",
                       std::min(100.0, 100.0 * static_cast<double>(delta.ticks[c]) / static_cast<double>(total)));
      fmt::format_to(std::back_inserter(processors), " {:>10.0f}  {}\n", static_cast<double>(faults(delta)) / seconds,
                     life_of(node.processor[i]));
    }
    fmt::format_to(std::back_inserter(nodes), "{:>9} {:>4} {:>10.0f} faults/s {:>10.0f} messages/s {:>9.2f} MB/s\n",
                   "node", node.node, static_cast<double>(node_faults) / seconds,
                   static_cast<double>(messages) / seconds, static_cast<double>(bytes) / 1e6 / seconds);
  }
  std::string text =
      fmt::format("job {}: {}, {} node{} of {}, protocol {}, {:.1f} s{}\n", job_.pid, job_.program(), all,
                  all == 1 ? "" : "s", per_node, protocol, static_cast<double>(now - started) / 1e9,
                  job_.nodes.size() < all ? fmt::format(" ({} nodes are on this machine)", job_.nodes.size()) : "");
  if (!nodes.empty()) {
    text += "\n" + nodes + fmt::format("\n{:>9} {:>4}", "processor", "node");
    for (const char* const name : kCategories) fmt::format_to(std::back_inserter(text), " {:>9}", name);
    text += fmt::format(" {:>10}\n", "faults/s") + processors;
    hottest(text);
  }
  before_ = std::move(counts);
  when_ = now;
  if (lines == 0) return text;
  std::string cut;
  unsigned line = 0;
  for (size_t at = 0; at < text.size() && line < lines; ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    cut += text.substr(at, std::min<size_t>(end - at, columns)) + "\n";
    at = end + 1;
  }
  return cut;
}

}  // namespace multigrain
