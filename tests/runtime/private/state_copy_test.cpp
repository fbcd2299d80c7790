// Starts state_copy_program as two nodes at the same addresses, connected by a socket.
#include <gtest/gtest.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace {

pid_t start_node(int node, int socket, int other, int output) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::close(other);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::setenv("MULTIGRAIN_NODES", "2", 1);
  ::setenv("MULTIGRAIN_NODE", std::to_string(node).c_str(), 1);
  ::setenv("TEST_SOCKET", std::to_string(socket).c_str(), 1);
  ::personality(ADDR_NO_RANDOMIZE);
  ::execl(STATE_COPY_PROGRAM, STATE_COPY_PROGRAM, nullptr);
  ::_exit(99);
}

TEST(StateCopy, GlobalsAndHeapAreAsAfterFork) {
  int ends[2];
  int output[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  ASSERT_EQ(::pipe(output), 0);
  const pid_t node0 = start_node(0, ends[0], ends[1], output[1]);
  const pid_t node1 = start_node(1, ends[1], ends[0], output[1]);
  ::close(ends[0]);
  ::close(ends[1]);
  ::close(output[1]);
  std::string text;
  char piece[512];
  for (ssize_t got; (got = ::read(output[0], piece, sizeof piece)) > 0;) text.append(piece, static_cast<size_t>(got));
  ::close(output[0]);
  int status0 = -1;
  int status1 = -1;
  ASSERT_EQ(::waitpid(node0, &status0, 0), node0);
  ASSERT_EQ(::waitpid(node1, &status1, 0), node1);
  EXPECT_EQ(status0, 0) << text;
  EXPECT_EQ(status1, 0) << text;
  EXPECT_EQ(text,
            "round 1 on node 1\nstreams work\nround 2 on node 1\nstreams work\nround 3 on node 1\nstreams work\n");
}

}  // namespace
