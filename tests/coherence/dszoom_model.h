// A whole machine running DSZOOM, as one plain value: the transitions that ship (coherence/dszoom/transitions.h) in every
// processor that misses, and around it what dszoom/driver.cpp and compiled checks do, cut into steps between which
// everybody else may run. A step is one remote operation of one word, or one local access of memory that others see: so
// the lock of an entry, the read of a node's hazards, the read and the flagging of each word of a line, each store to a
// hazard are steps of their own, and operations of one step of a miss on different nodes take effect in any order.
//
// Programs may race: memory is sequentially consistent. More than that is checked: a load that returns returns what was
// stored last, in the order in which stores take effect in frames (golden memory).
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "coherence/dszoom/transitions.h"
#include "narrator.h"

namespace multigrain::dszoom::model {

using Value = uint8_t;
inline constexpr Value kFlag = 0xff;  // as a word of an invalid line; programs may store it too
inline constexpr unsigned kWords = 2;
inline constexpr unsigned kMaxLines = 2;
inline constexpr unsigned kMaxNodes = 3;
inline constexpr unsigned kMaxProcessors = 4;

enum class OpType : uint8_t {
  kLoad,       // a checked load of a word
  kStore,      // a checked store
  kAdd,        // an atomic in a hazard
  kReadBoth,   // a batch: loads a word of each line, behind hazards over both
  kWriteBoth,  // a batch: stores to a word of each line
  kHoldBoth    // the same under one hazard over all lines, each line looked at before the store there
};
struct Op {
  OpType type = OpType::kLoad;
  uint8_t line = 0;
  uint8_t word = 0;
  Value value = 0;
};
using Program = std::vector<Op>;

// Deliberate faults, each of which a test shows to be caught.
enum class Mutant : uint8_t {
  kNone,
  kNoWatch,            // a requester does not look at hazards
  kIgnoreLoadHazards,  // it looks at hazards of stores only, also when it invalidates
  kWatchBeforeTake,    // it looks at hazards, and then takes the right
  kReadBeforeWatch,    // it reads the line, and then looks at hazards
  kFlagEarly,          // it flags holders before their hazards are cleared
  kNoFlag,             // it leaves invalid frames as they are
  kNoTake,             // a holder keeps its right
  kUnlockBeforeFill,   // the entry is unlocked, and then the frame is filled
  kOwnBeforeFill,      // the own word says that the line is here, and then the frame is filled
  kNoOpen,             // a store miss returns without a hazard
  kNoFence,            // a store's hazard is published after the word was looked at
  kNoCheckInBatch,     // a batch publishes its hazards and looks at one line only
  kIgnoreLock,         // a locked entry is taken for an unlocked one without holders but the home
  kForgetReader,       // a reader does not enter itself
  kKeepHazard,         // a processor that waits for a lock keeps its hazards published
  // Of machines that cache.
  kIgnoreEpoch,  // a requester does not look at a node's rights epoch
  kForgetAlone,  // it replaces it, and does not look at hazards again
  kTrustEven,    // a rights epoch that is even, but another than it knows, is as good
  kTrustOdd,     // an odd rights epoch is as good as the even one that it was, whenever the requester has seen that
  kKnowLate,     // the rights epoch is compared with what is known when the scan is over, not when it began
  kAlwaysFirst,  // hazards that were looked at in vain are the first look
  kForgetBeforeTake,   // it replaces the rights epoch, and then takes the right
  kScanBeforeBit,      // a check looks at the lines, and then sets the bit
  kEpochBeforeHazard,  // a check reads the rights epoch, and then publishes its hazard
  kCacheSome,          // a check looks at one line of the page, and caches all
};
[[nodiscard]] const char* name(Mutant mutant);

// What compiled checks cache of lines that they looked at (docs/internals/fine-grain.md, Rights epoch).
enum class Caches : uint8_t {
  kNothing,
  kLines,  // each line is a page
  kPages,  // the lines are one page
};

struct Scenario {
  std::string name;
  unsigned nodes = 3;
  std::vector<unsigned> homes;       // of each line
  std::vector<unsigned> processors;  // of each processor, its node
  std::vector<Program> programs;
  Mutant mutant = Mutant::kNone;
  Caches caches = Caches::kNothing;
};

class Machine : exploring::Narrator {
 public:
  using Scenario = model::Scenario;
  struct Event {
    uint8_t processor = 0;
    uint8_t node = 0;          // of the operations of a step under way: on which node the next one takes effect
    bool epoch_first = false;  // a look begins at the node's rights epoch; else it ends there
  };

  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event) {
    return fmt::format("step of {} at {}", event.processor, event.node);
  }

