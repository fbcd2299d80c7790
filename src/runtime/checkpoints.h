// Checkpoints of a run, and the restart from one. docs/internals/checkpoints.md says what is saved, and why it is consistent
// under every protocol; checkpoint/files.h has the files.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/ids.h"
#include "checkpoint/files.h"
#include "checkpoint/folder_lock.h"
#include "checkpoint/node_parts.h"
#include "runtime/node.h"
#include "runtime/program_image.h"

namespace multigrain {

// Each node has one, if the run has checkpoints. They are written where the program calls mg_checkpoint(), or, if it never does,
// at barriers of all processors; then they have the program's private memory, too (ProgramImage).
class Checkpoints {
 public:
  // Makes this node's, if the settings ask for it. Called before any message is served and before the program runs. Errors:
  // the run is of a kind that has no checkpoints; the folder cannot be made; another run writes its checkpoints there; it has a
  // checkpoint that another program has written, or that is damaged.
  static Status create(Node& node);
  // Returns this node's, or nullptr.
  static Checkpoints* get() { return g_checkpoints; }

  // Called on node 0, before main() and before any shared memory is allocated: brings the checkpoint's memory back on all
  // nodes, if the run is a restart. Errors: there is no checkpoint, or it is not of a run like this one, or is damaged. A
  // damaged part of another node ends the run with a sentence.
  Status begin();

  // Returns the root of the checkpoint from which the run was restarted, or nullptr.
  [[nodiscard]] void* restored_root() const { return restored_root_; }

  // Each processor of the machine calls this, with what waits at the barrier that meeting_point() is. Returns 1 on all of
  // them if a checkpoint has been written, 0 if it was not time for one, or a negative errno value; node 0 has told the user
  // why. `root` counts on processor 0.
  using Meet = void (*)(Node& node, SyncId barrier, const void* site);
  int take(const void* root, Meet meet, const void* site);

  // Returns whether mg_barrier() is to call pass_barrier().
  [[nodiscard]] bool are_at_barriers() const { return program_ != nullptr && !node_.config().checkpoint.empty(); }
  // Is mg_barrier(), and writes a checkpoint behind it, if it is time for one and the barrier is one of all processors. In a run that
  // goes on from that checkpoint it returns again, in another process: the frames that have called it may use nothing that the
  // runtime had before.
  static void pass_barrier(SyncId barrier, Meet meet, const void* site);
  // Returns, after begin(), whether the run goes on from a checkpoint that has the program: then main() is not called.
  [[nodiscard]] bool has_program() const { return program_ != nullptr && !node_.config().restart.empty(); }
  // Waits for all processors, and goes on with the program where this one was. Returns what the program's function returns.
  int go_on(unsigned place);

 private:
  static constinit Checkpoints* g_checkpoints;

  explicit Checkpoints(Node& node) : node_(node) {}

  // In shared memory, under the page protocol: what the processors tell each other at the barriers.
  struct Control {
    // The number of the checkpoint that is to be written, or 0, of calls with an even and with an odd number: one is written
    // by processor 0 while the others may still read the other one.
    uint64_t due[2];
    int64_t result;  // of the last checkpoint
  };
  // Behind it, one for each node: what has become of its part.
  struct Saved {
    uint64_t bytes;
    uint64_t checksum;
    uint64_t before;  // the number of the part that it adds to, or 0
    uint64_t has_failed;
  };
  [[nodiscard]] volatile Control& control() const;
  [[nodiscard]] volatile Saved& saved(unsigned node) const;
  [[nodiscard]] size_t control_bytes() const { return sizeof(Control) + node_.config().nodes * sizeof(Saved); }

  [[nodiscard]] checkpoint::Machine machine() const;
  [[nodiscard]] SyncId meeting_point() const;
  uint64_t decide(SyncId barrier, Meet meet, const void* site);
  void write_at_barrier(uint64_t number, unsigned place, Meet meet, const void* site);
  int write(uint64_t number, const void* root, Meet meet, const void* site);
  Status begin_again();
  static void go_on_here(void*);
  Result<checkpoint::NodeParts::Written> save(uint64_t number);
  int commit(uint64_t number, const void* root);
  Status restore_own_parts(const checkpoint::Head& head);
  Status restore(PageId page, std::span<const std::byte> bytes);
  static void restore_here(void*);
  Result<checkpoint::Head> head_to_restore() const;
  Result<std::optional<checkpoint::FolderLock>> keep_writers_away() const;

  Node& node_;
  std::optional<checkpoint::FolderLock> lock_;  // of the folder to which this run writes
  std::optional<checkpoint::NodeParts> parts_;  // in that folder
  void* restored_root_ = nullptr;
  std::unique_ptr<ProgramImage> program_;  // if checkpoints are to have it
  // How often each of this node's processors has called take().
  std::array<uint64_t, Config::kMaxProcessorsPerNode> calls_{};
  // These are used on node 0 alone.
  std::vector<std::vector<checkpoint::Part>> chains_;  // of the last checkpoint that this run has written
  uint64_t number_ = 0;                                // of the folder's checkpoint
  Nanoseconds last_ = 0;                               // when the last one was tried, or the program began
};

}  // namespace multigrain
