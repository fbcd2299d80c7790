// This is a job over UCX on this machine for tests. Its nodes are threads of one process or forked children.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "fabric/ucx/ucx_fabric.h"
#include "memory_wireup.h"

namespace multigrain::testing {

class UcxJob {
 public:
  // The line table has several chunks of keys.
  static constexpr uint64_t kLinesBytes = uint64_t{40} << 20;

  explicit UcxJob(unsigned nodes, uint64_t frames_bytes = 1 << 20) : table_(nodes), frames_bytes_(frames_bytes) {
    options_.hosts.assign(nodes, "here");
    options_.region_size = frames_bytes;
    options_.lines_bytes = kLinesBytes;
    options_.pages_bytes = 4096;
    JobSecret secret{};
    secret.fill(std::byte{0x5a});
    set_secret(secret);
    options_.silence_limit = 0;
  }

  void set_secret(const JobSecret& secret) {
    auto kept = std::make_shared<Secret<JobSecret>>();
    **kept = secret;
    options_.secret = std::move(kept);
  }

  // The options may be changed before nodes join.
  UcxOptions& options() { return options_; }

  // Makes one node. Returns when all nodes have come. The node's frames are its own memory, which is never given back.
  [[nodiscard]] std::unique_ptr<UcxFabric> join(unsigned node) const {
    UcxOptions options = options_;
    options.self = NodeId(static_cast<uint16_t>(node));
    auto fabric = load_ucx_fabric(options);
    if (!fabric) throw std::runtime_error(fabric.error().message);
    void* const frames =
        mmap(nullptr, frames_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (frames == MAP_FAILED) throw std::runtime_error("no memory for frames");
    (*fabric)->export_segment(SegmentId::kFrames, static_cast<std::byte*>(frames), frames_bytes_);
    void* const lines =
        mmap(nullptr, kLinesBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (lines == MAP_FAILED) throw std::runtime_error("no memory for a line table");
    (*fabric)->export_segment(SegmentId::kLines, static_cast<std::byte*>(lines), kLinesBytes);
    MemoryWireup wireup(table_, node);
    if (Status connected = (*fabric)->connect(wireup); !connected) throw std::runtime_error(connected.error().message);
    return std::move(*fabric);
  }

 private:
  WireupTable table_;
  uint64_t frames_bytes_;
  UcxOptions options_;
};

}  // namespace multigrain::testing
