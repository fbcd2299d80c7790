#include "trace/analysis/caches.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/quantity.h"

namespace multigrain::trace {
namespace {

// "49152", "48K", "2M".
std::optional<uint64_t> bytes_in(std::string_view text) {
  unsigned shift = 0;
  constexpr std::pair<std::string_view, unsigned> kUnits[] = {{"KiB", 10}, {"K", 10}, {"MiB", 20}, {"M", 20}};
  for (const auto& [unit, bits] : kUnits) {
    if (!text.ends_with(unit)) continue;
    text.remove_suffix(unit.size());
    shift = bits;
    break;
  }
  const auto number = parse_whole(text);
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (!number || *number == 0 || *number > kMost >> shift) return std::nullopt;
  return *number << shift;
}

}  // namespace

CacheSetup CacheSetup::private_levels() const {
  CacheSetup setup{.levels = {}, .line_bytes = line_bytes};
  std::ranges::copy_if(levels, std::back_inserter(setup.levels), [](const CacheLevel& level) { return !level.shared; });
  return setup;
}

Result<CacheSetup> parse_caches(std::string_view text, uint64_t line_bytes) {
  CacheSetup setup{.levels = {}, .line_bytes = line_bytes};
  if (!std::has_single_bit(line_bytes) || line_bytes < 4 || line_bytes > 4096)
    return fail("caches cannot have lines of {} bytes: give a power of two from 4 to 4096", line_bytes);
  if (text == "none") return setup;
  if (text == "today") text = kCachesOfToday;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    at = comma + 1;
    std::string_view rest = item;
    CacheLevel level;
    level.shared = rest.starts_with("shared:");
    if (level.shared) rest.remove_prefix(std::string_view("shared:").size());
    const size_t colon = rest.find(':');
    const auto bytes = bytes_in(rest.substr(0, colon));
    const auto ways = colon == std::string_view::npos ? std::nullopt : parse_whole(rest.substr(colon + 1));
    if (!bytes || !ways)
      return fail(
          "'{}' is no level of a cache: give SIZE:WAYS or shared:SIZE:WAYS, such as 48K:12,1280K:20,shared:54M:12, "
          "or today, or none",
          item);
    if (*ways == 0 || *ways > CacheSetup::kMaxWays)
      return fail("a cache of {} ways cannot be simulated: give 1 to {}", *ways, CacheSetup::kMaxWays);
    level.bytes = *bytes;
    level.ways = static_cast<unsigned>(*ways);
    if (level.bytes % (level.ways * line_bytes) != 0)
      return fail("a cache of {} bytes has no whole number of sets of {} lines of {} bytes each", level.bytes,
                  level.ways, line_bytes);
    if (!setup.levels.empty() && setup.levels.back().shared && !level.shared)
      return fail("a core's own caches come before those that a node's cores share, and '{}' comes behind one", item);
    setup.levels.push_back(level);
    if (setup.levels.size() > CacheSetup::kMaxLevels)
      return fail("caches have at most {} levels", CacheSetup::kMaxLevels);
  }
  return setup;
}

bool Caches::Level::find(uint64_t line, uint32_t number) {
  if (lines_.empty()) return false;
  uint32_t* const set = &lines_[set_of(line)];
  uint32_t* const found = std::find(set, set + ways_, number);
  if (found == set + ways_) return false;
  std::rotate(set, found, found + 1);
  return true;
}

uint32_t Caches::Level::insert(uint64_t line, uint32_t number) {
  if (lines_.empty()) lines_.resize(static_cast<size_t>(sets_) * ways_, kNone);
  uint32_t* const set = &lines_[set_of(line)];
  // Lines without gaps come first, so that the last place is free if any is.
  const uint32_t replaced = set[ways_ - 1];
  std::copy_backward(set, set + ways_ - 1, set + ways_);
  set[0] = number;
  return replaced;
}

bool Caches::Level::has(uint64_t line, uint32_t number) const {
  if (lines_.empty()) return false;
  const uint32_t* const set = &lines_[set_of(line)];
  return std::find(set, set + ways_, number) != set + ways_;
}

void Caches::Level::remove(uint64_t line, uint32_t number) {
  if (lines_.empty()) return;
  uint32_t* const set = &lines_[set_of(line)];
  uint32_t* const found = std::find(set, set + ways_, number);
  if (found == set + ways_) return;
  std::copy(found + 1, set + ways_, found);
  set[ways_ - 1] = kNone;
}

