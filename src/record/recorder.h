// This records, in one node of a run, what its threads refer to in shared memory, and what the placement does (mgrun --record).
// Code of mgcc -fmultigrain-count=memory calls behind each access (count/memory.h).
//
// A reference gets its clock when it has been made. The pages that a node may use change meanwhile, and the trace has to say
// which references were made while the node had the page. So:
//  (T1) A thread publishes the clock that its next reference will have, before it makes it.
//  (T2) When a node has lost a right, the event's clock is later than all that its threads have published. What they refer to
//       afterwards faults. (The kernel interrupts all processors where rights are taken, so what was published before an
//       access is seen.)
//  (T3) A grant has a clock, and the page has it, before rights are given. A reference's clock is at least that of its page's last grant
//       that allows such a reference, and if that is later than what the thread has published, it is that very clock.
//  (T4) All events' clocks are taken from the shared clock, which then is not behind them.
// So if the reference was made after grant g and before the loss l of a right, g <= its clock < l: by T3, and since either its
// clock was published (T2), or it is that of a grant (T4).
// Under burst sampling a reference whose clock is in no burst has no record. Clocks are the same as without, and all events are
// recorded, so what is there fits as it does without.
//
// Synchronisation moves the clock of who acquires behind that of who has released, by way of the shared clock.
//
// What the C library refers to, and what Multigrain itself does, is not recorded.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "base/spin_lock.h"
#include "coherence/placement/observer.h"
#include "memory/region.h"
#include "memory/sparse_table.h"
#include "record/streams.h"

namespace multigrain::record {

class Recorder final : public placement::Observer {
 public:
  // Records into the file of that name, which mgrun has made. There is one recorder in a process, and it lives until the end.
  // Errors: the file is none of mgrun's, or cannot be mapped; no tables. Start-up only.
  static Result<std::unique_ptr<Recorder>> create(const char* file, NodeId self, const Region& region);

  // The calling thread has made this access; `caller` is behind it. Ends the process if the file cannot grow.
  void reference(const void* address, uint64_t bytes, bool writes, const void* caller);

  void decided(PageId page, const placement::Directory& directory, NodeId from, placement::Access access, uint64_t now,
               placement::Location answer) override;
  void pinned(PageId page, Pin pin) override;
  void granted(PageId page, placement::State right) override;
  void lowered(PageId page, placement::State right) override;
  void released() override;
  void acquired() override;

 private:
  // Where the records of a thread, or the node's events, go to.
  struct Place {
    std::byte* next = nullptr;
    std::byte* end = nullptr;
    ChunkHeader* chunk = nullptr;  // the buffer
  };
  struct alignas(64) Stream {
    std::atomic<uint64_t> published{0};  // (T1)
    uint64_t next = 0;                   // the same, for the thread itself
    uint64_t private_references = 0;
    uint64_t burst = 0;  // where the burst of the interval begins in which the thread's last reference was
    uint64_t interval_end = 0;
    uint32_t number = 0;
    Place place;
  };
  static constexpr uint32_t kMaxStreams = 65536;
  // The clocks of a page's last grants: of any, and of one with which threads may write.
  struct Grants {
    std::atomic<uint64_t> to_read{0};
    std::atomic<uint64_t> to_write{0};
  };

  Recorder(int fd, NodeId self, const Region& region, Control& control)
      : fd_(fd), self_(self), region_(region), control_(control), bursts_(control.bursts) {}

  Stream& own_stream();
  Stream& new_stream();
  void record(Stream& stream, uint64_t address, uint32_t bytes, bool writes, uint64_t clock, const void* caller);
  bool is_left_out(Stream& stream, uint64_t clock, uint64_t ticks) const;
  void record_pages(Stream& stream, uint64_t address, uint64_t bytes, bool writes, const void* caller);
  [[nodiscard]] uint64_t granted_at(uint64_t address, bool writes) const;
  // Takes a clock that is later than `than` and than all that was taken.
  uint64_t take_clock(uint64_t than);
  void raise_clock(uint64_t to);
  [[nodiscard]] uint64_t latest_published() const;
  template <typename Record>
  Record& make_room(Place& place, ChunkKind kind, uint32_t stream);
  void new_chunk(Place& place, ChunkKind kind, uint32_t stream);
  void make_buffer(Place& place, ChunkKind kind, uint32_t stream);
  void copy_buffer(Place& place);
  void has_right(PageId page, EventKind kind, placement::State right, uint64_t later_than);
  void add_event(PageId page, EventRecord& event, uint64_t later_than);
  [[nodiscard]] uint64_t number_of(PageId page) const;
  Status describe_mappings();

  const int fd_;
  const NodeId self_;
  const Region& region_;
  Control& control_;
  const Bursts bursts_;
  SparseTable<Grants> granted_at_;  // by page (T3)
  SparseTable<Stream> streams_;
  std::atomic<uint32_t> stream_count_{0};
  SpinLock events_lock_;
  Place events_ MG_GUARDED_BY(events_lock_);
};

}  // namespace multigrain::record
