#include "fabric/shm/job_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/shm/shm_fabric.h"
#include "shm_job.h"

namespace multigrain {
namespace {

using ::testing::HasSubstr;
using testing::ShmJob;

TEST(JobMemory, RefusesImpossibleOptions) {
  const auto error = [](JobOptions options) {
    Result<int> fd = create_job_memory(options);
    return fd ? std::string("accepted") : fd.error().message;
  };
  EXPECT_THAT(error({.nodes = 0}), HasSubstr("1 to 64 nodes, not 0"));
  EXPECT_THAT(error({.nodes = 65}), HasSubstr("1 to 64 nodes, not 65"));
  EXPECT_THAT(error({.processors_per_node = 0}), HasSubstr("processors"));
  EXPECT_THAT(error({.page_size = 5000}), HasSubstr("page size"));
  EXPECT_THAT(error({.ring_bytes = 300 << 10}), HasSubstr("ring"));
  EXPECT_THAT(error({.ring_bytes = 128 << 10}), HasSubstr("ring"));
}

TEST(JobMemory, KeepsWhatTheLauncherDecided) {
  Result<int> fd =
      create_job_memory({.nodes = 3, .processors_per_node = 4, .page_size = 16384, .region_size = 1 << 20});
  ASSERT_TRUE(fd);
  Result<JobMemory> job = JobMemory::map(*fd);
  close(*fd);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->header().nodes, 3u);
  EXPECT_EQ(job->header().processors_per_node, 4u);
  EXPECT_EQ(job->header().page_size, 16384u);
  EXPECT_EQ(job->header().region_size, uint64_t{1} << 20);
}

TEST(JobMemory, IsInheritedAcrossExec) {
  Result<int> fd = create_job_memory({});
  ASSERT_TRUE(fd);
  EXPECT_EQ(fcntl(*fd, F_GETFD) & FD_CLOEXEC, 0);
  close(*fd);
}

TEST(JobMemory, RefusesWhatIsNoJobMemory) {
  EXPECT_FALSE(JobMemory::map(-1));
  const int other = memfd_create("other", 0);
  EXPECT_THAT(JobMemory::map(other).error().message, HasSubstr("not the job memory"));
  ASSERT_EQ(ftruncate(other, 1 << 20), 0);
  EXPECT_THAT(JobMemory::map(other).error().message, HasSubstr("not the job memory"));
  close(other);

  Result<int> fd = create_job_memory({.nodes = 2});
  ASSERT_TRUE(fd);
  Result<JobMemory> job = JobMemory::map(*fd);
  ASSERT_TRUE(job);
  job->header().version = 99;
  EXPECT_THAT(JobMemory::map(*fd).error().message, HasSubstr("version 99"));
  job->header().version = JobHeader::kVersion;
  job->header().words_bytes -= 4096;
  EXPECT_THAT(JobMemory::map(*fd).error().message, HasSubstr("start the run with the mgrun that belongs to it"));
  job->header().words_bytes = words::kBytes;
  job->header().nodes = 3;
  EXPECT_THAT(JobMemory::map(*fd).error().message, HasSubstr("damaged"));
  close(*fd);
}

TEST(Attach, RefusesNodesThatCannotBe) {
  const ShmJob job(2);
  EXPECT_THAT(ShmFabric::attach(job.job_fd(), NodeId(2), {}, 0).error().message, HasSubstr("node 2 cannot join"));
  const auto first = job.attach(1);
  EXPECT_THAT(ShmFabric::attach(job.job_fd(), NodeId(1), {}, 0).error().message, HasSubstr("started already"));
}

TEST(Attach, RefusesFramesThatDoNotFit) {
  const ShmJob job(2, 1 << 20);
  const auto error = [&](const std::vector<int>& frames, uint64_t size) {
    auto fabric = ShmFabric::attach(job.job_fd(), NodeId(0), frames, size);
    return fabric ? std::string("accepted") : fabric.error().message;
  };
  EXPECT_THAT(error({job.frames()[0]}, 1 << 20), HasSubstr("needs 2 frames descriptors, not 1"));
  EXPECT_THAT(error(job.frames(), 2 << 20), HasSubstr("the region has 2097152"));
  EXPECT_THAT(error(job.frames(), 1000), HasSubstr("multiple of 4096"));
  EXPECT_THAT(error({job.frames()[0], -1}, 1 << 20), HasSubstr("is not the frames of node 1"));
  // Node 0 is still free after all these failures.
  EXPECT_EQ(error(job.frames(), 1 << 20), "accepted");
}

TEST(Attach, SixtyFourNodesTalkToEachOther) {
  constexpr unsigned kNodes = 64;
  const ShmJob job(kNodes, 1 << 16);
  std::vector<std::unique_ptr<ShmFabric>> nodes;
  std::vector<unsigned> received(kNodes);
  for (unsigned n = 0; n < kNodes; ++n) {
    nodes.push_back(job.attach(n));
    nodes[n]->set_handler(
        message_range::kTest, [](void* count, const Message&) { ++*static_cast<unsigned*>(count); }, &received[n]);
  }
  for (unsigned from = 0; from < kNodes; ++from) {
    for (unsigned to = 0; to < kNodes; ++to) {
      if (from == to) continue;
      const NodeId target(static_cast<uint16_t>(to));
      nodes[from]->send(target, MessageHeader{.type = message_range::kTest}, SendContext::kOrdinary);
      nodes[from]->fetch_add(target, SegmentId::kFrames, 8 * from, from + 1);
    }
  }
  for (unsigned n = 0; n < kNodes; ++n) {
    while (nodes[n]->poll() != 0) {
    }
    EXPECT_EQ(received[n], kNodes - 1);
    const unsigned peer = (n + 1) % kNodes;
    EXPECT_EQ(nodes[n]->fetch_add(NodeId(static_cast<uint16_t>(n)), SegmentId::kFrames, 8 * peer, 0), peer + 1);
  }
}

}  // namespace
}  // namespace multigrain
