// The profile of each thread of the guest on this node, for the statistics of the run: it has a profile while it lives,
// and a row when it has ended.
//
// A thread writes its own profile, also in signal context, where nothing is allocated. It also calls begin() and end()
// itself, before its first instruction in the guest and after its last.
#pragma once

#include <sys/types.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "runtime/node.h"

namespace multigrain::guest {

class ThreadProfiles final : public HostedThreads {
 public:
  // So many threads that have ended have a row each; the others of a node have one together.
  static constexpr size_t kMaxRows = 4096;

  explicit ThreadProfiles(const Config& config);

  // Sets the name of the program, before any thread of it runs.
  void set_program(std::string name) { program_ = std::move(name); }

  // Makes the calling thread the guest's first, another thread of the guest with this number, or a shadow, until end().
  // `when` says when it begins in virtual time, where each of the guest's threads is a processor of the node for as
  // long as it lives. The run ends with a sentence if all processors are taken.
  void begin_first(pid_t tid);
  void begin_thread(pid_t tid, Nanoseconds when);
  void begin_shadow();
  void end();

  [[nodiscard]] std::string program() const override { return program_; }
  std::vector<ThreadRow> report(NodeReport& report, Nanoseconds when) override;

 private:
  struct Live {
    ProcessorProfile profile;
    pid_t tid = 0;
    ThreadRow::Kind kind = ThreadRow::Kind::kThread;
    int processor = -1;  // its processor in virtual time; -1: none
  };

  void begin(pid_t tid, ThreadRow::Kind kind, int processor, Category category);
  // Takes a processor that no thread has, in virtual time, and waits a while for one.
  int take_processor();
  [[nodiscard]] ThreadRow row_of(const Live& live, const ProfileSnapshot& profile) const;
  static void add_to(std::vector<ThreadRow>& rows, const ThreadRow& row);

  const NodeId node_;
  const unsigned processors_;  // the node's processors
  std::string program_;
  Mutex lock_;
  ConditionVariable freed_;
  std::vector<bool> taken_ MG_GUARDED_BY(lock_);
  std::list<Live> live_ MG_GUARDED_BY(lock_);
  // These are of threads that have ended.
  std::vector<ThreadRow> ended_ MG_GUARDED_BY(lock_);
  const std::unique_ptr<NodeReport> counted_ MG_PT_GUARDED_BY(lock_);
};

}  // namespace multigrain::guest
