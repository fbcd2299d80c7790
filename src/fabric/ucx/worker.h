// UCX in this process: the UCP context, its worker, and the lock under which a thread is inside UCX.
//
// A node has one context and one worker. A thread that needs UCX calls it itself, under the lock
// (UCS_THREAD_MODE_SERIALIZED). UCX's own multi-threaded mode would take a lock of its own in every call, several times
// in some, and its lock spins without end where ours sleeps, which on few cores is the difference between a wait and a
// lost time slice. A thread that only wants progress tries the lock and goes on if it is taken, because its holder
// makes progress. A thread takes the lock by a UcxLock (parts.h).
//
// UCX's asynchronous thread accepts connections. UCX itself keeps that thread and the worker apart.
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

// Returns zeroed address space, which takes no memory where it is not touched. Null: there is not enough.
void* map_sparse(size_t bytes);

// Returns the components of UCX's transport layer ("posix", "tcp", ...). The call loads the components that are
// libraries of their own.
std::vector<std::string> available_transports();

class Worker {
 public:
  explicit Worker(const UcxOptions& options) : options_(options) {}

  // `available` is what available_transports() returned.
  Status open(std::span<const std::string> available);
  // The caller knows that nothing of UCX's worker is in use.
  void destroy_worker() MG_REQUIRES(inside_ucx);
  void destroy_context() MG_EXCLUDES(inside_ucx);

  [[nodiscard]] ucp_context_h context() const { return context_; }
  [[nodiscard]] ucp_worker_h worker() const { return worker_; }

  // Callers enclose every call that may make UCX allocate in these (UcxOptions).
  void enter_library() const {
    if (options_.enter_library != nullptr) options_.enter_library();
  }
  void leave_library() const {
    if (options_.leave_library != nullptr) options_.leave_library();
  }

  // The process ends: a thread that tries to take the lock from now on waits for ever.
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
