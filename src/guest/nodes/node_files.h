// The part of local files (local_files.h) of a node that is not the home: its copies, and the calls that it makes by
// them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/spin_lock.h"
#include "fabric/fabric.h"
#include "guest/nodes/local_files.h"
#include "guest/nodes/messages.h"
#include "guest/thread_block.h"

namespace multigrain::guest {

class NodeFiles {
 public:
  // `is_one_machine`: the home's files are this node's as well. Registers the handler of the home's messages.
  NodeFiles(Fabric& fabric, const LocalFolders& folders, bool is_one_machine);

  // Makes the call here if that is possible. Returns what Package::carry_out() returns, or nothing: then the home has to
  // make it. The calling thread is the guest's.
  std::optional<long> carry_out(Package& package, ThreadBlock& thread) MG_EXCLUDES(lock_);
  // Takes an offer that came with the reply to a request in this slot.
  void take(std::span<const std::byte> offer, uint16_t slot) MG_EXCLUDES(lock_);

  // A thread that closes a number gives up the copy before, so that the home need not ask for it. It tells the home,
  // and then calls left().
  struct Left {
    int number = -1;
    uint64_t grant = 0;  // 0: there was no copy
    std::optional<uint64_t> offset;
  };
  Left leave(const Package& package) MG_EXCLUDES(lock_);
  void left(const Left& copy) MG_EXCLUDES(lock_);

 private:
  struct Copy {
    uint64_t grant = 0;
    LocalFolders::Place place;
    struct stat status{};
    std::atomic<int> fd = -1;
    uint64_t offset = 0;  // as long as there is no `fd`, and after the lease
    bool has_lease = false;
    bool had_lease = false;  // the home has not been told `offset`
    bool is_unusable = false;
    bool is_gone = false;        // no more calls may be made by it
    unsigned calls = 0;          // how many are under way
    unsigned offset_calls = 0;   // how many of these use the offset
    bool has_to_answer = false;  // the home waits for the lease
  };
  using CopyPointer = std::shared_ptr<Copy>;

  // Makes a call about what a path names, if the path begins with a folder's name and does not lead out of it.
  std::optional<long> carry_out_path(Package& package) const;

  // Finds the copy, and counts a call. Returns null if there is none by which the call can be made.
  CopyPointer begin(int number, CopyUse use) MG_EXCLUDES(lock_);
  void end(const CopyPointer& copy, CopyUse use) MG_EXCLUDES(lock_);
  // Opens the file. Returns false if that fails, or if it is another file than the home's.
  bool open(Copy& copy) MG_EXCLUDES(lock_);
  void warn(const Copy& copy, const char* what);
  void locked_give_up_lease(Copy& copy) MG_REQUIRES(lock_);
  static void locked_close(Copy& copy);
  void answer(uint64_t grant, const std::optional<uint64_t>& offset, bool is_there, SendContext context);
  static void on_take(void* self, const Message& message);

  Fabric& fabric_;
  const LocalFolders& folders_;
  const bool is_one_machine_;
  std::atomic<bool> is_on_{true};  // false: nothing is local any more (L5)
  std::atomic<bool> has_warned_{false};
  SpinLock lock_;
  // A copy that is gone stays here until another takes its place, so that a message handler frees no memory.
  std::unordered_map<int, CopyPointer> copies_ MG_GUARDED_BY(lock_);
  // The home has taken back the offer of this number to a thread which has not received it yet, or one before that.
  std::array<uint64_t, slots::kCount> void_ MG_GUARDED_BY(lock_){};
};

}  // namespace multigrain::guest
