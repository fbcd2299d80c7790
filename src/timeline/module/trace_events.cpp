#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "timeline/module/files.h"

namespace multigrain::timeline {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds, which the format has, to the nanosecond.
std::string us(uint64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

// A message by its sender, its receiver, and its number among theirs.
using MessageName = std::tuple<unsigned, unsigned, uint64_t>;

class Writer {
 public:
  Writer(const WrittenRun& run, RunNames& names) : run_(run), names_(names) {}

  std::string write() {
    text_ = fmt::format(
        R"({{"displayTimeUnit":"ns","otherData":{{"program":{},"nodes":{},"processors_per_node":{},"protocol":{},"clock":{},"network":{}}},"traceEvents":[)",
        quoted(run_.program), run_.nodes, run_.processors_per_node, quoted(run_.protocol), quoted(run_.clock),
        quoted(run_.network));
    find_messages();
    for (unsigned n = 0; n < run_.nodes; ++n)
      add(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"node {}"}}}})", n, n);
    unsigned row = 0;
    for (const WrittenTrack& track : run_.tracks) write_track(track, 2 * ++row);
    text_ += "\n]}\n";
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  // An arrow without one of its ends would be drawn to nowhere.
  void find_messages() {
    std::set<MessageName> sent;
    for (const WrittenTrack& track : run_.tracks)
      for (const Event& event : track.events)
        if (event.kind == Kind::kSend) sent.emplace(track.node, event.peer, event.key);
    for (const WrittenTrack& track : run_.tracks)
      for (const Event& event : track.events)
        if (event.kind == Kind::kHandler && sent.contains({event.peer, track.node, event.key}))
          complete_.emplace(event.peer, track.node, event.key);
  }

  void name_row(const WrittenTrack& track, unsigned row, const std::string& name) {
    add(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", track.node, row, quoted(name));
    add(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", track.node, row,
        row);
  }

  void write_track(const WrittenTrack& track, unsigned row) {
    const std::string name = track_name(track);
    name_row(track, row, name);
    name_row(track, row + 1, name + ": faults, calls, messages");
    if (track.left_out != 0)
      add(R"({{"ph":"i","s":"t","pid":{},"tid":{},"ts":0,"name":{}}})", track.node, row + 1,
          quoted(fmt::format(
              "{} events are left out: those shorter than {} ns, {}and some messages", track.left_out, track.least,
              track.one_in > 1 ? fmt::format("all but one in {} of the longer ones, ", track.one_in) : "")));
    for (const Event& event : track.events) write_event(track, row, event);
  }

  void slice(const WrittenTrack& track, unsigned row, const Event& event, const char* kind, const std::string& name,
             const std::string& arguments) {
    add(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":{},"args":{{{}}}}})", track.node, row,
        us(event.begin), us(event.duration), kind, quoted(name), arguments);
  }

  void write_event(const WrittenTrack& track, unsigned row, const Event& event) {
    switch (event.kind) {
      case Kind::kCategory:
        slice(track, row, event, "time", category_name(event.what), {});
        break;
      case Kind::kCall:
        slice(track, row + 1, event, "call", names_.object(event.what, event.key),
              event.site == 0 ? std::string() : fmt::format(R"("at":{})", quoted(names_.call(event.site))));
        break;
      case Kind::kFault:
        slice(track, row + 1, event, "fault", names_.fault(event),
              fmt::format(R"("address":"{:#x}","at":{})", event.key, quoted(names_.instruction(event.site))));
        break;
      case Kind::kHandler:
        slice(track, row + 1, event, "message", "handles " + message(event.what),
              fmt::format(R"("from node":{},"bytes":{})", event.peer, event.bytes));
        if (complete_.contains({event.peer, track.node, event.key}))
          add(R"({{"ph":"f","bp":"e","id":"{}-{}-{}","pid":{},"tid":{},"ts":{},"cat":"message","name":{}}})",
              event.peer, track.node, event.key, track.node, row + 1, us(event.begin), quoted(message(event.what)));
        break;
      case Kind::kSend:
        // A slice of its own, however short, is what the arrow begins at.
        slice(track, row + 1, event, "message", "sends " + message(event.what),
              fmt::format(R"("to node":{},"bytes":{})", event.peer, event.bytes));
        if (complete_.contains({track.node, event.peer, event.key}))
          add(R"({{"ph":"s","id":"{}-{}-{}","pid":{},"tid":{},"ts":{},"cat":"message","name":{}}})", track.node,
              event.peer, event.key, track.node, row + 1, us(event.begin), quoted(message(event.what)));
        break;
    }
  }

  std::string message(uint8_t type) const { return RunNames::message(run_, type); }

  const WrittenRun& run_;
  RunNames& names_;
  std::set<MessageName> complete_;
  std::string text_;
  bool is_first_ = true;
};

}  // namespace

std::string trace_events(const WrittenRun& run, RunNames& names) {
  return Writer(run, names).write();
}

}  // namespace multigrain::timeline
