// The handler of SIGSEGV and SIGBUS, which serves faults on the shared region. It relies on this behaviour of Linux:
//
//  * A fault of userfaultfd with UFFD_FEATURE_SIGBUS, and of a page without rights under mprotect, is a synchronous
//    signal on the thread that made the access; returning from the handler makes the access again.
//  * A synchronous signal that is blocked when it is raised kills the process. So a fault inside this handler (the
//    runtime touching the view, which it must not) cannot loop.
//  * The error code of the page fault, which tells a write from a read, is in the context for SIGSEGV and SIGBUS alike.

#include "runtime/fault_entry.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>

#include "coherence/hazard_slots.h"
#include "coherence/placement/instructions/references.h"
#include "profile/profile.h"
#include "profile/virtual_time.h"
#include "runtime/crash_record.h"
#include "runtime/interpose/signals.h"
#include "status/node_status.h"
#include "timeline/timeline.h"

namespace multigrain {
namespace {

struct Entry {
  const Region* region = nullptr;
  const AccessRights* rights = nullptr;
  Protocol* protocol = nullptr;
  races::Detector* detector = nullptr;                     // nullptr but under --races
  placement::InstructionReferences* references = nullptr;  // nullptr where no page is remote
} g_entry;

// Gives the fault the fate that it would have without the runtime: the access is made again, under the default action.
void let_it_happen(int signal) {
  struct sigaction fate = {};
  fate.sa_handler = SIG_DFL;
  real_sigaction(signal, &fate, nullptr);
}

// The page may be remote already, or when the protocol has granted it: then the thread has no need to fault once more.
bool serve_references(const Fault& fault, const void* context) {
  ucontext_t& interrupted = *static_cast<ucontext_t*>(const_cast<void*>(context));
  bool was_remote = false;
  const bool is_allocated = g_entry.references->serve(fault.page, interrupted, was_remote);
  if (was_remote) return is_allocated;
  if (!g_entry.protocol->on_fault(fault.page, fault.is_write)) return false;
  return g_entry.references->serve(fault.page, interrupted, was_remote);
}

bool serve(const Fault& fault, const void* context) {
  const auto address = reinterpret_cast<uint64_t>(fault.address);
  const auto site = static_cast<uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  const timeline::Interval interval({.key = address,
                                     .site = site,
                                     .kind = timeline::Kind::kFault,
                                     .what = static_cast<uint8_t>(fault.is_write ? 1 : 0)});
  const auto offset = static_cast<uint32_t>(address & (g_entry.region->page_size() - 1));
  const costs::FaultScope cost(fault.page.value, offset, address, fault.is_write, site);
  virtual_time::trapped();
  if (ProcessorStatus* const status = this_status()) count_step(*status);
  // The processor that this one would wait for here may be waiting until a hazard of this one is cleared.
  if (!has_published_hazard()) virtual_time::synchronise();
  if (g_entry.detector != nullptr) [[unlikely]]
    return g_entry.detector->on_access(fault, const_cast<void*>(context));
  if (g_entry.references != nullptr) [[unlikely]]
    return serve_references(fault, context);
  const bool served = g_entry.protocol->on_fault(fault.page, fault.is_write);
  virtual_time::spend_in(Category::kProtocol, &MachineCosts::translation_fill);
  return served;
}

// Under --races: the thread has executed one instruction.
void on_trap(int signal, siginfo_t*, void* context) {
  const int saved_errno = errno;
  if (!races::Detector::end_step(context)) {
    let_it_happen(signal);
    // A breakpoint lies behind the thread, and would not be met again.
    raise(signal);
  }
  errno = saved_errno;
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  return_to_crash_record();
  if (g_entry.detector != nullptr) [[unlikely]]
    races::Detector::abandon_step(context);
  if (const auto fault = g_entry.rights->decode(signal, info, context)) {
    if (serve(*fault, context)) {
      errno = saved_errno;
      return;
    }
    // The address is inside the region, but was never allocated: the program has used a wild pointer, which deserves
    // SIGSEGV whatever the mechanism raised.
    if (forward_to_user_handler(SIGSEGV, info, context)) return;
    record_crash(SIGSEGV, info, context, fault->address);
    if (signal != SIGSEGV) {
      mprotect(g_entry.region->view(fault->page), g_entry.region->page_size(), PROT_NONE);
      signal = SIGSEGV;
    }
    let_it_happen(SIGSEGV);
    errno = saved_errno;
    return;
  }
  if (forward_to_user_handler(signal, info, context)) return;
  record_crash(signal, info, context, info->si_code > 0 ? info->si_addr : nullptr);
  let_it_happen(signal);
  // A signal that another process sent is not raised again by returning.
  if (info->si_code <= 0) raise(signal);
  errno = saved_errno;
}

}  // namespace

namespace {

// The times that measure_trap()'s handler has taken.
struct Trap {
  std::byte* page = nullptr;
  uint64_t begun = 0;
  uint64_t ended = 0;
} g_trap;

void on_measured_trap(int, siginfo_t*, void*) {
  g_trap.begun = ticks();
  mprotect(g_trap.page, Config::kMinPageSize, PROT_READ | PROT_WRITE);
  g_trap.ended = ticks();
}

}  // namespace

TrapCost measure_trap() {
  constexpr size_t kTraps = 64;
  constexpr size_t kColdTraps = 5;
  // This is more than the caches of a core hold, and more than its TLB reaches.
  constexpr size_t kOther = size_t{16} << 20;
  void* const page = mmap(nullptr, Config::kMinPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* const other = mmap(nullptr, kOther, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_sigaction = &on_measured_trap;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  TrapCost cost;
  if (page != MAP_FAILED && other != MAP_FAILED && real_sigaction(SIGSEGV, &action, &before) == 0) {
    g_trap.page = static_cast<std::byte*>(page);
    const auto trap = [page] {
      const uint64_t start = ticks();
      *static_cast<volatile std::byte*>(page) = std::byte{1};
      const uint64_t end = ticks();
      mprotect(page, Config::kMinPageSize, PROT_NONE);
      return static_cast<Nanoseconds>(static_cast<double>((g_trap.begun - start) + (end - g_trap.ended)) * 1000.0 /
                                      ticks_per_us());
    };
    const auto median = [](std::span<Nanoseconds> costs) {
      std::ranges::nth_element(costs, costs.begin() + static_cast<ptrdiff_t>(costs.size() / 2));
      return costs[costs.size() / 2];
    };
    std::array<Nanoseconds, kTraps> costs{};
    for (Nanoseconds& one : costs) one = trap();
    cost.warm = median(costs);
    const std::span<Nanoseconds> cold(costs.data(), kColdTraps);
    for (Nanoseconds& one : cold) {
      for (size_t i = 0; i < kOther; i += 64) static_cast<volatile std::byte*>(other)[i] = std::byte{1};
      one = trap();
    }
    cost.cold = std::max(cost.warm, median(cold));
    real_sigaction(SIGSEGV, &before, nullptr);
  }
  if (page != MAP_FAILED) munmap(page, Config::kMinPageSize);
  if (other != MAP_FAILED) munmap(other, kOther);
  return cost;
}

bool serve_fault(int signal, const siginfo_t* info, const void* context) {
  const int saved_errno = errno;
  const auto fault = g_entry.rights->decode(signal, info, context);
  const bool is_served = fault && serve(*fault, context);
  errno = saved_errno;
  return is_served;
}

Status install_fault_entry(const Region& region, const AccessRights& rights, Protocol& protocol,
                           races::Detector* detector, placement::InstructionReferences* references) {
  g_entry = {&region, &rights, &protocol, detector, references};
  struct sigaction action = {};
  action.sa_sigaction = &on_signal;
  action.sa_flags = SA_SIGINFO;
  // A program's asynchronous handlers must not run in the middle of the protocol.
  sigfillset(&action.sa_mask);
  for (const int synchronous : {SIGILL, SIGTRAP, SIGFPE, SIGABRT}) sigdelset(&action.sa_mask, synchronous);
  for (const int signal : {SIGBUS, SIGSEGV}) {
    // A stack that has overflowed raises SIGSEGV, whose handler then needs another stack. It takes the runtime's own,
    // which has room for the handlers of messages; a stack that the program provides need not have it
    // (interpose/signals.h).
    if (signal == SIGSEGV) action.sa_flags |= SA_ONSTACK;
    if (real_sigaction(signal, &action, nullptr) != 0) return fail_errno(errno, "cannot install the fault handler");
  }
  if (detector != nullptr) {
    action.sa_sigaction = &on_trap;
    if (real_sigaction(SIGTRAP, &action, nullptr) != 0) return fail_errno(errno, "cannot install the trap handler");
  }
  install_crash_handlers();
  return {};
}

}  // namespace multigrain
