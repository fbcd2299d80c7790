// These test the gate, between UCX's own socket functions (libucs) and ordinary sockets that play unauthenticated
// peers.
#include "fabric/ucx/gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fabric/ucx/gate_token.h"
#include "fabric/ucx/interposed_calls.h"

extern "C" {
#include <ucs/sys/sock.h>
}

namespace multigrain {
namespace {

using ::testing::HasSubstr;

JobSecret secret_of(uint8_t fill) {
  JobSecret secret;
  secret.fill(std::byte{fill});
  return secret;
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

sockaddr_storage name_of(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  return name;
}

gate::End end_of_socket(int fd) {
  gate::End end;
  EXPECT_TRUE(gate::end_of(name_of(fd), &end));
  return end;
}

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(install_gate(secret_of(7), 5, ""));
    installed_ = true;
    before_ = gate_counts();
    const sockaddr_in any_port = loopback(0);
    ASSERT_EQ(
        ucs_socket_server_init(reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port, 512, 0, 0, &listener_),
        UCS_OK);
    sockaddr_in name;
    const sockaddr_storage storage = name_of(listener_);
    memcpy(&name, &storage, sizeof name);
    port_ = ntohs(name.sin_port);
  }
  void TearDown() override {
    for (int fd : open_) close(fd);
    if (listener_ >= 0) close(listener_);
    if (installed_) remove_gate();
  }

