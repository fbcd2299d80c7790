#include "profile/cost_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/shell_words.h"

namespace multigrain {
namespace {

using costs::LineRow;
using costs::PageRow;
using costs::WaitRow;

constexpr const char* kOtherMemory = "other shared memory";

// A word that a shell would take apart is quoted.
std::string quoted(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  const bool is_plain = !word.empty() && word.find_first_not_of(plain) == std::string::npos;
  return is_plain ? word : quote_for_shell(word);
}

std::string tell_nodes(unsigned nodes, unsigned all) {
  if (nodes == all) return all == 1 ? "the one node" : fmt::format("all {} nodes", all);
  return fmt::format("{} of {} nodes", nodes, all);
}

double ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// What is known of one page, from all nodes.
struct Page {
  std::set<uint32_t> nodes;
  std::set<uint32_t> writers;
};

struct Memory {
  MemoryCost cost;
  std::map<uint64_t, Page> pages;
  std::map<uint64_t, uint64_t> blocks;  // their sizes
  std::set<uint32_t> nodes;
};

// Puts those that took longest first, keeps as many as there is room for, and returns what the others took.
template <typename Cost>
uint64_t keep_most(std::vector<Cost>& all, std::string Cost::* name) {
  std::ranges::sort(
      all, [name](const Cost& a, const Cost& b) { return std::tuple(b.ns, a.*name) < std::tuple(a.ns, b.*name); });
  uint64_t others = 0;
  for (size_t i = CostReport::kMost; i < all.size(); ++i) others += all[i].ns;
  if (all.size() > CostReport::kMost) all.resize(CostReport::kMost);
  return others;
}

class Maker {
 public:
  Maker(const costs::Rows& rows, const CostContext& context, const CostNames& names)
      : rows_(rows), context_(context), names_(names) {}

  CostReport make() {
    CostReport report;
    std::map<std::string, Advice> advice_of;
    for (auto& [name, memory] : memories()) {
      complete(memory);
      memory.cost.advice = advise(memory.cost, context_);
      advice_of[name] = memory.cost.advice;
      report.memory.push_back(std::move(memory.cost));
    }
    report.lines = lines(advice_of, report.other_ns[1]);
    report.waits = waits(report.other_ns[2]);
    report.other_ns[0] = keep_most(report.memory, &MemoryCost::name);
    report.other_ns[1] += keep_most(report.lines, &LineOfFaults::place);
    report.other_ns[2] += keep_most(report.waits, &ObjectOfWaits::name);
    return report;
  }

 private:
  std::map<std::string, Memory> memories() {
    std::map<std::string, Memory> result;
    for (const PageRow& row : rows_.pages) {
      const bool is_known = row.page != costs::kOtherPages;
      const CostNames::Block block =
          is_known ? names_.block(context_.address_of(row.page) + row.last) : CostNames::Block{.name = kOtherMemory};
      Memory& memory = result[block.name];
      memory.cost.name = block.name;
      memory.cost.reads += row.reads;
      memory.cost.writes += row.writes;
      memory.cost.diffs += row.diffs;
      memory.cost.diff_bytes += row.diff_bytes;
      memory.cost.ns += row.ns;
      memory.nodes.insert(row.node);
      if (!is_known) continue;
      if (block.begin != 0) memory.blocks[block.begin] = block.size;
      if (context_.is_by_lines(row.page)) memory.cost.by_lines = true;
      Page& page = memory.pages[row.page];
      page.nodes.insert(row.node);
      // A page that is writable stays so, under some protocols: then only its diffs tell.
      if (row.writes + row.diffs != 0) page.writers.insert(row.node);
    }
    return result;
  }

  void complete(Memory& memory) {
    MemoryCost& cost = memory.cost;
    cost.blocks = memory.blocks.size();
    for (const auto& [begin, size] : memory.blocks) cost.bytes += size;
    cost.nodes = static_cast<unsigned>(memory.nodes.size());
    cost.pages = memory.pages.size();
    for (const auto& [number, page] : memory.pages) {
      cost.visits += page.nodes.size();
      if (page.writers.empty()) continue;
      ++cost.written;
      if (page.writers.size() > 1) {
        ++cost.written_by_many;
      } else if (const auto home = context_.home_of(number); home && home->value != *page.writers.begin()) {
        ++cost.written_remotely;
      }
    }
  }

