// The processors of this node: threads that wait for functions to run; and what node 0 knows of the processors
// of all nodes.
//
// Threads are created once, at start-up, and sleep while they have nothing to do. Node 0 alone hands out work: it keeps
// for every processor of the machine whether it runs.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/mutex.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "memory/sparse_table.h"
#include "multigrain/multigrain.h"
#include "profile/this_thread.h"
#include "runtime/private/written_globals.h"
#include "runtime/stacks.h"

namespace multigrain {

// The part of the runtime that acts before and after a processor's function.
class ProcessorHost {
 public:
  virtual ~ProcessorHost() = default;
  // Makes the caller's writes visible. Called before a spawn, and after a function.
  virtual void release() = 0;
  // Lets the calling processor go on where a processor of `from` left off.
  virtual void acquire(NodeId from) = 0;
  // Processors of other nodes will run from now on, where only this node's have run before.
  virtual void end_serial_part() = 0;
  // Copies node 0's private state to a node where no processor runs.
  virtual Status copy_state(NodeId to) = 0;
  // Makes node 0's globals those of every node, while no processor but the caller's runs.
  virtual Status share_globals() = 0;
};

class Processors {
 public:
  // `cpus` names the core on which each of this node's processors is to run; if it is empty, they run anywhere.
  static Result<std::unique_ptr<Processors>> create(const Config& config, Fabric& fabric, const WaitPolicy& wait,
                                                    ProcessorHost& host, std::vector<int> cpus);

  // Makes the calling thread processor 0 of this node, on its core: the thread of main() on node 0. Threads that it
  // starts afterwards inherit the core.
  void adopt_main_thread();

  // These are mg_spawn and mg_join, on node 0; `error` receives a sentence if the result is not 0.
  int spawn(unsigned processor, mg_function function, void* argument, std::string& error);
  int join(unsigned processor, std::string& error);
  // This is mg_share_globals, likewise.
  int share_globals(std::string& error);

  // Returns, on node 0, the processors that no mg_spawn has started. They did nothing; threads that the program started
  // by other means run on their own node.
  [[nodiscard]] std::vector<unsigned> never_started() const;
  // Says which globals this node has written since they were copied here, if the run is to check that (--check).
  void tell_written_globals();

  // Returns the machine-wide number of the calling thread's processor.
  [[nodiscard]] unsigned current() const;
  // Returns the same; nullopt if the calling thread is no processor. Async-signal-safe.
  [[nodiscard]] static std::optional<unsigned> of_this_thread();
  // Returns its number on this node, likewise.
  [[nodiscard]] static std::optional<unsigned> place_of_this_thread();
  // Called when the thread is about to end, as only the program can make it (pthread_exit, pthread_cancel): a processor
  // has then returned from its function, and goes on with another thread.
  static void thread_ends();
  // Returns, on node 0, whether nothing runs on the processor.
  [[nodiscard]] bool is_idle(unsigned processor) const {
    return known_[processor].runs.load(std::memory_order_acquire) == 0;
  }
  // From now on `function` runs on a processor's thread before each function that the processor is given. Called once, on
  // each node that is to have it, before the program runs.
  static void set_before_function(void (*function)());
  // The program's threads run on processors, wherever one is free, and there need not be one for each. From now on private state is
  // copied to a node once, and not each time its processors have been idle: other threads of the program may run there. Called
  // on node 0 before any processor is started.
  void run_threads() { runs_threads_ = true; }
  [[nodiscard]] bool runs_threads() const { return runs_threads_; }

  // From now on, while a processor runs the program's function, senders may leave messages to it: the code polls
  // (Fabric::begin_computing). Called before any processor runs.
  void expect_polls() { code_polls_ = true; }

  // Returns the profile of this node's i-th processor.
  [[nodiscard]] ProcessorProfile& profile(unsigned i) { return *local_[i].profile; }

 private:
  // A processor of this node. Its thread sleeps on `work`; the thread that hands it a function fills the fields first.
  struct Local {
    ProcessorProfile* profile = nullptr;
    EventCount work;
    std::atomic<uint32_t> has_work{0};
    mg_function function = nullptr;
    void* argument = nullptr;
    pthread_t thread{};
    Stack stack;
    unsigned number = 0;  // among all of the machine
    Processors* owner = nullptr;
  };
  // A processor of any node, as node 0 sees it.
  struct Known {
    std::atomic<uint32_t> runs{0};
    std::atomic<bool> has_run{false};
    EventCount changed;
  };

  Processors(const Config& config, Fabric& fabric, const WaitPolicy& wait, ProcessorHost& host, std::vector<int> cpus);
  Status start_threads();
  static void* thread_main(void* local);
  [[nodiscard]] int start_thread(Local& local, bool is_first);
  void run(Local& local);
  void returned(Local& local);
  void hand_over(Local& local, mg_function function, void* argument);
  void finished(unsigned processor);
  [[nodiscard]] bool node_is_idle(NodeId node);
  [[nodiscard]] bool other_nodes_are_idle();
  [[nodiscard]] NodeId node_of(unsigned processor) const {
    return NodeId(static_cast<uint16_t>(processor / config_.processors_per_node));
  }
  // Returns a sentence, without its first words, if what `argument` points to is not on the node what it is here.
  std::optional<std::string> why_not(const void* argument, unsigned processor, bool will_be_copied)
      MG_REQUIRES(spawning_);
  std::optional<std::string> why_not_there(const void* argument, NodeId node);
  static void handle_peek(void* context, const Message& message);
  static void handle_peeked(void* context, const Message& message);
  static void handle_spawn(void* context, const Message& message);
  static void handle_done(void* context, const Message& message);

  const Config& config_;
  Fabric& fabric_;
  const WaitPolicy& wait_;
  ProcessorHost& host_;
  const std::vector<int> cpus_;
  sigset_t program_mask_{};  // with which processors run the program
  SparseTable<Local> local_;
  SparseTable<Known> known_;
  Mutex spawning_;  // one spawn at a time: a state copy takes several messages

  bool runs_threads_ = false;
  bool code_polls_ = false;
  std::array<bool, NodeSet::kCapacity> has_copy_ MG_GUARDED_BY(spawning_){};
  // On node 0, the argument with which each node's first processor was started after its copy.
  std::array<const void*, NodeSet::kCapacity> argument_at_copy_ MG_GUARDED_BY(spawning_){};
  // The answer of a node to the spawn that asks. Its handler writes the answer before it counts it.
  EventCount peeked_;
  std::atomic<uint32_t> peeks_answered_{0};
  std::array<std::byte, sizeof(int)> peeked_bytes_{};
  size_t peeked_length_ = 0;

  // Used for --check, on nodes other than 0.
  std::optional<WrittenGlobals> written_;
  Mutex telling_;
  std::atomic<uint32_t> running_here_{0};
};

}  // namespace multigrain
