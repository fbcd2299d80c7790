// Receiving: the functions that UCX calls for each active message. They check what has come and put messages into the
// order of their numbers. They never run a handler; the dispatcher does that.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "fabric/fabric.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/wire.h"

namespace multigrain::ucx {

class Receiver;
struct Parts;

// A message that has arrived. Its data follows, or is still in UCX's buffer (`held`).
struct Incoming {
  Receiver* receiver;
  Incoming* next;
  WireMessage wire;
  Nanoseconds due;  // 0: at once
  std::byte* data;
  void* held;  // UCX's buffer, for ucp_am_data_release; or null
};

class Receiver {
 public:
  explicit Receiver(Parts& parts) : parts_(parts) {}

  // Registers this object's functions with UCX, which then calls them for every message that arrives.
  Status open();

  // Returns false if a message does not come from a node of the job: the caller drops it, and the first few times a
  // line on standard error says so. A message that comes from node `from` of the job and cannot be right ends the run.
  bool approve(const Checked& checked, const uint16_t& from) MG_REQUIRES(inside_ucx);
  // Gives back UCX's buffers of messages that no handler will see. The caller knows that no thread handles messages.
  void release_held() MG_REQUIRES(inside_ucx);

 private:
  ucs_status_t receive_message(std::span<const std::byte> header, void* data, size_t length, uint64_t attributes)
      MG_REQUIRES(inside_ucx);
  void receive_coalesced(std::span<const std::byte> header, std::span<const std::byte> data) MG_REQUIRES(inside_ucx);
  void receive_control(std::span<const std::byte> header, std::span<const std::byte> data) MG_REQUIRES(inside_ucx);
  void handle_control(unsigned source, const WireControl& wire, const void* data) MG_REQUIRES(inside_ucx);
  ucs_status_t receive_rendezvous(Incoming* in, void* data, size_t length) MG_REQUIRES(inside_ucx);
  Incoming* admit(const WireMessage& wire, size_t length, size_t copied) MG_REQUIRES(inside_ucx);
  void accept(unsigned source, Incoming* in) MG_REQUIRES(inside_ucx);
  void pass_on(unsigned source, Incoming* in) MG_REQUIRES(inside_ucx);
  void refuse(const char* reason) MG_REQUIRES(inside_ucx);

  Parts& parts_;
  unsigned refused_ MG_GUARDED_BY(inside_ucx) = 0;
};

}  // namespace multigrain::ucx
