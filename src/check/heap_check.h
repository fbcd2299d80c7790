// The blocks of shared memory of one node under mgrun --check: redzones behind them, and a quarantine of those freed here
// (guarded_block.h says how a block looks). The node's runtime calls this around the shared heap (runtime/allocation.cpp).
//
//  C1  What this writes and reads of shared memory are ordinary accesses of the calling thread, which the protocol sees.
//  C2  made() comes after an acquire of what the memory's former user has released. So a redzone is what this wrote, unless
//      the program has written there.
//  C3  A block in the quarantine is not the heap's: nobody gets it. It is filled by the thread that freed it, and looked at
//      after an acquire of all nodes' releases. So a byte that differs was written by the program after it had freed the
//      block, or before without synchronisation with the thread that freed it.
//
// Any thread of the node may call, in ordinary code and with no lock of the runtime held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "check/findings.h"
#include "check/guarded_block.h"

namespace multigrain::check {

// How shared memory is accessed.
struct SharedAccess {
  void (*load)(const void* address, size_t size, void* value);
  void (*store)(void* address, size_t size, const void* value);
  void (*fill)(void* address, int byte, size_t size);
};

// When damage was found: as a processor freed the block, or, if `text` is not empty, as that says.
struct When {
  std::string_view text = {};
  uint64_t site = 0;
  uint32_t processor = 0;
};
inline constexpr When kAtTheEnd{.text = "at the end of the run"};

class HeapCheck {
 public:
  // The quarantine of a node holds so many bytes, and so many blocks.
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr size_t kMostBlocks = 16384;

  HeapCheck(Findings& findings, const SharedAccess& access) : findings_(findings), access_(access) {}

  // The heap has given the block, of `usable` bytes, for a request of `size`.
  void made(void* block, size_t size, size_t usable, uint64_t site, uint32_t processor);
  // Returns the size that the program asked for; `usable` if the block's record has been overwritten.
  size_t size_of(const void* block, size_t usable) const;
  // The program frees the block. Returns whether it may: then the block is in the quarantine. A finding is told otherwise.
  bool freed(void* block, size_t usable, uint64_t site, uint32_t processor);
  // The program frees what is no block. Tells the finding.
  void freed_no_block(const void* pointer, uint64_t site, uint32_t processor);

  // Returns whether the quarantine is too full.
  bool is_full();
  // Takes blocks out of the quarantine and looks at them: those that have been there longest, until it is half full, or all.
  // The caller has acquired (C3), then releases, and gives the blocks to the heap.
  std::vector<void*> let_go(bool all);

  // Looks at every block that this node has made or freed and that is still there; `usable_of` returns the heap's size of a
  // block, or 0 if it is none. The caller has acquired.
  template <typename UsableOf>
  void look_at_all(UsableOf&& usable_of) {
    for (const auto& [block, usable] : blocks_made()) {
      if (usable_of(block) == usable) look_at_live(block, usable);
    }
    for (const Quarantined& one : quarantined()) look_at_freed(one, kAtTheEnd);
  }

 private:
  struct Quarantined {
    void* block = nullptr;
    size_t usable = 0;
    BlockRecord record;
  };
  using Made = std::unordered_map<void*, size_t>;

  [[nodiscard]] BlockRecord record_of(const void* block, size_t usable) const;
  [[nodiscard]] Made blocks_made();
  [[nodiscard]] std::deque<Quarantined> quarantined();
  void look_at_live(void* block, size_t usable);
  // Tells of damage behind the block, if there is any.
  void look_behind(void* block, size_t usable, const BlockRecord& record, const When& when);
  void look_at_freed(const Quarantined& one, const When& when);
  std::string describe(const BlockRecord& record);
  std::string found(const When& when);
  static std::string watch(uint64_t address);

  Findings& findings_;
  const SharedAccess access_;
  Mutex lock_;
  // The blocks that this node has made, with their usable sizes. Those that another node has freed stay until the node makes
  // one at that address again.
  Made made_ MG_GUARDED_BY(lock_);
  std::deque<Quarantined> quarantine_ MG_GUARDED_BY(lock_);
  size_t bytes_ MG_GUARDED_BY(lock_) = 0;
};

}  // namespace multigrain::check
