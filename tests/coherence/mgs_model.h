// A whole machine running MGS, as one plain value: the transitions that ship (coherence/mgs/transitions.h) at every
// node, and around it the least that makes it a machine: frames, twins, rights, delayed update queues, channels between
// nodes and processors that run small programs. Nothing here happens by itself: enabled() lists what could happen next
// and apply() makes one of those things happen and checks the machine afterwards. The explorer (mgs_explorer.h) tries
// every order; the simulation (mgs_simulation.h) tries random ones on larger machines.
//
// Data are checked, not only states. A frame whose contents must not be used any more is filled with kPoison, so that a
// protocol that uses it anyway is seen to read a value that nobody wrote.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "coherence/mgs/transitions.h"
#include "narrator.h"

namespace multigrain::mgs::model {

using Value = uint16_t;
inline constexpr Value kPoison = 0xdead;
inline constexpr unsigned kMaxWords = 4;   // words of a page: a page is as small as false sharing allows
inline constexpr unsigned kMaxPages = 16;  // sets of pages are one word
inline constexpr unsigned kMaxTokens = 64;

// --- Programs -------------------------------------------------------------------------------------------------------

enum class OpType : uint8_t {
  kRead,  // and check the value
  kWrite,
  kRelease,  // empty the domain's queue and wait until everybody has, or will fetch, what was written
  kSignal,   // set tokens. A processor that has written releases first: Scenario::prepare() insists
  kWait,     // until all of a set of tokens are set
  kLock,     // mutual exclusion; order is decided at run time
  kUnlock,
  kBarrier,  // of all processors
};

struct Op {
  OpType type = OpType::kRead;
  uint8_t page = 0;  // or the lock
  uint8_t word = 0;
  Value value = 0;
  uint64_t tokens = 0;
  // Values that a read may return. Empty: the one that the machine's golden memory holds at that moment, which is exact
  // in a program without races.
  std::vector<Value> legal;
};

Op read(unsigned page, unsigned word);
Op write(unsigned page, unsigned word, Value value);
Op release();
Op signal(unsigned token);
Op wait(std::initializer_list<unsigned> tokens);
Op lock(unsigned which);
Op unlock(unsigned which);
Op barrier();

using Program = std::vector<Op>;

struct Processor {
  unsigned node = 0;
  Program program;
};

// Deliberate faults, each of which a test shows to be caught: without them nobody would know that the checks can fail.
enum class Mutant : uint8_t {
  kNone,
  kForgetQueueEntry,     // Figure 22, arc 12: an invalidation takes the page off the delayed update queues
  kIgnoreOtherReleases,  // a release waits for its own RACKs only
  kMergeDiffAtOnce,      // a diff that comes before the 1WDATA of its round is merged, not kept
  kDiffBeforeUnmap,      // PINV_ACK is assumed: the diff is made while processors may still write
  kReorderMessages,      // channels are not first in, first out
  kLoseWake,             // a processor that waits for a page is not woken
  kMapBeforeQueue,       // a page is made writable, and then joins the delayed update queue
  kNoTwin,               // a written copy is returned whole, as if every word had changed
};
[[nodiscard]] const char* name(Mutant mutant);

struct Options {
  bool data_by_reference = false;   // pages are fetched from the sender's frame when the message is handled
  bool asynchronous_unmap = false;  // kUnmap takes effect, and is acknowledged, as an event of its own
  bool split_faults = false;        // between a failed access and on_fault() other things happen
  bool split_releases = false;      // ... and between taking a page off a queue and on_release()
  bool split_actions = false;       // access granted is used by others before the rest of the transition is done
  Mutant mutant = Mutant::kNone;
};

// What machine, which programs. Call prepare() once before use.
struct Scenario {
  std::string name;
  unsigned nodes = 0;
  unsigned domains = 1;  // of each node: 1, or as many as a node has processors
  unsigned words = 2;
  std::vector<unsigned> homes;  // of each page, the home node
  std::vector<Processor> processors;
  Options options;
  bool golden = false;  // reads are checked against golden memory; for programs with locks or barriers

