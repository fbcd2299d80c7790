// This combines a page protocol and a line protocol in one run. A call about memory goes to the protocol that keeps
// that memory coherent.
#pragma once

#include <optional>
#include <span>

#include "coherence/hazard_slots.h"
#include "coherence/line_memory.h"
#include "coherence/protocol.h"

namespace multigrain {

class ByGrain final : public Protocol {
 public:
  // Both outlive this object. All memory of the run may belong to one of the two protocols.
  ByGrain(Protocol& pages, LineMemory& lines) : pages_(pages), lines_(lines) {}

  bool on_fault(PageId page, bool is_write) override {
    if (lines_.keeps_page(page)) return lines_.on_fault(page, is_write);
    // Loops and batches use memory of both kinds. Messages about lines may have to wait until this thread's hazards are
    // cleared (docs/internals/shasta.md, "Messages that wait for hazards"), so this thread handles no message
    // meanwhile. The service thread does, and brings the page's answer: no line protocol's handler waits for hazards.
    std::optional<NoHandlersScope> elsewhere;
    if (has_published_hazard()) elsewhere.emplace();
    return pages_.on_fault(page, is_write);
  }
  void release() override {
    if (!lines_.is_clean()) lines_.release();
    pages_.release();
  }
  void drain_store_buffer() override { lines_.drain_store_buffer(); }
  [[nodiscard]] bool may_defer_releases() const override { return pages_.may_defer_releases(); }
  void release_own_part() override {
    if (!lines_.is_clean()) lines_.release();
    lines_.drain_store_buffer();
  }
  [[nodiscard]] bool is_clean() const override { return pages_.is_clean() && lines_.is_clean(); }
  // A line that a node has lost is invalid at once, so line protocols need no acquire.
  void acquire(NodeId from) override { pages_.acquire(from); }
  void acquire_all() override { pages_.acquire_all(); }
  [[nodiscard]] bool needs_to_catch_up() const override { return pages_.needs_to_catch_up(); }
  void catch_up() override { pages_.catch_up(); }
  void release_at_barrier() override {
    if (!lines_.is_clean()) lines_.release();
    pages_.release_at_barrier();
  }
  void acquire_at_barrier() override { pages_.acquire_at_barrier(); }
  [[nodiscard]] bool gathers_at_barrier() const override { return pages_.gathers_at_barrier(); }
  void gather_at_barrier(std::span<const NodeId> children) override { pages_.gather_at_barrier(children); }
  void learn_at_barrier(NodeId parent, bool spreads) override { pages_.learn_at_barrier(parent, spreads); }
  void end_serial_part() override { pages_.end_serial_part(); }
  bool help() override { return pages_.help(); }
  void fill_frame(PageId page) override {
    if (!lines_.keeps_page(page)) pages_.fill_frame(page);
  }
  void serve() override {
    pages_.serve();
    lines_.serve();
  }

 private:
  Protocol& pages_;
  LineMemory& lines_;
};

}  // namespace multigrain
