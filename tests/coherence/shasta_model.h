// A small machine around the transitions of Shasta, to be explored (explorer.h): nodes with frames, processors that run short
// programs, and a first-in-first-out channel for each pair of nodes. And, to compare with, each memory model by itself.
//
// What stands for inline checks is cut as the races are ([Shasta], section 2.3): a store publishes a hazard, looks, and a
// step later stores and clears it; a batch publishes two hazards and then takes a step an access. Everything that the driver
// does under the block's lock is one step. A step that has to wait for hazards (kLowerToShared, kLowerToInvalid) is
// taken when they have been cleared: between its beginning and that, checks would find nothing that they could use.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "coherence/shasta/transitions.h"
#include "narrator.h"

namespace multigrain::shasta::model {

using Value = uint8_t;
constexpr Value kFlagValue = 0xee;
constexpr unsigned kMaxNodes = 4;
constexpr unsigned kMaxBlocks = 2;
constexpr unsigned kMaxWords = 2;
constexpr unsigned kMaxRegisters = 4;
constexpr unsigned kMaxProcessorsPerNode = 3;

enum class OpType : uint8_t {
  kLoad,
  kStore,
  kFence,
  kAdd,  // atomic, in a hazard: register = old value, word = old + value
  kPrefetch,
  kBatch,  // two accesses under hazards, or one after the other if the blocks do not stay
};

struct Access {
  uint8_t block = 0;
  uint8_t word = 0;
  bool stores = false;
  Value value = 0;
  uint8_t reg = 0;
};
struct Op {
  OpType type = OpType::kLoad;
  Access first;
  Access second;  // of a batch
};
using Program = std::vector<Op>;

// Registers of all processors, then the final contents of every word.
using Outcome = std::vector<Value>;
using Outcomes = std::set<Outcome>;

// One thing each that the protocol relies on, broken.
enum class Mutant : uint8_t {
  kNone,
  kReorder,           // messages of a channel overtake each other
  kIgnoreHazards,     // rights are lowered under a processor between check and store
  kIgnoreAcks,        // an exclusive reply counts as complete
  kFlagBeforeCopy,    // the flag value is written before the data is copied for the successor
  kNoFlag,            // an invalidated frame keeps its data
  kAnswerEarly,       // an invalidation that overtakes data is answered, and the data kept
  kUpgradeAlways,     // the home grants upgrades whose copy is gone
  kFenceOwn,          // a fence waits for the processor's own stores only
  kDoNotWait,         // sc: a store that misses does not stall
  kNotMasked,         // queued stores are not masked: loads of their processor hit the old value
  kMaskUnderHazards,  // words are masked under another processor's batch
  kDoNotHold,         // a block is handed on before a hazard that was granted is published
  kForgetForwarded,   // what waited for a hazard is not served
  kLoseWake,          // nobody is woken
};
[[nodiscard]] const char* name(Mutant mutant);

struct Scenario {
  std::string name;
  Model model = Model::kSc;
  unsigned nodes = 3;
  std::vector<unsigned> homes;       // of each block
  std::vector<unsigned> processors;  // of each processor, its node, ascending
  std::vector<Program> programs;
  bool warm = false;  // at first every node has a shared copy of every block
  Mutant mutant = Mutant::kNone;
  Outcomes* outcomes = nullptr;       // collected here
  const Outcomes* allowed = nullptr;  // anything else at an end is a failure
};
inline void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}
inline void PrintTo(Mutant mutant, std::ostream* out) {
  *out << name(mutant);
}

// Every outcome that the memory model itself allows the programs: an interleaving (sc), store buffers a block and a
// level of stores that only their node sees (rc).
[[nodiscard]] Outcomes reference(const Scenario& scenario);
[[nodiscard]] std::string in_words(const Outcome& outcome);