  int keep(int fd) {
    open_.push_back(fd);
    return fd;
  }
  // Makes a connection of an ordinary program.
  int plain_connection(uint16_t from_port = 0) {
    const int fd = keep(socket(AF_INET, SOCK_STREAM, 0));
    if (from_port != 0) {
      const int yes = 1;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      const sockaddr_in from = loopback(from_port);
      EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    }
    const sockaddr_in to = loopback(port_);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return fd;
  }
  // Makes a token for the connection `fd`, as a holder of `secret` does.
  gate::Token token_for(int fd, const JobSecret& secret) {
    return gate::Key(secret).make_token(9, {end_of_socket(fd), end_of_socket(listener_)});
  }
  // Returns what UCX gets from the listening socket, or -1 if it gets nothing.
  int accept_one(int wait_ms = 2000) {
    pollfd watched{listener_, POLLIN, 0};
    if (poll(&watched, 1, wait_ms) <= 0) return -1;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    int fd = -1;
    const ucs_status_t status = ucs_socket_accept(listener_, reinterpret_cast<sockaddr*>(&peer), &size, &fd);
    if (status != UCS_OK) {
      EXPECT_EQ(status, UCS_ERR_NO_PROGRESS) << "UCX would close its listening socket";
      return -1;
    }
    EXPECT_EQ(peer.ss_family, AF_INET);
    return keep(fd);
  }
  // Returns whether the other side has closed `fd`.
  static bool is_closed(int fd) {
    pollfd watched{fd, POLLIN, 0};
    char byte;
    return poll(&watched, 1, 5000) == 1 && recv(fd, &byte, 1, 0) <= 0;
  }
  // Sends the bytes, expects that they are refused, and returns the line that was written about it.
  std::string refusal(int fd, const void* bytes, size_t length) {
    ::testing::internal::CaptureStderr();
    const uint64_t refused = gate_counts().refused;
    EXPECT_EQ(send(fd, bytes, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    EXPECT_EQ(accept_one(), -1);
    EXPECT_EQ(gate_counts().refused, refused + 1);
    EXPECT_TRUE(is_closed(fd));
    return ::testing::internal::GetCapturedStderr();
  }

  int listener_ = -1;
  uint16_t port_ = 0;
  GateCounts before_;
  bool installed_ = false;
  std::vector<int> open_;
};

TEST_F(GateTest, LetsNodesConnectAndCarriesTheirBytes) {
  int caller = -1;
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &caller), UCS_OK);
  keep(caller);
  const sockaddr_in to = loopback(port_);
  ASSERT_EQ(ucs_socket_connect(caller, reinterpret_cast<const sockaddr*>(&to)), UCS_OK);
  EXPECT_EQ(fcntl(caller, F_GETFL) & O_NONBLOCK, 0) << "UCX had asked for a socket that blocks";
  // The caller sends before the other side has accepted: neither waits for the other.
  ASSERT_EQ(ucs_socket_send(caller, "question", 8), UCS_OK);
  const int called = accept_one();
  ASSERT_GE(called, 0);
  char text[9] = {};
  ASSERT_EQ(ucs_socket_recv(called, text, 8), UCS_OK);
  EXPECT_STREQ(text, "question");
  ASSERT_EQ(ucs_socket_send(called, "response", 8), UCS_OK);
  ASSERT_EQ(ucs_socket_recv(caller, text, 8), UCS_OK);
  EXPECT_STREQ(text, "response");
  EXPECT_EQ(gate_counts().let_in, before_.let_in + 1);
  EXPECT_EQ(gate_counts().called, before_.called + 1);
  EXPECT_EQ(gate_counts().refused, before_.refused);
  EXPECT_NE(fcntl(called, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl(caller, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(GateTest, FinishesAConnectThatWasToGoOnByItself) {
  int caller = -1;
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &caller), UCS_OK);
  keep(caller);
  ASSERT_EQ(fcntl(caller, F_SETFL, O_NONBLOCK), 0);
  const sockaddr_in to = loopback(port_);
  ASSERT_EQ(ucs_socket_connect(caller, reinterpret_cast<const sockaddr*>(&to)), UCS_OK);
  EXPECT_NE(fcntl(caller, F_GETFL) & O_NONBLOCK, 0);
  const int called = accept_one();
  ASSERT_GE(called, 0);
  // The other side's token has arrived, but none of its data. That must look neither like data nor like the end.
  char text[8];
  size_t length = sizeof text;
  EXPECT_EQ(ucs_socket_recv_nb(caller, text, &length), UCS_ERR_NO_PROGRESS);
}

TEST_F(GateTest, ConnectReportsWhatTheLibraryDoes) {
  int caller = -1;
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &caller), UCS_OK);
  keep(caller);
  close(listener_);
  listener_ = -1;
  const sockaddr_in to = loopback(port_);
  EXPECT_NE(ucs_socket_connect(caller, reinterpret_cast<const sockaddr*>(&to)), UCS_OK);
}

TEST_F(GateTest, RefusesWhoHasNoToken) {
  const std::string noise(500, 'x');
  const std::string line = refusal(plain_connection(), noise.data(), noise.size());
  EXPECT_THAT(line, HasSubstr("multigrain: node 5: refused a connection from 127.0.0.1:"));
  EXPECT_THAT(line, HasSubstr("it did not send a token of this version"));
}

TEST_F(GateTest, RefusesUcxWithoutAGate) {
  const uint64_t magic = 0xCAFEBABE12345678u;  // UCX's TCP transport sends this first
  EXPECT_THAT(refusal(plain_connection(), &magic, sizeof magic), HasSubstr("did not send a whole token"));
}

TEST_F(GateTest, RefusesAnotherSecret) {
  const int fd = plain_connection();
  const gate::Token token = token_for(fd, secret_of(8));
  EXPECT_THAT(refusal(fd, &token, sizeof token), HasSubstr("does not hold the job's secret"));
}

TEST_F(GateTest, RefusesAllPartsOfAToken) {
  for (const size_t length : {1u, 8u, 47u, 93u}) {
    const int fd = plain_connection();
    const gate::Token token = token_for(fd, secret_of(7));
    EXPECT_THAT(refusal(fd, &token, length), HasSubstr("did not send a whole token")) << length;
  }
}

TEST_F(GateTest, RefusesATokenOfAnotherConnection) {
  const int first = plain_connection();
  const gate::Token token = token_for(first, secret_of(7));
  EXPECT_THAT(refusal(plain_connection(), &token, sizeof token), HasSubstr("made for another connection"));
}

TEST_F(GateTest, RefusesATokenTheSecondTimeEvenFromTheSameAddress) {
  const int first = plain_connection();
  const gate::Token token = token_for(first, secret_of(7));
  const uint16_t from_port = [&] {
    const sockaddr_storage name = name_of(first);
    sockaddr_in v4;
    memcpy(&v4, &name, sizeof v4);
    return ntohs(v4.sin_port);
  }();
  ASSERT_EQ(send(first, &token, sizeof token, 0), static_cast<ssize_t>(sizeof token));
  const int let_in = accept_one();
  ASSERT_GE(let_in, 0);
  // This breaks the connection at once, so that the same two addresses can be connected again.
  const linger at_once{1, 0};
  ASSERT_EQ(setsockopt(first, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  close(first);
  open_.erase(std::find(open_.begin(), open_.end(), first));
  EXPECT_TRUE(is_closed(let_in));
  EXPECT_THAT(refusal(plain_connection(from_port), &token, sizeof token), HasSubstr("was used before"));
}

TEST_F(GateTest, DoesNotSeeTheSilentAtFirstAndClosesThemAfterwards) {
  const int silent = plain_connection();
  EXPECT_EQ(accept_one(200), -1);
  EXPECT_EQ(gate_counts().refused, before_.refused) << "the kernel keeps a connection that says nothing";
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 15 && gate_counts().refused == before_.refused; ++i) accept_one(1000);
  EXPECT_EQ(gate_counts().refused, before_.refused + 1);
  EXPECT_TRUE(is_closed(silent));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("it said nothing"));
}

TEST_F(GateTest, AnswersAfterACrowd) {
  ::testing::internal::CaptureStderr();
  const int crowd = 300;
  for (int i = 0; i < crowd; ++i) send(plain_connection(), "knock knock", 11, MSG_NOSIGNAL);
  int caller = -1;
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &caller), UCS_OK);
  keep(caller);
  const sockaddr_in to = loopback(port_);
  ASSERT_EQ(ucs_socket_connect(caller, reinterpret_cast<const sockaddr*>(&to)), UCS_OK);
  // One call refuses a bounded number of peers, and is called again: the socket stays readable.
  int called = -1;
  int calls = 0;
  while (called < 0 && calls < 100) {
    called = accept_one();
    ++calls;
  }
  EXPECT_GE(called, 0);
  EXPECT_GT(calls, 2);
  EXPECT_EQ(gate_counts().refused, before_.refused + crowd);
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(std::count(lines.begin(), lines.end(), '\n'), 100) << "a crowd must not flood the terminal";
  EXPECT_GT(std::count(lines.begin(), lines.end(), '\n'), 0);
}

