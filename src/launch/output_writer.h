// Passes the nodes' output on to this process's own, from a thread of its own: whoever reads there may take as long as
// he likes (a pager, a terminal that was stopped), and mgrun must go on talking to its agents meanwhile.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"

namespace multigrain {

class OutputWriter {
 public:
  OutputWriter() = default;
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  // What is queued and was not written yet is lost; see finish().
  ~OutputWriter();

  // Starts the thread. Signals that are to be handled elsewhere must be blocked already.
  Status start();

  // Queues text for a descriptor. `owner` and `bytes` come back from take_done() when it is written.
  void write(int target, std::string text, size_t owner, size_t bytes);

  struct Done {
    size_t owner;
    size_t bytes;
  };
  // Becomes readable when there is something to take.
  [[nodiscard]] int descriptor() const { return event_.get(); }
  std::vector<Done> take_done();

  // Waits until all is written.
  void finish();
  // Why some of it could not be written; from then on all is thrown away, so that no node waits for mgrun.
  std::optional<std::string> lost();

 private:
  struct Piece {
    int target;
    std::string text;
    Done done;
  };
  void run();

  FileDescriptor event_;
  std::thread thread_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Piece> queue_ MG_GUARDED_BY(mutex_);
  std::vector<Done> done_ MG_GUARDED_BY(mutex_);
  std::optional<std::string> lost_ MG_GUARDED_BY(mutex_);
  bool busy_ MG_GUARDED_BY(mutex_) = false;
  bool ending_ MG_GUARDED_BY(mutex_) = false;
};

}  // namespace multigrain
