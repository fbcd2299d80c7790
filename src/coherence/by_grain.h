// A page protocol and a line protocol in one run: each is asked about the memory that it keeps coherent.
#pragma once

#include <optional>

#include "coherence/protocol.h"
#include "coherence/window_places.h"

namespace multigrain {

class ByGrain final : public Protocol {
 public:
  // All of them outlive it. Both may be the only one with memory.
  ByGrain(Protocol& pages, Protocol& lines, HomeDirectory& homes) : pages_(pages), lines_(lines), homes_(homes) {}

  bool on_fault(PageId page, bool is_write) override {
    if (homes_.grain_of(page) == Grain::kLine) return lines_.on_fault(page, is_write);
    // A batch covers memory of both kinds: handlers of the lines' protocol wait for its windows to close.
    std::optional<HandlersElsewhere> elsewhere;
    if (has_open_window()) elsewhere.emplace();
    return pages_.on_fault(page, is_write);
  }
  void release() override {
    if (!lines_.is_clean()) lines_.release();
    pages_.release();
  }
  void settle() override { lines_.settle(); }
  [[nodiscard]] bool is_clean() const override { return pages_.is_clean() && lines_.is_clean(); }
  // Lines that are invalid are invalid at once: acquires are the pages' affair.
  void acquire(NodeId from) override { pages_.acquire(from); }
  void acquire_all() override { pages_.acquire_all(); }
  bool help() override { return pages_.help(); }
  void serve() override { lines_.serve(); }

 private:
  Protocol& pages_;
  Protocol& lines_;
  HomeDirectory& homes_;
};

}  // namespace multigrain
