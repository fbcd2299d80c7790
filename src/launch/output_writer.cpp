#include "launch/output_writer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launch/labels.h"

namespace multigrain {

Status OutputWriter::start() {
  event_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_.is_open()) return fail_errno(errno, "cannot pass on the output of nodes");
  thread_ = std::thread([this] { run(); });
  return {};
}

OutputWriter::~OutputWriter() {
  if (thread_.joinable()) {
    {
      const LockGuard lock(mutex_);
      ending_ = true;
      queue_.clear();
    }
    changed_.notify_all();
    thread_.join();
  }
}

void OutputWriter::write(int target, std::string text, size_t owner, size_t bytes) {
  {
    const LockGuard lock(mutex_);
    queue_.push_back({target, std::move(text), {owner, bytes}});
  }
  changed_.notify_all();
}

std::vector<OutputWriter::Done> OutputWriter::take_done() {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  const LockGuard lock(mutex_);
  return std::exchange(done_, {});
}

void OutputWriter::finish() {
  const LockGuard lock(mutex_);
  while (!queue_.empty() || busy_) changed_.wait(mutex_);
}

std::optional<std::string> OutputWriter::lost() {
  const LockGuard lock(mutex_);
  return lost_;
}

void OutputWriter::run() {
  const LockGuard lock(mutex_);
  while (true) {
    while (!ending_ && queue_.empty()) changed_.wait(mutex_);
    if (queue_.empty()) return;
    const Piece piece = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    if (!lost_) {
      mutex_.unlock();
      std::optional<std::string> lost = write_all(piece.target, piece.text);
      mutex_.lock();
      lost_ = std::move(lost);
    }
    busy_ = false;
    done_.push_back(piece.done);
    eventfd_write(event_.get(), 1);
    changed_.notify_all();
  }
}

}  // namespace multigrain
