// What one node has of the program besides shared memory: the private heap, globals, the stacks, registers and thread-local
// variables of its processors, and the synchronisation objects that it has created. Checkpoints of programs that do not call
// mg_checkpoint() have it; docs/internals/checkpoints.md says why that is enough, and what is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/error.h"
#include "base/ids.h"
#include "runtime/private/globals.h"
#include "runtime/program_stacks.h"
#include "sync/sync.h"

namespace multigrain {

class ProgramImage {
 public:
  // Returns whether a run with these settings keeps the program as it is: it has checkpoints, and the program never calls
  // mg_checkpoint() or mg_restored(). The answer is the same on all nodes and in all runs of a program.
  static bool is_wanted(const Config& config);

  // Returns the name of a function of the system, of whose doing a checkpoint could have nothing, that the program calls somewhere; or
  // nullptr.
  static const char* unkept_function();

  explicit ProgramImage(const Config& config) : config_(config), threads_(config.processors_per_node) {}

  // Notes what this process has before the program begins: a program that has more later cannot be kept. Called once, when the
  // runtime has started.
  void note_beginning();

  // --- A checkpoint.
  // Called by each processor of the node, which then waits until its stack has been read. Returns 0, and 1 when it goes on in
  // a later run, as save() does. To be inlined: a function that returns twice must not return in between.
  struct Thread {
    program_stacks::Context context;
    uint64_t block;     // program_stacks::thread_block()
    uint64_t function;  // which the processor runs, for messages
    std::vector<Range> variables;
  };
  [[nodiscard]] Thread& thread(unsigned place) { return threads_[place]; }
  // Notes what is the calling thread's besides its stack.
  void note_thread(unsigned place);
  // Then one of them calls these. Errors, as the end of a sentence that begins with the name of the option: the program has
  // something that cannot be kept.
  Status find(Sync& sync);
  [[nodiscard]] std::span<const std::byte> record() const { return record_; }
  // Calls add() for each page, in ascending order, but for pages of zeros. Nobody allocates meanwhile (HeapFreeze).
  void for_each_page(size_t page_size, const std::function<void(PageId, std::span<const std::byte>)>& add) const;

  // --- The later run. One thread of the node calls these, while no program code runs.
  // Errors: the record makes no sense, or is of a process with other code or other addresses. Nothing was changed then.
  Status read(std::span<const std::byte> record);
  // Makes room: the private heap, which is empty then, and zeros for everything else.
  void begin_writing();
  // Errors: there is no such page.
  Status write(PageId page, std::span<const std::byte> bytes);
  // All pages were written.
  Status finish_writing(Sync& sync);
  // By each processor, when all nodes have got so far: goes on where its thread was. Returns what the program's function returns.
  int go_on(unsigned place);

 private:
  [[nodiscard]] Status why_not(Sync& sync) const;
  // The C library's random numbers of this process.
  struct Random {
    uint64_t state;  // where random() has its state
    std::array<std::byte, 128> default_state;
    std::array<unsigned short, 3> of_48_bits;
  };
  [[nodiscard]] static Random random_numbers();
  static void go_on_with(const Random& random);

  void write_record(const SyncImage& sync, size_t heap_bytes);
  [[nodiscard]] std::set<int> open_descriptors() const;

  const Config& config_;
  std::vector<Thread> threads_;
  std::set<int> descriptors_;  // when the program began
  uint64_t code_ = 0;          // the same
  std::vector<Range> parts_;   // all but the heap, in ascending order
  std::vector<std::byte> record_;
  // In the later run.
  size_t heap_bytes_ = 0;
  uint64_t environment_ = 0;
  SyncImage sync_;
  Random random_{};
};

// How long the program has run before the checkpoint from which this run went on; mg_time_ns() goes on from there.
extern Nanoseconds g_time_before_checkpoint;

}  // namespace multigrain
