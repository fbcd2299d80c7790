// This says where the threads of a trace run: which thread has which core, and which node of the machine has that core.
//
// [Bolosky] gives every processor a memory of its own, and so does a trace without a map: each of its threads is a core, and
// each core a node. On a machine of today several cores share a node's memory, and several threads may share a core. What a
// machine's memory belongs to, a node or a core, the machine says (Machine::memory).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "trace/model/machine.h"
#include "trace/trace.h"

namespace multigrain::trace {

class ThreadMap {
 public:
  // Every thread has a core and a node of its own, both of the thread's number.
  explicit ThreadMap(unsigned threads);

  // Reads a map for a trace of so many threads. It is a list of THREADS:NODE or THREADS:NODE.CORE, in which THREADS are
  // numbers and ranges as taskset and numactl take them, such as "0-3,8-11:0,4-7,12-15:1"; or "block:NODES" (as many
  // neighbouring threads on each node) or "cyclic:NODES" (one thread on each node in turn), as Slurm calls them, either with
  // the number of cores that each node has: "block:2x4". Threads without a core have one of their own. Every thread of the
  // trace must be named once. An error is a sentence that names what is wrong.
  static Result<ThreadMap> parse(std::string_view text, unsigned threads);

  [[nodiscard]] unsigned threads() const { return static_cast<unsigned>(node_of_.size()); }
  // Nodes are numbered as in the map. One to which no thread belongs counts, if there is a higher one.
  [[nodiscard]] unsigned nodes() const { return nodes_; }
  // The cores that have threads, numbered through all nodes.
  [[nodiscard]] unsigned cores() const { return static_cast<unsigned>(node_of_core_.size()); }
  [[nodiscard]] ProcessorId node_of(unsigned thread) const { return node_of_[thread]; }
  [[nodiscard]] ProcessorId core_of(unsigned thread) const { return core_of_[thread]; }
  // Of each core, the node that has it.
  [[nodiscard]] const std::vector<ProcessorId>& nodes_of_cores() const { return node_of_core_; }

  // How many memories of this kind there are, and which one a thread has.
  [[nodiscard]] unsigned places(MemoryOf memory) const { return memory == MemoryOf::kCore ? cores() : nodes(); }
  [[nodiscard]] ProcessorId place_of(unsigned thread, MemoryOf memory) const {
    return memory == MemoryOf::kCore ? core_of(thread) : node_of(thread);
  }

 private:
  ThreadMap() = default;

  unsigned nodes_ = 0;
  std::vector<ProcessorId> node_of_, core_of_, node_of_core_;
};

// This is a trace in which cores or nodes stand where threads were. The source must have the map's threads; a reference by a
// thread that its header does not have is an error.
class TraceByPlace final : public TraceSource {
 public:
  TraceByPlace(std::unique_ptr<TraceSource> source, const ThreadMap& map, MemoryOf memory);
  [[nodiscard]] const TraceHeader& header() const override;
  Result<Batch> next() override;

 private:
  std::unique_ptr<TraceSource> source_;
  std::vector<ProcessorId> place_of_;
  unsigned places_;
  mutable TraceHeader header_;
  std::vector<Reference> references_;
  std::vector<Event> events_;
};

}  // namespace multigrain::trace
