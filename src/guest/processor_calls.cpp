// Carries out the calls about processors. A guest on several nodes has the processors of all nodes, numbered by node.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <vector>

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

void ProcessorMasks::become_child(pid_t before, pid_t now) {
  auto own = masks_.extract(before);
  masks_.clear();
  if (own.empty()) return;
  own.key() = now;
  masks_.insert(std::move(own));
}

namespace {

bool is_caller(const Call& call) {
  return call.integer(0) == 0 || call.integer(0) == number_of(call.thread);
}

// Returns whether the thread is the guest's. Only the home can say so.
bool is_own_thread(const Call& call) {
  return is_caller(call) || (call.integer(0) > 0 && tgkill(getpid(), call.integer(0), 0) == 0);
}

// Has the kernel run a thread of a forked process where its mask allows. Such a process has no nodes, but all cores that
// mgrun was given; if a mask leaves processors out, the cores stand for the guest's processors in turn. What the process
// executes inherits this.
void use_cores(pid_t thread, const ProcessorMask& mask, unsigned processors) {
  cpu_set_t cores = host().cores_of_processes;
  if (mask != mask_of_all(processors)) {
    std::vector<int> numbers;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &cores)) numbers.push_back(core);
    if (numbers.empty()) return;
    CPU_ZERO(&cores);
    for (unsigned i = 0; i < processors; ++i)
      if (has(mask, i)) CPU_SET(numbers[i % numbers.size()], &cores);
  }
  sched_setaffinity(thread, sizeof cores, &cores);
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

void begin_forked_process(ThreadBlock& thread) {
  const auto& processors = host().processors;
  if (!processors) return;
  const ProcessorMask mask = host().masks.of(gettid(), processors->all);
  thread.processor = only_processor(mask);
  use_cores(0, mask, processors->all);
}

namespace call {

long set_processors(Call& call) {
  const auto& processors = host().processors;
  if (!processors) return pass(call);
  const bool is_own = is_caller(call);
  ProcessorMask mask;
  const long read = read_mask(call, processors->all, mask);
  long result = read;
  if (call.thread.away != nullptr) {
    result = call_at_home(call);
  } else if (!is_own_thread(call)) {
    result = pass(call);
  } else if (result == 0) {
    const pid_t thread = call.integer(0) == 0 ? number_of(call.thread) : call.integer(0);
    host().masks.set(thread, mask);
    if (host().cluster == nullptr) use_cores(thread, mask, processors->all);
  }
  if (result == 0 && read == 0 && is_own) call.thread.processor = only_processor(mask);
  return result;
}

long get_processors(Call& call) {
  const auto& processors = host().processors;
  if (!processors) return pass(call);
  if (call.thread.away != nullptr) return call_at_home(call);
  if (!is_own_thread(call)) return pass(call);
  const pid_t thread = call.integer(0) == 0 ? number_of(call.thread) : call.integer(0);
  const ProcessorMask mask = host().masks.of(thread, processors->all);
  const uint64_t needed = mask.size() * sizeof(uint64_t);
  const uint64_t bytes = static_cast<uint32_t>(call.arguments[1]);
  if (bytes < needed || bytes % sizeof(uint64_t) != 0) return -EINVAL;
  return write_guest(call.arguments[2], mask.data(), needed) ? static_cast<long>(needed) : -EFAULT;
}

long get_processor(Call& call) {
  const auto& processors = host().processors;
  if (!processors) return pass(call);
  // The answer is a processor of the node that runs the thread, or any in a process without nodes; or, if the thread
  // wants to be on one alone, that one.
  const Cluster* const cluster = host().cluster;
  const auto core = static_cast<unsigned>(std::max(0, sched_getcpu()));
  const unsigned here =
      cluster != nullptr ? cluster->first_processor() + core % processors->of_a_node : core % processors->all;
  const uint32_t processor = call.thread.processor >= 0 ? static_cast<uint32_t>(call.thread.processor) : here;
  constexpr uint32_t kMemory = 0;
  if (call.arguments[0] != 0 && !write_guest(call.arguments[0], processor)) return -EFAULT;
  return call.arguments[1] == 0 || write_guest(call.arguments[1], kMemory) ? 0 : -EFAULT;
}

}  // namespace call
}  // namespace multigrain::guest
