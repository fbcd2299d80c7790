// What mgrun and the fork server of a run (runtime/fork_server.cpp) say to each other.
//
// Nodes need the same addresses. They have them because mgrun starts each of them without address randomisation, and where
// that is forbidden (Docker's default profile of system calls), because all are copies of one process: mgrun
// starts the program once, with kVariable in its environment. The library, as it is loaded, finds the variable, says so with
// a Hello, and forks a node for each request. It ends when mgrun closes its end of the socket, which is one of packets
// (SOCK_SEQPACKET). With that mgrun becomes the nodes' parent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace multigrain::fork_server {

// "SOCKET,PROCESS": the descriptor of the server's end, and mgrun's process.
inline constexpr const char* kVariable = "MULTIGRAIN_FORK_SERVER";

struct Hello {
  int32_t parent;   // the server's parent process
  int32_t threads;  // that the server's process has
};

// A request is a packet of at most kMaxRequest bytes: variables of the node's environment, each "NAME=VALUE" and a null
// character. The server's environment has each of them, with a value that is at least as long. With it come kDescriptors descriptors.
inline constexpr size_t kMaxRequest = 64 << 10;
inline constexpr int kDescriptors = 4;  // standard input, output and error, and the node's status

struct Reply {
  int32_t process;  // of the node
  int32_t code;     // an errno, if there is none
};

}  // namespace multigrain::fork_server
