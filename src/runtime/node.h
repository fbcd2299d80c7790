// This process as one node of the machine: everything that runs here, in the order in which it starts.
#pragma once

#include <sched.h>

#include <atomic>
#include <functional>
#include <memory>
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
#include "profile/report.h"
#include "runtime/compiled_checks.h"
#include "runtime/environment.h"
#include "runtime/meeting.h"
#include "runtime/private/state_copy.h"
#include "runtime/processors.h"
#include "sync/sync.h"

namespace multigrain {

// The parts of an allocation that are used as if they were several.
class Stretches {
 public:
  virtual ~Stretches() = default;
  // The part that has this page; empty: none, or it cannot be told now. Async-signal-safe.
  virtual PageRange part_of(PageId page) = 0;
};

// The threads of a program that knows nothing of processors (src/guest), for the statistics.
class HostedThreads {
 public:
  virtual ~HostedThreads() = default;
  // The program's name, for the head of the statistics.
  [[nodiscard]] virtual std::string program() const = 0;
  // What this node's have done until `when` (in virtual time: a time of that): their counters into `report`, and a row each. From
  // any thread, in no message handler.
  virtual std::vector<ThreadRow> report(NodeReport& report, Nanoseconds when) = 0;
};

// What mg_profile_reset and mg_profile_stop tell every node.
enum class PhaseMark : uint64_t { kBegin, kEnd };

class Node final : private SyncHost, private ProcessorHost, private HomeDirectory {
 public:
  // Builds this process's node from the environment and makes it ready for messages and faults. Once. `prepare`, if given, is
  // called before any message is served.
  static Status start(const std::function<Status(Node&)>& prepare = {});
  // The node, or nullptr before start().
  static Node* get();
  // Whether this process is a child that the program forked: it has no node.
  static bool is_forked_child();

  ~Node() override;

  [[nodiscard]] const Config& config() const { return config_; }
  // Those of this node, or all if it has none of its own.
  [[nodiscard]] const cpu_set_t& cores() const { return service_cores_; }
  [[nodiscard]] Region& region() { return *region_; }
  [[nodiscard]] AccessRights& rights() { return *rights_; }
  [[nodiscard]] SharedHeap& heap() { return *heap_; }
  [[nodiscard]] Protocol& protocol() { return *protocol_; }
  // Whether memory can be kept coherent by lines here: the program has compiled checks.
  [[nodiscard]] bool has_line_protocol() const { return line_protocol_ != nullptr; }
  [[nodiscard]] Sync& sync() { return *sync_; }
  [[nodiscard]] Processors& processors() { return *processors_; }
  [[nodiscard]] Fabric& fabric() { return *fabric_; }
  [[nodiscard]] const WaitPolicy& wait() const { return wait_; }

  // Pages are brought ahead of a processor only in the parts of allocations that this says. Before any processor runs.
  void set_stretches(Stretches& stretches) { stretches_ = &stretches; }

  // The program is hosted: its threads have rows in the statistics, and processors none. Before any of them runs.
  void set_hosted(HostedThreads& threads) { hosted_ = &threads; }

  // When the run began, monotonic_ns().
  [[nodiscard]] Nanoseconds started_at() const { return started_at_; }

  // Release, and acquires, of the calling processor.
  void release() override;
  void drain_store_buffer() override;
  void acquire(NodeId from) override { protocol_->acquire(from); }
  void acquire_all() override { protocol_->acquire_all(); }
  void release_at_barrier() override { protocol_->release_at_barrier(); }
  void acquire_at_barrier() override { protocol_->acquire_at_barrier(); }
  void help() override { protocol_->help(); }

  // Begins the phase that the statistics are of, forgetting what was before, or ends it; on every node. On any node,
  // from ordinary code.
  void mark_profiles(PhaseMark mark);

  // Of a node other than 0, before it serves messages, and so before node 0 can have given it work: a signal that ends a
  // process goes to the launcher, which gives it to the program on node 0.
  void pass_on_signals() const;

  // Life of a node other than 0: serves until node 0 ends the run; then its process ends.
  [[noreturn]] void serve_until_the_end();

  // The end of the run, on the node whose process is exiting with `status`; writes the statistics. Node 0: collects
  // the others' reports. Others: tells node 0 to exit too, and waits to be ended. False: the statistics were lost, which
  // has been said.
  [[nodiscard]] bool finish(int status);

  // The process is about to run its libraries' destructors: nothing here enters them from now on.
  void stop();

 private:
  Node(Config config, std::optional<Meeting> meeting, CompiledChecks checks)
      : config_(std::move(config)), meeting_(std::move(meeting)), checks_(std::move(checks)) {}
  Status build();
  Status build_fabric(const NodeEnvironment& environment);
  Status build_protocols();
  void emulate(ShmFabric& shm);
  Status start_service();
  void describe() const;

