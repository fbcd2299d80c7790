// The parts of a node's ucx fabric, one for each mechanism, and the lock that they share (worker.h).
//
// Each part is a class in a header of its own, owns its state, and reaches the other parts through Parts. All parts
// share the peers: each part owns the structure of peer.h whose comment names the part's header.
#pragma once

#include <array>
#include <mutex>

#include "base/node_set.h"
#include "fabric/block_pool.h"
#include "fabric/ucx/coalescing.h"
#include "fabric/ucx/dispatcher.h"
#include "fabric/ucx/endpoints.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/peer.h"
#include "fabric/ucx/peer_failure.h"
#include "fabric/ucx/polling.h"
#include "fabric/ucx/receiver.h"
#include "fabric/ucx/remote_operations.h"
#include "fabric/ucx/scattered_puts.h"
#include "fabric/ucx/segments.h"
#include "fabric/ucx/sender.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/ucx/wire.h"
#include "fabric/ucx/worker.h"

namespace multigrain::ucx {

struct Parts {
  explicit Parts(const UcxOptions& given) : options(given) {}

  UcxOptions options;
  WireContext context;
  bool connected = false;
  Worker worker{options};
  BlockPool pool MG_GUARDED_BY(inside_ucx);  // blocks of messages
  Endpoints endpoints{*this};
  Segments segments{*this};
  Sender sender{*this};
  Coalescing coalescing{*this};
  Receiver receiver{*this};
  RemoteOperations operations{*this};
  ScatteredPuts scattered_puts{*this};
  PeerFailures failures{*this};
  Polling polling{*this};
  Dispatcher dispatcher{*this};
  std::array<Peer, SmallNodeSet::kCapacity> peers;
};

// While it exists, its thread is the only one inside UCX. Its functions have no thread-safety analysis, because the
// analysis does not know that the spin lock stands for inside_ucx.
class MG_SCOPED_CAPABILITY UcxLock {
 public:
  explicit UcxLock(Parts& parts) MG_ACQUIRE(inside_ucx) MG_NO_THREAD_SAFETY_ANALYSIS : parts_(parts) {
    parts.worker.enter_library();
    parts.worker.lock().lock();
    stay_if_stopped();
  }
  // Takes the lock only if it is free; locked() says whether it was.
  UcxLock(Parts& parts, std::try_to_lock_t) MG_EXCLUDES(inside_ucx) MG_NO_THREAD_SAFETY_ANALYSIS : parts_(parts) {
    if (!parts.worker.lock().try_lock()) {
      locked_ = false;
      return;
    }
    parts.worker.enter_library();
    stay_if_stopped();
  }
  ~UcxLock() MG_RELEASE() MG_NO_THREAD_SAFETY_ANALYSIS {
    if (!locked_) return;
    parts_.worker.lock().unlock();
    parts_.worker.leave_library();
    if (parts_.failures.to_report()) [[unlikely]]
      parts_.failures.report();
    if (wakes_) parts_.polling.wake_unless_polled();
  }
  UcxLock(const UcxLock&) = delete;
  UcxLock& operator=(const UcxLock&) = delete;

  [[nodiscard]] bool locked() const MG_TRY_ACQUIRE(true) MG_NO_THREAD_SAFETY_ANALYSIS { return locked_; }
  unsigned progress() MG_REQUIRES(inside_ucx) {
    const unsigned count = ucp_worker_progress(parts_.worker.worker());
    parts_.dispatcher.recycle();
    return count;
  }
  // This thread goes on to handle messages itself, so the end of this object does not wake the service thread.
  void will_handle_messages() { wakes_ = false; }

 private:
  void stay_if_stopped() MG_NO_THREAD_SAFETY_ANALYSIS {
    if (!parts_.worker.stopped()) [[likely]]
      return;
    parts_.worker.lock().unlock();
    while (true) pause();
  }

  Parts& parts_;
  bool locked_ = true;
  bool wakes_ = true;
};

}  // namespace multigrain::ucx
