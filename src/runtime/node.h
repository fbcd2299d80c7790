// This process as one node of the machine: everything that runs here, in the order in which it starts.
#pragma once

#include <sched.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/config.h"
#include "base/mutex.h"
#include "base/node_set.h"
#include "base/spin_lock.h"
#include "coherence/by_grain.h"
#include "coherence/create.h"
#include "coherence/hazard_slots.h"
#include "coherence/protocol.h"
#include "fabric/emulation/modelled.h"
#include "fabric/fabric.h"
#include "fabric/shm/shm_fabric.h"
#include "fabric/ucx/ucx_fabric.h"
#include "memory/access_rights.h"
#include "memory/heap/shared_heap.h"
#include "memory/line_table.h"
#include "memory/region.h"
#include "profile/cost_report.h"
#include "profile/report.h"
#include "races/detector.h"
#include "races/judge.h"
#include "runtime/bootstrap.h"
#include "runtime/choice.h"
#include "runtime/compiled_checks.h"
#include "runtime/environment.h"
#include "runtime/line_handover.h"
#include "runtime/private/state_copy.h"
#include "runtime/processors.h"
#include "runtime/shared_globals.h"
#include "runtime/translation.h"
#include "status/node_status.h"
#include "sync/sync.h"
#include "timeline/module.h"

namespace multigrain {

// Knows the parts of allocations that the program uses as if each were an allocation of its own.
class Stretches {
 public:
  virtual ~Stretches() = default;
  // Returns the part that has this page; it is empty if there is none, or if it cannot be told now. Async-signal-safe.
  virtual PageRange part_of(PageId page) = 0;
};

// The threads of a hosted program, which knows nothing of processors (src/guest); the statistics are about them.
class HostedThreads {
 public:
  virtual ~HostedThreads() = default;
  // Returns the program's name, for the head of the statistics.
  [[nodiscard]] virtual std::string program() const = 0;
  // Returns a row for each thread of this node, with what it has done until `when` (a virtual time, if the run has
  // virtual time), and adds the threads' counters to `report`. Any thread may call it, but no message handler.
  virtual std::vector<ThreadRow> report(NodeReport& report, Nanoseconds when) = 0;
};

// The marks by which mg_profile_reset and mg_profile_stop begin and end a phase on every node.
enum class PhaseMark : uint64_t { kBegin, kEnd };

// The locks and conditions that the runtime has for itself in a run of several nodes (Sync::own_lock). The atomics of
// programs of threads are made under the first kAtomicsLocks. The others, each with a condition, are for guards of their
// static variables, and for what POSIX objects need before they have a lock of their own (threads/made_object.h).
inline constexpr uint32_t kAtomicsLocks = 256;
inline constexpr uint32_t kObjectLocks = 64;
inline constexpr uint32_t kOwnLocks = kAtomicsLocks + kObjectLocks;
inline constexpr uint32_t kOwnConds = kObjectLocks;

class Node final : private SyncHost, private ProcessorHost, private HomeDirectory {
 public:
  // Builds this process's node from the environment and makes it ready for messages and faults. Called once. `prepare`,
  // if given, is called before any message is served.
  static Status start(const std::function<Status(Node&)>& prepare = {});
  // Returns the node, or nullptr before start().
  static Node* get() { return g_node; }
  // Returns whether this process is a child that the program forked: it has no node.
  static bool is_forked_child();

  ~Node() override;

  [[nodiscard]] const Config& config() const { return config_; }
  // Returns the cores of this node, or all cores if the node has none of its own.
  [[nodiscard]] const cpu_set_t& cores() const { return service_cores_; }
  [[nodiscard]] Region& region() { return *region_; }
  [[nodiscard]] AccessRights& rights() { return *rights_; }
  [[nodiscard]] SharedHeap& heap() { return *heap_; }
  [[nodiscard]] Protocol& protocol() { return *protocol_; }
  // Returns whether memory can be kept coherent by lines here: the program has compiled checks.
  [[nodiscard]] bool has_line_protocol() const { return line_protocol_ != nullptr; }
  // Returns whether memory whose allocation names no protocol is kept coherent by pages, and by lines where that is faster.
  [[nodiscard]] bool moves_to_lines() const { return moves_to_lines_ == MovesToLines::kYes; }
  [[nodiscard]] Sync& sync() { return *sync_; }
  [[nodiscard]] Processors& processors() { return *processors_; }
  [[nodiscard]] SharedGlobals& shared_globals() { return *shared_globals_; }
  [[nodiscard]] Fabric& fabric() { return *fabric_; }
  [[nodiscard]] const WaitPolicy& wait() const { return wait_; }