TEST_F(GateTest, BreaksAConnectionToAnUnauthenticatedServer) {
  // This is a program that has got hold of a port on which a node was to listen.
  const int other_server = keep(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in any_port = loopback(0);
  ASSERT_EQ(bind(other_server, reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port), 0);
  ASSERT_EQ(listen(other_server, 1), 0);
  sockaddr_storage name = name_of(other_server);
  int caller = -1;
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &caller), UCS_OK);
  keep(caller);
  ASSERT_EQ(ucs_socket_connect(caller, reinterpret_cast<const sockaddr*>(&name)), UCS_OK);
  const int theirs = keep(accept(other_server, nullptr, nullptr));
  ASSERT_GE(theirs, 0);
  gate::Token token;
  ASSERT_EQ(recv(theirs, &token, sizeof token, MSG_WAITALL), static_cast<ssize_t>(sizeof token));
  // A peer without the secret can send back nothing better than the token itself.
  ASSERT_EQ(send(theirs, &token, sizeof token, 0), static_cast<ssize_t>(sizeof token));
  ::testing::internal::CaptureStderr();
  char bytes[200];
  size_t length = sizeof bytes;
  EXPECT_EQ(ucs_socket_recv_nb(caller, bytes, &length), UCS_ERR_CONNECTION_RESET);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("does not hold the job's secret"));
  EXPECT_EQ(gate_counts().unauthenticated, before_.unauthenticated + 1);
  length = sizeof bytes;
  EXPECT_NE(ucs_socket_recv_nb(caller, bytes, &length), UCS_OK) << "nor later";
}

TEST_F(GateTest, WaitsForAnAnswerThatComesInPieces) {
  const int other = keep(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in any_port = loopback(0);
  ASSERT_EQ(bind(other, reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port), 0);
  ASSERT_EQ(listen(other, 1), 0);
  sockaddr_storage name = name_of(other);
  int caller = -1;
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &caller), UCS_OK);
  keep(caller);
  ASSERT_EQ(ucs_socket_connect(caller, reinterpret_cast<const sockaddr*>(&name)), UCS_OK);
  const int theirs = keep(accept(other, nullptr, nullptr));
  gate::Token token;
  ASSERT_EQ(recv(theirs, &token, sizeof token, MSG_WAITALL), static_cast<ssize_t>(sizeof token));
  const gate::Mac answer = gate::Key(secret_of(7)).answer(token);
  char bytes[8];
  ASSERT_EQ(send(theirs, answer.data(), 10, 0), 10);
  size_t length = sizeof bytes;
  ASSERT_EQ(ucs_socket_recv_nb(caller, bytes, &length), UCS_ERR_NO_PROGRESS);
  ASSERT_EQ(send(theirs, answer.data() + 10, answer.size() - 10, 0), static_cast<ssize_t>(answer.size() - 10));
  ASSERT_EQ(send(theirs, "data", 4, 0), 4);
  ASSERT_EQ(ucs_socket_recv(caller, bytes, 4), UCS_OK);
  EXPECT_EQ(memcmp(bytes, "data", 4), 0);
  EXPECT_EQ(gate_counts().unauthenticated, before_.unauthenticated);
}

