// The fabric between hosts: the fabric contract over UCX's protocol layer (UCP), so over InfiniBand, RoCE, TCP, and
// UCX's own shared-memory transports.
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
  std::vector<std::string> hosts;                   // of every node, for messages; as many as there are nodes
  std::shared_ptr<const Secret<JobSecret>> secret;  // only a node that has it may connect; let go when UCX is open
  std::string interface;                            // network device (as in UCX_NET_DEVICES) or empty: UCX's own choice
  uint64_t region_size = 0;                         // bytes: length of every node's kFrames segment
  size_t words_bytes = words::kBytes;               // length of every node's kWords segment, which the fabric supplies
  uint64_t lines_bytes = 0;                         // length of every node's kLines segment; 0: there is none

  // How long a node may be silent before it counts as gone; 0: for ever.
  Nanoseconds silence_limit = Nanoseconds{4} * 1000 * 1000 * 1000;
  // A peer has failed (its connection broke, it was silent for too long, or its program has ended): `reason` is a few
  // words for a message. Called at most once a node, by the thread that noticed, perhaps in the fault handler; it may
  // end the process.
  // Nothing is promised of operations to that node afterwards, but those to others go on.
  void (*peer_failed)(void* context, NodeId node, const char* reason) = nullptr;
  void* context = nullptr;

  // Called around everything that may make UCX allocate, also on threads that UCX starts: the runtime keeps UCX's
  // memory out of the program's heap. They nest. May be null.
  void (*enter_library)() = nullptr;
  void (*leave_library)() = nullptr;
};

// A fabric that is built in three steps: load, export, connect.
class UcxFabric : public Fabric {
 public:
  // This node's memory behind a segment, before connect(). kFrames must be exported, and kLines if there is to be one;
  // kWords the fabric supplies.
  virtual void export_segment(SegmentId segment, std::byte* base, uint64_t length) = 0;
  // Exchanges addresses and connects to every other node. Collective.
  virtual Status connect(Wireup& wireup) = 0;
  // The process is about to run the destructors of its libraries, UCX's among them: a thread that is inside UCX comes
  // out, and a thread that calls the fabric from now on stays there for ever. Not from a handler. The other nodes are
  // told that this one ends (peer_failed is called there).
  virtual void stop() = 0;
  // Lets UCX work once, without handling messages. Returns whether anything happened. A node that neither polls nor has
  // a service thread answers no remote operation of others; tests use this instead.
  virtual bool progress() = 0;
  // What UCX chose, for people: "tcp over eth0", say.
  [[nodiscard]] virtual std::string description() const = 0;
};

// The secret of the job, drawn by node 0 and sealed for each node while it travels (job_secret.h). Collective, before
// UCX is opened. Errors: those of the wire-up, and of loading the module.
Result<std::shared_ptr<const Secret<JobSecret>>> agree_on_secret(Wireup& wireup);

// Opens UCX. The library is loaded only now, by way of the module multigrain-ucx.so: programs that run on one machine
// need not have it. Errors: no such module or library (and which package has it), no usable transport or interface.
Result<std::unique_ptr<UcxFabric>> load_ucx_fabric(const UcxOptions& options);

}  // namespace multigrain
