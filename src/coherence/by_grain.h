// A page protocol and a line protocol in one run: each is asked about the memory that it keeps coherent.
#pragma once

#include "coherence/protocol.h"

namespace multigrain {

class ByGrain final : public Protocol {
 public:
  // All of them outlive it. Both may be the only one with memory.
  ByGrain(Protocol& pages, Protocol& lines, HomeDirectory& homes) : pages_(pages), lines_(lines), homes_(homes) {}

  bool on_fault(PageId page, bool is_write) override {
    return homes_.grain_of(page) == Grain::kLine ? lines_.on_fault(page, is_write) : pages_.on_fault(page, is_write);
  }
  // Lines are sequentially consistent: releases and acquires are the pages' affair.
  void release() override { pages_.release(); }
  [[nodiscard]] bool is_clean() const override { return pages_.is_clean(); }
  void acquire(NodeId from) override { pages_.acquire(from); }
  void acquire_all() override { pages_.acquire_all(); }
  bool help() override { return pages_.help(); }

 private:
  Protocol& pages_;
  Protocol& lines_;
  HomeDirectory& homes_;
};

}  // namespace multigrain
