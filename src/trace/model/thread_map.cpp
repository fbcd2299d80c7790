#include "trace/model/thread_map.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/quantity.h"

namespace multigrain::trace {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};

std::optional<uint32_t> number_in(std::string_view text) {
  const auto number = parse_whole(text, kNowhere);
  return number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
}

// Where a thread is, as the map's text says it.
struct Spot {
  uint32_t node = kNowhere;
  uint32_t core = kNowhere;  // of the node; kNowhere: one of the thread's own
};

Status check_nodes(unsigned nodes) {
  if (nodes <= Machine::kMaxProcessors) return {};
  return fail("a map has at most {} nodes, numbered from 0 on", Machine::kMaxProcessors);
}

// "2" or "2x4" behind "block:" or "cyclic:".
Result<std::vector<Spot>> distribute(std::string_view how, std::string_view numbers, unsigned threads) {
  const size_t x = numbers.find('x');
  const auto nodes = number_in(numbers.substr(0, x));
  const auto cores = x == std::string_view::npos ? std::optional(0u) : number_in(numbers.substr(x + 1));
  if (!nodes || !cores || *nodes == 0 || (x != std::string_view::npos && *cores == 0))
    return fail("the map '{}:{}' is not understood: give {}:NODES or {}:NODESxCORES, such as {}:2 or {}:2x4", how,
                numbers, how, how, how, how);
  if (Status status = check_nodes(*nodes); !status) return tl::unexpected(status.error());
  std::vector<Spot> spots(threads);
  std::vector<unsigned> on_node(*nodes);
  for (unsigned thread = 0; thread < threads; ++thread) {
    const auto node = how == "cyclic" ? thread % *nodes : static_cast<unsigned>(uint64_t{thread} * *nodes / threads);
    spots[thread].node = node;
    if (*cores != 0) spots[thread].core = on_node[node]++ % *cores;
  }
  return spots;
}

// A list of THREADS:NODE[.CORE].
Result<std::vector<Spot>> listed(std::string_view text, unsigned threads) {
  std::vector<Spot> spots(threads);
  std::vector<unsigned> waiting;  // threads whose node follows
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    at = comma + 1;
    const size_t colon = item.find(':');
    const std::string_view range = item.substr(0, colon);
    const size_t dash = range.find('-');
    const auto first = number_in(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_in(range.substr(dash + 1));
    if (!first || !last || *last < *first)
      return fail("'{}' in the map names no threads: give a number or a range, and the node, such as 0-3:0,4-7:1",
                  item);
    if (*last >= threads)
      return fail("the map names thread {}, and the trace has {} threads, numbered from 0 on", *last, threads);
    for (unsigned thread = *first; thread <= *last; ++thread) {
      if (spots[thread].node != kNowhere || std::ranges::find(waiting, thread) != waiting.end())
        return fail("the map names thread {} twice", thread);
      waiting.push_back(thread);
    }
    if (colon == std::string_view::npos) continue;
    const std::string_view where = item.substr(colon + 1);
    const size_t dot = where.find('.');
    const auto node = number_in(where.substr(0, dot));
    const auto core = dot == std::string_view::npos ? std::optional(kNowhere) : number_in(where.substr(dot + 1));
    if (!node || !core)
      return fail("'{}' in the map names no node: give NODE or NODE.CORE behind the colon, such as 0-3:0 or 0,1:0.2",
                  item);
    if (Status status = check_nodes(*node < kNowhere ? *node + 1 : *node); !status)
      return tl::unexpected(status.error());
    for (const unsigned thread : waiting) spots[thread] = {.node = *node, .core = *core};
    waiting.clear();
  }
  if (!waiting.empty())
    return fail("the map names no node for thread {}: end it with a colon and the node", waiting[0]);
  for (unsigned thread = 0; thread < threads; ++thread)
    if (spots[thread].node == kNowhere)
      return fail("the map says nothing about thread {} of the trace's {}; it must name every one", thread, threads);
  return spots;
}

}  // namespace

ThreadMap::ThreadMap(unsigned threads) : nodes_(threads) {
  for (unsigned thread = 0; thread < threads; ++thread) node_of_.push_back(static_cast<ProcessorId>(thread));
  core_of_ = node_of_core_ = node_of_;
}

Result<ThreadMap> ThreadMap::parse(std::string_view text, unsigned threads) {
  const size_t colon = text.find(':');
  const std::string_view how = text.substr(0, colon);
  const bool is_distribution = colon != std::string_view::npos && (how == "block" || how == "cyclic");
  const auto spots = is_distribution ? distribute(how, text.substr(colon + 1), threads) : listed(text, threads);
  if (!spots) return tl::unexpected(spots.error());
  ThreadMap map;
  std::map<std::pair<uint32_t, uint32_t>, ProcessorId> cores;  // by node, and number there
  std::map<uint32_t, bool> numbered;                           // of each node, whether its threads are given cores
  for (unsigned thread = 0; thread < threads; ++thread) {
    const Spot& spot = (*spots)[thread];
    const bool has_core = spot.core != kNowhere;
    if (!numbered.try_emplace(spot.node, has_core).second && numbered[spot.node] != has_core)
      return fail("the map gives some threads of node {} a core, and others none; give all of them one, or none",
                  spot.node);
    // No thread's number is a core's here, because a node's threads are all given cores, or none.
    const auto [core, fresh] =
        cores.try_emplace({spot.node, has_core ? spot.core : thread}, static_cast<ProcessorId>(cores.size()));
    if (fresh) map.node_of_core_.push_back(static_cast<ProcessorId>(spot.node));
    map.node_of_.push_back(static_cast<ProcessorId>(spot.node));
    map.core_of_.push_back(core->second);
    map.nodes_ = std::max(map.nodes_, spot.node + 1);
  }
  return map;
}

TraceByPlace::TraceByPlace(std::unique_ptr<TraceSource> source, const ThreadMap& map, MemoryOf memory)
    : source_(std::move(source)), places_(map.places(memory)) {
  for (unsigned thread = 0; thread < map.threads(); ++thread) place_of_.push_back(map.place_of(thread, memory));
}

const TraceHeader& TraceByPlace::header() const {
  header_ = source_->header();
  header_.processors = places_;
  return header_;
}

Result<Batch> TraceByPlace::next() {
  auto batch = source_->next();
  if (!batch) return batch;
  references_.assign(batch->references.begin(), batch->references.end());
  events_.assign(batch->events.begin(), batch->events.end());
  for (Reference& reference : references_) {
    if (reference.processor >= place_of_.size())
      return fail("the trace has a reference by processor {} behind reference {}; it says that it has {} processors",
                  reference.processor, batch->first, place_of_.size());
    reference.processor = place_of_[reference.processor];
  }
  // What reads events tells processors apart, and counts on none of them: an unknown one is the first.
  for (Event& event : events_)
    event.processor = event.processor < place_of_.size() ? place_of_[event.processor] : ProcessorId{0};
  return Batch{.first = batch->first, .references = references_, .events = events_};
}

}  // namespace multigrain::trace
