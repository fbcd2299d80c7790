// The time line of a run: how a node begins to keep its own, and how node 0 collects and writes all of them (node.h).
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/lock_guard.h"
#include "fabric/module.h"
#include "fabric/timeline_fabric.h"
#include "memory/heap/shared_heap.h"
#include "profile/profile.h"
#include "runtime/message_types.h"
#include "runtime/node.h"
#include "runtime/private/private_heap.h"
#include "sync/futex/messages.h"
#include "sync/messages.h"
#include "timeline/module.h"

namespace multigrain {
namespace {

using timeline::Event;

// The events of all tracks of the machine: 40 MiB, and a file of some 100 MB.
constexpr uint64_t kEventsOfMachine = uint64_t{1} << 20;
constexpr uint64_t kLeastEvents = 4096;
constexpr uint64_t kMostEvents = uint64_t{1} << 18;
// Beside the processors and the service thread, of a node: threads that the runtime or a hosted program has.
constexpr uint32_t kOtherTracks = 64;
// How often node 0 asks another host for its time: the answer that took the least time counts.
constexpr unsigned kClockQuestions = 8;

// What comes before a track's events, from another node.
struct TrackHead {
  uint32_t owner;
  uint32_t number;
  uint64_t events;
  uint64_t least;
  uint64_t one_in;
  uint64_t left_out;
  double units_per_us;
  uint64_t threads_without_track;
};
static_assert(std::is_trivially_copyable_v<TrackHead>);

// Returns the name of a message's type; of messages that are no protocol's, that of the component that sends them.
const char* name_of_message(uint8_t type) {
  if (const char* const name = Node::message_name(type)) return name;
  if (type >= message_range::kSync && type < message_range::kSyncEnd) return "SYNC";
  if (type >= message_range::kFutex && type < message_range::kFutexEnd) return "FUTEX";
  if (type >= message_range::kHeap && type < message_range::kHeapEnd) return "HEAP";
  if (type >= message_range::kRuntime && type < message_range::kRuntimeEnd) return "RUN";
  return nullptr;
}

constexpr size_t kEventsOfMessage = Fabric::kMaxPayload / sizeof(Event);

}  // namespace

Status Node::start_timeline() {
  if (config_.timeline_file.empty()) return {};
  const uint64_t events =
      std::clamp(kEventsOfMachine / (config_.processors() + config_.nodes), kLeastEvents, kMostEvents);
  if (Status started = timeline::start({.tracks = config_.processors_per_node + 2 + kOtherTracks,
                                        .events = static_cast<uint32_t>(events),
                                        .now = &time_stamp,
                                        .units_per_us = time_stamps_per_us()});
      !started)
    return fail("--timeline: {}", started.error().message);
  timeline_from_ = virtual_time::on() ? 0 : time_stamp();
  fabric_ = std::make_unique<TimelineFabric>(std::move(fabric_));
  set_handler<&Node::handle_timeline_track>(runtime_message::kTimelineTrack);
  set_handler<&Node::handle_timeline_events>(runtime_message::kTimelineEvents);
  set_handler<&Node::handle_timeline_clock>(runtime_message::kTimelineClock);
  return {};
}

// On another node than 0, at the end of the run.
void Node::send_timeline() {
  if (!timeline::on()) return;
  // Threads have taken their tracks in any order. What is sent is in the time line, too, which is the same twice in counted time.
  const BootHeapScope boot;
  std::vector<const timeline::Track*> tracks;
  for (const timeline::Track& track : timeline::tracks()) tracks.push_back(&track);
  std::ranges::sort(tracks, {},
                    [](const timeline::Track* track) { return std::pair(track->owner(), track->number()); });
  for (const timeline::Track* const track : tracks) {
    // The track of a thread that still runs may grow meanwhile.
    const std::span<const Event> events = track->events();
    const TrackHead head{.owner = static_cast<uint32_t>(track->owner()),
                         .number = track->number(),
                         .events = events.size(),
                         .least = track->least(),
                         .one_in = track->one_in(),
                         .left_out = track->left_out(),
                         .units_per_us = timeline::options().units_per_us,
                         .threads_without_track = timeline::threads_without_track()};
    MessageHeader header;
    header.type = runtime_message::kTimelineTrack;
    fabric_->send(NodeId(0), header, std::as_bytes(std::span(&head, 1)), {}, SendContext::kOrdinary);
    header.type = runtime_message::kTimelineEvents;
    for (size_t sent = 0; sent < events.size(); sent += kEventsOfMessage)
      fabric_->send(NodeId(0), header,
                    std::as_bytes(events.subspan(sent, std::min(kEventsOfMessage, events.size() - sent))), {},
                    SendContext::kOrdinary);
  }
}

void Node::handle_timeline_track(const Message& message) {
  TrackHead head{};
  if (config_.node != NodeId(0) || !timeline::on() || message.payload.size() != sizeof head)
    panic("a track of a time line that cannot be right, from node", message.from.value);
  std::memcpy(&head, message.payload.data(), sizeof head);
  if (head.owner > static_cast<uint32_t>(timeline::Owner::kThread) || head.events > kMostEvents ||
      !(head.units_per_us > 0))
    panic("a track of a time line that makes no sense, from node", message.from.value);
  const LockGuard hold(rows_lock_);
  timeline_tracks_.push_back({.track = {.node = message.from.value,
                                        .owner = static_cast<timeline::Owner>(head.owner),
                                        .number = head.number,
                                        .least = head.least,
                                        .one_in = head.one_in,
                                        .left_out = head.left_out,
                                        .events = {}},
                              .units_per_us = head.units_per_us,
                              .wanted = head.events});
  timeline_tracks_.back().track.events.reserve(head.events);
  if (timeline_tracks_.size() == 1 || timeline_tracks_[timeline_tracks_.size() - 2].track.node != message.from.value)
    threads_without_track_ += head.threads_without_track;
}

void Node::handle_timeline_events(const Message& message) {
  const LockGuard hold(rows_lock_);
  // The messages of several nodes may alternate; a node's own are in order.
  const auto track = std::find_if(timeline_tracks_.rbegin(), timeline_tracks_.rend(),
                                  [&](const CollectedTrack& each) { return each.track.node == message.from.value; });
  const size_t count = message.payload.size() / sizeof(Event);
  if (track == timeline_tracks_.rend() || message.payload.size() % sizeof(Event) != 0 ||
      track->track.events.size() + count > track->wanted)
    panic("events of a time line that cannot be right, from node", message.from.value);
  const size_t before = track->track.events.size();
  track->track.events.resize(before + count);
  std::memcpy(&track->track.events[before], message.payload.data(), message.payload.size());
}

// word[0] is 0 for a question, and 1 for the answer, which has the time in word[1].
void Node::handle_timeline_clock(const Message& message) {
  if (message.header.word[0] == 0) {
    MessageHeader answer;
    answer.type = runtime_message::kTimelineClock;
    answer.word[0] = 1;
    answer.word[1] = timeline::on() ? timeline::options().now() : 0;
    fabric_->send(message.from, answer, SendContext::kHandler);
    return;
  }
  timeline_answer_ = message.header.word[1];
  changed_.notify();
}

// Hosts have clocks of their own. A message takes about as long there as back, so the time in the answer is that in the
// middle between question and answer here.
void Node::compare_clocks() {
  timeline_clocks_.assign(config_.nodes, {.theirs = timeline_from_, .ours = timeline_from_});
  if (!timeline::on() || ucx_ == nullptr || virtual_time::on()) return;
  for (unsigned n = 1; n < config_.nodes; ++n) {
    uint64_t shortest = UINT64_MAX;
    for (unsigned i = 0; i < kClockQuestions; ++i) {
      timeline_answer_ = 0;
      MessageHeader question;
      question.type = runtime_message::kTimelineClock;
      const uint64_t asked = time_stamp();
      fabric_->send(NodeId(static_cast<uint16_t>(n)), question, SendContext::kOrdinary);
      wait_until(*fabric_, wait_, changed_, [this] { return timeline_answer_.load() != 0; });
      const uint64_t took = time_stamp() - asked;
      if (took >= shortest) continue;
      shortest = took;
      timeline_clocks_[n] = {.theirs = timeline_answer_.load(), .ours = asked + took / 2};
    }
  }
}

bool Node::write_timeline() {
  if (!timeline::on()) return true;
  timeline::WrittenRun run;
  run.program = hosted_ != nullptr ? hosted_->program() : program_invocation_short_name;
  run.nodes = config_.nodes;
  run.processors_per_node = config_.processors_per_node;
  run.protocol = config_.traits().name;
  run.clock = virtual_time::is_counted() ? "counted" : virtual_time::on() ? "virtual" : "wall";
  run.network = config_.network.ideal() ? "ideal" : format_network_model(config_.network);
  run.message_name = &name_of_message;
  run.threads_without_track = timeline::threads_without_track();
  const double own_units = timeline::options().units_per_us;
  const auto to_ns = [](double units, double per_us) { return units * 1000.0 / per_us; };
  // The track's times are in time stamps, and in nanoseconds in the written one.
  const auto add = [&](const timeline::WrittenTrack& stamped, double units) {
    timeline::WrittenTrack track = stamped;
    track.events.clear();
    const ClockPair& clocks = timeline_clocks_[track.node];
    const double ours = to_ns(static_cast<double>(static_cast<int64_t>(clocks.ours - timeline_from_)), own_units);
    track.least = static_cast<uint64_t>(to_ns(static_cast<double>(track.least), units));
    for (Event event : stamped.events) {
      if (event.duration > UINT64_MAX / 2 || static_cast<unsigned>(event.kind) >= timeline::kKinds) continue;
      const double begin = ours + to_ns(static_cast<double>(static_cast<int64_t>(event.begin - clocks.theirs)), units);
      event.begin = begin > 0 ? static_cast<uint64_t>(begin) : 0;
      event.duration = static_cast<uint64_t>(to_ns(static_cast<double>(event.duration), units));
      track.events.push_back(event);
    }
    run.tracks.push_back(std::move(track));
  };
  for (const timeline::Track& track : timeline::tracks())
    add({.node = 0,
         .owner = track.owner(),
         .number = track.number(),
         .least = track.least(),
         .one_in = track.one_in(),
         .left_out = track.left_out(),
         .events = {track.events().begin(), track.events().end()}},
        own_units);
  {
    const LockGuard hold(rows_lock_);
    for (const CollectedTrack& each : timeline_tracks_) add(each.track, each.units_per_us);
    run.threads_without_track += threads_without_track_;
  }
  const auto open = load_module(timeline::kModuleName, timeline::kModuleSymbol);
  Status written;
  if (open)
    written = reinterpret_cast<decltype(&multigrain_timeline_module)>(*open)()->write(run, config_.timeline_file,
                                                                                      *node_status());
  else
    written = tl::unexpected(open.error());
  if (!written) std::fprintf(stderr, "multigrain: --timeline: %s\n", written.error().message.c_str());
  return written.has_value();
}

}  // namespace multigrain
