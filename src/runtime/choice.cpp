#include "runtime/choice.h"

#include <fmt/format.h>

namespace multigrain {
namespace {

uint64_t sum_of(std::span<const NodeReport> reports, Counter counter) {
  uint64_t sum = 0;
  for (const NodeReport& report : reports) sum += report.counters[static_cast<size_t>(counter)];
  return sum;
}

std::string why_hlrc(const Config& config) {
  return config.races ? "--races needs it" : "the nodes share the memory of one machine";
}

std::string tell_moves(MovesToLines moves, std::span<const NodeReport> reports) {
  switch (moves) {
    case MovesToLines::kNotChosen:
      return {};
    case MovesToLines::kHomesStay:
      return " No page may move to lines, because homes stay where they are.";
    case MovesToLines::kNoChecks:
      return " No page may move to lines, because the program has no compiled checks.";
    case MovesToLines::kTooManyNodes:
      return fmt::format(" No page may move to lines, because a line's directory has room for {} nodes.",
                         kMaxLineNodes);
    case MovesToLines::kHasGaps:
      return " No page may move to lines, because some code of the program may reach shared memory without checks: object "
             "files and libraries that mgcc did not compile, or what -Wmultigrain-unchecked-call warns of.";
    case MovesToLines::kIsHandedOut:
    case MovesToLines::kHasThreads:
    case MovesToLines::kYes:
      break;
  }
  const uint64_t moved = sum_of(reports, Counter::kPagesToLines);
  const uint64_t diffs = sum_of(reports, Counter::kDiffs);
  const double lines =
      diffs == 0 ? 0 : static_cast<double>(sum_of(reports, Counter::kDiffLines)) / static_cast<double>(diffs);
  std::string text = moved == 0
                         ? " No page has moved to lines"
                         : fmt::format(
                               " {} page{} moved to lines: that is faster for pages whose diffs change few, or what no "
                               "other node reads",
                               moved, moved == 1 ? " has" : "s have");
  const char* const stopped = moves == MovesToLines::kIsHandedOut
                                  ? "a function without checks was handed memory that might have"
                              : moves == MovesToLines::kHasThreads ? "the program has started threads of its own"
                                                                   : nullptr;
  if (stopped != nullptr) text += fmt::format("{} {}", moved == 0 ? ", because" : ", and no more do, since", stopped);
  if (diffs != 0) text += fmt::format(" (a diff has changed {:.1f} lines of 64 bytes in the mean)", lines);
  return text + ".";
}

}  // namespace

MovesToLines decide_moves_to_lines(const Config& config, const CompiledChecks& checks) {
  if (config.protocol != kAutomaticProtocol || config.traits().kind != ProtocolKind::kHlrc || config.races ||
      config.nodes == 1)
    return MovesToLines::kNotChosen;
  if (!config.hlrc.homes_follow) return MovesToLines::kHomesStay;
  if (config.nodes > kMaxLineNodes) return MovesToLines::kTooManyNodes;
  if (!checks.in_program) return MovesToLines::kNoChecks;
  return checks.has_no_gaps && checks.missing.empty() ? MovesToLines::kYes : MovesToLines::kHasGaps;
}

std::string tell_choice(const Config& config, MovesToLines moves, std::span<const NodeReport> reports) {
  if (config.protocol != kAutomaticProtocol || config.nodes == 1) return {};
  const bool is_hlrc = config.traits().kind == ProtocolKind::kHlrc;
  return fmt::format("Chosen: protocol {}, because {}.{}", config.traits().name,
                     is_hlrc ? why_hlrc(config) : "the nodes have a network between them, or the clock is virtual",
                     tell_moves(moves, reports));
}

}  // namespace multigrain