  // --- What the parts ask of the node.
  [[nodiscard]] const WaitPolicy& wait_policy() const override { return wait_; }  // SyncHost
  void enter(SyncActivity activity) override;
  void leave() override;
  Status copy_state(NodeId to) override;                // ProcessorHost
  std::optional<NodeId> home_of(PageId page) override;  // HomeDirectory
  bool is_first_touch(PageId page) override;
  std::optional<NodeId> claim_home(PageId page) override;
  std::optional<NodeId> ask_home(PageId page) override;
  std::optional<Grain> grain_of(PageId page) override;
  size_t block_size_of(PageId page) override;
  PageRange stretch_of(PageId page) override;

  // --- Service thread.
  static void* service_main(void* node);
  static void* exit_main(void* node);
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
  void set_handler(MessageType type);

  [[nodiscard]] int watch_node_0() const;
  void peer_failed(NodeId node, const char* reason);
  [[nodiscard]] static Nanoseconds time_of_mark();
  void take_mark(PhaseMark mark, Nanoseconds when);
  void take_snapshots(SparseTable<ProfileSnapshot>& snapshots, Nanoseconds when);
  void tell_never_started_processors() const;
  [[noreturn]] static void refuse_thread_sync_object(const char* function, const void* object, const char* instead);
  std::vector<ThreadRow> report(NodeReport& out);
  void send_rows(std::span<const ThreadRow> rows);
  void take_if_complete(NodeId node) MG_REQUIRES(rows_lock_);
  [[nodiscard]] bool write_statistics(std::span<const NodeReport> reports);

  Config config_;                   // constant after build()
  std::optional<Meeting> meeting_;  // of a run over UCX
  const CompiledChecks checks_;     // that the program has
  WaitPolicy wait_;
  cpu_set_t service_cores_{};  // where the service thread may run: the node's cores, if it has its own
  Stretches* stretches_ = nullptr;
  HostedThreads* hosted_ = nullptr;
  std::unique_ptr<Fabric> fabric_;
  ShmFabric* shm_ = nullptr;                 // what fabric_ is, or wraps: this
  UcxFabric* ucx_ = nullptr;                 // or this
  std::vector<std::string> names_of_nodes_;  // for messages from signal context
  int node_0_gone_ = -1;                     // an eventfd: the process of node 0 has ended; fabric ucx
  std::optional<Region> region_;
  std::unique_ptr<AccessRights> rights_;
  std::string rights_reason_;
  std::unique_ptr<SharedHeap> heap_;
  std::optional<LineTable> line_table_;
  std::unique_ptr<HazardSlots> hazard_slots_;
  std::unique_ptr<Protocol> page_protocol_;
  std::unique_ptr<LineMemory> line_protocol_;  // if the program has compiled checks
  std::unique_ptr<ByGrain> both_protocols_;    // then
  Protocol* protocol_ = nullptr;               // that one, or the page protocol
  std::unique_ptr<Sync> sync_;
  std::unique_ptr<StateCopy> state_copy_;
  std::unique_ptr<Processors> processors_;

  Nanoseconds started_at_ = 0;
  std::atomic<Nanoseconds> measured_from_{0};
  ProcessorProfile service_profile_;
  std::string service_priority_;
  // Snapshots that the statistics are relative to: one a processor, then the service thread's.
  SparseTable<ProfileSnapshot> baseline_;
  // The same at the end of the phase, if that has come: then measured_to_ is not 0. One mark is taken at a time.
  SparseTable<ProfileSnapshot> end_;
  std::atomic<Nanoseconds> measured_to_{0};

  // Guarded by their EventCount: written by handlers, read by the thread that waits.
  EventCount changed_;
  int shutdown_event_ = -1;  // an eventfd: node 0 has ended the run
  std::atomic<bool> shutting_down_{false};
  std::atomic<uint32_t> finishing_{0};
  EventCount exit_event_;
  std::atomic<uint32_t> exit_wanted_{0};
  std::atomic<int> exit_status_{0};
  Mutex marking_;
  std::atomic<uint64_t> marks_out_{0};  // a bit a node that has still to answer
  SparseTable<NodeReport> reports_;
  std::atomic<uint64_t> reports_in_{0};  // a bit a node, once its rows are here, too
  SpinLock rows_lock_;
  NodeSet reported_ MG_GUARDED_BY(rows_lock_);
  std::vector<ThreadRow> rows_ MG_GUARDED_BY(rows_lock_);  // of all nodes
};

}  // namespace multigrain
