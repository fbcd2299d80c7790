#include "timeline/module.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <tuple>
#include <vector>

#include "base/output_file.h"
#include "timeline/module/files.h"
#include "timeline/module/run_names.h"

namespace multigrain::timeline {
namespace {

Status write(WrittenRun& run, const std::string& file, const NodeStatus& own) {
  // Rows are in the order of nodes, processors before the threads of the runtime; a row's events in the order of their times,
  // of two that begin together first the one that has the other inside.
  std::ranges::sort(run.tracks, {},
                    [](const WrittenTrack& track) { return std::tuple(track.node, track.owner, track.number); });
  // Threads of the runtime that had nothing to do would be empty rows.
  std::erase_if(run.tracks,
                [](const WrittenTrack& track) { return track.owner == Owner::kThread && track.events.empty(); });
  for (WrittenTrack& track : run.tracks)
    std::ranges::sort(track.events, {}, [](const Event& event) { return std::tuple(event.begin, ~event.duration); });
  RunNames names(own);
  return write_output_file(file, file.ends_with(".html") ? page(run, names) : trace_events(run, names));
}

// Returns "add_forces at water.h:195" of "void add_forces(System const&) at water.h:195".
std::string without_types(const std::string& place) {
  const size_t at = place.rfind(" at ");
  if (at == std::string::npos) return place;
  std::string name;
  unsigned depth = 0;  // inside of brackets
  for (size_t i = 0; i < at; ++i) {
    const char c = place[i];
    const bool is_operator = name.ends_with("operator") || name.ends_with("operator<") || name.ends_with("operator>") ||
                             name.ends_with("operator-");
    if (c == '(' && depth == 0 && !is_operator) break;
    if (c == '<' && !is_operator) ++depth;
    if (c == ' ' && depth == 0 && !name.ends_with("operator"))
      name.clear();
    else
      name += c;
    if (c == '>' && depth != 0) --depth;
  }
  return (name.empty() ? place.substr(0, at) : name) + place.substr(at);
}

class PlacesOfThisProcess final : public Places {
 public:
  explicit PlacesOfThisProcess(const NodeStatus& own) : names_(own) {
    for (const Origin& origin : own.origin) {
      const uint64_t begin = origin.key.load(std::memory_order_acquire);
      const uint64_t size = origin.size.load(std::memory_order_relaxed);
      const uint64_t made = origin.made.load(std::memory_order_relaxed);
      if (begin > Origin::kBusy && size != 0 && made != 0) blocks_.push_back({begin, size, made});
    }
    std::ranges::sort(blocks_, {}, &Made::begin);
  }

  Block block(uint64_t address) override {
    const auto after = std::ranges::upper_bound(blocks_, address, {}, &Made::begin);
    if (after == blocks_.begin()) return {};
    const Made& made = *std::prev(after);
    if (address - made.begin >= made.size) return {};
    return {.name = without_types(names_.call(made.site)), .begin = made.begin, .size = made.size};
  }
  std::string instruction(uint64_t address) override { return without_types(names_.instruction(address)); }
  std::string call(uint64_t return_address) override { return without_types(names_.call(return_address)); }
  std::string object(uint8_t call, uint64_t handle) override { return names_.object(call, handle); }

 private:
  struct Made {
    uint64_t begin;
    uint64_t size;
    uint64_t site;
  };
  RunNames names_;
  std::vector<Made> blocks_;
};

constexpr Module kModule{.write = &write, .places = [](const NodeStatus& own) -> std::unique_ptr<Places> {
                           return std::make_unique<PlacesOfThisProcess>(own);
                         }};

}  // namespace
}  // namespace multigrain::timeline

extern "C" [[gnu::visibility("default")]] const multigrain::timeline::Module* multigrain_timeline_module() {
  return &multigrain::timeline::kModule;
}