TEST_F(GateTest, DoesNotListenOnEveryInterface) {
  sockaddr_in any = loopback(0);
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  int fd = -1;
  ::testing::internal::CaptureStderr();
  EXPECT_NE(ucs_socket_server_init(reinterpret_cast<const sockaddr*>(&any), sizeof any, 8, 0, 0, &fd), UCS_OK);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("wanted to listen on every interface"));
}

TEST_F(GateTest, LeavesOtherCodeOfTheProcessAlone) {
  // The test's own sockets are not the gate's business.
  const int plain = keep(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in any_port = loopback(0);
  ASSERT_EQ(bind(plain, reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port), 0);
  ASSERT_EQ(listen(plain, 1), 0);
  const sockaddr_storage name = name_of(plain);
  const int caller = keep(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(connect(caller, reinterpret_cast<const sockaddr*>(&name), sizeof(sockaddr_in)), 0);
  ASSERT_EQ(send(caller, "x", 1, 0), 1);
  const int called = keep(accept(plain, nullptr, nullptr));
  char byte = 0;
  ASSERT_EQ(recv(called, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST_F(GateTest, IsOneARun) {
  ASSERT_TRUE(install_gate(secret_of(7), 5, ""));  // a second fabric of the same run
  EXPECT_FALSE(install_gate(secret_of(8), 5, ""));
  EXPECT_FALSE(install_gate(secret_of(7), 5, "lo"));
  remove_gate();
  // The first fabric's gate is still there.
  EXPECT_THAT(refusal(plain_connection(), std::string(94, 'x').data(), 94), HasSubstr("refused"));
}

TEST(Gate, ListensOnTheChosenInterfaceOnly) {
  const sockaddr_in address = loopback(0);
  int fd = -1;
  ASSERT_TRUE(install_gate(secret_of(7), 5, "no-such-device,nor-this"));
  ::testing::internal::CaptureStderr();
  EXPECT_NE(ucs_socket_server_init(reinterpret_cast<const sockaddr*>(&address), sizeof address, 8, 0, 0, &fd), UCS_OK);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("not an address of the interface"));
  remove_gate();
  ASSERT_TRUE(install_gate(secret_of(7), 5, "no-such-device,lo"));
  ASSERT_EQ(ucs_socket_server_init(reinterpret_cast<const sockaddr*>(&address), sizeof address, 8, 0, 0, &fd), UCS_OK);
  close(fd);
  remove_gate();
}

TEST(Gate, IsGoneAfterItWasRemoved) {
  ASSERT_TRUE(install_gate(secret_of(7), 5, ""));
  remove_gate();
  const sockaddr_in any_port = loopback(0);
  int listener = -1;
  const GateCounts before = gate_counts();
  ASSERT_EQ(ucs_socket_server_init(reinterpret_cast<const sockaddr*>(&any_port), sizeof any_port, 8, 0, 0, &listener),
            UCS_OK);
  EXPECT_EQ(gate_counts().listening, before.listening);
  const sockaddr_storage name = name_of(listener);
  const int caller = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(caller, reinterpret_cast<const sockaddr*>(&name), sizeof(sockaddr_in)), 0);
  int called = -1;
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  EXPECT_EQ(ucs_socket_accept(listener, reinterpret_cast<sockaddr*>(&peer), &size, &called), UCS_OK);
  for (int fd : {caller, called, listener}) close(fd);
}

TEST(InterposedCalls, FindsWhatALibraryCallsAndPutsItBack) {
  const char* const libraries[] = {"libucs.so"};
  const Interposition none[] = {{"no_such_function", nullptr}};
  auto nothing = InterposedCalls::install(libraries, none);
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->count("no_such_function"), 0u);

  static thread_local int calls = 0;
  int (*const replacement)(int, int, int) = [](int, int, int) {
    ++calls;
    errno = EACCES;
    return -1;
  };
  const Interposition one[] = {{"socket", reinterpret_cast<void*>(replacement)}};
  auto interposed = InterposedCalls::install(libraries, one);
  ASSERT_TRUE(interposed);
  EXPECT_EQ(interposed->count("socket"), 1u);
  int fd = -1;
  EXPECT_NE(ucs_socket_create(AF_INET, SOCK_STREAM, &fd), UCS_OK);
  EXPECT_EQ(calls, 1);
  ASSERT_TRUE(interposed->restore());
  ASSERT_EQ(ucs_socket_create(AF_INET, SOCK_STREAM, &fd), UCS_OK);
  EXPECT_EQ(calls, 1);
  close(fd);
}

}  // namespace
}  // namespace multigrain
