// Unauthenticated peers connect to the ports of two nodes with the ucx fabric. This is unauthenticated_peers_test.cpp
// with the whole fabric above UCX.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "../ucx_job.h"
#include "unauthenticated_peers.h"

namespace multigrain::testing {
namespace {

using ::testing::HasSubstr;

constexpr MessageType kBall = message_range::kTest;

// The two processes and the test share this.
struct Board {
  std::atomic<uint64_t> rounds{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<bool> stop{false};
};

// Runs a node, which bounces a page of numbers that the receiver looks at.
void play(Board& board, const UcxJob& job, unsigned self) {
  struct Side {
    Board* board;
    UcxFabric* fabric;
    uint64_t seen = 0;
  } side{&board, nullptr};
  const auto fabric = job.join(self);
  side.fabric = fabric.get();
  const auto hit = [](Side& from, uint64_t value) {
    const std::vector<uint64_t> page(512, value);
    MessageHeader header;
    header.type = kBall;
    header.word[0] = value;
    from.fabric->send(NodeId(from.fabric->self() == NodeId(0) ? 1 : 0), header, std::as_bytes(std::span(page)), {},
                      SendContext::kHandler);
  };
  static constexpr auto kHit = hit;
  fabric->set_handler(
      kBall,
      [](void* context, const Message& message) {
        Side& at = *static_cast<Side*>(context);
        const uint64_t value = message.header.word[0];
        if (value != at.seen + 1 || message.payload.size() != 4096 ||
            std::memcmp(message.payload.data() + 4088, &value, 8) != 0)
          at.board->wrong.fetch_add(1);
        at.seen = value + 1;
        at.board->rounds.store(value);
        if (!at.board->stop.load()) kHit(at, value + 1);
      },
      &side);
  if (self == 0) {
    side.seen = 1;
    hit(side, 1);
  }
  fabric->begin_polling();
  while (!board.stop.load()) {
    if (fabric->poll() == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  fabric->end_polling();
  fabric->stop();
}

TEST(FabricUnauthenticatedPeers, AreRefusedWhileTheTrafficGoesOn) {
  ASSERT_TRUE(gate::Key::prepare());
  void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& board = *new (shared) Board;
  const int output = memfd_create("output of nodes", MFD_CLOEXEC);
  UcxJob job(2);
  job.set_secret(secret_of(1));
  job.options().interface = "lo";
  std::array<pid_t, 2> nodes{};
  for (unsigned self = 0; self < 2; ++self) {
    nodes[self] = fork();
    if (nodes[self] != 0) continue;
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    play(board, job, self);
    _exit(0);
  }
  const auto text = [output] {
    std::string lines(static_cast<size_t>(lseek(output, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(output, lines.data(), lines.size(), 0), static_cast<ssize_t>(lines.size()));
    return lines;
  };
  const auto eventually = [](const auto& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  };
  const auto more_rounds = [&] {
    const uint64_t now = board.rounds.load();
    return eventually([&] { return board.rounds.load() >= now + 50; });
  };

  EXPECT_TRUE(more_rounds()) << text();
  const std::vector<sockaddr_in> first = ports(nodes[0]);
  std::vector<sockaddr_in> all = ports(nodes[1]);
  EXPECT_FALSE(first.empty());
  EXPECT_FALSE(all.empty());
  all.insert(all.end(), first.begin(), first.end());
  const size_t before[] = {descriptors(nodes[0]), descriptors(nodes[1])};
  {
    UnauthenticatedPeers peers;
    for (const sockaddr_in& port : all) {
      EXPECT_EQ(ntohl(port.sin_addr.s_addr), INADDR_LOOPBACK);
      peers.knock(port, secret_of(1), secret_of(2));
      EXPECT_TRUE(more_rounds()) << text();
    }
    if (!all.empty()) peers.crowd(all, 200);
    EXPECT_EQ(peers.still_connected(5000), 0u);
    EXPECT_TRUE(more_rounds()) << text();
  }
  EXPECT_TRUE(eventually([&] { return descriptors(nodes[0]) == before[0] && descriptors(nodes[1]) == before[1]; }))
      << descriptors(nodes[0]) << " " << descriptors(nodes[1]) << ", before " << before[0] << " " << before[1];
  board.stop.store(true);
  for (const pid_t node : nodes) {
    int status = 0;
    EXPECT_TRUE(eventually([&] { return waitpid(node, &status, WNOHANG) == node; }));
    if (!WIFEXITED(status)) kill(node, SIGKILL);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << "\n" << text();
  }
  EXPECT_EQ(board.wrong.load(), 0u);
  EXPECT_THAT(text(), HasSubstr(": refused a connection from 127.0.0.1:"));
  EXPECT_THAT(text(), HasSubstr("does not hold the job's secret"));
  close(output);
  munmap(shared, sizeof(Board));
}

}  // namespace
}  // namespace multigrain::testing
