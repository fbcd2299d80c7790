// The host of a guest on several nodes, on each of them. It implements Cluster by the runtime, and ties its parts
// together.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/spin_lock.h"
#include "guest/cluster.h"
#include "guest/host.h"
#include "guest/nodes/away.h"
#include "guest/nodes/home.h"
#include "guest/nodes/home_files.h"
#include "guest/nodes/local_files.h"
#include "guest/nodes/node_files.h"
#include "guest/nodes/placement.h"
#include "guest/nodes/processor_features.h"
#include "guest/nodes/remote_areas.h"
#include "guest/nodes/shared_mappings.h"
#include "guest/nodes/thread_profiles.h"
#include "runtime/node.h"
#include "sync/futex/futexes.h"

namespace multigrain::guest {

class Nodes final : public Cluster, private HomeHost, private AreaCaches, private Stretches {
 public:
  // Must be called before the node serves messages. `inherited_cores` are where this process could run when it was
  // started. Fails on a machine, or with options, that cannot host a guest on several nodes.
  static Result<std::unique_ptr<Nodes>> create(Node& node, const cpu_set_t& inherited_cores);

  // Runs the program on node 0, as run_guest() of host.h does.
  CannotExecute run(const std::string& path, std::vector<std::string> arguments, std::vector<std::string> environment,
                    uint64_t mask);
  // Prepares another node. Returns when threads can be started here. `placer` is the name of the node's (placer.h), or 0.
  Status begin_away(uint64_t placer);
  // Lets processes that the program forks run on the other nodes, before run(). Fails if the nodes are not of one
  // machine.
  Status place_processes();

  [[nodiscard]] bool is_home() const override { return node_.config().node == kHome; }
  [[nodiscard]] unsigned first_processor() const override {
    return node_.config().node.value * node_.config().processors_per_node;
  }
  bool on_fault(int signal, const siginfo_t& info, const ucontext_t& context, ThreadBlock& thread) override;
  void come_home(const ucontext_t& context, ThreadBlock& thread) override;
  bool copy_at_home(uint64_t address, void* bytes, size_t size, bool is_write) override;
  void expect_copy(uint64_t address, uint64_t bytes, bool is_write) override;
  void explain_fault(siginfo_t& info, ThreadBlock& thread) override;
  long futex(Call& call) override;
  void wake(uint64_t address, uint32_t count) override;
  long start_thread(const ThreadStart& start, ThreadBlock& parent) override;
  long save_memory() override;
  void forget_saved_memory(long saved) override;
  void become_child(long saved, bool can_be_placed) override;
  void place_child(Call& call) override;
  long carry_out(Package& package, ThreadBlock& thread) override;
  long call_at_home(long number, const uint64_t (&arguments)[6], ThreadBlock& thread) override;
  long start_process_at_home(Call& call) override;
  long action_at_home(int signal, const SystemAction* wanted, SystemAction* before, ThreadBlock& thread) override;
  long set_mask_at_home(uint64_t mask, bool must_take, ThreadBlock& thread) override;
  void act_by_default_at_home(int signal, bool is_forced, ThreadBlock& thread) override;
  siginfo_t take_signal(ThreadBlock& thread) override;
  void thread_has_ended(ThreadBlock& thread) override;
  [[noreturn]] void first_thread_has_ended(int status) override;
  void thread_begins(const ThreadBlock& thread, const ThreadStart& start) override;
  void call_begins() override;
  void call_ends() override;
  void process_ends(int status) override;
  void begin_sharing_descriptors(bool shares_table) override;
  void end_sharing_descriptors() override;

 private:
  [[nodiscard]] Processors processors() const;
  struct Arrival {
    uint16_t slot = 0;
    Nanoseconds when = 0;          // in virtual time
    std::vector<std::byte> bytes;  // ThreadToStart, and its context
  };