  std::vector<LineOfFaults> lines(const std::map<std::string, Advice>& advice_of, uint64_t& others) {
    std::map<std::string, std::pair<LineOfFaults, std::set<uint32_t>>> found;
    std::map<std::string, uint64_t> most;  // the faults of the row that names the line's memory
    for (const LineRow& row : rows_.lines) {
      if (row.site == 0) {
        others += row.ns;
        continue;
      }
      const std::string place = names_.instruction(row.site);
      auto& [line, nodes] = found[place];
      line.place = place;
      line.reads += row.reads;
      line.writes += row.writes;
      line.ns += row.ns;
      nodes.insert(row.node);
      if (row.reads + row.writes > most[place]) {
        most[place] = row.reads + row.writes;
        line.memory = names_.block(row.last).name;
      }
    }
    std::vector<LineOfFaults> result;
    for (auto& [place, entry] : found) {
      auto& [line, nodes] = entry;
      line.nodes = static_cast<unsigned>(nodes.size());
      if (const auto advice = advice_of.find(line.memory); advice != advice_of.end()) line.advice = advice->second;
      result.push_back(std::move(line));
    }
    return result;
  }

  std::vector<ObjectOfWaits> waits(uint64_t& others) {
    std::map<std::pair<std::string, std::string>, std::pair<ObjectOfWaits, std::set<uint32_t>>> found;
    for (const WaitRow& row : rows_.waits) {
      if (row.object == 0 && row.site == 0) {
        others += row.ns;
        continue;
      }
      const std::string name = names_.object(row.call, row.object);
      const std::string place = row.site != 0 ? names_.call(row.site) : std::string();
      auto& [object, nodes] = found[{name, place}];
      object.name = name;
      object.place = place;
      // In the order of Call (status/node_status.h), whose names begin theirs.
      object.is_lock = name.starts_with("lock");
      object.is_barrier = name.starts_with("barrier");
      object.waits += row.waits;
      object.fetched += row.fetched;
      object.longest_ns = std::max(object.longest_ns, row.longest_ns);
      object.ns += row.ns;
      nodes.insert(row.node);
    }
    std::vector<ObjectOfWaits> result;
    for (auto& [key, entry] : found) {
      auto& [object, nodes] = entry;
      object.nodes = static_cast<unsigned>(nodes.size());
      object.advice = advise(object, context_);
      result.push_back(std::move(object));
    }
    return result;
  }

