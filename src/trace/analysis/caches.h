// Caches without which no machine of today is: private levels of each core, and shared levels of each node.
//
// The placement model prices references to memory, and a reference that a cache answers is none. So caches stand in front of
// the model, which then sees what misses them (TraceBehindCaches); and where what moves are the lines of the caches
// themselves (analysis/attribution.h), they say which lines would have been replaced anyway.
//
// A reference looks for its line in the levels of its core, from the first on, and then in those of its node. The levels
// before the one that has it, or all levels if none has it, take the line in. Each level has sets, of which the line's number
// chooses one, and replaces the least recently used line of a set. No level has to hold what others hold, and a line that a
// level replaces is dropped, not handed on. A write takes the line out of all other cores' levels and of all other nodes', so
// that the caches are coherent. There is no prefetching.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "trace/analysis/block_ids.h"
#include "trace/model/thread_map.h"
#include "trace/trace.h"

namespace multigrain::trace {

struct CacheLevel {
  uint64_t bytes = 0;
  unsigned ways = 0;
  bool shared = false;  // by the cores of a node
  friend bool operator==(const CacheLevel&, const CacheLevel&) = default;
};

struct CacheSetup {
  static constexpr unsigned kMaxWays = 64;
  static constexpr size_t kMaxLevels = 6;

  std::vector<CacheLevel> levels;  // the private ones first, each from the smallest on
  uint64_t line_bytes = 64;

  [[nodiscard]] bool empty() const { return levels.empty(); }
  // These caches without the shared ones.
  [[nodiscard]] CacheSetup private_levels() const;
};

// The caches of a 32-core Ice Lake Xeon (8375C), the machine `cache-lines`.
inline constexpr std::string_view kCachesOfToday = "48K:12,1280K:20,shared:54M:12";

// Reads caches with lines of so many bytes: a list of SIZE:WAYS for a core's levels, then of shared:SIZE:WAYS for a node's;
// or "today", which is kCachesOfToday, or "none". Sizes are bytes, or have K or M. An error is a sentence.
Result<CacheSetup> parse_caches(std::string_view text, uint64_t line_bytes);

// These are all caches of a machine, in a state that references change. It is not thread-safe.
class Caches {
 public:
  // The map says how many cores and nodes there are.
  Caches(const CacheSetup& setup, const ThreadMap& map);

  enum class Cause : uint8_t {
    kHit,       // a private level had the line
    kFirst,     // the core has never had it
    kReplaced,  // the core's levels have replaced it
    kTaken,     // another core's write took it
  };
  struct Answer {
    unsigned level;  // the one that had the line; the number of levels if none had it
    Cause cause;     // why no private level had it
  };
  // A core refers to the line with this number (address / line_bytes).
  Answer refer(unsigned core, uint64_t line, Access access);
  // The lines that the last reference's core lost by replacement: no private level of the core has them any more.
  [[nodiscard]] std::span<const uint64_t> replaced() const { return replaced_; }
  [[nodiscard]] uint64_t line_bytes() const { return line_bytes_; }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // One level of one core or node: the lines of each set, the most recently used first; kNone where there is none.
  class Level {
   public:
    Level(const CacheLevel& level, uint64_t line_bytes)
        : ways_(level.ways), sets_(level.bytes / (uint64_t{level.ways} * line_bytes)) {}
    // Finds the line and makes it the most recently used.
    bool find(uint64_t line, uint32_t number);
    // Takes in a line that is not there; returns the number of the one that is replaced, or kNone.
    uint32_t insert(uint64_t line, uint32_t number);
    [[nodiscard]] bool has(uint64_t line, uint32_t number) const;
    void remove(uint64_t line, uint32_t number);

   private:
    [[nodiscard]] size_t set_of(uint64_t line) const { return static_cast<size_t>(line % sets_) * ways_; }
    unsigned ways_;
    uint64_t sets_;
    std::vector<uint32_t> lines_;  // empty until the first insertion
  };
  // Looks for the line in the levels, and lets those that precede the one that has it take it in. Calls replaced(number) for
  // each line that one of them replaces. Returns how many levels did not have it.
  template <typename Replaced>
  static unsigned look_up(std::vector<Level>& levels, uint64_t line, uint32_t number, Replaced&& replaced);
  void take_from_others(unsigned core, uint64_t line, uint32_t number);

  uint64_t line_bytes_;
  std::vector<ProcessorId> node_of_;         // of each core
  std::vector<std::vector<Level>> private_;  // of each core
  std::vector<std::vector<Level>> shared_;   // of each node
  BlockIds lines_;
  // By a line's number: the cores whose private levels have it, the nodes whose shared levels have it, the cores that have
  // had it, and those from which a write has taken it.
  ProcessorSets in_private_, in_shared_, ever_, taken_;
  std::vector<uint64_t> replaced_;
};

// These are the references of a trace that no level of the caches answers, without the trace's events: private references
// hit. A reference to two lines is there if one of them is missing.
class TraceBehindCaches final : public TraceSource {
 public:
  TraceBehindCaches(std::unique_ptr<TraceSource> source, const CacheSetup& setup, const ThreadMap& map);
  [[nodiscard]] const TraceHeader& header() const override { return source_->header(); }
  Result<Batch> next() override;

 private:
  std::unique_ptr<TraceSource> source_;
  ThreadMap map_;
  uint64_t line_bytes_;
  unsigned levels_;
  Caches caches_;
  std::vector<Reference> references_;
  uint64_t first_ = 0;
};

}  // namespace multigrain::trace