  // The guest can have areas in these ranges.
  using Ranges = std::vector<Range>;
  explicit Nodes(Node& node, Ranges guest, uint64_t slots, const cpu_set_t& inherited_cores);
  // Says what became of the program's processes, with the statistics.
  void tell_processes() const;
  // Prepares this node for the files that nodes read by themselves.
  Status begin_local_files();
  AreaAnswer answer_area(uint64_t address) override;  // for HomeHost
  [[noreturn]] void exit_guest(int status) override;  // also for Cluster
  void invalidate(Range range) override;              // for AreaCaches
  PageRange part_of(PageId page) override;            // for Stretches: an area
  AreaAnswer ask_area(uint64_t address, ThreadBlock& thread);
  bool has_right(uint64_t address, const ucontext_t& context);
  bool find_area(uint64_t address, const ucontext_t& context, ThreadBlock& thread);
  // Carries out a futex call whose words this node can have.
  long futex_here(Call& call);
  // Says where the waiters of a word are, for calls that do not say that they are private.
  enum class Queue : uint8_t {
    kEngine,  // in the queues of futexes_
    kKernel,  // in the kernel's, which it finds by the file that the guest's area maps
    kNone     // the guest cannot read the word
  };
  Queue queue_of(uint64_t address);
  // Does what FUTEX_WAKE does with a word whose waiters are there.
  long wake_in(Queue queue, uint64_t address, uint32_t count);
  // Carries out a call whose two words have queues in different places, or of which one cannot be read.
  long mixed_futex(const Call& call, Queue first, Queue second);
  long system_futex(const Call& call, bool has_timeout, const timespec& timeout);
  long system_owned_futex(const Call& call, bool has_timeout, const timespec& timeout);
  // These carry out FUTEX_LOCK_PI and the like. `timeout` is a deadline, or null.
  long owned_futex(const Call& call, const timespec* timeout);
  long lock_owned(const Call& call, const timespec* timeout);
  // Returns whether the guest has a thread of this number.
  bool is_there(uint32_t tid, ThreadBlock& thread);
  [[noreturn]] void start_arrivals();
  void start(const Arrival& arrival);

  static void on_hello(void* self, const Message& message);
  static void on_start(void* self, const Message& message);
  static void on_invalidate_areas(void* self, const Message& message);
  static void on_areas_invalidated(void* self, const Message& message);

  Node& node_;
  const cpu_set_t inherited_cores_;  // this process's cores when it was started
  // The first range is of low addresses, which programs at fixed addresses need.
  const Ranges guest_;
  const bool shares_machine_;  // all nodes are of one machine
  const bool measures_calls_;  // the run has statistics or a time line
  const pid_t process_;        // this process
  ThreadProfiles profiles_;
  AreasOfFiles of_files_;
  Futexes futexes_;
  Requests requests_;
  LocalFolders folders_;

  // These are the home's.
  std::optional<Home> home_;
  std::optional<HomeFiles> home_files_;
  std::array<std::atomic<uint64_t>, NodeSet::kCapacity> placers_{};  // of each node, as it has said
  std::unique_ptr<Placement> placement_;
  // Other nodes may have these areas mapped. The lock of the address space guards them, but not the ranges in which the
  // guest can have areas at all.
  Areas given_;
  std::atomic<uint64_t> version_{0};
  std::atomic<unsigned> hellos_{0};
  std::atomic<bool> same_vdso_{true};
  const ProcessorFeatures features_ = ProcessorFeatures::here();
  SpinLock lacking_lock_;
  std::string lacking_ MG_GUARDED_BY(lacking_lock_);  // names features that a node's processor lacks
  std::atomic<unsigned> invalidated_{0};
  std::atomic<bool> is_exiting_{false};
  EventCount changed_;

  // These are another node's.
  RemoteAreas areas_;
  std::optional<NodeFiles> node_files_;
  SpinLock arrivals_lock_;
  std::deque<Arrival> arrivals_ MG_GUARDED_BY(arrivals_lock_);
  EventCount arrived_;
};

}  // namespace multigrain::guest
