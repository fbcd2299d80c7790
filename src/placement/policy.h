// A placement policy says where a block of memory should be: near the one that refers to it, in global memory, or where it
// is ([Bolosky], sections 3.1.3 and 5.1). It does not know the future. Two ask it, and they ask the same objects: the
// simulator of reference traces (trace/model/policy_costs.h) and the protocol `placement` of a run
// (coherence/placement/cache_policy.h). So it knows neither traces nor pages.
//
// A *block* is what moves as a whole: a block of a trace, or a page of a run. A *place* is a memory in which a block can be
// beside global memory: that of a processor of the simulated machine, or of a node of the run. *Time* is counted in references in
// a trace, and in nanoseconds in a run; a policy that has times takes them in the unit of whoever asks it (Setting).
//
// To add a policy, write a class with a name and one decision:
//
//   class Third final : public Policy {  // fetches a block at every third reference from elsewhere
//    public:
//     std::string name() const override { return "third"; }
//     Decision on_reference(BlockState& block, const Reference&) override {
//       return ++block.memo[0] % 3 == 0 ? Decision::local() : Decision::stay();
//     }
//   };
//
// A decision allocates nothing, blocks nowhere and depends on its arguments alone: a run asks in signal handlers, with the
// block's lock held, and for several blocks at once. What a policy remembers of a block is in the block's BlockState.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace multigrain::placement {

// The number of a place, from 0 on.
using PlaceId = uint16_t;

// This is the reference about which a policy decides.
struct Reference {
  PlaceId from = 0;
  bool is_write = false;
  uint64_t time = 0;
};

// This is what a policy sees of a block, and what it may remember about it.
struct BlockState {
  uint64_t block;                    // number: address / block size
  unsigned places;                   // how many there are
  bool in_global;                    // there is a copy in global memory
  std::span<const uint64_t> copies;  // a bit for each place: it has a copy
  std::span<uint64_t, 4> memo;       // the policy's own memory; zero at first
  std::span<uint64_t> counters;      // one for each place, the policy's own, if it asked for them; zero at first

  [[nodiscard]] bool has_copy(PlaceId place) const { return (copies[place / 64] >> (place % 64)) & 1; }
  // Returns how many copies there are, the one in global memory included.
  [[nodiscard]] unsigned copy_count() const;
};

struct Decision {
  enum class Kind : uint8_t {
    // The block stays where it is, and the reference is remote or global. A write while there are several copies leaves
    // one: the writer's, or else the global one, or else that of the lowest place.
    kStay,
    // This makes a copy at the place that refers. On a write, it becomes the only one.
    kLocal,
    // The block goes to global memory, without other copies; on a machine without global memory, like kStay.
    kGlobal,
    // The block goes to place `to`, without other copies.
    kMove,
  };
  Kind kind = Kind::kStay;
  PlaceId to = 0;
  static Decision stay() { return {}; }
  static Decision local() { return {.kind = Kind::kLocal}; }
  static Decision global() { return {.kind = Kind::kGlobal}; }
  static Decision move(PlaceId to) { return {.kind = Kind::kMove, .to = to}; }
  friend bool operator==(const Decision&, const Decision&) = default;
};

class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  // Says where a block is at first, for nothing: at the place that first refers to it, unless overridden. kStay is kLocal.
  virtual Decision first(BlockState& block, const Reference& reference);
  // Decides at a reference that is not local, or that is a write while there are several copies; with wants_local(), at
  // every one but a block's first.
  virtual Decision on_reference(BlockState& block, const Reference& reference) = 0;
  // Returns whether the policy has to be asked at local references as well.
  [[nodiscard]] virtual bool wants_local() const { return false; }
  // Returns whether the policy counts references, so that it has to be asked at each one that is not local. Both this and
  // wants_local() are more than page faults show.
  [[nodiscard]] virtual bool wants_counters() const { return false; }
  // Returns the time after which the policy may decide otherwise about a block that it has left in global memory or where it
  // was, although nothing but time has passed; 0: it never does. A run, where references to such a block cause no faults,
  // makes them fault again after so long.
  [[nodiscard]] virtual uint64_t reconsiders_after() const { return 0; }
};

}  // namespace multigrain::placement
