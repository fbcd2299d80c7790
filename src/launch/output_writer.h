// Passes the nodes' output on to this process's own, from a thread of its own: the reader (a pager, a terminal that was
// stopped) may be arbitrarily slow, and mgrun must go on talking to its agents meanwhile.
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
  // Output that is queued and was not written yet is lost, unless finish() was called.
  ~OutputWriter();

  // Starts the thread. The caller has blocked the signals that other threads are to handle.
  Status start();

  // Queues text for a descriptor. take_done() returns `owner` and `bytes` when the text has been written.
  void write(int target, std::string text, size_t owner, size_t bytes);

  struct Done {
    size_t owner;
    size_t bytes;
  };
  // Becomes readable when take_done() has something to return.
  [[nodiscard]] int descriptor() const { return event_.get(); }
  std::vector<Done> take_done();

  // Waits until all output has been written.
  void finish();
  // Returns why some output could not be written, if so. From then on all output is thrown away, so that no node waits
  // for mgrun.
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
