// UCX in this process: the UCP context, its worker, and the lock under which a thread is inside UCX.
//
// A node has one context and one worker. Every call into UCX is made under the lock, by whichever thread needs it
// (UCS_THREAD_MODE_SERIALIZED): UCX's own multi-threaded mode would take a lock of its own in every call, several times
// in some, and its lock spins without end where ours sleeps, which on few cores is the difference between a wait and a
// lost time slice. A thread that only wants progress tries the lock and passes on if it is taken: its holder makes the
// progress. A thread takes the lock by a UcxLock (parts.h).
//
// UCX's asynchronous thread accepts connections. It excludes itself from the worker by UCX's own means.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/spin_lock.h"
#include "fabric/ucx/inside_ucx.h"
#include "fabric/ucx/ucx_fabric.h"

namespace multigrain::ucx {

inline constexpr Nanoseconds kSecond = 1'000'000'000;

tl::unexpected<Error> fail_ucx(const char* what, ucs_status_t status);

// Memory that is zero, and takes none where it is not touched. Null: there is no room.
void* map_sparse(size_t bytes);

// The components of UCX's transport layer ("posix", "tcp", ...). Asking loads those that are libraries of their own.
std::vector<std::string> available_transports();

class Worker {
 public:
  explicit Worker(const UcxOptions& options) : options_(options) {}

  // `available`: available_transports().
  Status open(std::span<const std::string> available);
  // Nothing of UCX's worker may be in use.
  void destroy_worker() MG_REQUIRES(inside_ucx);
  void destroy_context() MG_EXCLUDES(inside_ucx);

  [[nodiscard]] ucp_context_h context() const { return context_; }
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }

  // Around everything that may make UCX allocate (UcxOptions).
  void enter_library() const {
    if (options_.enter_library != nullptr) options_.enter_library();
  }
  void leave_library() const {
    if (options_.leave_library != nullptr) options_.leave_library();
  }

  // The process ends: a thread that takes the lock from now on stays in the attempt for ever.
  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  [[nodiscard]] SpinLock& lock() { return lock_; }

 private:
  class AsyncThread;

  Status open_context(std::span<const std::string> available);

  const UcxOptions& options_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  AsyncThread* async_ = nullptr;
  alignas(64) SpinLock lock_;
  std::atomic<bool> stopped_{false};
};

}  // namespace multigrain::ucx
