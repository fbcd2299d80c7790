// The driver of MGS feeds the transitions faults, releases, messages and what nodes have read by themselves, and carries
// out their actions. Parts of it are faults, releases and messages (driver.cpp) and one-sided reads (reads.cpp).
//
// A page's lock is held for one transition and its actions, and never while waiting for a message. The driver keeps
// this invariant: whenever a page's lock is free, the node's access rights in the view are those that the page's Client
// says (mapped, and writable if the state is kWrite), or fewer; but a home that will_keep_read_right() keeps the right
// to read. Where each processor has a translation table (mappings.h), this holds of the table of each domain, which has
// rights only if it is mapped, and the right to write only if its queue, or the release that has taken the page off that,
// accounts for what it writes, or the page has a single writer. And whenever the lock is free at the page's home, the page's word is open if nodes read by themselves and
// may_be_read() says so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/spin_lock.h"
#include "coherence/mgs/delayed_update_queue.h"
#include "coherence/mgs/fetch.h"
#include "coherence/mgs/mappings.h"
#include "coherence/mgs/release_epochs.h"
#include "coherence/mgs/transitions.h"
#include "coherence/page_driver.h"
#include "coherence/stride_prefetcher.h"
#include "fabric/own_words.h"
#include "memory/diff.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"
#include "profile/this_thread.h"

namespace multigrain::mgs {

// Returns the name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

// The test that explores the driver sees its insides through this (tests/coherence/mgs_driver_world.cpp).
namespace explored {
struct DriverState;
}

class Driver final : public PageDriver {
 public:
  // Which pages are asked for ahead: those that a processor's faults predict, or (in tests) those behind the page of every
  // read fault.
  enum class Ahead : uint8_t { kPredicted, kAlways };

  struct Options {
    // The most pages that are asked for at a time, ahead of a processor that faults on one page after the other; 0: none.
    // A node reads up to four times as many by itself.
    unsigned prefetch = 0;
    // If true, nodes read pages by themselves. It is the same on every node.
    bool reads_one_sided = false;
    Ahead ahead = Ahead::kPredicted;
    // The tables of the node's mapping domains, which outlive the driver. nullptr: all processors of the node are one domain,
    // and faults of the MMU find their accesses.
    Mappings* mappings = nullptr;
    // How many domains there are; 1 without `mappings`.
    unsigned domains = 1;
  };
  // Registers the message handlers. Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, const Options& options);

  bool on_fault(PageId page, bool is_write) override;
  // Releases what the calling thread's domain has written.
  void release() override;
  [[nodiscard]] bool is_clean() const override;
  [[nodiscard]] bool releases_own_writes() const override { return options_.mappings != nullptr; }
  // Releases what is left of all domains.
  void release_at_barrier() override;

  // Returns what this node knows of a page, for tests and diagnosis.
  [[nodiscard]] Page inspect(PageId page);

 private:
  friend struct explored::DriverState;

  // Such a diff waits for the sole writer's page (kKeepDiff).
  struct KeptDiff {
    KeptDiff* next;
    uint32_t length;

    [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  };

  struct alignas(64) Record : TwinnedRecord {
    // The records live as long as the node. The bit maps of their sets of nodes go with its process.
    using MayBeForgotten = void;
    // The domains, of those that wait for the RACK of the REL that is out, whose releases have slot 1; the others have slot 0.
    DomainSet in_slot_1 MG_GUARDED_BY(lock);
    bool readable MG_GUARDED_BY(lock) = false;  // the view allows reading, and not writing
    bool is_open MG_GUARDED_BY(lock) = false;   // at the home: the page's word is open
    EventCount changed;                         // notified by kWake
    Page page MG_GUARDED_BY(lock);
    KeptDiff* kept MG_GUARDED_BY(lock) = nullptr;
  };

  // What a domain has written, and is releasing.
  struct Domain {
    DelayedUpdateQueue queue;
    ReleaseEpochs releases;
  };

  Driver(const NodeServices& services, const Options& options, PagePool twins, PagePool diffs);
  // Returns the domain of the calling thread.
  [[nodiscard]] DomainId own_domain() const {
    return options_.mappings != nullptr ? options_.mappings->domain() : kNodeDomain;
  }
  [[nodiscard]] bool is_clean(DomainId domain) const;
  void release(DomainId domain);
  [[nodiscard]] PageContext context(const Record& record) const {
    return {PageDriver::context(record), options_.reads_one_sided};
  }

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // Asks for the predicted pages as if the calling processor, which is at page `at`, had faulted on them, without
  // waiting. Pages that the node is going to read by itself join `fetch`.
  void prefetch(PageId at, const StridePrefetcher::Prediction& ahead, bool is_write, Fetch& fetch);

  // --- One-sided reads (reads.cpp).
  // At the home, close() comes before every event of the page, and open() when its actions have been carried out. Where
  // nodes do not read by themselves, and elsewhere, they do nothing.
  void close(PageId page, Record& record) MG_REQUIRES(record.lock);
  void open(PageId page, Record& record) MG_REQUIRES(record.lock);
  // Reads the pages, all of which have entered Phase::kFetching, and makes the transitions that end this. The calling
  // thread holds no lock. It polls from when it asks the home of the first page, which had closed its word, or has taken
  // the page away again. Returns whether the first page is here.
  bool fetch(Fetch& fetch, std::optional<PollingScope>& polling);
  void read(Fetch& fetch);
  bool finish(const Fetch& fetch, uint32_t first, uint32_t count, std::optional<PollingScope>& polling);
  void ask(const Fetch& fetch, uint32_t which, std::optional<PollingScope>& polling);

  [[nodiscard]] unsigned most_ahead(bool is_write) const;
  // Returns whether no node has a copy. To be called at the home, with the record locked.
  static bool nobody_has(const Page& page);
  // Carries out the actions, and the transitions that follow from them.
  void perform(PageId page, Record& record, Actions& actions, const Message* message) MG_REQUIRES(record.lock);
  void perform_one(PageId page, Record& record, const Action& action, const Message* message) MG_REQUIRES(record.lock);
  void send(PageId page, const Action& action);
  void send_diff(PageId page, Record& record, const Action& action) MG_REQUIRES(record.lock);
  void merge(PageId page, std::span<const std::byte> diff, NodeId from);
  void keep_diff(PageId page, Record& record, const Message& message) MG_REQUIRES(record.lock);
  void merge_kept(PageId page, Record& record) MG_REQUIRES(record.lock);
  void map(PageId page, Record& record, const Action& action) MG_REQUIRES(record.lock);
  // Takes the page's mappings from the domains. Returns whether the page was left readable, because the same transition is
  // going to ask for that.
  bool unmap(PageId page, Record& record, DomainSet domains) MG_REQUIRES(record.lock);

  // Where faults detect accesses, rights belong to the node, so there is one domain.
  static constexpr DomainId kNodeDomain{0};

  const Options options_;
  OwnWords words_;  // of the page table
  SparseTable<Record> records_;
  std::unique_ptr<Domain[]> domains_;
  PagePool diffs_;  // buffers of diffs
};

}  // namespace multigrain::mgs
