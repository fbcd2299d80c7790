// This says which references of a trace its synchronisation orders: by locks that one processor releases and another
// acquires, and by barriers, with a vector clock for each processor.
//
// A trace says when processors leave a barrier, and neither when they arrive nor how many there are. So the first to leave is
// ordered behind everything that all have done by then, and so are the others that leave the same phase. What a processor
// that begins may know of is everything that precedes it. Both order more than a program may have ordered, and never less.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "trace/trace.h"

namespace multigrain::trace {

class Synchronisation {
 public:
  explicit Synchronisation(unsigned processors);
  // Takes the trace's events in their order; those of other kinds are ignored.
  void consume(const Event& event);

  // The time of what the processor does now. It only says something to is_before().
  [[nodiscard]] uint32_t now(unsigned processor) const { return clocks_[at(processor, processor)]; }
  // Whether what `earlier` did at the time `then` is ordered before what `later` does now.
  [[nodiscard]] bool is_before(unsigned earlier, uint32_t then, unsigned later) const {
    return then <= clocks_[at(later, earlier)];
  }
  // How often the processor has come to know of others: between two equal answers, nothing new is before what it does.
  [[nodiscard]] uint32_t acquisitions(unsigned processor) const { return acquisitions_[processor]; }

 private:
  struct Barrier {
    std::vector<uint32_t> clock;  // of the present phase
    std::vector<bool> left;       // the processors that have left it
  };
  [[nodiscard]] size_t at(unsigned of, unsigned about) const { return size_t{of} * processors_ + about; }
  void learn(unsigned processor, const std::vector<uint32_t>& clock);
  // What all processors have done by now; what they do later is later than that.
  std::vector<uint32_t> everything();

  unsigned processors_;
  std::vector<uint32_t> clocks_;  // by processor, and processor that it knows of
  std::vector<uint32_t> acquisitions_;
  std::map<uint64_t, std::vector<uint32_t>> locks_;  // by address
  std::map<uint64_t, Barrier> barriers_;
};

}  // namespace multigrain::trace
