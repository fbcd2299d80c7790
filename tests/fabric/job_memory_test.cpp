#include "fabric/shm/job_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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
  EXPECT_THAT(error({.nodes = 0}), HasSubstr("1 to 1024 nodes, not 0"));
  EXPECT_THAT(error({.nodes = 1025}), HasSubstr("1 to 1024 nodes, not 1025"));
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

void let_all_talk(const unsigned of_job) {
  const ShmJob job(of_job, 1 << 16);
  std::vector<std::unique_ptr<ShmFabric>> nodes;
  std::vector<unsigned> received(of_job);
  for (unsigned n = 0; n < of_job; ++n) {
    nodes.push_back(job.attach(n));
    nodes[n]->set_handler(
        message_range::kTest, [](void* count, const Message&) { ++*static_cast<unsigned*>(count); }, &received[n]);
  }
  for (unsigned from = 0; from < of_job; ++from) {
    for (unsigned to = 0; to < of_job; ++to) {
      if (from == to) continue;
      const NodeId target(static_cast<uint16_t>(to));
      nodes[from]->send(target, MessageHeader{.type = message_range::kTest}, SendContext::kOrdinary);
      nodes[from]->fetch_add(target, SegmentId::kFrames, 8 * from, from + 1);
    }
  }
  for (unsigned n = 0; n < of_job; ++n) {
    while (nodes[n]->poll() != 0) {
    }
    EXPECT_EQ(received[n], of_job - 1);
    const unsigned peer = (n + 1) % of_job;
    EXPECT_EQ(nodes[n]->fetch_add(NodeId(static_cast<uint16_t>(n)), SegmentId::kFrames, 8 * peer, 0), peer + 1);
    EXPECT_EQ(job.memory().doorbell(NodeId(static_cast<uint16_t>(n))).pending.load(), 0u);
  }
}

TEST(Attach, SixtyFourNodesTalkToEachOther) {
  let_all_talk(64);
}

// Their doorbells have groups of sources, of which the last one is not full.
TEST(Attach, AHundredNodesTalkToEachOther) {
  let_all_talk(100);
}

// A poll handles a batch, and the next one goes on behind the source at which that ended.
TEST(Attach, NoSourceOfALargeMachineStarves) {
  constexpr unsigned kNodes = 200;
  const ShmJob job(kNodes);
  const auto receiver = job.attach(70);
  std::vector<unsigned> order;
  receiver->set_handler(
      message_range::kTest,
      [](void* seen, const Message& message) {
        static_cast<std::vector<unsigned>*>(seen)->push_back(message.from.value);
      },
      &order);
  constexpr std::array<unsigned, 6> kSenders{1, 63, 64, 71, 128, 199};
  std::vector<std::unique_ptr<ShmFabric>> senders;
  for (const unsigned sender : kSenders) {
    senders.push_back(job.attach(sender));
    for (int i = 0; i < 100; ++i)
      senders.back()->send(NodeId(70), MessageHeader{.type = message_range::kTest}, SendContext::kOrdinary);
  }
  for (size_t i = 0; i < kSenders.size(); ++i) EXPECT_EQ(receiver->poll(), 32u);
  for (const unsigned sender : kSenders) EXPECT_EQ(std::ranges::count(order, sender), 32) << sender;
}

// In counted time a node's handler takes messages in the order of their arrivals, and of equal ones that of the lower source.
TEST(Attach, TheFirstToArriveIsFoundInAllGroups) {
  constexpr unsigned kNodes = 200;
  const ShmJob job(kNodes);
  const auto receiver = job.attach(199);
  receiver->carry_arrivals();
  receiver->begin_polling();
  std::vector<std::pair<uint64_t, unsigned>> order;
  receiver->set_handler(
      message_range::kTest,
      [](void* seen, const Message& message) {
        static_cast<std::vector<std::pair<uint64_t, unsigned>>*>(seen)->emplace_back(message.arrival,
                                                                                     message.from.value);
      },
      &order);
  std::vector<std::unique_ptr<ShmFabric>> senders;
  for (unsigned sender = 0; sender < 198; sender += 3) {
    senders.push_back(job.attach(sender));
    for (uint64_t i = 1; i <= 3; ++i)
      senders.back()->send(NodeId(199), MessageHeader{.type = message_range::kTest}, {}, {}, SendContext::kHandler,
                           100 * i + sender * 7 % 5);
  }
  while (const auto first = receiver->first_arrived()) receiver->handle_one(first->source);
  EXPECT_EQ(order.size(), 3 * senders.size());
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(job.memory().doorbell(NodeId(199)).pending.load(), 0u);
  receiver->end_polling();
}

}  // namespace
}  // namespace multigrain