class Machine : exploring::Narrator {
 public:
  using Scenario = model::Scenario;
  struct Event {
    enum class Type : uint8_t { kStep, kServe, kCompleteLoads } type = Type::kStep;
    uint8_t a = 0;  // processor; node; or from
    uint8_t b = 0;  // block; or to
    uint8_t c = 0;  // position in the channel
  };

  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event);

 private:
  using Words = std::array<Value, kMaxWords>;
  struct Packet {
    uint8_t block = 0;
    BlockMessage message;
    Words words{};
  };
  struct NodeState {
    std::array<Block, kMaxBlocks> blocks;
    std::array<Words, kMaxBlocks> frames{};
    std::array<Processor, kMaxProcessorsPerNode> processors;
    FenceEpochs epochs;
    std::array<bool, kMaxBlocks> due{};  // on_hazard_published has asked for on_advance
  };
  enum class At : uint8_t {
    kOp,       // between operations
    kHazard,   // with a hazard of stores published, and its check passed
    kRetry,    // in the runtime: waiting to ask again
    kLoading,  // waiting for kCompleteLoads
    kLoaded,   // has been delivered to, still in the runtime
    kDrain,    // waiting for queued stores, or to be granted a hazard
    kGranted,  // may publish its hazard
    kBatchWait,
    kBatchFirst,
    kBatchSecond,
    kDone,
  };
  struct PendingStore {
    uint8_t block = 0;
    uint8_t mask = 0;
    Words values{};
    bool requests_hazard = false;
    bool masked = false;
  };
  struct Thread {
    uint8_t pc = 0;
    At at = At::kOp;
    bool asleep = false;
    uint8_t half = 0;  // of a batch that goes access by access: 1, 2
    uint8_t made = 0;  // stores
    uint8_t due = 0;   // stores that the program has come past
    std::array<Value, kMaxRegisters> registers{};
    std::vector<PendingStore> pending;  // as the queue of the transitions
  };

  [[nodiscard]] bool is(Mutant mutant) const { return scenario_->mutant == mutant; }
  [[nodiscard]] Model model_of_transitions() const { return is(Mutant::kDoNotWait) ? Model::kRc : scenario_->model; }
  [[nodiscard]] unsigned node_of(unsigned t) const { return scenario_->processors[t]; }
  [[nodiscard]] unsigned blocks() const { return static_cast<unsigned>(scenario_->homes.size()); }
  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(threads_.size()); }
  [[nodiscard]] Context context(unsigned node, unsigned block) const {
    return {.self = NodeId(static_cast<uint16_t>(node)),
            .home = NodeId(static_cast<uint16_t>(scenario_->homes[block])),
            .block = BlockId(block),
            .model = model_of_transitions()};
  }
  [[nodiscard]] Node view(unsigned node) {
    return {.processors = {nodes_[node].processors.data(), processors_of_[node]}, .epochs = nodes_[node].epochs};
  }
  [[nodiscard]] unsigned local(unsigned t) const { return local_[t]; }
  [[nodiscard]] unsigned thread_of(unsigned node, unsigned p) const;
  [[nodiscard]] NodeState& here(unsigned t) { return nodes_[node_of(t)]; }
  [[nodiscard]] Processor& processor(unsigned t) { return here(t).processors[local(t)]; }
  [[nodiscard]] const Processor& processor(unsigned t) const { return nodes_[node_of(t)].processors[local(t)]; }
  [[nodiscard]] Op op(unsigned t) const;
  [[nodiscard]] Right right(unsigned node, unsigned block) const;
  [[nodiscard]] bool may(unsigned t, const Access& access) const;
  [[nodiscard]] bool has_hazard(unsigned t) const;
  [[nodiscard]] bool covers(unsigned t, unsigned block, bool loads) const;

  void step(unsigned t);
  void begin(unsigned t);
  void ask(unsigned t);
  void ask_batch(unsigned t);
  void next(unsigned t);
  void batch_access(unsigned t, const Access& access);
  void lower(unsigned node, unsigned block, bool loads);
  [[nodiscard]] Value visible(unsigned node, unsigned block, unsigned word) const;
  void store(unsigned t, unsigned block, unsigned word, Value value, bool in_transition = false);
  [[nodiscard]] bool loses(unsigned node, unsigned block) const;
  void run(unsigned node, unsigned block, const Actions& actions, const Packet* packet = nullptr);
  void serve(unsigned node, unsigned block);
  void wake(unsigned node);
  void deliver(unsigned from, unsigned to, unsigned position);
  void check();
  [[nodiscard]] Outcome outcome() const;

  const Scenario* scenario_;
  std::vector<NodeState> nodes_;
  std::array<uint8_t, kMaxNodes> processors_of_{};
  std::vector<uint8_t> local_;
  std::vector<Thread> threads_;
  std::array<std::array<std::vector<Packet>, kMaxNodes>, kMaxNodes> channels_;
  std::array<Words, kMaxBlocks> latest_{};  // as the last store left each word
  bool waits_for_hazard_ = false;           // the step that is being taken
};

}  // namespace multigrain::shasta::model