  const costs::Rows& rows_;
  const CostContext& context_;
  const CostNames& names_;
};

Advice look_at_time_line(std::string sentence, const CostContext& context) {
  return {.sentence = std::move(sentence), .command = context.command.with("--timeline", "run.html")};
}

// The protocols that let several nodes write one page at a time.
bool merges_diffs(ProtocolKind protocol) {
  return protocol == ProtocolKind::kMgs || protocol == ProtocolKind::kHlrc;
}

Advice advise_lines(const MemoryCost& cost, const CostContext& context) {
  const uint64_t misses = cost.reads + cost.writes;
  const uint64_t lines_of_page = std::max<uint64_t>(1, context.page_size / context.line_size);
  const ProtocolTraits& traits = *find_protocol(&ProtocolTraits::kind, context.protocol);
  const std::string misses_of_page =
      fmt::format("{:.1f} of a page's {} lines miss each time that a node comes to it",
                  std::min(static_cast<double>(lines_of_page), ratio(misses, cost.visits)), lines_of_page);
  if (2 * misses >= lines_of_page * cost.visits && traits.grain == Grain::kLine &&
      context.line_size < traits.max_line_size)
    return {.sentence = misses_of_page + ": nodes want most of it, and a larger unit takes fewer misses",
            .command = context.command.with("--line-size",
                                            std::to_string(std::min(traits.max_line_size, 4 * context.line_size)))};
  if (2 * cost.written_by_many >= cost.written && cost.written != 0)
    return look_at_time_line(
        fmt::format(
            "{} of its {} written pages are written by several nodes: if they write different fields of one line, "
            "pad what each writes to {} bytes",
            cost.written_by_many, cost.written, context.line_size),
        context);
  return {.sentence = misses_of_page + ": pages, which take one fault for all of them, may cost less",
          .command = context.command.with("--protocol", "hlrc")};
}

}  // namespace

std::string RunCommand::with(const std::string& option, const std::string& value) const {
  std::string text = "mgrun";
  const auto add = [&text](const std::string& name, const std::string& what) {
    text += " " + name;
    if (!what.empty()) text += " " + quoted(what);
  };
  bool is_there = false;
  for (const auto& [name, what] : options) {
    is_there = is_there || name == option;
    add(name, name == option ? value : what);
  }
  if (!is_there) add(option, value);
  for (const std::string& word : program) text += " " + quoted(word);
  return text;
}

Advice advise(const MemoryCost& cost, const CostContext& context) {
  if (cost.pages == 0)
    return look_at_time_line("the tables had no room for more: the time line shows which memory this is", context);
  if (cost.by_lines) return advise_lines(cost, context);
  const uint64_t faults = cost.reads + cost.writes;
  const double bytes_of_diff = ratio(cost.diff_bytes, cost.diffs);
  const bool is_shared = cost.written != 0 && 2 * cost.written_by_many >= cost.written;
  if (is_shared && (cost.diffs == 0 || bytes_of_diff <= static_cast<double>(context.page_size) / 4)) {
    const std::string what =
        cost.diffs == 0
            ? fmt::format("{} of its {} written pages are written by several nodes", cost.written_by_many, cost.written)
            : fmt::format("{} of its {} written pages are written by several nodes, {:.0f} of {} bytes at a time",
                          cost.written_by_many, cost.written, bytes_of_diff, context.page_size);
    const std::string pad = fmt::format(
        "{}: nodes share pages rather than data, so give what each node writes pages of its "
        "own (align and pad it to {} bytes)",
        what, context.page_size);
    if (context.has_checks)
      return {.sentence = pad + ", or keep it coherent by lines",
              .command = context.command.with("--protocol", "dszoom")};
    if (context.page_size > Config::kMinPageSize)
      return {.sentence = pad + ", or take smaller pages",
              .command = context.command.with("--page-size", std::to_string(Config::kMinPageSize))};
    if (!merges_diffs(context.protocol) || context.protocol == ProtocolKind::kMgs)
      return {.sentence = pad + ", or let them write at the same time without asking each other",
              .command = context.command.with("--protocol", "hlrc")};
    return {.sentence = pad + ", or compile the program with mgcc and keep it coherent by lines",
            .command = context.command.with("--protocol", "dszoom")};
  }
  if (is_shared)
    return {.sentence =
                fmt::format("{} of its {} written pages are written by several nodes, {:.0f} of {} bytes at a time: "
                            "the data itself moves from writer to writer, so let each node keep a part, or hand it on "
                            "less often",
                            cost.written_by_many, cost.written, bytes_of_diff, context.page_size),
            .command = context.command.with("--protocol", context.protocol == ProtocolKind::kHlrc ? "mgs" : "hlrc")};
  if (cost.written_remotely != 0 && 2 * cost.written_remotely >= cost.written) {
    const bool is_touched = context.home == HomePolicy::kFirstTouch;
    return {
        .sentence = fmt::format("{} of its {} written pages are written by one node and at home at another: {}",
                                cost.written_remotely, cost.written,
                                is_touched ? "let the node that writes them touch them first, or place them in blocks"
                                           : "place them where they are first touched"),
        .command = context.command.with("--home", is_touched ? "blocked" : "first-touch")};
  }
  if (faults <= 2 * cost.visits)
    return {.sentence = fmt::format(
                "a node faults {:.1f} times on each of its pages: this is the first use, which a longer run "
                "pays once, and reading further ahead makes cheaper",
                ratio(faults, cost.visits)),
            .command = context.command.with("--prefetch", std::to_string(Config::kMaxPrefetch))};
  if (cost.reads >= cost.writes && context.prefetch < Config::kMaxPrefetch && cost.pages >= 16)
    return {.sentence = fmt::format(
                "each of its pages is fetched {:.1f} times by each node that reads it, {} pages in all: read "
                "further ahead",
                ratio(faults, cost.visits), cost.pages),
            .command = context.command.with("--prefetch", std::to_string(Config::kMaxPrefetch))};
  if (cost.pages >= 16 && context.page_size < Config::kMaxPageSize)
    return {.sentence = fmt::format(
                "a node faults {:.1f} times on each of {} pages, which mostly one node writes: a larger unit "
                "takes fewer faults",
                ratio(faults, cost.visits), cost.pages),
            .command = context.command.with("--page-size",
                                            std::to_string(std::min(Config::kMaxPageSize, 4 * context.page_size)))};
  return look_at_time_line(
      fmt::format("{} come back to {} {} {:.1f} times: that is communication, so do more work between two visits",
                  tell_nodes(cost.nodes, context.nodes), cost.pages, cost.pages == 1 ? "page" : "pages",
                  ratio(faults, cost.visits)),
      context);
}

Advice advise(const ObjectOfWaits& cost, const CostContext& context) {
  const uint64_t mean = cost.waits == 0 ? 0 : cost.ns / cost.waits;
  if (cost.is_lock && cost.nodes > 1 && 2 * cost.fetched >= cost.waits) {
    const std::string what = fmt::format(
        "it came from another node {} times in {} waits: give each node a lock, or data, of its own, and do less "
        "under this one",
        cost.fetched, cost.waits);
    if (context.protocol == ProtocolKind::kMgs) return {what, context.command.with("--protocol", "hlrc")};
    return look_at_time_line(what, context);
  }
  if (cost.is_lock)
    return look_at_time_line(
        fmt::format("processors queue for it, {:.1f} us at a time: hold it for a shorter time, or have several",
                    static_cast<double>(mean) / 1000),
        context);
  if (cost.is_barrier && cost.longest_ns >= 4 * mean && mean != 0)
    return look_at_time_line(
        fmt::format("the longest wait is {:.0f} times the mean: the work before it is uneven, so share it "
                    "in smaller pieces",
                    ratio(cost.longest_ns, mean)),
        context);
  if (cost.is_barrier)
    return look_at_time_line(fmt::format("a wait takes {:.1f} us in the mean: let fewer barriers part more work",
                                         static_cast<double>(mean) / 1000),
                             context);
  return look_at_time_line("the time line shows for whom it waits", context);
}

CostReport make_cost_report(const costs::Rows& rows, const CostContext& context, const CostNames& names) {
  return Maker(rows, context, names).make();
}

namespace {

class CostText {
 public:
  CostText(const CostReport& report, uint64_t processors_ns) : report_(report), all_(processors_ns) {}

