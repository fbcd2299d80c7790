// This makes a whole study of one trace: what `mgtrace analyze` computes, as one JSON document, which its tables, the
// HTML report and the Python package read.
//
// Costs are in local references of their machine. An MCPR counts private references as local ones. A value is null if
// it does not exist or is not known. A SITE is null or {"file", "line", "function"}, and, where it is
// known by which calls the function was reached, "callers": [{"file", "line", "function"}, ...], the innermost first. A SPREAD is null (if the user did
// not ask for it) or {"local": PERCENT, "gap": PERCENT}: by how much the cost differs at most when the trace is
// perturbed ([Bolosky], section 4.3), in per cent of the cost. SPREADS is null or an object of such spreads by the
// names of the figures beside it (for the figures in a MOVES, by their names there). PARTS are the parts of a cost:
//   {"local", "global", "remote", "remote_moves", "global_moves"}  counts
// and AREAS the same as contributions to the MCPR, which add up to it:
//   {"local", "global", "remote", "overhead", "data_transfer"}     moves split by equation 7.1
//
// {
//   "schema": "mgtrace-analysis", "version": 1,
//   "trace": {"program", "recorder", "dilation", "processors", "references", "private_references",
//     "sampling": null | {"burst", "interval", "scale"},    scale: references of the run for each one of the trace, of which
//       all counts below are
//     "map": null (each thread is a core and a node of its own) | {"nodes", "cores", "threads": [{"node", "core"}, ...]}},
//   "perturbation": null | {"runs", "seed"},
//   "caches": null | {"line", "levels": [{"bytes", "ways", "shared", "hits"}, ...], "misses",    counts of references
//     "own": {"first", "replaced", "taken"}},          why a core's own levels did not have a line, by lines
//   "machines": [{                     the machines asked for, each at its own block size
//     "machine": {...},                as in a machine file
//     "R", "G",                        at this block size
//     "blocks",                        that the trace touches
//     "references",                    that are priced: without caches all, private ones too; with caches those that miss
//     "results": [RESULT, ...],        the first is "optimal", then the policies
//     "hot_blocks": [{                 by optimal cost above that of local references, the most first
//       "address", "references", "cost", "moves", "readers", "writers",
//       "owners": [{"name", "site": SITE, "references"}], "sites": [{"site": SITE, "references"}],
//       "spreads": SPREADS}]}],          of cost, of excess (cost less references) and of moves
//   "block_sizes": [RESULT with {"machine": name, "block_size", "moves_per_block", "moves_spread": SPREAD}, ...],
//   "parameters": [RESULT with {"machine": name, "block_size", "parameter": "R"|"r"|"G"|"g"|"o_s", "value",
//                  "moves_per_block", "moves_spread": SPREAD,
//                  "policies": {policy: MCPR}}, ...],   of the placements that they choose on the machine itself
//   "tlb": null | {"miss_rates": [{"tlb": name, "sets", "ways", "pages_per_entry", "miss_cost",
//                  "rates": [{"page_size", "misses", "rate", "mcpr"}]}],      mcpr: what misses add to it
//                  "corrected": [{"machine", "page_size", "mcpr", "corrected": {tlb name: MCPR with misses}}]},
//   "variable_blocks": null | [{        blocks of several sizes, for each machine (variable_blocks.h)
//     "machine": name,
//     "block_sizes": [{"block_size", "mcpr", "separate_mcpr"}, ...],   one size for all; separate: allocations share no block
//     "mcpr",                           with the best size for each group
//     "groups": [{"name", "site": SITE, "references", "block_size", "excess", "excesses": [...]}, ...]}],   by what its own size
//       saves, the most first; excess: the cost above a unit for each reference, at its size and at all of them
//   "false_sharing": null | {
//     "word_size", "merge_ratio",      M in units of R
//     "block_sizes": [{"block_size", "moves", "word_moves", "write_shared_blocks", "full_duration_blocks",
//       "separable_words", "separable_references",
//       "interval_moves", "full_duration_moves",                 savings in units of R
//       "lock_interval_moves",           of intervals that end at synchronisation; null if the trace has none
//       "machines": [{"machine", "overhead", "data_transfer",    contributions to the MCPR, as all that follow
//         "overhead_component", "data_transfer_component",       equation 7.5
//         "lower", "upper",                                      of false sharing, cost components
//         "interval_lower", "lock_interval_lower", "full_duration", "fragmentation_upper", "grouping_lower", "grouping_upper",
//         "spreads": SPREADS}],
//       "spreads": SPREADS}],
//     "places": "processor" | "core" | "node",    between which blocks move here: the memories of the first machine
//     "attribution": {"block_size", "moves": MOVES, "across_nodes",
//       "replaced",    fetches of written lines that the caches had replaced, which are no moves; null without such caches
//       "machine": name, "mcpr_per_move", "spreads": SPREADS,
//       "groups": [{"group", "name", "site": SITE, "instances", "bytes", "address", "moves": MOVES, "across_nodes", "culprit",
//         "spreads": SPREADS}],        across_nodes: the false moves whose block another node's write took; null without a map
//       "fields": [{"group", "offset", "bytes", "readers", "writers", "victim", "culprit", "spreads": SPREADS}],
//       "causes": [{"victim_group", "victim_site": SITE, "culprit_group", "culprit_site": SITE, "moves",
//         "spreads": SPREADS}],
//       "hot_blocks": [{"address", "moves": MOVES, "groups": [...], "sites": [SITE, ...], "spreads": SPREADS}]},
//     "plans": [{"change": "separate"|"pad fields"|"regroup", "group": null (all) | number, "moves_before",
//       "moves_after", "saved_mcpr", "extra_bytes", "spreads": SPREADS}]}    of the same layouts
// }
// RESULT is {"policy", "cost", "mcpr", "contended_mcpr" (null if the user did not ask for it), "parts": PARTS, "areas": AREAS,
// "spread": SPREAD}; those of policies also have "over_optimal", their cost over the optimal one. MOVES is {"cold", "useful",
// "false"} (attribution.h). "readers" and
// "writers" of a field are "none", "several" or a processor's number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "trace/analysis/caches.h"
#include "trace/analysis/tlb.h"
#include "trace/model/machine.h"
#include "trace/model/placement.h"
#include "trace/trace.h"

