// Carries out the calls about processors. A guest on several nodes has the processors of all nodes, numbered by node.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/lock_guard.h"
#include "guest/call_functions.h"
#include "guest/cluster.h"
#include "guest/host.h"
#include "guest/processor_masks.h"

namespace multigrain::guest {

ProcessorMask ProcessorMasks::of(pid_t thread, unsigned processors) {
  const LockGuard hold(mutex_);
  const auto found = masks_.find(thread);
  return found != masks_.end() ? found->second : mask_of_all(processors);
}

void ProcessorMasks::set(pid_t thread, ProcessorMask mask) {
  const LockGuard hold(mutex_);
  masks_.insert_or_assign(thread, std::move(mask));
}

void ProcessorMasks::inherit(pid_t from, pid_t to) {
  const LockGuard hold(mutex_);
  // Another thread may have had the number before.
  masks_.erase(to);
  if (const auto found = masks_.find(from); found != masks_.end()) masks_.emplace(to, ProcessorMask(found->second));
}

void ProcessorMasks::forget(pid_t thread) {
  const LockGuard hold(mutex_);
  masks_.erase(thread);
}

namespace {

bool is_caller(const Call& call) {
  return call.integer(0) == 0 || call.integer(0) == number_of(call.thread);
}

// Returns whether the thread is the guest's. Only the home can say so.
bool is_own_thread(const Call& call) {
  return is_caller(call) || (call.integer(0) > 0 && tgkill(getpid(), call.integer(0), 0) == 0);
}

// Reads the mask of the call, and cuts it to the processors that there are. Returns 0 or -errno.
long read_mask(const Call& call, unsigned processors, ProcessorMask& mask) {
  mask = mask_of_all(processors);
  ProcessorMask given(mask.size());
  const uint64_t bytes = std::min<uint64_t>(static_cast<uint32_t>(call.arguments[1]), given.size() * sizeof(uint64_t));
  if (bytes != 0 && !read_guest(call.arguments[2], given.data(), bytes)) return -EFAULT;
  uint64_t any = 0;
  for (size_t i = 0; i < mask.size(); ++i) any |= mask[i] &= given[i];
  return any != 0 ? 0 : -EINVAL;
}

// Returns the only processor of the mask, or -1.
int only_processor(const ProcessorMask& mask) {
  int found = -1;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == 0) continue;
    if (found >= 0 || !std::has_single_bit(mask[i])) return -1;
    found = static_cast<int>(i * 64) + std::countr_zero(mask[i]);
  }
  return found;
}

}  // namespace

namespace call {

long set_processors(Call& call) {
  const Cluster* const cluster = host().cluster;
  if (cluster == nullptr) return pass(call);
  const bool is_own = is_caller(call);
  ProcessorMask mask;
  const long read = read_mask(call, cluster->processors(), mask);
  long result = read;
  if (call.thread.away != nullptr)
    result = call_at_home(call);
  else if (!is_own_thread(call))
    result = pass(call);
  else if (result == 0)
    host().masks.set(call.integer(0) == 0 ? number_of(call.thread) : call.integer(0), mask);
  if (result == 0 && read == 0 && is_own) call.thread.processor = only_processor(mask);
  return result;
}

long get_processors(Call& call) {
  const Cluster* const cluster = host().cluster;
  if (cluster == nullptr) return pass(call);
  if (call.thread.away != nullptr) return call_at_home(call);
  if (!is_own_thread(call)) return pass(call);
  const pid_t thread = call.integer(0) == 0 ? number_of(call.thread) : call.integer(0);
  const ProcessorMask mask = host().masks.of(thread, cluster->processors());
  const uint64_t needed = mask.size() * sizeof(uint64_t);
  const uint64_t bytes = static_cast<uint32_t>(call.arguments[1]);
  if (bytes < needed || bytes % sizeof(uint64_t) != 0) return -EINVAL;
  return write_guest(call.arguments[2], mask.data(), needed) ? static_cast<long>(needed) : -EFAULT;
}

long get_processor(Call& call) {
  const Cluster* const cluster = host().cluster;
  if (cluster == nullptr) return pass(call);
  // The answer is a processor of the node that runs the thread; or, if the thread wants to be on one alone, that one.
  const unsigned here = static_cast<unsigned>(std::max(0, sched_getcpu())) % cluster->processors_of_a_node();
  const uint32_t processor =
      call.thread.processor >= 0 ? static_cast<uint32_t>(call.thread.processor) : cluster->first_processor() + here;
  constexpr uint32_t kMemory = 0;
  if (call.arguments[0] != 0 && !write_guest(call.arguments[0], processor)) return -EFAULT;
  return call.arguments[1] == 0 || write_guest(call.arguments[1], kMemory) ? 0 : -EFAULT;
}

}  // namespace call
}  // namespace multigrain::guest
