// A page protocol and a line protocol in one run: each is asked about the memory that it keeps coherent.
#pragma once

#include <optional>

#include "coherence/hazard_slots.h"
#include "coherence/protocol.h"

namespace multigrain {

class ByGrain final : public Protocol {
 public:
  // All of them outlive it. Both may be the only one with memory.
  ByGrain(Protocol& pages, Protocol& lines, HomeDirectory& homes) : pages_(pages), lines_(lines), homes_(homes) {}

  bool on_fault(PageId page, bool is_write) override {
    if (homes_.grain_of(page) == Grain::kLine) return lines_.on_fault(page, is_write);
    // Loops and batches use memory of both kinds. Messages about lines may have to wait until this thread's hazards are
    // cleared (docs/internals/shasta.md, "Messages that wait for hazards"), so this thread handles none meanwhile. The
    // service thread does, and brings the page's answer: no line protocol's handler waits for hazards.
    std::optional<NoHandlersScope> elsewhere;
    if (has_published_hazard()) elsewhere.emplace();
    return pages_.on_fault(page, is_write);
  }
  void release() override {
    if (!lines_.is_clean()) lines_.release();
    pages_.release();
  }
  void drain_store_buffer() override { lines_.drain_store_buffer(); }
  [[nodiscard]] bool is_clean() const override { return pages_.is_clean() && lines_.is_clean(); }
  // Lines that are invalid are invalid at once: acquires are the pages' affair.
  void acquire(NodeId from) override { pages_.acquire(from); }
  void acquire_all() override { pages_.acquire_all(); }
  void release_at_barrier() override {
    if (!lines_.is_clean()) lines_.release();
    pages_.release_at_barrier();
  }
  void acquire_at_barrier() override { pages_.acquire_at_barrier(); }
  bool help() override { return pages_.help(); }
  void serve() override {
    pages_.serve();
    lines_.serve();
  }

 private:
  Protocol& pages_;
  Protocol& lines_;
  HomeDirectory& homes_;
};

}  // namespace multigrain