namespace multigrain::trace {

// Opens the trace at its beginning. A study reads the trace several times.
using OpenTrace = std::function<Result<std::unique_ptr<TraceSource>>()>;

struct StudyOptions {
  std::vector<Machine> machines;
  std::vector<uint64_t> block_sizes;    // for the sweep and for false sharing
  std::vector<std::string> parameters;  // the parameters to vary: "R", "r", "G", "g", "o_s"
  std::vector<std::string> policies;
  bool false_sharing = false;
  uint64_t attribution_block_size = 64;
  unsigned word_bytes = 4;
  double merge_ratio = 1;       // M / R
  unsigned planned_groups = 5;  // how many allocations plans are made for
  std::vector<TlbDesign> tlbs;  // empty: no TLBs
  unsigned perturbations = 0;   // the number of runs with each filter
  uint64_t seed = 1;
  unsigned hot_blocks = 20;
  bool variable_blocks = false;  // what blocks of several sizes would save; without caches
  bool contention = false;       // a price for contention (model/contention.h)
  // Caches in front of the memories: placement is priced of the references that miss them (those of a core's own levels, where
  // a core has a memory), and lines that a core's levels replace do not count as moved. Empty: none; every reference goes to
  // memory, and caches are without limit.
  CacheSetup caches;
  std::string map;  // of the trace's threads to cores and nodes, as ThreadMap::parse reads it; empty: none
  unsigned threads = 1;
  // The study calls this now and then, with what it does and how many references of the trace this pass has seen. It
  // may be empty.
  std::function<void(std::string_view pass, uint64_t references)> progress;
};

// Returns a PARTS.
nlohmann::json parts_json(const CostParts& parts);

inline constexpr const char* kStudyParameters[] = {"R", "r", "G", "g", "o_s"};

// Returns the machine variants of a sweep over one parameter; those that the model forbids are left out. For "G", R
// stays in its proportion to G; "o_s" is known of the software-coherent machines of [Bolosky], chapter 6, at blocks of
// 512 bytes (section 6.2.4).
std::vector<Machine> vary(const Machine& machine, std::string_view parameter);

Result<nlohmann::json> study(const OpenTrace& open, const StudyOptions& options);

}  // namespace multigrain::trace