Caches::Caches(const CacheSetup& setup, const ThreadMap& map)
    : line_bytes_(setup.line_bytes),
      node_of_(map.nodes_of_cores()),
      in_private_(map.cores()),
      in_shared_(map.nodes()),
      ever_(map.cores()),
      taken_(map.cores()) {
  std::vector<Level> own, common;
  for (const CacheLevel& level : setup.levels) (level.shared ? common : own).emplace_back(level, setup.line_bytes);
  private_.assign(map.cores(), own);
  shared_.assign(map.nodes(), common);
}

template <typename Replaced>
unsigned Caches::look_up(std::vector<Level>& levels, uint64_t line, uint32_t number, Replaced&& replaced) {
  unsigned missed = 0;
  while (missed < levels.size() && !levels[missed].find(line, number)) ++missed;
  for (unsigned i = missed; i-- > 0;)
    if (const uint32_t old = levels[i].insert(line, number); old != kNone) replaced(old);
  return missed;
}

Caches::Answer Caches::refer(unsigned core, uint64_t line, Access access) {
  replaced_.clear();
  const uint32_t known = lines_.size();
  const uint32_t number = lines_.id(line);
  if (number == known)
    for (ProcessorSets* sets : {&in_private_, &in_shared_, &ever_, &taken_}) sets->reserve_set(number);
  std::vector<Level>& own = private_[core];
  const ProcessorId node = node_of_[core];
  Answer answer{.level = 0, .cause = Cause::kHit};
  if (!in_private_.has(number, core)) {
    answer.cause = !ever_.has(number, core)   ? Cause::kFirst
                   : taken_.has(number, core) ? Cause::kTaken
                                              : Cause::kReplaced;
    answer.level = static_cast<unsigned>(own.size());
    std::vector<Level>& common = shared_[node];
    answer.level += look_up(common, line, number, [&](uint32_t old) {
      const uint64_t its_line = lines_.key(old);
      if (std::ranges::none_of(common, [&](const Level& level) { return level.has(its_line, old); }))
        in_shared_.erase(old, node);
    });
    if (!common.empty()) in_shared_.insert(number, node);
    ever_.insert(number, core);
    taken_.erase(number, core);
  }
  const unsigned missed = look_up(own, line, number, [&](uint32_t old) {
    const uint64_t its_line = lines_.key(old);
    if (std::ranges::any_of(own, [&](const Level& level) { return level.has(its_line, old); })) return;
    in_private_.erase(old, core);
    replaced_.push_back(its_line);
  });
  if (answer.cause == Cause::kHit) answer.level = missed;
  if (!own.empty()) in_private_.insert(number, core);
  if (access == Access::kWrite) take_from_others(core, line, number);
  return answer;
}

void Caches::take_from_others(unsigned core, uint64_t line, uint32_t number) {
  if (!in_private_.empty(number)) {
    in_private_.for_each(number, [&](unsigned other) {
      if (other == core) return;
      for (Level& level : private_[other]) level.remove(line, number);
      taken_.insert(number, other);
    });
    const bool mine = in_private_.has(number, core);
    in_private_.clear(number);
    if (mine) in_private_.insert(number, core);
  }
  const unsigned node = node_of_[core];
  in_shared_.for_each(number, [&](unsigned other) {
    if (other == node) return;
    for (Level& level : shared_[other]) level.remove(line, number);
  });
  const bool here = in_shared_.has(number, node);
  in_shared_.clear(number);
  if (here) in_shared_.insert(number, node);
}

TraceBehindCaches::TraceBehindCaches(std::unique_ptr<TraceSource> source, const CacheSetup& setup, const ThreadMap& map)
    : source_(std::move(source)),
      map_(map),
      line_bytes_(setup.line_bytes),
      levels_(static_cast<unsigned>(setup.levels.size())),
      caches_(setup, map) {}

Result<Batch> TraceBehindCaches::next() {
  const uint64_t first = first_;
  references_.clear();
  while (references_.empty()) {
    auto batch = source_->next();
    if (!batch) return batch;
    if (batch->references.empty() && batch->events.empty()) break;
    for (const Reference& reference : batch->references) {
      if (reference.processor >= map_.threads())
        return fail("the trace has a reference by processor {} behind reference {}; it says that it has {} processors",
                    reference.processor, batch->first, map_.threads());
      bool missed = false;
      for_each_unit(
          reference.address, reference.size, static_cast<unsigned>(std::countr_zero(line_bytes_)), [&](uint64_t line) {
            missed |= caches_.refer(map_.core_of(reference.processor), line, reference.access).level == levels_;
          });
      if (missed) references_.push_back(reference);
    }
  }
  first_ += references_.size();
  return Batch{.first = first, .references = references_, .events = {}};
}

}  // namespace multigrain::trace