  // Returns where memory of this grain is placed if nothing else is asked for.
  [[nodiscard]] Placement default_placement(size_t size, Grain grain) const;

  // From now on, pages are brought ahead of a processor only inside the parts of allocations that `stretches` names.
  // Called before any processor runs.
  void set_stretches(Stretches& stretches) { stretches_ = &stretches; }

  // Says that the program is hosted: its threads have rows in the statistics, and processors have none. Called before
  // any of them runs.
  void set_hosted(HostedThreads& threads) { hosted_ = &threads; }

  // Returns when the run began, by monotonic_ns().
  [[nodiscard]] Nanoseconds started_at() const { return started_at_; }

  // The release and the acquires of the calling processor.
  void release() override;
  void end_serial_part() override { protocol_->end_serial_part(); }
  [[nodiscard]] bool owes_release() const override { return !protocol_->is_clean(); }
  void release_own_part() override { protocol_->release_own_part(); }
  void drain_store_buffer() override;
  void acquire(NodeId from) override { protocol_->acquire(from); }
  void acquire_all() override { protocol_->acquire_all(); }
  void release_at_barrier() override {
    if (!protocol_->is_clean()) virtual_time::spend(&MachineCosts::release);
    protocol_->release_at_barrier();
  }
  void acquire_at_barrier() override { protocol_->acquire_at_barrier(); }
  [[nodiscard]] bool gathers_at_barrier() const override { return protocol_->gathers_at_barrier(); }
  void gather_at_barrier(std::span<const NodeId> children) override { protocol_->gather_at_barrier(children); }
  void learn_at_barrier(NodeId parent, bool spreads) override { protocol_->learn_at_barrier(parent, spreads); }
  void help() override { protocol_->help(); }
  [[nodiscard]] bool may_meet() const override;

  // Returns whether pages may move to lines at present.
  [[nodiscard]] MovesToLines moves_now() const;

  // Begins the phase that the statistics describe, forgetting what was before, or ends it; on every node. Ordinary code
  // of any node may call it.
  void mark_profiles(PhaseMark mark);

  // Called on a node other than 0 before it serves messages, and so before node 0 can have given it work. From now on a
  // signal that ends a process goes to the launcher, which gives it to the program on node 0.
  void pass_on_signals() const;

  // The life of a node other than 0: it serves until node 0 ends the run; then its process ends.
  [[noreturn]] void serve_until_the_end();

  // Ends the run, on the node whose process is exiting with `status`, and writes the statistics. Node 0 collects the
  // other nodes' reports. Any other node tells node 0 to exit too, and waits to be ended. Returns false if the
  // statistics were lost, which the user has been told.
  [[nodiscard]] bool finish(int status);

  // Returns the exit status of a run whose program returns 0: under --races and --check another one than 0, if something was
  // found. After finish().
  [[nodiscard]] int status_of_success() const;

  // Returns the name of a message's type in reports, or nullptr.
  static const char* message_name(MessageType type);

  // Called when the process is about to run its libraries' destructors: from now on nothing here enters
  // those libraries.
  void stop();

 private:
  // Never destroyed: faults and messages may come until the process is gone.
  static constinit Node* g_node;

  Node(Config config, std::optional<Bootstrap> bootstrap, CompiledChecks checks)
      : config_(std::move(config)), bootstrap_(std::move(bootstrap)), checks_(std::move(checks)) {}
  Status build();
  Status build_fabric(const NodeEnvironment& environment);
  Status build_rights();
  Status build_translation();
  Status build_protocols();
  void emulate(ShmFabric& shm);
  // The same in counted time. Errors: the program is not counted.
  Status emulate_caches();
  Status emulate_in_counted_time(ShmFabric& shm);
  Status start_service();
  void describe() const;

