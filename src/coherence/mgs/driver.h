// MGS at work: feeds the transitions faults, releases and messages, and carries out their actions.
//
// One record a page, with a lock that is held for one transition and its actions and never while waiting for a message.
// Invariant that everything here keeps: whenever a page's lock is free, the node's access rights in the view are those
// that the page's Client says (mapped, and writable if the state is kWrite), or fewer; but a home that will_keep_read_right()
// keeps the right to read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/spin_lock.h"
#include "coherence/mgs/transitions.h"
#include "coherence/mgs/release_epochs.h"
#include "coherence/protocol.h"
#include "memory/diff.h"
#include "memory/page_pool.h"
#include "memory/sparse_table.h"
#include "profile/this_thread.h"

namespace multigrain::mgs {

// The name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

class Driver final : public Protocol {
 public:
  // Registers the message handlers. Ends the run with a sentence if the tables cannot be reserved.
  // `prefetch`: how many pages to ask for ahead of a processor that faults on one after the other; 0: none.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, unsigned prefetch = 0);

  bool on_fault(PageId page, bool is_write) override;
  void release() override;
  [[nodiscard]] bool is_clean() const override;

  // What this node knows of a page, for tests and diagnosis.
  [[nodiscard]] Page inspect(PageId page);

 private:
  // A diff that waits for the sole writer's page (kKeepDiff).
  struct KeptDiff {
    KeptDiff* next;
    uint32_t length;

    [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
  };

  struct alignas(64) Record {
    SpinLock lock;
    std::atomic<uint16_t> home_plus_one{0};  // 0: not looked up yet; any thread may look it up
    uint8_t release_slot = 0;                // of the release epochs, for the REL that is out
    bool readable = false;                   // what the view allows is reading
    EventCount changed;                      // kWake
    Page page;
    std::byte* twin = nullptr;
    KeptDiff* kept = nullptr;
  };

  // The pages that a domain has written since it released them, oldest first. A page is listed at least once while the
  // transitions say it is queued; an entry may be stale, which on_release() finds out.
  class UpdateQueue {
   public:
    Status create(uint64_t capacity);
    void push(PageId page);
    // How many were ever pushed: what pop() takes as its limit.
    uint64_t pushed();
    // Takes up to pages.size() of those pushed before `limit`; returns how many. They count in the release epochs, under
    // `slot`, before another thread can see them gone: at every moment a written page is in the queue, in an epoch, or done.
    size_t pop(uint64_t limit, std::span<PageId> pages, ReleaseEpochs& releases, uint8_t& slot);
    [[nodiscard]] bool empty() const { return size_.load(std::memory_order_acquire) == 0; }

   private:
    static constexpr uint64_t kCompactAt = 4096;

    SpinLock lock_;
    SparseTable<PageId> ring_;
    uint64_t capacity_ = 0;
    uint64_t head_ = 0;  // all pushed before are popped
    uint64_t tail_ = 0;
    uint64_t base_ = 0;  // the entry that ring_[0] stands for
    std::atomic<uint64_t> size_{0};
  };

  Driver(const NodeServices& services, unsigned prefetch, PagePool twins, PagePool diffs);

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // Asks for `count` pages, each `stride` pages after the one before, the first after `from`, as if the calling
  // processor had faulted on them, without waiting.
  void prefetch(PageId at, PageId from, int64_t stride, uint32_t count, bool is_write);

  // Whether no node has a copy; for the home, with the record locked.
  static bool nobody_has(const Page& page);
  // Makes this node the single writer of up to `count` pages after `from` of which it is home and nobody has a copy.
  void claim_ahead(PageId at, PageId from, uint32_t count);

  // The home, looked up once. nullopt: not allocated. `claim`: settle a first-touch page, waiting if need be.
  std::optional<NodeId> home_of(PageId page, Record& record, bool claim);
  [[nodiscard]] Context context(const Record& record) const;

  // Carries out the actions, and the transitions that follow from them. The record's lock is held.
  void perform(PageId page, Record& record, Actions& actions, const Message* message);
  void perform_one(PageId page, Record& record, const Action& action, const Message* message);
  void send(PageId page, const Action& action);
  void send_diff(PageId page, Record& record, const Action& action);
  void merge(PageId page, std::span<const std::byte> diff, NodeId from);
  void map(PageId page, Record& record);
  // `readable`: they may be read already.
  void map(PageId first, uint64_t count, bool writable, bool readable);
  // Returns whether the page was left readable, as the same transition is going to ask for.
  bool unmap(PageId page, Record& record);

  // Faults detect accesses, and rights belong to the node: one domain.
  static constexpr DomainId kNodeDomain{0};

  NodeServices services_;
  const size_t page_size_;
  const uint32_t prefetch_;
  SparseTable<Record> records_;
  UpdateQueue queue_;
  ReleaseEpochs releases_;
  PagePool twins_;
  PagePool diffs_;  // buffers of a diff being made, or kept
};

}  // namespace multigrain::mgs
