// The nodes of this machine as copies of one process, for a place where address randomisation cannot be turned off.
// base/fork_server.h says how the server and this process talk.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "launch/node_process.h"

namespace multigrain {

class ForkServer {
 public:
  // Starts the program as a server, and returns when it serves. Its environment has each variable of which a node gets a
  // value of its own, and as much room for that. The caller adopts processes (PR_SET_CHILD_SUBREAPER). An error says what keeps the
  // program from being a server; a signal that is to end the caller ends the wait.
  static Result<std::unique_ptr<ForkServer>> start(NodeStart start);
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;
  // Ends the server. Its nodes are children of this process afterwards, and go on.
  ~ForkServer();

  // Forks a node and returns its process, which waits until this server has ended. `variables` are "NAME=VALUE"; the standard
  // descriptors, and the one of the node's status, are this process's.
  Result<pid_t> fork_node(std::span<const std::string> variables, int input, int output, int error, int status);

 private:
  ForkServer(FileDescriptor socket, pid_t process, std::string path)
      : socket_(std::move(socket)), process_(process), path_(std::move(path)) {}
  // Waits for a packet of this many bytes. Returns false if the server, or what was to become one, has ended.
  Result<bool> receive(void* packet, size_t bytes);
  [[nodiscard]] tl::unexpected<Error> refuse(std::string_view why) const;

  FileDescriptor socket_;
  pid_t process_;
  std::string path_;
};

}  // namespace multigrain