  // Derived by prepare().
  std::vector<unsigned> domain_of;  // of each processor, its domain
  std::vector<Value> final_values;  // of each word of each page, when all is over (unless golden)

  // Works out which values each read may return, by happens-before: program order, and each token's signal before its
  // waits. Throws std::invalid_argument if the programs race in their writes or pass a token without a release.
  void prepare();
};

// For GoogleTest.
void PrintTo(const Scenario& scenario, std::ostream* out);

// --- The machine ----------------------------------------------------------------------------------------------------

struct Event {
  enum Type : uint8_t { kStep, kDeliver, kUnmapped, kContinue };
  Type type = kStep;
  uint8_t a = 0;  // kStep: processor. kDeliver: sender. kUnmapped, kContinue: node
  uint8_t b = 0;  // kDeliver: receiver. kUnmapped: domain
  uint8_t c = 0;  // kDeliver: position in the channel (0 but for kReorderMessages). kUnmapped, kContinue: page
};

using Words = std::array<Value, kMaxWords>;

// A message on its way.
struct Envelope {
  uint8_t from = 0;
  uint8_t to = 0;
  uint8_t page = 0;
  MessageKind kind = MessageKind::kKindCount;
  bool by_reference = false;
  uint8_t mask = 0;  // of words that a diff changes
  Words words{};
  bool operator==(const Envelope&) const = default;
};

// Carries messages, where the machine's own channels are not to decide what is delivered next.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void send(const Envelope& message) = 0;
};

class Machine : exploring::Narrator {
 public:
  using Scenario = model::Scenario;
  using Event = model::Event;

  // `scenario` is prepared and outlives the machine and its copies.
  explicit Machine(const Scenario& scenario);

  void enabled(std::vector<Event>& events) const;

  // Makes `event`, which is enabled, happen. Returns what is wrong now, or nothing. If `log` is given, appends what
  // happened, in words.
  [[nodiscard]] std::string apply(const Event& event, std::string* log = nullptr);

  // For a machine whose messages `transport` carries from now on: what it delivers is given to apply_delivery() instead
  // of making the kDeliver event happen. Says what is wrong if that is not what was sent, in its order, or afterwards.
  void set_transport(Transport* transport) { transport_ = transport; }
  [[nodiscard]] std::string apply_delivery(const Envelope& message, std::string* log = nullptr);

  // Whether all programs have ended. When no event is enabled and they have not, the machine is deadlocked.
  [[nodiscard]] bool finished() const;
  // What is wrong with a machine in which nothing is enabled: a deadlock, or an end that is not at rest and complete.
  [[nodiscard]] std::string check_end() const;

  // Appends the state in a form that is equal for equal states. For at most 8 nodes of at most 8 domains.
  void serialise(std::vector<uint8_t>& out) const;