 private:
  struct Frame {
    std::array<Value, kWords> words{};
    uint64_t entry = 0;    // the word of the table
    bool locked = false;   // the lock of the node's processors on the line
    bool filling = false;  // by who holds the lock of the entry
  };
  // A value of a node's rights epoch: as in fine_grain.h, but the numbers are the machine's.
  using Epoch = uint16_t;
  struct Node {
    std::array<Frame, kMaxLines> lines;
    Epoch epoch = 0;
    std::array<Epoch, kMaxLines> pages{};  // what is cached, of each page
    std::array<Epoch, kMaxNodes> known{};  // the rights epoch of others that its requesters know
  };
  enum class At : uint8_t {
    kOp,         // at the begin of an operation, or of an access of a batch
    kOpened,     // has published a hazard for a store: looks at the word
    kStore,      // stores, in the hazard
    kClose,      // clears the hazard
    kLook,       // of a load that missed: publishes a hazard of loads
    kLooked,     // ... looks at the word
    kTake,       // ... has the line: takes the value
    kLocal,      // wants the node's lock of the line
    kAgain,      // has it: publishes a hazard
    kAgainSeen,  // ... and looks at the word
    kStep,       // operations of the step are under way
    kEnd,        // the last step, operation by operation
    kBatch,      // publishes the second hazard of a batch
    kBatchSee,   // looks at the words
    kBatchSee2,
    kBatchDo,  // the accesses
    kBatchDo2,
    kBatchEnd,     // clears both
    kRightsEpoch,  // with hazards published: reads the node's rights epoch
    kTrust,        // looks at what is cached of the page
    kSetBit,       // sets the rights epoch's lowest bit
    kScan,         // looks at the word of a line of the page
    kCache,        // stores what is to be cached
    kHoldDo,       // stores under the hazard over all lines
  };
  struct Thread {
    uint8_t pc = 0;
    At at = At::kOp;
    std::array<uint64_t, 2> hazard{};
    // A miss.
    uint8_t line = 0;
    bool stores = false;
    bool for_batch = false;
    uint8_t tries = 0;  // of a batch
    std::vector<Operation> step;
    std::vector<uint8_t> done;  // per operation: words moved, or 1
    std::vector<Miss> miss;     // one or none
    uint64_t seen_entry = 0;
    uint8_t open = 0;  // nodes
    std::array<Value, kWords> buffer{};
    uint8_t index = 0;  // in the last step
    uint8_t word = 0;   // of an operation that moves words
    // A check that caches.
    Epoch epoch = 0;
    uint8_t at_line = 0;  // that it is about to use
    uint8_t scans = 0;    // the next line that it looks at
    bool caching = false;
    // A requester that reads rights epochs, by node; and by processor what its hazards were.
    std::array<Epoch, kMaxNodes> epoch_read{};
    std::array<Epoch, kMaxNodes> epoch_before{};
    std::array<Epoch, kMaxNodes> epoch_since = {1, 1, 1};
    uint8_t reads_epoch_first = 0;
    uint8_t looked_at = 0;  // a look counted
    std::array<std::array<uint64_t, 2>, kMaxProcessors> hazards_read{};
    std::array<std::array<uint64_t, 2>, kMaxProcessors> hazards_seen{};
  };

  [[nodiscard]] unsigned node_of(unsigned processor) const { return scenario_->processors[processor]; }
  [[nodiscard]] bool is(Mutant mutant) const { return scenario_->mutant == mutant; }
  [[nodiscard]] unsigned lines() const { return static_cast<unsigned>(scenario_->homes.size()); }
  [[nodiscard]] bool is_home(unsigned node, unsigned line) const { return scenario_->homes[line] == node; }
  [[nodiscard]] const Op& op(const Thread& thread, unsigned processor) const {
    return scenario_->programs[processor][thread.pc];
  }
  [[nodiscard]] bool at_end(unsigned processor) const {
    return threads_[processor].pc == scenario_->programs[processor].size();
  }
  Frame& frame(unsigned node, unsigned line) { return nodes_[node].lines[line]; }

  [[nodiscard]] bool caches() const { return scenario_->caches != Caches::kNothing; }
  [[nodiscard]] unsigned page_of(unsigned line) const { return scenario_->caches == Caches::kLines ? line : 0; }
  Epoch fresh_rights_epoch() { return next_epoch_ += 4; }
  void look_at_line(unsigned processor, unsigned line);
  void line_is_here(Thread& thread);
  void check_step(unsigned processor);
  void watch(unsigned processor, const Operation& operation, uint8_t unit);
  void judge_looks(unsigned processor, Outcome& outcome);
  void next_op(Thread& thread);
  [[nodiscard]] size_t units(const Operation& operation) const;
  [[nodiscard]] static uint64_t cover(unsigned line, bool stores) { return make_hazard(line, 1, stores); }
  void begin_miss(unsigned processor, unsigned line, bool stores, bool for_batch);
  void start_engine(unsigned processor);
  void set_step(Thread& thread, const Step& step);
  bool has(unsigned node, unsigned line, bool to_store);
  void operate(unsigned processor, size_t index);
  void step_complete(unsigned processor);
  void last_step(unsigned processor);
  void miss_over(unsigned processor);
  void loaded(unsigned processor, unsigned line, unsigned word, Value value);
  void stored(unsigned node, unsigned line, unsigned word, Value value);
  void step(unsigned processor);
  void check();

  const Scenario* scenario_;
  std::array<Node, kMaxNodes> nodes_;
  std::vector<Thread> threads_;
  std::array<std::array<Value, kWords>, kMaxLines> golden_{};
  bool batches_ = false;  // some program has one: a thread uses two hazards
  Epoch next_epoch_ = 0;
};

}  // namespace multigrain::dszoom::model