  // --- The interfaces that the node's parts call.
  [[nodiscard]] const WaitPolicy& wait_policy() const override { return wait_; }  // SyncHost
  void enter(SyncActivity activity) override;
  void leave() override;
  Status copy_state(NodeId to) override;  // ProcessorHost
  Status share_globals() override;
  std::optional<NodeId> home_of(PageId page) override;  // HomeDirectory
  bool is_first_touch(PageId page) override;
  std::optional<NodeId> claim_home(PageId page) override;
  std::optional<NodeId> ask_home(PageId page) override;
  std::optional<Grain> grain_of(PageId page) override;
  bool may_move_to_lines(PageId page) override;
  size_t block_size_of(PageId page) override;
  Pin pin_of(PageId page) override;
  PageRange stretch_of(PageId page) override;

  // --- Threads of the runtime.
  static void* service_main(void* node);
  static void* exit_main(void* node);
  static void* catch_up_main(void* node);
  static void* judge_main(void* node);
  [[nodiscard]] bool has_to_catch_up() const;
  void service();
  [[nodiscard]] const char* raise_service_priority() const;

  // --- Messages.
  void handle_shutdown(const Message& message);
  void handle_report(const Message& message);
  void handle_thread_rows(const Message& message);
  void handle_exit(const Message& message);
  void handle_profile_mark(const Message& message);
  void handle_profile_marked(const Message& message);
  template <void (Node::*Handler)(const Message&)>
  void set_handler(MessageType type) {
    fabric_->set_handler(
        type, [](void* node, const Message& message) { (static_cast<Node*>(node)->*Handler)(message); }, this);
  }

  void unmap_early();
  [[nodiscard]] int watch_node_0() const;
  void peer_failed(NodeId node, const char* reason);
  [[nodiscard]] static Nanoseconds time_of_mark();
  void take_mark(PhaseMark mark, Nanoseconds when, uint64_t barriers);
  void take_snapshots(SparseTable<ProfileSnapshot>& snapshots, Nanoseconds when);
  void tell_never_started_processors() const;
  // In counted time: keeps what the statistics say of the order, and tells the user if it depends on the host. This comes
  // before the nodes' main threads, which are no participants, take part in the end.
  void note_order();
  [[noreturn]] static void refuse_thread_sync_object(const char* function, const void* object, const char* instead);
  std::vector<ThreadRow> report(NodeReport& out);
  void send_rows(std::span<const ThreadRow> rows);
  void take_if_complete(NodeId node) MG_REQUIRES(rows_lock_);
  [[nodiscard]] bool write_statistics(std::span<const NodeReport> reports);

  // The time line (node_timeline.cpp). Errors: the system gives no memory.
  Status start_timeline();
  void send_timeline();
  void compare_clocks();
  [[nodiscard]] bool write_timeline();
  void handle_timeline_track(const Message& message);
  void handle_timeline_events(const Message& message);
  void handle_timeline_clock(const Message& message);

  // What the run has cost by place (node_costs.cpp).
  void start_costs();
  void send_costs();
  void handle_cost_rows(const Message& message);
  [[nodiscard]] CostReport cost_report();
  [[nodiscard]] RunCommand command_of_run() const;

  // Another node's track, whose events come one message after the other until there are as many as `wanted`.
  struct CollectedTrack {
    timeline::WrittenTrack track;  // its times in the other node's time stamps
    double units_per_us = 0;       // of those
    uint64_t wanted = 0;
  };
  // Two times, by the clocks of another node and of node 0, that are the same moment.
  struct ClockPair {
    uint64_t theirs = 0;
    uint64_t ours = 0;
  };

