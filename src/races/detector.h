// The detector of a node (mgrun --races): it stands between the runtime and the node's page protocol, learns of accesses
// and of what orders them, and tells the judge (judge.h). docs/internals/races.md says what is found and why nothing else.
//
// The invariants, besides those of watched_rights.h:
//
//  R1  An access is told with a section that had not ended when its thread made its last release, or later: so a node
//      that acquires from that release has a clock above the section's number.
//  R2  It is told with a section whose clock was raised by everything that its thread had acquired before.
//  R3  A section is told to the judge before any access of it, and before any other node can know that the one before
//      has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/spin_lock.h"
#include "coherence/protocol.h"
#include "fabric/fabric.h"
#include "races/decode.h"
#include "races/heat.h"
#include "races/loader_slots.h"
#include "races/stream.h"
#include "races/watched_rights.h"

namespace multigrain::races {

class Detector final : public Protocol, private WriteObserver {
 public:
  Detector(Fabric& fabric, Region& region, WatchedRights& rights, DecodeInstruction decode);

  // The protocol that moves the data. Called once, before any other function. The protocol tells `writes()` of its diffs.
  void set_protocol(std::unique_ptr<Protocol> protocol) { protocol_ = std::move(protocol); }
  [[nodiscard]] WriteObserver* writes() { return this; }

  // --- Faults. The fault handler calls these first; they are async-signal-safe.

  // Does what Protocol::on_fault() does, and learns of the access.
  bool on_access(const Fault& fault, void* context);
  // A fault of any kind has come: if the thread was executing an instruction on an alias, the instruction has had no effect,
  // and is begun anew after the fault.
  static void abandon_step(void* context);
  // SIGTRAP has come. Returns whether it ended the execution of an instruction on an alias.
  static bool end_step(void* context);

  // --- Protocol.
  bool on_fault(PageId page, bool is_write) override { return protocol_->on_fault(page, is_write); }
  void release() override;
  void drain_store_buffer() override { protocol_->drain_store_buffer(); }
  // Each release ends a section, also where nothing was written: reads are of a section, too.
  [[nodiscard]] bool is_clean() const override { return false; }
  void acquire(NodeId from) override;
  void acquire_all() override;
  [[nodiscard]] bool needs_to_catch_up() const override { return protocol_->needs_to_catch_up(); }
  void catch_up() override;
  void expect(PageId first, uint64_t count, bool is_write) override { protocol_->expect(first, count, is_write); }
  void release_at_barrier() override;
  void acquire_at_barrier() override;
  [[nodiscard]] bool gathers_at_barrier() const override { return protocol_->gathers_at_barrier(); }
  void gather_at_barrier(std::span<const NodeId> children) override { protocol_->gather_at_barrier(children); }
  void learn_at_barrier(NodeId parent, bool spreads) override { protocol_->learn_at_barrier(parent, spreads); }
  void end_serial_part() override { protocol_->end_serial_part(); }
  bool discard(PageId first, uint64_t count) override { return protocol_->discard(first, count); }
  bool help() override { return protocol_->help(); }
  void serve() override { protocol_->serve(); }

  // The run ends: what the node has written in its last section is told. Called on the node whose process exits.
  void finish();

 private:
  struct Part;

  void on_diff(PageId page, const std::byte* frame, std::byte* twin) override;  // WriteObserver

  // --- Sections.
  void end_section() MG_REQUIRES(sections_lock_);
  void begin_section(bool is_episode) MG_REQUIRES(sections_lock_);
  void learn_suspects() MG_REQUIRES(sections_lock_);
  void raise_from(NodeId node) MG_REQUIRES(sections_lock_);
  // Node n has the number of its section in the word at `offset` + n * `stride`.
  void raise_from_all(uint64_t offset, uint64_t stride) MG_REQUIRES(sections_lock_);
  static uint64_t barrier_word(uint64_t barrier) { return words::kRaceBarriers + barrier % 2 * sizeof(uint64_t); }

  // --- Accesses.
  void tell(const Registers& registers, uint64_t offset, uint64_t bytes, bool is_write);
  [[nodiscard]] std::optional<Part> part_of(const MemoryAccess& access) const;
  bool make_open(const Fault& fault, const Registers& registers);

  Fabric& fabric_;
  Region& region_;
  WatchedRights& rights_;
  const DecodeInstruction decode_;
  std::unique_ptr<Protocol> protocol_;
  StreamWriter stream_;
  Heat heat_;
  LoaderSlots slots_;

  SpinLock sections_lock_;  // held while a section ends and another one begins
  Clock clock_ MG_GUARDED_BY(sections_lock_){};
  std::atomic<uint64_t> section_{0};  // the number of the section now
  uint64_t suspects_read_ MG_GUARDED_BY(sections_lock_) = 0;
  std::atomic<uint64_t> arrived_{0};                 // barriers of all processors at which this node has arrived
  uint64_t left_ MG_GUARDED_BY(sections_lock_) = 0;  // those that it has left
};

}  // namespace multigrain::races
