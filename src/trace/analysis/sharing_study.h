// This is the part of a study that is about false sharing (sections 7.2 to 7.4 of [Bolosky]): its bounds by block size,
// what it is attributed to, and what other layouts would save.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "trace/analysis/address_map.h"
#include "trace/analysis/attribution.h"
#include "trace/analysis/false_sharing.h"
#include "trace/analysis/study_json.h"
#include "trace/analysis/study_passes.h"

namespace multigrain::trace {

class SharingStudy {
 public:
  // `machines` are those that were asked for, at least one; `all_references` include private ones. What moves between what
  // is a question of memories: those of the first machine. Everything that is handed over by reference must live as long as
  // the study. `has_synchronisation`: the trace has locks or barriers.
  SharingStudy(const StudyOptions& options, std::vector<Machine> machines, ThreadMap map, uint64_t all_references,
               bool has_synchronisation, const TraceNames& names)
      : options_(options),
        machines_(std::move(machines)),
        map_(std::move(map)),
        memory_(machines_[0].memory),
        processors_(map_.places(memory_)),
        all_references_(all_references),
        has_synchronisation_(has_synchronisation),
        names_(names) {}

  // Returns the false-sharing document of the trace that these passes read. The first call is for the trace as it is,
  // and makes the plans of other layouts; later ones are for perturbed traces, in which the same fields, blocks and
  // layouts are looked at again.
  Result<nlohmann::json> document(const StudyPasses& passes);

 private:
  // These are the block moves of machines without choices, at all block sizes and at one word.
  struct Moves {
    std::vector<MoveCounter> blocks;
    std::optional<MoveCounter> words;
  };
  struct FieldOf {
    uint32_t name;  // the name of its group
    SiteId site;
    Field field;
  };

  Result<Moves> count_moves(const StudyPasses& passes) const;
  [[nodiscard]] nlohmann::json block_size_json(const MoveCounter& counter, const MoveCounter& words,
                                               const IntervalResult& interval, const IntervalResult* by_locks) const;
  Status attribute(const StudyPasses& passes, const Moves& moves, nlohmann::json& out);
  // Returns the numbers of the groups that have moves or cause some, those to blame for the most false sharing first.
  [[nodiscard]] std::vector<uint32_t> groups_by_blame(const AttributionResult& result) const;
  [[nodiscard]] nlohmann::json groups_json(const AttributionResult& result, const std::vector<uint32_t>& order) const;
  nlohmann::json fields_json(const Attribution& attribution, const AttributionResult& result);
  [[nodiscard]] nlohmann::json causes_json(const AttributionResult& result) const;
  nlohmann::json hot_blocks_json(const Attribution& attribution, const AttributionResult& result);
  void make_plans(const Attribution& attribution, const AttributionResult& result, const std::vector<uint32_t>& order);
  Result<nlohmann::json> plans_json(const StudyPasses& passes, uint64_t moves_before, const CacheSetup* caches) const;

  // This says whether the trace as it is has been studied, so that this one is perturbed.
  [[nodiscard]] bool is_perturbed() const { return plans_.has_value(); }
  [[nodiscard]] bool has_map() const { return !options_.map.empty(); }
  // A list has at most so many entries.
  [[nodiscard]] size_t most_entries() const;
  [[nodiscard]] double per_reference(double cost) const { return cost / static_cast<double>(all_references_); }

  const StudyOptions& options_;
  std::vector<Machine> machines_;
  ThreadMap map_;
  MemoryOf memory_;
  unsigned processors_;  // the memories between which blocks move
  uint64_t all_references_;
  bool has_synchronisation_;
  const TraceNames& names_;
  std::vector<FieldOf> fields_;             // the fields in the attribution
  std::vector<uint64_t> hot_addresses_;     // the addresses of the hot blocks in the attribution
  std::optional<std::vector<Plan>> plans_;  // plans of other layouts, made for the trace as it is
};

}  // namespace multigrain::trace
