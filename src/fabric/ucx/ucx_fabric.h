// The fabric between hosts: it keeps the fabric contract over UCX's protocol layer (UCP), and so over InfiniBand, RoCE,
// TCP, and UCX's own shared-memory transports. This header has no part of UCX, which is loaded only in runs that use
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/secret.h"
#include "fabric/fabric.h"
#include "fabric/wireup/wireup.h"
#include "fabric/words.h"

namespace multigrain {

using JobSecret = std::array<std::byte, 32>;

struct UcxOptions {
  NodeId self;
  std::vector<std::string> hosts;                   // one for each node, for messages
  std::shared_ptr<const Secret<JobSecret>> secret;  // a node must hold it to connect; released when UCX is open
  std::string interface;                            // network device, as in UCX_NET_DEVICES; empty: UCX chooses
  uint64_t region_size = 0;                         // length of every node's kFrames segment, bytes
  size_t words_bytes = words::kBytes;               // length of every node's kWords segment, bytes
  uint64_t lines_bytes = 0;                         // length of every node's kLines segment; 0: none
  uint64_t pages_bytes = 0;                         // length of every node's kPages segment; 0: none

  // A node that has been silent for longer than this counts as gone; 0: it never does.
  Nanoseconds silence_limit = Nanoseconds{4} * 1000 * 1000 * 1000;
  // The fabric calls this when a peer has failed (its connection broke, it was silent for too long, or its program has
  // ended). `reason` is a few words for a message. The call comes at most once for each node, from the thread that
  // noticed the failure, perhaps in the fault handler; the function may end the process. Nothing is promised of
  // operations to that node afterwards, but operations to other nodes go on.
  void (*peer_failed)(void* context, NodeId node, const char* reason) = nullptr;
  void* context = nullptr;

  // The fabric calls these around everything that may make UCX allocate, also on threads that UCX starts: by them the
  // runtime keeps UCX's memory out of the program's heap. The calls nest. The pointers may be null.
  void (*enter_library)() = nullptr;
  void (*leave_library)() = nullptr;

  // The numbers that descriptors of UCX are to have (descriptors.h). Several fabrics of one process have the same.
  int lowest_descriptor = 0;
  int (*keep_descriptor)(int fd) = nullptr;
};

// A fabric that is built in three steps: load, export, connect.
class UcxFabric : public Fabric {
 public:
  // Says where this node's memory behind a segment is. The caller does this before connect(), for kFrames, and for
  // kLines if there is to be one. The fabric itself makes the memory of kWords and
  // kPages.
  virtual void export_segment(SegmentId segment, std::byte* base, uint64_t length) = 0;
  // Exchanges addresses and connects to every other node. All nodes call this together.
  virtual Status connect(Wireup& wireup) = 0;
  // The process is about to run the destructors of its libraries, UCX's among them. A thread that is inside UCX comes
  // out, and a thread that calls the fabric from now on waits there for ever. The other nodes are told that this one
  // ends (peer_failed is called there). A handler may not call this.
  virtual void stop() = 0;
  // Lets UCX work once, without handling messages. Returns whether UCX has done anything. A node that neither polls nor
  // has a service thread answers no remote operation of other nodes; tests use this instead.
  virtual bool progress() = 0;
  // Describes what UCX chose, for people: for instance "tcp over eth0".
  [[nodiscard]] virtual std::string description() const = 0;
};

// Returns the secret of the job, which node 0 draws and which is sealed for each node while it travels (job_secret.h).
// All nodes call this together, before they open UCX. Errors: errors of the wire-up and of loading the module.
Result<std::shared_ptr<const Secret<JobSecret>>> agree_on_secret(Wireup& wireup);

// Opens UCX. This call loads the library, by way of the module multigrain-ucx.so, so that programs that run on one
// machine need not have it. Errors: there is no such module or library (the message says which package has it); there
// is no usable transport or interface.
Result<std::unique_ptr<UcxFabric>> load_ucx_fabric(const UcxOptions& options);

}  // namespace multigrain
