// The driver of placed pages feeds the transitions (transitions.h) faults, messages and the ends of holds, asks the policy where
// they want to know, and carries out their actions.
//
// Global memory is the frame of a page's home. At the home it is mapped as the node's own copies are. Elsewhere references are
// mapped or trapped. Mapped: the home's memory file is mapped over the page in the view, which needs all nodes on one machine.
// Trapped: the page has no rights in the view, and the fault that each access raises executes the instruction, on the home's frame
// (on_trap()); where it cannot, the page is moved here.
//
// A page's lock is held for one transition and its actions, and never while waiting for a message. These invariants
// hold whenever a page's lock is free:
//  (D1) The node's access rights in the view are those that the page's state gives, or fewer; and what is mapped in the view is the
//       home's frame if the state is kGlobal and this node is not the home, else this node's own. If references are trapped, it is
//       this node's own always, and has no rights in that state.
//  (D2) If an order waits for the end of a page's hold, the page is in the list of such pages, unless a thread that
//       was granted the page does not run yet: then that thread puts it there. The service thread looks at the list
//       until it is empty: it is in serve(), or Fabric::wake_service() has been called for it.
//  (D3) At the home, a page that the policy has put into global memory, and about which it may decide otherwise later, is in the
//       list of pages to thaw, or a transition that thaws it comes before any thread waits for it.
//  (D4) At the home, the frame of a page that another node may write has memory: by that the heap knows which pages of a block
//       that is freed may hold something (SharedHeap::for_each_touched).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/spin_lock.h"
#include "coherence/page_driver.h"
#include "coherence/placement/cache_policy.h"
#include "coherence/placement/observer.h"
#include "coherence/placement/transitions.h"
#include "fabric/wait.h"
#include "memory/sparse_table.h"
#include "references/execute.h"

namespace multigrain::placement {

// A test that explores the driver sees its insides through this (tests/coherence/placement_driver_world.cpp).
namespace explored {
struct DriverState;
}

// Returns the name of a message of this protocol, for reports; nullptr for other types.
const char* message_name(MessageType type);

class Driver final : public PageDriver {
 public:
  // Registers the message handlers. `policy` is the policy's name and parameters (placement/policies.h). Errors: a policy that does
  // not exist, or that a run cannot ask; nodes whose memory cannot be mapped here; tables that cannot be reserved. `observer`
  // outlives the driver; nullptr: nobody wants to know. `execute` is what makes trapped references; nullptr: references are mapped.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, std::string_view policy,
                                                Observer* observer = nullptr, references::Execute execute = nullptr);
  // The same with a policy that is there already.
  static Result<std::unique_ptr<Driver>> create(const NodeServices& services, std::unique_ptr<Policy> policy,
                                                Observer* observer = nullptr, references::Execute execute = nullptr);

  // After this the processor's own instructions can make the access, so a page in global memory elsewhere is moved here if
  // references are trapped.
  bool on_fault(PageId page, bool is_write) override { return access(page, is_write, false).has_value(); }
  bool on_trap(const Fault& fault, void* context) override;
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

  Driver(const NodeServices& services, std::unique_ptr<Policy> policy, Observer* observer, references::Execute execute)
      : PageDriver(services),
        policy_(std::move(policy)),
        observer_(observer),
        execute_(execute),
        thaws_at_(end_of_period(policy_->reconsiders_after())) {}

  // Returns when the period ends in which the clock is; the policy counts periods from the clock's zero on
  // (placement/policies.cpp). Of no length: 0.
  static Nanoseconds end_of_period(Nanoseconds every) { return every == 0 ? 0 : (monotonic_ns() / every + 1) * every; }

  static void handle(void* context, const Message& message);
  void on_message(const Message& message);

  // Waits until the thread may make its access (kResolved), or is to make it at the home (kRefer), which it can only if it
  // `can_refer`. Returns nothing if the page is not allocated.
  std::optional<FaultOutcome> access(PageId page, bool is_write, bool can_refer);
  // References are trapped, and the page is in global memory elsewhere.
  [[nodiscard]] bool is_away(const Record& record) const MG_REQUIRES(record.lock) {
    return execute_ != nullptr && record.page.state == State::kGlobal && record.home() != self_;
  }
  FaultOutcome begin_access(Record& record, Access access, bool can_refer, Actions& actions) MG_REQUIRES(record.lock);
  // Makes the access of a thread that access() has told to (kRefer). Returns false if it cannot be made so.
  bool refer(PageId page, ucontext_t& context);

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
  void unmap_global(PageId page);
  void lower(PageId page, Record& record, State right) MG_REQUIRES(record.lock);

  const std::unique_ptr<Policy> policy_;
  Observer* const observer_;
  const references::Execute execute_;
  SparseTable<Record> records_;
  // Lists of pages (page_list.h).
  std::atomic<uint64_t> listed_{0};   // an order waits for the end of the page's hold
  std::atomic<uint64_t> to_thaw_{0};  // (D3)
  // Of the thread that catches up.
  Nanoseconds thaws_at_;
};

}  // namespace multigrain::placement