  // The state in words, for reports of failures; and an event.
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] static std::string in_words(const Event& event);

 private:
  enum class Mode : uint8_t {
    kReady,         // at an operation
    kFaulting,      // the access failed, on_fault() comes next
    kInTransition,  // on_fault() resolved it, and its actions are not all carried out
    kAwaitWake,     // waits for kWake of `page`
    kPopping,       // in a release
    kHolding,       // in a release, with `page` off the queue and not yet given to on_release()
    kAwaitRelease,  // in a release, waits for `pages` and `holders`
    kAtBarrier,
  };
  struct Thread {
    uint16_t pc = 0;
    Mode mode = Mode::kReady;
    uint8_t page = 0;
    uint8_t to_take = 0;   // in a release: entries of the domain's queue that it still must see taken
    uint16_t pages = 0;    // whose kReleased this release waits for
    uint64_t holders = 0;  // processors whose page in hand this release waits for
  };
  // The rest of a transition: the lock of `page` at `node` is held until it is done.
  struct Paused {
    static constexpr uint8_t kNobody = 0xff;
    uint8_t node = 0;
    uint8_t page = 0;
    uint8_t processor = kNobody;  // whose fault it is
    std::vector<Action> actions;
  };
  struct Diff {
    uint8_t mask = 0;
    Words words{};
  };
  struct Frame {
    bool has_twin = false;
    Words words{};
    Words twin{};
  };
  enum Rights : uint8_t { kNoAccess, kMayRead, kMayWrite };
  struct Mapping {
    Rights rights = kNoAccess;
    bool going = false;  // a kUnmap is under way
  };

  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario_->homes.size()); }
  [[nodiscard]] Context context(unsigned node, unsigned page) const {
    return {NodeId(static_cast<uint16_t>(node)), NodeId(static_cast<uint16_t>(scenario_->homes[page]))};
  }
  [[nodiscard]] const Op& op_of(const Thread& t, size_t processor) const {
    return scenario_->processors[processor].program[t.pc];
  }
  [[nodiscard]] bool at_end(size_t processor) const {
    return threads_[processor].pc == scenario_->processors[processor].program.size();
  }
  Page& page_at(unsigned node, unsigned page) { return pages_[node * pages() + page]; }
  [[nodiscard]] const Page& page_at(unsigned node, unsigned page) const { return pages_[node * pages() + page]; }
  Frame& frame_at(unsigned node, unsigned page) { return frames_[node * pages() + page]; }
  [[nodiscard]] const Frame& frame_at(unsigned node, unsigned page) const { return frames_[node * pages() + page]; }
  [[nodiscard]] size_t domain_index(unsigned node, unsigned domain) const { return node * scenario_->domains + domain; }
  Mapping& mapping_at(unsigned node, unsigned domain, unsigned page) {
    return mappings_[domain_index(node, domain) * pages() + page];
  }
  [[nodiscard]] const Mapping& mapping_at(unsigned node, unsigned domain, unsigned page) const {
    return mappings_[domain_index(node, domain) * pages() + page];
  }
  [[nodiscard]] bool strict() const { return scenario_->options.mutant != Mutant::kDiffBeforeUnmap; }

  void step(unsigned processor);
  void access(unsigned processor, const Op& op);
  void fault(unsigned processor, const Op& op);
  void release_step(unsigned processor);
  void take_from_queue(unsigned processor);
  void submit(unsigned processor);
  void finish_release_if_done(unsigned processor);
  void advance(unsigned processor);
  void settle_synchronisation();
  void deliver(const Event& event);
  void perform(unsigned node, unsigned page, const Actions& actions, const Envelope* message,
               uint8_t processor = Paused::kNobody);
  void perform_from(unsigned node, unsigned page, const Action* action, const Action* end, const Envelope* message,
                    uint8_t processor);
  void resume(const Event& event);
  void check_access_granted(unsigned processor);
  [[nodiscard]] bool locked(unsigned node, unsigned page) const;
  void send(unsigned node, unsigned page, const Action& action);
  void unmap(unsigned node, unsigned page, unsigned domain, std::vector<unsigned>& report);
  void report_unmapped(unsigned node, unsigned page, unsigned domain);
  void apply_diff(unsigned home, unsigned page, const Diff& diff);
  void poison_dead_frames(unsigned page);
  void check_page(unsigned page);
  [[nodiscard]] bool nobody_may_write(unsigned node, unsigned page) const;

  const Scenario* scenario_;
  std::vector<Page> pages_;                   // [node][page]
  std::vector<Frame> frames_;                 // [node][page]
  std::vector<Mapping> mappings_;             // [node][domain][page]
  std::vector<std::vector<uint8_t>> queues_;  // [node][domain]: pages in order
  std::vector<uint16_t> awaited_;             // [node][domain]: pages whose kReleased is to come
  std::vector<std::vector<Diff>> kept_;       // [page], at its home
  std::vector<Envelope> flight_;              // by sender and receiver; in order of sending for each pair
  std::vector<Paused> paused_;                // in the order in which they began
  std::vector<Thread> threads_;
  std::vector<uint8_t> lock_held_;
  std::vector<Value> golden_;  // [page][word]
  uint64_t tokens_ = 0;
  Transport* transport_ = nullptr;
};

}  // namespace multigrain::mgs::model
