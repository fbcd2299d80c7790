// A whole machine running HLRC, as one plain value: the transitions that ship (coherence/hlrc/transitions.h), and the
// parts that decide what logs and timestamps say (write_notices.h, fetch_log.h, vector_time.h), at every node; and
// around them what hlrc/driver.cpp does with them, cut into steps between which everybody else may run. A step is at
// most one remote operation, of one word; so a fetch or a deposit of a page takes as many steps as the page has words,
// and may be torn by others. The explorer (explorer.h) tries every order of the processors' steps.
//
// Programs must be free of data races. Then each read has one legal value, which golden memory holds.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coherence/hlrc/fetch_log.h"
#include "coherence/hlrc/transitions.h"
#include "coherence/hlrc/vector_time.h"
#include "coherence/hlrc/write_notices.h"
#include "narrator.h"

namespace multigrain::hlrc::model {

using Value = uint16_t;
inline constexpr unsigned kMaxWords = 2;
inline constexpr unsigned kMaxPages = 3;
inline constexpr unsigned kMaxNodes = 3;

enum class OpType : uint8_t {
  kRead,  // and check the value
  kWrite,
  kLock,    // acquires from the node that let it go last
  kUnlock,  // releases
  kBarrier  // of all processors: releases, and acquires from all
};
struct Op {
  OpType type = OpType::kRead;
  uint8_t page = 0;  // or the lock
  uint8_t word = 0;
  Value value = 0;
};
using Program = std::vector<Op>;

// Deliberate faults, each of which a test shows to be caught: without them nobody would know that the checks can fail.
enum class Mutant : uint8_t {
  kNone,
  kPublishBeforeDeposit,  // a release publishes its notices first, and deposits its diffs afterwards
  kNoMark,                // fetches leave no entry in the home's fetch log
  kMarkAfterFetch,        // ... or leave it when they have the page
  kIgnoreMarks,           // a release with nothing written does not read the fetch log
  kGrantBeforeQueue,      // a page is made writable, and then joins the list
  kDiffBeforeRevoke,      // the diff is made while processors of the node may still write
  kForgetOwed,            // what went home at a notice is not noticed by others
  kIgnoreLap,             // entries that were overwritten are taken for those that were wanted
  kOnlyReleaser,          // an acquire takes in the releaser's own notices, and not what that one knew of others
  kKnownBeforeInvalid,    // the timestamp is raised, and then the pages are invalidated
  kIgnoreOtherReleases,   // a release waits for no other processor's of its node
  kNoTwin,                // a written page goes home whole
  kNoDepositAtNotice,     // a dirty page that a notice names is dropped
  kKeepAhead,             // a notice leaves a frame that was fetched ahead
  kMarkOnce,              // only the first fetch of a page leaves an entry
  kIgnoreLoss,            // a home whose fetch log was overwritten goes on as if it had come to its end
  kKeepUnshared,          // a home reads its fetch log, and forgets pages that it may not write
};
[[nodiscard]] const char* name(Mutant mutant);

struct Scenario {
  std::string name;
  unsigned nodes = 3;
  unsigned words = 2;
  std::vector<unsigned> homes;       // of each page
  std::vector<unsigned> processors;  // of each processor, its node
  std::vector<Program> programs;     // of each processor
  bool fetch_ahead = false;          // a fetch of a page brings the frame of the next
  unsigned log_capacity = 64;        // entries of a node's write notices
  unsigned fetch_log_capacity = 8;   // entries of a node at a home
  Mutant mutant = Mutant::kNone;
};

class Machine : exploring::Narrator {
 public:
  using Scenario = model::Scenario;
  struct Event {
    uint8_t processor = 0;
  };

  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);
  [[nodiscard]] std::string check_end() const;
  void serialise(std::vector<uint8_t>& out) const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event) { return fmt::format("step of {}", event.processor); }

 private:
  using Words = std::array<Value, kMaxWords>;
  enum class Rights : uint8_t { kNone, kRead, kWrite };
  struct Frame {
    Page page;
    Rights rights = Rights::kNone;  // of the view: follows page.access within a transition
    bool locked = false;
    bool has_twin = false;
    Words words{};
    Words twin{};
  };
  // Everything that a node keeps, or exports.
  struct Node {
    std::array<Frame, kMaxPages> frames;
    std::vector<uint8_t> written;
    uint8_t unpublished = 0;
    bool ending = false;     // the lock of interval ends
    bool taking_in = false;  // the lock of acquires
    std::array<uint8_t, kMaxNodes> known{};
    std::vector<uint64_t> log;  // the ring
    NoticeLog notices{0};       // the writer's side of it
    // Of each node: its ring here, and how far this home has read it.
    std::array<std::vector<uint64_t>, kMaxNodes> fetch_log;
    std::array<uint8_t, kMaxNodes> fetch_log_read{};
    bool all_fetched = false;
    std::array<uint8_t, kMaxNodes> fetch_log_written{};  // at each home
    [[nodiscard]] FetchLogEntry fetch_log_entry(unsigned writer, uint64_t position) const {
      const std::vector<uint64_t>& ring = fetch_log[writer];
      return read_fetch_log(ring[position % ring.size()], position, ring.size());
    }
    [[nodiscard]] bool fetch_log_empty() const {
      for (unsigned n = 0; n < kMaxNodes && !all_fetched; ++n)
        if (fetch_log_entry(n, fetch_log_read[n]).is != FetchLogEntry::Is::kEnd) return false;
      return true;
    }
  };
  // What a processor is in the middle of, and the next thing to do there.
  enum class At : uint8_t {
    kOp,
    kFault,  // carrying out actions_ on page
    kFetchWord,
    kAhead,  // whether to fetch the next page too
    // Release
    kCheckClean,
    kEnterEnding,
    kReadFetchLog,
    kAssumeFetched,  // page index, as the fetch log has lost entries
    kTakeWritten,
    kEndPage,
    kRevokePage,
    kEncodePage,
    kDepositWord,
    kCleanPage,
    kAppend,  // the notice of page index, or what is left to append
    kPublish,
    // Acquire
    kReadVector,
    kEnterTakingIn,
    kReadEntry,
    kNoticePage,
    kRevokeNoticed,
    kEncodeNoticed,
    kDepositNoticed,
    kRaise,
    kWaitBarrier,
  };
  struct Thread {
    uint8_t pc = 0;
    At at = At::kOp;
    uint8_t page = 0;
    uint8_t word = 0;
    uint8_t verb = 0;              // of actions: next
    std::vector<uint8_t> actions;  // Verbs
    FaultOutcome outcome = FaultOutcome::kAlone;
    std::vector<uint8_t> pages;   // taken, or named by notices
    uint8_t noticed = 0;          // bit i: notices name pages[i]
    std::vector<NoticeRun> runs;  // that entries name
    uint8_t index = 0;            // in pages, or position of an entry
    uint8_t writer = 0;
    bool all = false;  // an acquire from all
    bool lost = false;
    uint8_t from = 0;
    std::array<uint8_t, kMaxNodes> wanted{};
    uint8_t mask = 0;  // the diff
    Words diff{};
  };

  [[nodiscard]] unsigned node_of(unsigned processor) const { return scenario_->processors[processor]; }
  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario_->homes.size()); }
  [[nodiscard]] bool is(Mutant mutant) const { return scenario_->mutant == mutant; }
  [[nodiscard]] bool is_home(unsigned node, unsigned page) const { return scenario_->homes[page] == node; }
  [[nodiscard]] Context context(unsigned node, unsigned page) const {
    return {NodeId(static_cast<uint16_t>(node)), NodeId(static_cast<uint16_t>(scenario_->homes[page]))};
  }
  [[nodiscard]] bool at_end(unsigned processor) const {
    return threads_[processor].pc == scenario_->programs[processor].size();
  }
  [[nodiscard]] bool can_step(unsigned processor) const;
  [[nodiscard]] bool may(const Frame& frame, bool write) const {
    return frame.rights == Rights::kWrite || (!write && frame.rights == Rights::kRead);
  }
  void step(unsigned processor);
  void begin_op(unsigned processor);
  void begin_release(Thread& thread) { thread.at = At::kCheckClean; }
  void released(unsigned processor);
  void begin_acquire(unsigned processor, bool all, unsigned from);
  void acquired(unsigned processor);
  void next_fetch_log(unsigned processor);
  void apply_fetch(Node& node, unsigned page);
  void next_page_to_end(Thread& thread);
  void next_page_noticed(Thread& thread);
  void encode(Frame& frame, Thread& thread);
  bool deposit_word(unsigned processor);
  [[nodiscard]] NodeSet news(const Thread& thread, unsigned node) const {
    return nodes_with_news(thread.wanted, nodes_[node].known, NodeId(static_cast<uint16_t>(node)),
                           static_cast<unsigned>(nodes_.size()));
  }
  void append(Node& node, const std::optional<NoticeLog::Append>& entry) {
    if (entry) node.log[entry->slot] = entry->entry;
  }
  // The steps, by what the processor is in the middle of.
  void step_of_fault(unsigned processor);
  void step_of_release(unsigned processor);
  void step_of_acquire(unsigned processor);
  void next_entry(unsigned processor);
  void check();

  const Scenario* scenario_;
  std::vector<Node> nodes_;
  std::vector<Thread> threads_;
  std::array<uint8_t, 4> lock_held_{};
  std::array<uint8_t, 4> lock_from_{};  // 1 + the node that let it go last
  uint8_t arrived_ = 0;
  std::array<Words, kMaxPages> golden_{};
};

}  // namespace multigrain::hlrc::model