  Config config_;                       // constant after build()
  std::optional<Bootstrap> bootstrap_;  // if the run is over UCX
  const CompiledChecks checks_;         // the checks in the program
  WaitPolicy wait_;
  uint64_t turns_at_end_ = 0;
  uint64_t interruptions_at_end_ = 0;
  // The cores on which the service thread may run: the node's, if it has its own.
  cpu_set_t service_cores_{};
  Stretches* stretches_ = nullptr;
  HostedThreads* hosted_ = nullptr;
  std::unique_ptr<Fabric> fabric_;
  // fabric_ is one of these two, or wraps it.
  ShmFabric* shm_ = nullptr;
  UcxFabric* ucx_ = nullptr;
  std::vector<std::string> names_of_nodes_;  // for messages from signal context
  // An eventfd, used over UCX: the process of node 0 has ended.
  int node_0_gone_ = -1;
  std::optional<Region> region_;
  std::vector<int> frames_fds_;  // of all nodes' frames, if they share this machine
  std::unique_ptr<AccessRights> rights_;
  std::string rights_reason_;
  std::unique_ptr<SharedHeap> heap_;
  std::optional<LineTable> line_table_;
  std::unique_ptr<HazardSlots> hazard_slots_;
  std::unique_ptr<Translation> translation_;        // if the program translates its accesses
  races::WatchedRights* watched_rights_ = nullptr;  // rights_, under --races
  std::unique_ptr<races::Judge> judge_;             // under --races, on node 0
  races::Detector* detector_ = nullptr;             // page_protocol_, under --races
  std::unique_ptr<Protocol> page_protocol_;
  std::unique_ptr<LineMemory> line_protocol_;  // if the program has compiled checks
  MovesToLines moves_to_lines_ = MovesToLines::kNotChosen;
  std::optional<LineHandover> handover_;     // if pages move to lines
  std::unique_ptr<ByGrain> both_protocols_;  // both, if there is a line protocol
  Protocol* protocol_ = nullptr;             // that one, or the page protocol
  std::unique_ptr<Sync> sync_;
  std::unique_ptr<StateCopy> state_copy_;
  std::unique_ptr<SharedGlobals> shared_globals_;
  std::unique_ptr<Processors> processors_;

  Nanoseconds started_at_ = 0;
  std::atomic<Nanoseconds> measured_from_{0};
  ProcessorProfile& service_profile_ =
      *new (node_status()->profile[Config::kMaxProcessorsPerNode].bytes) ProcessorProfile;
  ProcessorProfile catch_up_profile_;  // of the thread that catches up; no report shows it
  Mutex catching_up_;                  // held by the thread that catches up while it does
  std::string service_priority_;
  // The snapshots to which the statistics are relative: one for each processor, then the service thread's.
  SparseTable<ProfileSnapshot> baseline_;
  // The same at the end of the phase, if that has come: then measured_to_ is not 0. One mark is taken at a time.
  SparseTable<ProfileSnapshot> end_;
  std::atomic<Nanoseconds> measured_to_{0};

  // Message handlers write these, and a thread that waits for an EventCount reads them. They need no lock: each is
  // atomic, or is read only after an atomic has said that it is complete.
  EventCount changed_;
  int shutdown_event_ = -1;  // an eventfd: node 0 has ended the run
  std::atomic<bool> shutting_down_{false};
  std::atomic<uint32_t> finishing_{0};
  EventCount exit_event_;
  std::atomic<uint32_t> exit_wanted_{0};
  std::atomic<int> exit_status_{0};
  Mutex marking_;
  SpinLock marks_lock_;
  NodeSet marks_out_ MG_GUARDED_BY(marks_lock_);  // the nodes still to answer
  std::atomic<bool> any_marks_out_{false};
  SparseTable<NodeReport> reports_;
  SpinLock rows_lock_;
  NodeSet reported_ MG_GUARDED_BY(rows_lock_);             // their reports are here
  NodeSet reports_in_ MG_GUARDED_BY(rows_lock_);           // the same, and their rows, too
  std::atomic<unsigned> reports_complete_{0};              // how many are in reports_in_
  std::vector<ThreadRow> rows_ MG_GUARDED_BY(rows_lock_);  // those of all nodes

  uint64_t timeline_from_ = 0;  // the time_stamp() of this node at which its time line begins
  std::vector<ClockPair> timeline_clocks_;
  std::atomic<uint64_t> timeline_answer_{0};
  std::vector<CollectedTrack> timeline_tracks_ MG_GUARDED_BY(rows_lock_);
  uint64_t threads_without_track_ MG_GUARDED_BY(rows_lock_) = 0;

  costs::Rows cost_rows_ MG_GUARDED_BY(rows_lock_);  // those of other nodes
};

}  // namespace multigrain
