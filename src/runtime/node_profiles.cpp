// The measured phase of a node, and the statistics that are made of it (node.h).
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/lock_guard.h"
#include "emulation/machine_description.h"
#include "profile/virtual_time.h"
#include "runtime/interpose/threads.h"
#include "runtime/message_types.h"
#include "runtime/node.h"
#include "runtime/private/private_heap.h"

namespace multigrain {
const char* Node::message_name(MessageType type) {
  if (const char* name = protocol_message_name(type)) return name;
  switch (type) {
    case runtime_message::kSpawn:
      return "SPAWN";
    case runtime_message::kDone:
      return "DONE";
    default:
      return nullptr;
  }
}

// Returns the time of the run's clock, for a mark that the calling thread makes.
Nanoseconds Node::time_of_mark() {
  return virtual_time::on() ? virtual_time::stamp() : monotonic_ns();
}

void Node::take_snapshots(SparseTable<ProfileSnapshot>& snapshots, Nanoseconds when) {
  for (unsigned i = 0; i < config_.processors_per_node; ++i) {
    if (virtual_time::on()) {
      // Processors' clocks differ, and one that is ahead has stamped its profile already.
      const uint64_t at = std::max(when, virtual_time::clock_of(i));
      processors_->profile(i).snapshot_at(snapshots[i], &at);
    } else {
      processors_->profile(i).snapshot(snapshots[i]);
    }
  }
  service_profile_.snapshot(snapshots[config_.processors_per_node]);
}

void Node::take_mark(PhaseMark mark, Nanoseconds when, uint64_t barriers) {
  if (mark == PhaseMark::kBegin) {
    take_snapshots(baseline_, when);
    measured_to_ = 0;
    measured_from_ = when;
    virtual_time::begin_phase(barriers);
    costs::begin_phase(virtual_time::on() ? when : time_stamp());
  } else if (measured_to_.load() == 0) {
    take_snapshots(end_, when);
    measured_to_ = when;
    costs::end_phase();
  }
}

void Node::mark_profiles(PhaseMark mark) {
  // On the emulated machine nobody measures: the caller's clock stands, and what this sends reaches no link and no
  // handler of it.
  const virtual_time::UnaccountedMessages measuring;
  // Several processors may call at once; all but this one wait as for any lock while this one handles messages.
  const LockGuard one_at_a_time(marking_);
  const Nanoseconds when = time_of_mark();
  const uint64_t barriers = virtual_time::barriers_left();
  take_mark(mark, when, barriers);
  {
    const LockGuard hold(marks_lock_);
    for (uint16_t n = 0; n < config_.nodes; ++n)
      if (NodeId(n) != config_.node) marks_out_.insert(NodeId(n));
    any_marks_out_ = !marks_out_.empty();
  }
  MessageHeader header;
  header.type = runtime_message::kProfileMark;
  header.word[0] = static_cast<uint64_t>(mark);
  header.word[1] = when;
  header.word[2] = barriers;
  for (unsigned n = 0; n < config_.nodes; ++n)
    if (NodeId(static_cast<uint16_t>(n)) != config_.node)
      fabric_->send(NodeId(static_cast<uint16_t>(n)), header, SendContext::kOrdinary);
  wait_until(*fabric_, wait_, changed_, [this] { return !any_marks_out_.load(); });
}

void Node::handle_profile_mark(const Message& message) {
  if (message.header.word[0] > static_cast<uint64_t>(PhaseMark::kEnd))
    panic("a mark of the profile that is none, from node", message.from.value);
  // Each host reads its own wall clock, because those differ; virtual time is the machine's.
  take_mark(static_cast<PhaseMark>(message.header.word[0]),
            virtual_time::on() ? message.header.word[1] : monotonic_ns(), message.header.word[2]);
  MessageHeader header;
  header.type = runtime_message::kProfileMarked;
  fabric_->send(message.from, header, SendContext::kHandler);
}

void Node::handle_profile_marked(const Message& message) {
  {
    const LockGuard hold(marks_lock_);
    if (!marks_out_.contains(message.from))
      panic("a profile was marked that nobody asked to mark, at node", message.from.value);
    marks_out_.erase(message.from);
    any_marks_out_ = !marks_out_.empty();
  }
  changed_.notify();
}

std::vector<ThreadRow> Node::report(NodeReport& out) {
  out = NodeReport{};
  out.node = config_.node.value;
  const Nanoseconds now = time_of_mark();
  if (measured_to_.load() == 0) take_snapshots(end_, now);
  const unsigned service = config_.processors_per_node;
  add_service(out, end_[service].since(baseline_[service]), time_stamps_per_us());
  if (hosted_ == nullptr) {
    for (unsigned i = 0; i < config_.processors_per_node; ++i)
      add_processor(out, end_[i].since(baseline_[i]), time_stamps_per_us());
    return {};
  }
  std::vector<ThreadRow> rows = hosted_->report(out, now);
  out.thread_rows = static_cast<uint32_t>(rows.size());
  return rows;
}

MovesToLines Node::moves_now() const {
  if (!moves_to_lines()) return moves_to_lines_;
  if (counted_threads() != 0) return MovesToLines::kHasThreads;
  return handover_->takes_no_more() ? MovesToLines::kIsHandedOut : MovesToLines::kYes;
}

bool Node::write_statistics(std::span<const NodeReport> reports) {
  RunDescription run;
  run.program = hosted_ != nullptr ? hosted_->program() : program_invocation_short_name;
  run.is_hosted = hosted_ != nullptr;
  run.nodes = config_.nodes;
  run.processors_per_node = config_.processors_per_node;
  run.protocol = config_.traits().name;
  if (hosted_ == nullptr) run.choice = tell_choice(config_, moves_now(), reports);
  run.page_size = config_.page_size;
  const char* const network = secure_getenv("MULTIGRAIN_NET");
  // A machine brings its own network, unless another one was named.
  run.network = network != nullptr           ? network
                : virtual_time::is_counted() ? format_network_model(config_.network)
                                             : "ideal";
  run.access = rights_->name();
  const Nanoseconds end = measured_to_.load();
  run.elapsed_ns = (end != 0 ? end : time_of_mark()) - measured_from_.load();
  run.clock = virtual_time::is_counted() ? "counted" : virtual_time::on() ? "virtual" : "wall";
  if (virtual_time::is_counted()) {
    run.machine = config_.machine->name;
    run.caches = config_.caches;
    run.seed = config_.seed;
    if (config_.seed) run.perturb_ns = config_.perturb.value_or(config_.skew);
    run.turns = turns_at_end_;
    run.interruptions = interruptions_at_end_;
  }
  if (hosted_ == nullptr) run.never_started = processors_->never_started();
  {
    const LockGuard hold(rows_lock_);
    run.threads = std::move(rows_);
  }
  std::ranges::sort(run.threads, {}, [](const ThreadRow& row) { return std::tuple(row.node, row.kind, row.tid); });
  run.costs = cost_report();
  const std::string text = config_.stats == StatsFormat::kJson ? render_json(run, reports, &Node::message_name)
                                                               : render_text(run, reports, &Node::message_name);
  std::FILE* const out = config_.stats_file.empty() ? stderr : std::fopen(config_.stats_file.c_str(), "w");
  const bool written =
      out != nullptr && std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0;
  if (!written)
    std::fprintf(stderr, "multigrain: cannot write the statistics to %s: %s\n",
                 config_.stats_file.empty() ? "standard error" : config_.stats_file.c_str(), strerror(errno));
  if (out != nullptr && out != stderr) std::fclose(out);
  return written;
}

}  // namespace multigrain