  std::string render() {
    if (!report_.memory.empty()) memory();
    if (!report_.lines.empty()) lines();
    if (!report_.waits.empty()) waits();
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void time(uint64_t ns) { print("{:>11.3f} {:>3.0f}%", static_cast<double>(ns) / 1e6, 100 * ratio(ns, all_)); }

  void advice(const Advice& advice) {
    if (advice.sentence.empty()) return;
    print("                   -> {}\n                      {}\n", advice.sentence, advice.command);
  }

  void others(uint64_t ns, const char* what) {
    if (ns == 0) return;
    time(ns);
    print("  {}\n", what);
  }

  void memory() {
    print(
        "\nMemory by the time in its faults, in ms and % of the processors' time, with advice (docs/user/profile.md):\n"
        "{:>16} {:>9} {:>9} {:>8} {:>8} {:>9} {:>10}  {}\n",
        "time", "reads", "writes", "pages", "by many", "diffs", "of bytes", "allocated at");
    for (const MemoryCost& cost : report_.memory) {
      time(cost.ns);
      print(" {:>9} {:>9} {:>8} {:>8} {:>9} {:>10}  {}{}{}\n", cost.reads, cost.writes, cost.pages,
            cost.written_by_many, cost.diffs, cost.diff_bytes, cost.name,
            cost.blocks > 1    ? fmt::format(": {} blocks, {} bytes", cost.blocks, cost.bytes)
            : cost.blocks == 1 ? fmt::format(": {} bytes", cost.bytes)
                               : "",
            cost.by_lines ? ", by lines" : "");
      advice(cost.advice);
    }
    others(report_.other_ns[0], "other memory");
    print("(By many: pages that several nodes wrote.)\n");
  }

  void lines() {
    print("\nLines of the program by the time in their faults:\n{:>16} {:>9} {:>9} {:>8}  {}\n", "time", "reads",
          "writes", "nodes", "line, and the memory of its last fault");
    for (const LineOfFaults& line : report_.lines) {
      time(line.ns);
      print(" {:>9} {:>9} {:>8}  {}, {}\n", line.reads, line.writes, line.nodes, line.place, line.memory);
      // The memory's advice stands above.
    }
    others(report_.other_ns[1], "other lines, and misses of compiled checks, whose lines are not recorded");
  }

  void waits() {
    print("\nWaits by object and line:\n{:>16} {:>9} {:>9} {:>8} {:>11}  {}\n", "time", "waits", "fetched", "nodes",
          "longest, us", "object, and the call");
    for (const ObjectOfWaits& wait : report_.waits) {
      time(wait.ns);
      print(" {:>9} {:>9} {:>8} {:>11.1f}  {}{}\n", wait.waits, wait.fetched, wait.nodes,
            static_cast<double>(wait.longest_ns) / 1000, wait.name, wait.place.empty() ? "" : ", in " + wait.place);
      advice(wait.advice);
    }
    others(report_.other_ns[2], "other waits");
    print("(Fetched: how often a lock came from another node. A lock that was free and here took no time.)\n");
  }

  const CostReport& report_;
  const uint64_t all_;
  std::string text_;
};

}  // namespace

std::string render_costs(const CostReport& report, uint64_t processors_ns) {
  return CostText(report, processors_ns).render();
}

}  // namespace multigrain
