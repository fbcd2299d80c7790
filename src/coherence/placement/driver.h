// The driver of placed pages feeds the transitions (transitions.h) faults, messages and the ends of holds, asks the policy where
// they want to know, and carries out their actions.
//
// Global memory is the frame of a page's home. At the home it is mapped as the node's own copies are. Elsewhere the home's memory
// file is mapped over the page in the view, if all nodes' files are here. If they are not, the page is remote: it has no rights in
// the view, and threads of the node refer to it by operations of the fabric (RemoteMemory).
//
// A page's lock is held for one transition and its actions, and never while waiting for a message. These invariants
// hold whenever a page's lock is free:
//  (D1) The node's access rights in the view are those that the page's state gives, or fewer; and what is mapped in the view is the
//       home's frame if the state is kGlobal and this node is not the home, else this node's own. A remote page has no rights.
//  (D2) If an order waits for the end of a page's hold, the page is in the list of such pages, unless a thread that
//       was granted the page does not run yet: then that thread puts it there. The service thread looks at the list
//       until it is empty: it is in serve(), or Fabric::wake_service() has been called for it.
//  (D3) At the home, a page that the policy has put into global memory, and about which it may decide otherwise later, is in the
//       list of pages to thaw, or a transition that thaws it comes before any thread waits for it.
//  (D4) At the home, the frame of a page that another node may write has memory: by that the heap knows which pages of a block
//       that is freed may hold something (SharedHeap::for_each_touched).
//  (D5) A reference under way is one of those that the page counts as returning. So the page stays where it is (P5), and the
//       operation needs no lock: while it waits, this thread may handle messages, which take locks of pages.
//  (D6) The table of remote pages says of a page what is_remote() says. Those who look there hold no lock: what they find may be
//       wrong when they act on it, and they do what is right in either case.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/spin_lock.h"
#include "coherence/page_driver.h"
#include "coherence/placement/cache_policy.h"
#include "coherence/placement/observer.h"
#include "coherence/placement/transitions.h"
#include "coherence/remote_memory.h"
#include "fabric/wait.h"
#include "memory/sparse_table.h"
#include "profile/profile.h"

