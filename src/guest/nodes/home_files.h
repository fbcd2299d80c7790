// The home's part of local files (local_files.h): which numbers may have copies, and which nodes have them.
//
// Any thread of the home may call its public functions, without a lock of the host's. They wait for other nodes.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "fabric/fabric.h"
#include "fabric/wait.h"
#include "guest/nodes/local_files.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

// A thread of another node, whose shadow makes a call.
struct Asker {
  NodeId node;
  uint16_t slot = 0;
};

class HomeFiles {
 public:
  // Registers the handler of the nodes' answers.
  HomeFiles(Fabric& fabric, const WaitPolicy& policy, const LocalFolders& folders);

  // Makes a call of the guest's, on behalf of a thread of this node. Returns what Package::carry_out() returns.
  long carry_out(Package& package, ThreadBlock& thread) { return carry_out(package, thread, nullptr, nullptr); }
  // Makes it on behalf of a thread of another node. What the node is offered is appended to `offer`.
  long carry_out(Package& package, ThreadBlock& thread, const Asker& asker, std::vector<std::byte>& offer) {
    return carry_out(package, thread, &asker, &offer);
  }
  // A node says that it has given up the copy of this grant. `offset` is where the file's is, if it had the lease.
  void returned(int number, uint64_t grant, std::optional<uint64_t> offset, const Asker& asker) MG_EXCLUDES(lock_);

  // Between these, the calling thread may start a process that gets the guest's descriptors, or execute a program that
  // does. `shares_table`: the two use one table of descriptors from then on.
  void begin_sharing(bool shares_table) MG_EXCLUDES(lock_);
  void end_sharing() MG_EXCLUDES(lock_);

 private:
  struct Copy {
    Asker asker;
    uint64_t grant = 0;
  };
  // A number by which the guest has opened a file only to read it.
  struct File {
    // Where the file is, once it has been looked up.
    std::optional<LocalFolders::Place> place;
    struct stat status{};
    bool stays = false;  // the offset stays at the home
    std::optional<NodeId> lessee;
    std::vector<Copy> copies;
  };
  // What happens to a number at the home, whatever it is of.
  struct Number {
    uint32_t offset_uses = 0;  // how many calls that use its offset are under way
    uint32_t closes = 0;       // and how many that close it
    uint64_t closed = 0;       // when the last of these ended
  };
  // Numbers from here on have no copies.
  static constexpr unsigned kNumbers = 65536;

  long carry_out(Package& package, ThreadBlock& thread, const Asker* asker, std::vector<std::byte>* offer)
      MG_EXCLUDES(lock_);
  // Does what must be done before a call with these effects. Returns the moment.
  uint64_t begin(const DescriptorEffects& effects) MG_EXCLUDES(lock_);
  void end(const DescriptorEffects& effects) MG_EXCLUDES(lock_);
  // Remembers a descriptor that a call which began at that moment has opened.
  void remember(int number, uint64_t began) MG_EXCLUDES(lock_);
  void offer_copy(int number, const Asker& asker, std::vector<std::byte>& offer) MG_EXCLUDES(lock_);

  enum class Take : uint8_t { kLease, kCopy };
  // Takes back the lease of a file, or all copies and forgets it.
  void locked_take(int number, File& file, Take what) MG_REQUIRES(lock_);
  // Returns whether the file is a regular one under one of the folders.
  [[nodiscard]] bool locked_look_up(int number, File& file) MG_REQUIRES(lock_);
  // Makes the offset of a file the home's for good.
  void locked_keep_offset(int number, File& file) MG_REQUIRES(lock_);
  void locked_forget(unsigned first, unsigned last) MG_REQUIRES(lock_);
  void locked_begin_sharing() MG_REQUIRES(lock_);
  void locked_end() MG_REQUIRES(lock_);
  [[nodiscard]] Number* locked_number(unsigned number) MG_REQUIRES(lock_);
  static void on_answer(void* self, const Message& message);

  Fabric& fabric_;
  const WaitPolicy policy_;
  const LocalFolders& folders_;
  const int descriptors_;          // the folder of this process's descriptors in /proc
  std::atomic<bool> is_on_{true};  // false: nothing is local any more (L5)
  Mutex lock_;
  uint64_t now_ MG_GUARDED_BY(lock_) = 0;  // grows with every event
  uint64_t grants_ MG_GUARDED_BY(lock_) = 0;
  std::map<int, File> files_ MG_GUARDED_BY(lock_);
  std::vector<Number> numbers_ MG_GUARDED_BY(lock_);
  // These are about calls that close a range of numbers, and calls that share descriptors.
  uint32_t range_closes_ MG_GUARDED_BY(lock_) = 0;
  uint64_t range_closed_ MG_GUARDED_BY(lock_) = 0;
  uint32_t shares_ MG_GUARDED_BY(lock_) = 0;
  uint64_t shared_ MG_GUARDED_BY(lock_) = 0;

  // These are the answer that the holder of the lock waits for.
  std::atomic<unsigned> answers_{0};
  std::atomic<bool> has_offset_{false};
  std::atomic<uint64_t> offset_{0};
  std::atomic<bool> is_not_there_{false};
  EventCount changed_;
};

}  // namespace multigrain::guest
