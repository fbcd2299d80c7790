// Whether the calling thread is inside the protocol, perhaps with a lock of it held.
#pragma once

namespace multigrain::shasta {

// While it exists, polls and fences of a signal handler that interrupts the thread do nothing.
class InsideProtocol {
 public:
  InsideProtocol() { ++depth(); }
  ~InsideProtocol() { --depth(); }
  InsideProtocol(const InsideProtocol&) = delete;
  InsideProtocol& operator=(const InsideProtocol&) = delete;
  [[nodiscard]] static bool on() { return depth() != 0; }

 private:
  // Of the initial-exec kind: it is used in the fault handler, where a first access must not allocate.
  static unsigned& depth() {
    [[gnu::tls_model("initial-exec")]] static constinit thread_local unsigned depth = 0;
    return depth;
  }
};

}  // namespace multigrain::shasta