namespace multigrain::placement {

// A test that explores the driver sees its insides through this (tests/coherence/placement_driver_world.cpp).
namespace explored {
struct DriverState;
}

// Returns the name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

class Driver final : public PageDriver, public RemoteMemory {
 public:
  // Registers the message handlers. `policy` is the policy's name and parameters (placement/policies.h). Errors: a policy that does
  // not exist, or that a run cannot ask; tables that cannot be reserved. `observer` outlives the driver; nullptr: nobody wants to
  // know. If `services.frames_of_nodes` is empty, pages in global memory are remote.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, std::string_view policy,
                                                Observer* observer = nullptr);
  // The same with a policy that is there already.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, std::unique_ptr<Policy> policy,
                                                Observer* observer = nullptr);

  bool on_fault(PageId page, bool is_write) override;
  // A store is visible to every node when it has been made, so there is nothing to release. An observer is told nevertheless.
  void release() override {
    if (observer_ != nullptr) observer_->released();
  }
  [[nodiscard]] bool is_clean() const override { return observer_ == nullptr; }
  void acquire(NodeId /*from*/) override { acquire_all(); }
  void acquire_all() override {
    if (observer_ != nullptr) observer_->acquired();
  }
  void serve() override;
  // Thaws pages when the policy's time for that has come.
  [[nodiscard]] bool needs_to_catch_up() const override { return policy_->reconsiders_after() != 0; }
  void catch_up() override;
  void fill_frame(PageId page) override;

  [[nodiscard]] bool has_remote_pages() const override { return has_remote_pages_; }
  [[nodiscard]] bool is_remote(PageId page) override;
  [[nodiscard]] std::span<const std::atomic<uint8_t>> remote_pages() const override {
    return {&remote_pages_[0], remote_pages_.count()};
  }
  [[nodiscard]] bool load(PageId page, uint64_t offset, std::span<std::byte> out) override;
  [[nodiscard]] bool store(PageId page, uint64_t offset, std::span<const std::byte> bytes) override;
  [[nodiscard]] bool compare_and_swap(PageId page, uint64_t offset, uint64_t& expected, uint64_t desired) override;

 private:
  friend struct explored::DriverState;

  struct alignas(64) Record : PageRecord {
    bool is_begun MG_GUARDED_BY(lock) = false;       // the page is pinned where the program says
    bool is_used MG_GUARDED_BY(lock) = false;        // this node's frame may hold something else than zeros
    bool is_listed MG_GUARDED_BY(lock) = false;      // in the list of pages with a hold (D2)
    bool is_to_thaw MG_GUARDED_BY(lock) = false;     // in the list of pages to thaw (D3)
    State right MG_GUARDED_BY(lock) = State::kNone;  // what the view allows, and where
    Nanoseconds hold_ends MG_GUARDED_BY(lock) = 0;   // meaningful while the page is held, and no thread is returning
    uint64_t next_listed MG_GUARDED_BY(lock) = 0;    // the next page in the list, + 1
    uint64_t next_to_thaw MG_GUARDED_BY(lock) = 0;
    EventCount readers;  // notified by kWakeReaders
    EventCount writers;  // notified by kWakeWriters
    Page page MG_GUARDED_BY(lock);
    PageMemo memo MG_GUARDED_BY(lock);
  };

  Driver(const NodeServices& services, std::unique_ptr<Policy> policy, Observer* observer)
      : PageDriver(services),
        policy_(std::move(policy)),
        observer_(observer),
        has_remote_pages_(services.frames_of_nodes.size() != services.fabric.nodes() && services.fabric.nodes() > 1),
        thaws_at_(end_of_period(policy_->reconsiders_after())) {}

  // Returns when the period ends in which the clock is; the policy counts periods from the clock's zero on
  // (placement/policies.cpp). Of no length: 0.
  static Nanoseconds end_of_period(Nanoseconds every) { return every == 0 ? 0 : (monotonic_ns() / every + 1) * every; }

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // Has a fault wait until the page is granted to the node, or a reference, which is told in `referred_to` in which node's memory the
  // page is; nullptr: a fault. Returns whether the thread has waited. If it has, `referred_to` is not set, and end_use() is due, as after each
  // reference.
  bool wait_for(PageId page, Record& record, Access access, NodeId* referred_to);
  [[nodiscard]] NodeId place_of(Record& record) const MG_REQUIRES(record.lock);
  // The thread that has waited runs, or its reference is over. `is_held`: it is about to make its access.
  void end_use(PageId page, Record& record, bool is_held);
  // Calls `operation(node)` with the node in whose memory the page is and stays meanwhile, and counts it if that is another node. Returns
  // false if the page is not allocated.
  template <typename Operation>
  bool refer(PageId page, Access access, Counter counted, Operation&& operation);
  void store_part(NodeId at, uint64_t word, uint64_t first, std::span<const std::byte> bytes);
  [[nodiscard]] bool is_elsewhere(const Record& record) const MG_REQUIRES(record.lock) {
    return record.right == State::kGlobal && record.home() != self_;
  }

  // At the home: pins a page of which nobody has wanted anything yet where the program says.
  void begin(PageId page, Record& record) MG_REQUIRES(record.lock);

  // From now on the page is held for as long as a hold is.
  static void set_hold(Record& record) MG_REQUIRES(record.lock);
  [[nodiscard]] static bool is_hold_over(const Record& record) MG_REQUIRES(record.lock);
  void end_hold(PageId page, Record& record) MG_REQUIRES(record.lock);
  void await_hold(PageId page, Record& record) MG_REQUIRES(record.lock);
  // Ends the holds that are over. Returns whether any page is left in the list.
  bool end_holds();

  // Carries out the actions, asks the policy if they say so, and carries out what follows from that.
  void perform(PageId page, Record& record, Actions& actions, const Message* message) MG_REQUIRES(record.lock);
  void perform_one(PageId page, Record& record, const Action& action, const Message* message) MG_REQUIRES(record.lock);
  void ask_policy(PageId page, Record& record, const Action& question, Actions& actions) MG_REQUIRES(record.lock);
  void send(PageId page, const Action& action);
  void fill_with_zeros(PageId page, Record& record) MG_REQUIRES(record.lock);
  void map(PageId page, Record& record, State right) MG_REQUIRES(record.lock);
  void map_global(PageId page, Record& record) MG_REQUIRES(record.lock);
  void lower(PageId page, Record& record, State right) MG_REQUIRES(record.lock);

  const std::unique_ptr<Policy> policy_;
  Observer* const observer_;
  const bool has_remote_pages_;
  SparseTable<Record> records_;
  SparseTable<std::atomic<uint8_t>> remote_pages_;  // (D6)
  // Lists of pages (page_list.h).
  std::atomic<uint64_t> listed_{0};   // an order waits for the end of the page's hold
  std::atomic<uint64_t> to_thaw_{0};  // (D3)
  // Of the thread that catches up.
  Nanoseconds thaws_at_;
};

}  // namespace multigrain::placement
