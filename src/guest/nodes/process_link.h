// The connection between a process of the guest that runs on another node and its shadow process at home: two sockets
// of one machine. What goes over it:
//
//   home to the node     ProcessToPlace, its areas, each with its file, its reserved ranges and the guest's ranges;
//                        ThreadToTakeOver, the size of its context and that; pages
//   node to the home     ProcessPlaced, with the socket by which the home sends signals; or nothing, if it cannot be
//   node to the home     Request and data, answered by LinkReply and data, one at a time (deputy.h)
//   home to the node     siginfo_t on the other socket, one until the process has acted on it
//   node to the home     after a kTakeOver that was granted: ProcessComesHome, areas, pages
//
// Whoever finds that the other end is gone ends, too: the two are one process to the guest.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/file_descriptor.h"
#include "guest/areas.h"
#include "guest/processor_files.h"

namespace multigrain::guest {

struct ProcessToPlace {
  uint64_t vdso = 0;  // the address of the home's
  uint64_t break_begin = 0;
  uint64_t break_end = 0;
  Processors processors;
  int32_t number = 0;  // the guest knows the process by it
  uint32_t nodes = 0;
  uint32_t first_processor = 0;  // the node's
  uint32_t areas = 0;
  uint32_t reserved = 0;
  uint32_t ranges = 0;
};

// Says why a node cannot have a process.
enum class NotPlaced : uint32_t {
  kNone,
  kVdso,    // its functions for the time are at another address
  kMemory,  // there is no room for its memory, or a file cannot be mapped
  kThread   // the system lacks what a host needs
};

struct ProcessPlaced {
  NotPlaced why = NotPlaced::kNone;
};

struct LinkReply {
  int64_t result = 0;
  uint32_t bytes = 0;
  uint32_t has_signal = 0;
  siginfo_t signal{};
};

struct ProcessComesHome {
  uint64_t break_end = 0;
  uint32_t areas = 0;
};

// These return false if the other end is gone. A signal does not interrupt them.
bool send_all(int socket, const void* bytes, size_t count);
bool receive_all(int socket, void* bytes, size_t count);
template <typename T>
bool send_value(int socket, const T& value) {
  return send_all(socket, &value, sizeof value);
}
template <typename T>
bool receive_value(int socket, T& value) {
  return receive_all(socket, &value, sizeof value);
}
// Sends a descriptor, or says that there is none (-1). Returns false if the other end is gone.
bool send_descriptor(int socket, int fd);
bool receive_descriptor(int socket, FileDescriptor& fd);

// Sends those pages of areas without a file that this process has: the system knows which it has touched. Their rights
// are changed for a moment if they cannot be read. The calling thread is the process's only one.
bool send_pages(int socket, const std::vector<Area>& areas);
// Receives them. The memory can be written.
bool receive_pages(int socket);

}  // namespace multigrain::guest
