#include "trace/model/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/fnv.h"
#include "base/output_file.h"
#include "coherence/placement/cache_policy.h"
#include "placement/policies.h"

namespace multigrain::trace {
namespace {

using placement::BlockState;
using placement::Location;
using placement::PageMemo;
using placement::Policy;
using placement::State;

// A log is this, then its head as JSON, then its events, then a checksum of all that.
constexpr std::array<char, 8> kMagic = {'M', 'G', 'D', 'E', 'C', 'I', 'D', '1'};
constexpr unsigned kMaxNodes = 64;
constexpr uint64_t kLongestHead = 1u << 20;

void append(std::string& text, const void* bytes, size_t size) {
  text.append(static_cast<const char*>(bytes), size);
}

uint64_t checksum_of(std::string_view text) {
  Fnv fnv;
  fnv.mix(std::as_bytes(std::span(text.data(), text.size())));
  return fnv.value();
}

bool is_event(const PlacementEvent& event, unsigned nodes) {
  if (event.node >= nodes || event.between_bursts > 1) return false;
  switch (event.kind) {
    case record::EventKind::kDecided:
      return event.right <= static_cast<uint8_t>(placement::Access::kWrite) &&
             event.answer <= static_cast<uint8_t>(Location::kGlobal) &&
             event.placement <= static_cast<uint8_t>(placement::Placement::kGlobalWritable);
    case record::EventKind::kPinned:
      return event.answer <= static_cast<uint8_t>(Pin::kGlobal);
    case record::EventKind::kGranted:
      return event.right != static_cast<uint8_t>(State::kNone) && event.right <= static_cast<uint8_t>(State::kGlobal);
    case record::EventKind::kLowered:
      return event.right <= static_cast<uint8_t>(State::kRead);
  }
  return false;
}

const char* right_text(uint8_t right) {
  switch (static_cast<State>(right)) {
    case State::kNone:
      return "nothing";
    case State::kRead:
      return "a copy to read";
    case State::kWrite:
      return "the page to write";
    case State::kGlobal:
      return "the page in global memory";
  }
  return "?";
}

const char* answer_text(Location answer) {
  return answer == Location::kLocal ? "LOCAL" : "GLOBAL";
}

}  // namespace

void TraceDigest::add(const Reference& reference) {
  const uint64_t what =
      uint64_t{reference.processor} << 16 | uint64_t{reference.size} << 8 | static_cast<uint64_t>(reference.access);
  for (const uint64_t word : {reference.address, what}) value_ = (value_ ^ word) * 0x0000'0100'0000'01b3;
}

std::string decisions_path(const std::string& trace) {
  return trace + ".decisions";
}

// --- The file

Status write_decisions(const std::string& path, const DecisionLog& log) {
  const nlohmann::json head = {{"nodes", log.nodes},         {"page_size", log.page_size},   {"policy", log.policy},
                               {"program", log.program},     {"references", log.references}, {"digest", log.digest},
                               {"events", log.events.size()}};
  const std::string head_text = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const uint64_t head_bytes = head_text.size();
  std::string text(kMagic.data(), kMagic.size());
  append(text, &head_bytes, sizeof head_bytes);
  text += head_text;
  append(text, log.events.data(), log.events.size() * sizeof(PlacementEvent));
  const uint64_t checksum = checksum_of(text);
  append(text, &checksum, sizeof checksum);
  return write_output_file(path, text);
}

Result<DecisionLog> read_decisions(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail_errno(errno, fmt::format("cannot read the decisions '{}'", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return fail("cannot read the decisions '{}'", path);
  const size_t before_head = kMagic.size() + sizeof(uint64_t);
  if (text.compare(0, 7, kMagic.data(), 7) != 0)
    return fail("{} has no decisions of a run in it (mgrun --record)", path);
  if (text.compare(0, kMagic.size(), kMagic.data(), kMagic.size()) != 0)
    return fail("{}: these decisions were written by another version of mgrun, which wrote them in another form", path);
  const auto torn = [&] {
    return fail("{}: the decisions end too early, at byte {}: the file is torn", path, text.size());
  };
  if (text.size() < before_head + sizeof(uint64_t)) return torn();
  uint64_t head_bytes = 0;
  std::memcpy(&head_bytes, text.data() + kMagic.size(), sizeof head_bytes);
  if (head_bytes > kLongestHead) return fail("{}: the head of the decisions is damaged (byte {})", path, kMagic.size());
  if (text.size() < before_head + head_bytes + sizeof(uint64_t)) return torn();
  DecisionLog log;
  uint64_t count = 0;
  try {
    const auto head = nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(before_head),
                                            text.begin() + static_cast<ptrdiff_t>(before_head + head_bytes));
    log.nodes = head.at("nodes").get<unsigned>();
    log.page_size = head.at("page_size").get<uint64_t>();
    log.policy = head.at("policy").get<std::string>();
    log.program = head.at("program").get<std::string>();
    log.references = head.at("references").get<uint64_t>();
    log.digest = head.at("digest").get<uint64_t>();
    count = head.at("events").get<uint64_t>();
  } catch (const nlohmann::json::exception&) {
    return fail("{}: the head of the decisions is damaged (byte {})", path, before_head);
  }
  const size_t first = before_head + head_bytes;
  const size_t there = (text.size() - first - sizeof(uint64_t)) / sizeof(PlacementEvent);
  if (count > there) return torn();
  const size_t end = first + count * sizeof(PlacementEvent);
  if (text.size() != end + sizeof(uint64_t))
    return fail("{}: behind the decisions, from byte {} on, is something else", path, end + sizeof(uint64_t));
  uint64_t checksum = 0;
  std::memcpy(&checksum, text.data() + end, sizeof checksum);
  if (checksum != checksum_of(std::string_view(text).substr(0, end)))
    return fail("{}: the decisions are damaged: their checksum is another one", path);
  if (log.nodes < 1 || log.nodes > kMaxNodes || !std::has_single_bit(log.page_size))
    return fail("{}: there are no runs of {} nodes with pages of {} bytes", path, log.nodes, log.page_size);
  log.events.resize(count);
  std::memcpy(log.events.data(), text.data() + first, count * sizeof(PlacementEvent));
  for (uint64_t i = 0; i < count; ++i) {
    if (!is_event(log.events[i], log.nodes))
      return fail("{}: event {} is none that a run of {} nodes can have", path, i, log.nodes);
    if (log.events[i].position > log.references || (i != 0 && log.events[i].position < log.events[i - 1].position))
      return fail("{}: event {} is at reference {}, which is not its place", path, i, log.events[i].position);
  }
  return log;
}

// --- The policy, as the simulator asks it

namespace {

class PolicyOfRun final : public Policy {
 public:
  PolicyOfRun(std::unique_ptr<Policy> policy, const DecisionLog& log) : policy_(std::move(policy)) {
    for (const PlacementEvent& event : log.events) {
      if (event.kind == record::EventKind::kPinned) pages_[event.page].pin = static_cast<Pin>(event.answer);
      if (event.kind != record::EventKind::kDecided) continue;
      pages_[event.page].number = event.policy_page;
      // The nodes' clocks are one, and events that are close to each other may be in another order than their times.
      const uint64_t now = times_.empty() ? event.now : std::max(event.now, times_.back().second);
      times_.emplace_back(event.position, now);
    }
  }
  [[nodiscard]] std::string name() const override { return policy_->name(); }

  placement::Decision first(BlockState& block, const placement::Reference& reference) override {
    const Page page = page_of(block);
    if (page.pin != Pin::kNone) return pinned(page);
    BlockState renamed = block;
    renamed.block = page.number;
    const placement::Decision decision = policy_->first(renamed, at_its_time(reference));
    return decision.kind == placement::Decision::Kind::kStay ? placement::Decision::local()
                                                             : of_two(decision, reference);
  }
  placement::Decision on_reference(BlockState& block, const placement::Reference& reference) override {
    const Page page = page_of(block);
    if (page.pin != Pin::kNone) return pinned(page);
    BlockState renamed = block;
    renamed.block = page.number;
    return of_two(policy_->on_reference(renamed, at_its_time(reference)), reference);
  }

 private:
  struct Page {
    uint64_t number = 0;
    Pin pin = Pin::kNone;
  };

  [[nodiscard]] Page page_of(const BlockState& block) const {
    const auto found = pages_.find(block.block);
    return found != pages_.end() ? found->second : Page{.number = block.block, .pin = Pin::kNone};
  }
  static placement::Decision pinned(const Page& page) {
    return page.pin == Pin::kLocal ? placement::Decision::local() : placement::Decision::global();
  }
  static placement::Decision of_two(const placement::Decision& decision, const placement::Reference& reference) {
    using Kind = placement::Decision::Kind;
    const bool is_here =
        decision.kind == Kind::kLocal || (decision.kind == Kind::kMove && decision.to == reference.from);
    return is_here ? placement::Decision::local() : placement::Decision::global();
  }

  // References come in their order, so the place among the times is never looked for from the beginning.
  placement::Reference at_its_time(placement::Reference reference) {
    const uint64_t position = reference.time;
    while (next_ < times_.size() && times_[next_].first <= position) ++next_;
    if (times_.empty()) return reference;
    if (next_ == 0) {
      reference.time = times_.front().second;
    } else if (next_ == times_.size()) {
      reference.time = times_.back().second;
    } else {
      const auto [from, since] = times_[next_ - 1];
      const auto [to, until] = times_[next_];
      const double part = static_cast<double>(position - from) / static_cast<double>(to - from);
      reference.time = since + static_cast<uint64_t>(part * static_cast<double>(until - since));
    }
    return reference;
  }

  const std::unique_ptr<Policy> policy_;
  std::unordered_map<uint64_t, Page> pages_;
  std::vector<std::pair<uint64_t, uint64_t>> times_;  // of decisions: position, time
  size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Policy>> policy_of_run(const DecisionLog& log) {
  auto policy = placement::make_policy_of_run(log.policy);
  if (!policy) return fail("the decisions are of a policy that runs do not have: {}", policy.error().message);
  return std::make_unique<PolicyOfRun>(std::move(*policy), log);
}

// --- The log and the trace

namespace {

class Follower final : public Engine {
 public:
  Follower(const DecisionLog& log, Policy& policy, RunPlacement& out) : log_(log), policy_(policy), out_(out) {}

  void process(std::span<const Reference> references) override {
    for (const Reference& reference : references) {
      digest_.add(reference);
      if (!failed_) refer(reference);
      ++at_;
    }
  }

  Status finish() {
    for (; !failed_ && next_ < log_.events.size(); ++next_) apply(log_.events[next_]);
    if (failed_) return *failed_;
    if (at_ != log_.references || digest_.value() != log_.digest)
      return fail(
          "the decisions are of another trace: theirs has {} references and the digest {:016x}, and this one {} and {:016x}",
          log_.references, log_.digest, at_, digest_.value());
    for (const auto& [number, page] : pages_) out_.unreferenced_moves += page.moves_since_reference;
    return {};
  }

 private:
  struct Page {
    uint64_t readers = 0;  // nodes with a copy to read, or the one that may write
    uint64_t users = 0;    // nodes that use global memory
    bool is_written = false;
    bool is_pinned = false;
    bool was_used = false;
    uint32_t moves_since_reference = 0;
    // What moved between bursts, and no reference has used there since.
    uint64_t moved_to = 0;       // nodes
    uint64_t moved_through = 0;  // of these, those to which it came from global memory
    bool moved_to_global = false;
    PageMemo memo;
  };

  void refer(const Reference& reference) {
    while (next_ < log_.events.size() && log_.events[next_].position <= at_) {
      apply(log_.events[next_]);
      ++next_;
      if (failed_) return;
    }
    const uint64_t number = reference.address / log_.page_size;
    if (last_ == nullptr || last_number_ != number) last_ = &pages_[number], last_number_ = number;
    Page& page = *last_;
    const uint64_t bit = uint64_t{1} << (reference.processor % kMaxNodes);
    const bool is_write = reference.access == Access::kWrite;
    page.moves_since_reference = 0;
    out_.writes += is_write ? 1 : 0;
    if ((page.users & bit) != 0) {
      ++out_.parts.global;
      out_.global_writes += is_write ? 1 : 0;
      if (page.moved_to_global) use_moved(out_.parts.global_moves);
      page.moved_to_global = false;
    } else if ((page.readers & bit) != 0 && (!is_write || page.is_written)) {
      ++out_.parts.local;
      if ((page.moved_to & bit) != 0)
        use_moved((page.moved_through & bit) != 0 ? out_.parts.global_moves : out_.parts.remote_moves);
      page.moved_to &= ~bit;
    } else {
      refuse("{} to page {:#x} by node {} (reference {} of the trace): the node has {} there",
             is_write ? "a write" : "a read", number * log_.page_size, reference.processor, at_,
             (page.readers & bit) != 0 ? "only a copy to read" : "no right to the page");
    }
  }

  void apply(const PlacementEvent& event) {
    Page& page = pages_[event.page];
    const uint64_t bit = uint64_t{1} << event.node;
    switch (event.kind) {
      case record::EventKind::kDecided:
        return decide(event, page);
      case record::EventKind::kPinned:
        page.is_pinned = true;
        return;
      case record::EventKind::kGranted:
        return grant(event, page, bit);
      case record::EventKind::kLowered:
        if (((page.readers | page.users) & bit) == 0)
          return refuse_event(event, "node {} loses a right that it does not have", event.node);
        if (static_cast<State>(event.right) == State::kRead) {
          if ((page.readers & bit) == 0 || !page.is_written)
            return refuse_event(event, "node {} keeps a copy to read of a page that it could not write", event.node);
          page.is_written = false;
        } else {
          page.readers &= ~bit;
          page.users &= ~bit;
          page.moved_to &= ~bit;
          if (page.readers == 0) page.is_written = false;
        }
        return;
    }
  }

  // What a decision costs is what the simulator of traces counts of it.
  void decide(const PlacementEvent& event, Page& page) {
    ++out_.decisions;
    const placement::Directory directory = [&] {
      placement::Directory entry;
      entry.placement = static_cast<placement::Placement>(event.placement);
      entry.holders = placement::NodeSet::of_bits(event.holders);
      return entry;
    }();
    const bool was_placed = page.memo.is_placed;
    const bool was_global = page.memo.is_in_global;
    const auto recorded = static_cast<Location>(event.answer);
    const Location answer =
        placement::cache_policy(policy_, page.memo, directory, PageId(event.policy_page), log_.nodes,
                                NodeId(event.node), static_cast<placement::Access>(event.right), event.now);
    if (answer != recorded)
      return refuse_event(event, "the policy {} answers {} to node {}, and the log says {}", log_.policy,
                          answer_text(answer), event.node, answer_text(recorded));
    if (!was_placed) return;
    const bool has_copy =
        directory.placement != placement::Placement::kGlobalWritable && directory.holders.contains(NodeId(event.node));
    if (answer == Location::kLocal && was_global) page.moved_to_global = false;
    if (answer == Location::kLocal && !has_copy) count_move(event, page, was_global);
    if (answer == Location::kGlobal && !was_global) count_move(event, page, true);
  }

  void grant(const PlacementEvent& event, Page& page, uint64_t bit) {
    const uint64_t others = (page.readers | page.users) & ~bit;
    const auto right = static_cast<State>(event.right);
    const bool excludes = right == State::kWrite    ? others != 0 || page.users != 0
                          : right == State::kGlobal ? page.readers != 0
                                                    : page.users != 0 || page.is_written;
    if (excludes)
      return refuse_event(event, "node {} gets {}, while {} nodes have other rights to it", event.node,
                          right_text(event.right), std::popcount(page.readers | page.users));
    // Nobody is asked about a pinned page.
    if (page.is_pinned && right != State::kGlobal && (page.readers & bit) == 0 && page.was_used)
      count_move(event, page, false);
    page.was_used = true;
    (right == State::kGlobal ? page.users : page.readers) |= bit;
    if (right == State::kWrite) page.is_written = true;
  }

  void count_move(const PlacementEvent& event, Page& page, bool through_global) {
    if (event.between_bursts == 0) {
      ++(through_global ? out_.parts.global_moves : out_.parts.remote_moves);
      ++page.moves_since_reference;
      return;
    }
    ++out_.moves_between_bursts;
    if (event.kind == record::EventKind::kDecided && static_cast<Location>(event.answer) == Location::kGlobal) {
      page.moved_to_global = true;
      return;
    }
    const uint64_t bit = uint64_t{1} << event.node;
    page.moved_to |= bit;
    if (through_global)
      page.moved_through |= bit;
    else
      page.moved_through &= ~bit;
  }
  // A reference of a burst uses what moved before the burst.
  void use_moved(uint64_t& moves) {
    ++moves;
    --out_.moves_between_bursts;
  }

  template <typename... Args>
  void refuse(fmt::format_string<Args...> format, Args&&... args) {
    failed_ = fail("the decisions do not fit the trace: {}", fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void refuse_event(const PlacementEvent& event, fmt::format_string<Args...> format, Args&&... args) {
    refuse("page {:#x}, event {} (at reference {}): {}", event.page * log_.page_size, next_, event.position,
           fmt::format(format, std::forward<Args>(args)...));
  }

  const DecisionLog& log_;
  Policy& policy_;
  RunPlacement& out_;
  std::unordered_map<uint64_t, Page> pages_;
  Page* last_ = nullptr;
  uint64_t last_number_ = 0;
  size_t next_ = 0;
  uint64_t at_ = 0;
  TraceDigest digest_;
  std::optional<Status> failed_;
};

}  // namespace

Result<RunPlacement> follow(const DecisionLog& log, TraceSource& trace, const PassOptions& options) {
  if (trace.header().processors != log.nodes)
    return fail("the decisions are of another trace: they are of {} nodes, and the trace has {} processors", log.nodes,
                trace.header().processors);
  auto policy = placement::make_policy_of_run(log.policy);
  if (!policy) return fail("the decisions are of a policy that runs do not have: {}", policy.error().message);
  RunPlacement out;
  Follower follower(log, **policy, out);
  Engine* const engine = &follower;
  const auto totals = one_pass(trace, {&engine, 1}, options);
  if (!totals) return tl::unexpected(totals.error());
  if (Status good = follower.finish(); !good) return tl::unexpected(good.error());
  out.references = totals->references;
  out.private_references = totals->private_references;
  out.parts.local += totals->private_references;
  return out;
}

}  // namespace multigrain::trace
