// The driver of MGS feeds the transitions faults, releases and messages, and carries out their actions.
//
// A page's lock is held for one transition and its actions, and never while waiting for a message. The driver keeps
// this invariant: whenever a page's lock is free, the node's access rights in the view are those that the page's Client
// says (mapped, and writable if the state is kWrite), or fewer; but a home that will_keep_read_right() keeps the right
// to read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/spin_lock.h"
#include "coherence/mgs/delayed_update_queue.h"
#include "coherence/mgs/release_epochs.h"
#include "coherence/mgs/transitions.h"
#include "coherence/page_driver.h"
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
  // Registers the message handlers. `prefetch` is the most pages that are asked for at a time, ahead of a processor
  // that faults on one page after the other; 0: none. Errors: tables that cannot be reserved.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, unsigned prefetch = 0);

  bool on_fault(PageId page, bool is_write) override;
  void release() override;
  [[nodiscard]] bool is_clean() const override;

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
    uint8_t release_slot MG_GUARDED_BY(lock) = 0;  // the slot for the REL that is out
    bool readable MG_GUARDED_BY(lock) = false;     // the view allows reading, and not writing
    EventCount changed;                            // notified by kWake
    Page page MG_GUARDED_BY(lock);
    KeptDiff* kept MG_GUARDED_BY(lock) = nullptr;
  };

  Driver(const NodeServices& services, unsigned prefetch, PagePool twins, PagePool diffs);

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // Asks for `count` pages as if the calling processor had faulted on them, without waiting. The first page is `from` +
  // `stride`, and each is `stride` pages after the one before.
  void prefetch(PageId at, PageId from, int64_t stride, uint32_t count, bool is_write);

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
  void map(PageId page, Record& record) MG_REQUIRES(record.lock);
  // Returns whether the page was left readable, because the same transition is going to ask for that.
  bool unmap(PageId page, Record& record) MG_REQUIRES(record.lock);

  // Faults detect accesses, and rights belong to the node, so there is one domain.
  static constexpr DomainId kNodeDomain{0};

  const uint32_t prefetch_;
  SparseTable<Record> records_;
  DelayedUpdateQueue queue_;
  ReleaseEpochs releases_;
  PagePool diffs_;  // buffers of diffs
};

}  // namespace multigrain::mgs
