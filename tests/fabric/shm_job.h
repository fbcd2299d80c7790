// This is a job on this machine for tests: all nodes are in the test's process, or each is in a forked child.
//
// In one process the nodes share one mapping of the job memory, so that the thread sanitizer, which goes by address,
// sees both ends of every ring and doorbell.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "fabric/shm/shm_fabric.h"

namespace multigrain::testing {

class ShmJob {
 public:
  explicit ShmJob(unsigned nodes, uint64_t frames_bytes = 0, JobOptions options = {}) : frames_bytes_(frames_bytes) {
    options.nodes = nodes;
    Result<int> fd = create_job_memory(options);
    if (!fd) throw std::runtime_error(fd.error().message);
    job_fd_ = *fd;
    Result<JobMemory> memory = JobMemory::map(job_fd_);
    if (!memory) throw std::runtime_error(memory.error().message);
    memory_ = std::make_unique<JobMemory>(std::move(*memory));
    for (unsigned node = 0; frames_bytes != 0 && node < nodes; ++node) {
      const int frames = memfd_create("test-frames", 0);
      if (frames < 0 || ftruncate(frames, static_cast<off_t>(frames_bytes)) != 0)
        throw std::runtime_error("cannot create frames");
      frames_.push_back(frames);
    }
  }
  ~ShmJob() {
    close(job_fd_);
    for (int frames : frames_) close(frames);
  }
  ShmJob(const ShmJob&) = delete;
  ShmJob& operator=(const ShmJob&) = delete;

  // Makes a node in this process (on the common mapping), or in a forked child.
  [[nodiscard]] std::unique_ptr<ShmFabric> attach(unsigned node) const {
    Result<std::unique_ptr<ShmFabric>> fabric =
        ShmFabric::attach(memory_->borrow(), NodeId(static_cast<uint16_t>(node)), frames_, frames_bytes_);
    if (!fabric) throw std::runtime_error(fabric.error().message);
    return std::move(*fabric);
  }

  [[nodiscard]] const JobMemory& memory() const { return *memory_; }
  [[nodiscard]] int job_fd() const { return job_fd_; }
  [[nodiscard]] const std::vector<int>& frames() const { return frames_; }

 private:
  int job_fd_ = -1;
  uint64_t frames_bytes_;
  std::unique_ptr<JobMemory> memory_;
  std::vector<int> frames_;
};

}  // namespace multigrain::testing
