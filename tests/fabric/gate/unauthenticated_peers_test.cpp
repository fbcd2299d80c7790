// UCX itself runs over loopback TCP in two processes, with unauthenticated peers at their ports. The traffic must go
// on, the peers must be refused, and nothing may stay behind.
#include "unauthenticated_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fabric/ucx/gate.h"
#include "fabric/ucx/gate_token.h"

namespace multigrain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::secret_of;
using testing::token_for;
using testing::UnauthenticatedPeers;

// The two processes and the test share this.
struct Board {
  struct Side {
    std::atomic<bool> ready{false};
    std::atomic<uint64_t> let_in{0}, refused{0}, listening{0};
    std::atomic<int> failed_at{0};  // source line
    std::array<char, 4096> address{};
    size_t address_length = 0;
  };
  std::array<Side, 2> sides;
  std::atomic<uint64_t> rounds{0};
  std::atomic<bool> stop{false};
};

// One of the two processes. It bounces a number with the other one until it is told to stop.
class Bouncer {
 public:
  Bouncer(Board& board, unsigned self) : board_(board), side_(board.sides[self]), self_(self) {}

  void run(const JobSecret& secret) {
    if (!install_gate(secret, self_, "lo")) return fail(__LINE__);
    setenv("UCX_TLS", "tcp", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_context_h context = nullptr;
    if (ucp_init(&params, nullptr, &context) != UCS_OK) return fail(__LINE__);
    ucp_worker_params_t worker_params{};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    if (ucp_worker_create(context, &worker_params, &worker_) != UCS_OK) return fail(__LINE__);
    ucp_address_t* address = nullptr;
    size_t length = 0;
    if (ucp_worker_get_address(worker_, &address, &length) != UCS_OK || length > side_.address.size())
      return fail(__LINE__);
    memcpy(side_.address.data(), address, length);
    side_.address_length = length;
    ucp_worker_release_address(worker_, address);
    side_.listening = gate_counts().listening;
    side_.ready.store(true);

    Board::Side& other = board_.sides[1 - self_];
    while (!other.ready.load())
      if (board_.stop.load()) return;
    ucp_ep_params_t ep_params{};
    ep_params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    ep_params.address = reinterpret_cast<const ucp_address_t*>(other.address.data());
    ep_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    ep_params.err_handler.cb = [](void* bouncer, ucp_ep_h, ucs_status_t) {
      static_cast<Bouncer*>(bouncer)->broken_ = true;
    };
    ep_params.err_handler.arg = this;
    ucp_ep_h endpoint = nullptr;
    if (ucp_ep_create(worker_, &ep_params, &endpoint) != UCS_OK) return fail(__LINE__);

    bounce(endpoint);

    side_.let_in = gate_counts().let_in;
    side_.refused = gate_counts().refused;
    ucp_worker_destroy(worker_);
    ucp_cleanup(context);
    remove_gate();
  }

 private:
  static constexpr uint64_t kStop = ~uint64_t{0};

  void fail(int line) { side_.failed_at.store(line); }

  bool complete(ucs_status_ptr_t request) {
    if (request == nullptr) return true;
    if (UCS_PTR_IS_ERR(request)) return false;
    ucs_status_t status = UCS_INPROGRESS;
    bool given_up = false;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
      if (ucp_worker_progress(worker_) == 0) usleep(20);
      // If there can be no traffic, the test says when it has seen enough.
      if (!given_up && (broken_ || (board_.stop.load() && board_.rounds.load() == 0))) {
        ucp_request_cancel(worker_, request);
        given_up = true;
        if (broken_) break;
      }
    }
    ucp_request_free(request);
    return status == UCS_OK;
  }

  void bounce(ucp_ep_h endpoint) {
    std::array<std::byte, 3000> buffer{};
    ucp_request_param_t none{};
    for (uint64_t round = 1;; ++round) {
      if (self_ == 0) {
        const uint64_t value = board_.stop.load() ? kStop : round;
        memcpy(buffer.data(), &value, sizeof value);
        if (!complete(ucp_tag_send_nbx(endpoint, buffer.data(), buffer.size(), 1, &none))) return;
        if (value == kStop) return flush(endpoint);
      }
      if (!complete(ucp_tag_recv_nbx(worker_, buffer.data(), buffer.size(), 1, ~uint64_t{0}, &none))) return;
      uint64_t value = 0;
      memcpy(&value, buffer.data(), sizeof value);
      if (value == kStop) return;
      if (value != round) return fail(__LINE__);
      if (self_ == 1) {
        if (!complete(ucp_tag_send_nbx(endpoint, buffer.data(), buffer.size(), 1, &none))) return;
      } else {
        board_.rounds.store(round);
      }
      side_.let_in = gate_counts().let_in;
      side_.refused = gate_counts().refused;
    }
  }
  void flush(ucp_ep_h endpoint) {
    ucp_request_param_t none{};
    complete(ucp_ep_flush_nbx(endpoint, &none));
  }

  Board& board_;
  Board::Side& side_;
  unsigned self_;
  ucp_worker_h worker_ = nullptr;
  bool broken_ = false;
};

class UnauthenticatedPeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(gate::Key::prepare());
    void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    board_ = new (shared) Board;
    output_ = memfd_create("output of nodes", MFD_CLOEXEC);
    ASSERT_GE(output_, 0);
  }
  void TearDown() override {
    stop();
    peers_.leave();
    close(output_);
    munmap(board_, sizeof(Board));
  }

  void start(const JobSecret& first, const JobSecret& second) {
    const JobSecret* const secrets[] = {&first, &second};
    for (unsigned self = 0; self < 2; ++self) {
      nodes_[self] = fork();
      ASSERT_GE(nodes_[self], 0);
      if (nodes_[self] == 0) {
        dup2(output_, STDOUT_FILENO);
        dup2(output_, STDERR_FILENO);
        Bouncer(*board_, self).run(*secrets[self]);
        _exit(board_->sides[self].failed_at.load() == 0 ? 0 : 1);
      }
    }
  }
  void stop() {
    board_->stop.store(true);
    for (pid_t& node : nodes_) {
      if (node <= 0) continue;
      int status = 0;
      const auto end = std::chrono::steady_clock::now() + seconds(300);
      pid_t gone = 0;
      while ((gone = waitpid(node, &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < end) usleep(1000);
      if (gone == 0) {
        ADD_FAILURE() << "a node did not end";
        kill(node, SIGKILL);
        waitpid(node, &status, 0);
      } else {
        EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || !ends_well_))
            << "status " << status << ", line " << board_->sides[&node - nodes_.data()].failed_at << "\n"
            << output();
      }
      node = 0;
    }
  }

  template <typename Condition>
  static bool eventually(Condition&& condition, seconds limit = seconds(300)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  bool more_rounds(uint64_t count = 50) {
    const uint64_t now = board_->rounds.load();
    return eventually([&] { return board_->rounds.load() >= now + count; });
  }
  uint64_t refused() const { return board_->sides[0].refused + board_->sides[1].refused; }

  uint64_t let_in() const { return board_->sides[0].let_in + board_->sides[1].let_in; }

  std::string output() const {
    std::string text(static_cast<size_t>(lseek(output_, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(output_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

  size_t descriptors(unsigned self) const { return testing::descriptors(nodes_[self]); }
  std::vector<sockaddr_in> ports(unsigned self) const { return testing::ports(nodes_[self]); }

  Board* board_ = nullptr;
  int output_ = -1;
  std::array<pid_t, 2> nodes_{};
  UnauthenticatedPeers peers_;
  bool ends_well_ = true;  // nodes that cannot meet may say so at the end
};

TEST_F(UnauthenticatedPeersTest, AreRefusedWhileTheTrafficGoesOn) {
  start(secret_of(1), secret_of(1));
  ASSERT_TRUE(more_rounds()) << output();
  const std::vector<sockaddr_in> first = ports(0);
  std::vector<sockaddr_in> all = ports(1);
  ASSERT_FALSE(first.empty());
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(first.size(), board_->sides[0].listening) << "a port that the gate does not know of";
  EXPECT_EQ(all.size(), board_->sides[1].listening);
  all.insert(all.end(), first.begin(), first.end());
  for (const sockaddr_in& port : all) EXPECT_EQ(ntohl(port.sin_addr.s_addr), INADDR_LOOPBACK);
  const uint64_t let_in_before = let_in();
  const size_t descriptors_before[] = {descriptors(0), descriptors(1)};

  uint64_t knocks = 0;
  for (const sockaddr_in& port : all) {
    peers_.leave();
    knocks += peers_.knock(port, secret_of(1), secret_of(2));
    ASSERT_TRUE(more_rounds()) << output();
  }
  EXPECT_TRUE(eventually([&] { return refused() >= knocks; })) << refused() << " of " << knocks << "\n" << output();

  constexpr unsigned kCrowd = 300;
  peers_.crowd(all, kCrowd);
  EXPECT_TRUE(eventually([&] { return refused() >= knocks + kCrowd; })) << refused();
  ASSERT_TRUE(more_rounds()) << output();
  EXPECT_EQ(let_in(), let_in_before);

  peers_.leave();
  EXPECT_TRUE(eventually([&] {
    return descriptors(0) == descriptors_before[0] && descriptors(1) == descriptors_before[1];
  })) << descriptors(0)
      << " " << descriptors(1) << ", before " << descriptors_before[0] << " " << descriptors_before[1];
  stop();
  const std::string lines = output();
  EXPECT_THAT(lines, HasSubstr(": refused a connection from 127.0.0.1:"));
  EXPECT_THAT(lines, HasSubstr("did not send a whole token"));
  EXPECT_THAT(lines, HasSubstr("did not send a token of this version"));
  EXPECT_THAT(lines, HasSubstr("does not hold the job's secret"));
}

TEST_F(UnauthenticatedPeersTest, WhoHoldsTheSecretAndGoesAwayDoesNoHarm) {
  // A node that dies at its first word looks like this, over and over.
  start(secret_of(1), secret_of(1));
  ASSERT_TRUE(more_rounds()) << output();
  const std::vector<sockaddr_in> at = ports(0);
  ASSERT_FALSE(at.empty());
  const size_t before = descriptors(0);
  for (int i = 0; i < 20; ++i) {
    const int fd = peers_.connect_to(at[0]);
    const gate::Token token = token_for(fd, secret_of(1));
    UnauthenticatedPeers::say(fd, &token, sizeof token);
    gate::Mac answer;
    ASSERT_EQ(recv(fd, answer.data(), answer.size(), MSG_WAITALL), static_cast<ssize_t>(answer.size()));
    EXPECT_EQ(answer, gate::Key(secret_of(1)).answer(token));
  }
  peers_.leave();
  ASSERT_TRUE(more_rounds()) << output();
  EXPECT_TRUE(eventually([&] { return descriptors(0) == before; })) << descriptors(0) << ", before " << before;
}

TEST_F(UnauthenticatedPeersTest, NodesOfTwoRunsDoNotMeet) {
  ends_well_ = false;
  start(secret_of(1), secret_of(2));
  EXPECT_TRUE(eventually([&] {
    const std::string lines = output();
    return lines.find("it does not hold the job's secret") != std::string::npos;
  })) << output();
  EXPECT_EQ(board_->rounds.load(), 0u);
  EXPECT_EQ(let_in(), 0u);
}

}  // namespace
}  // namespace multigrain
