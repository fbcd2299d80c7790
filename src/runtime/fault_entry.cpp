// What Linux does, and what is relied on here:
//
//  * A fault of userfaultfd with UFFD_FEATURE_SIGBUS, and of a page without rights under mprotect, is a synchronous
//    signal on the thread that made the access; returning from the handler makes the access again.
//  * A synchronous signal that is blocked when it is raised kills the process. So a fault inside this handler (the
//    runtime touching the view, which it must not) cannot loop.
//  * The error code of the page fault, which tells a write from a read, is in the context for SIGSEGV and SIGBUS alike.

#include "runtime/fault_entry.h"

#include <sys/mman.h>

#include <cerrno>
#include <csignal>

#include "profile/virtual_time.h"
#include "runtime/interpose/signals.h"

namespace multigrain {
namespace {

struct Entry {
  const Region* region = nullptr;
  const AccessRights* rights = nullptr;
  Protocol* protocol = nullptr;
} g_entry;

// Gives the fault the fate that it would have without us: the access is made again, under the default action.
void let_it_happen(int signal) {
  struct sigaction fate = {};
  fate.sa_handler = SIG_DFL;
  real_sigaction(signal, &fate, nullptr);
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (const auto fault = g_entry.rights->decode(signal, info, context)) {
    virtual_time::synchronise();
    if (g_entry.protocol->on_fault(fault->page, fault->is_write)) {
      errno = saved_errno;
      return;
    }
    // Inside the region, but never allocated: a wild pointer, which deserves SIGSEGV whatever the mechanism raised.
    if (forward_to_user_handler(SIGSEGV, info, context)) return;
    if (signal != SIGSEGV) {
      mprotect(g_entry.region->view(fault->page), g_entry.region->page_size(), PROT_NONE);
      signal = SIGSEGV;
    }
    let_it_happen(SIGSEGV);
    errno = saved_errno;
    return;
  }
  if (forward_to_user_handler(signal, info, context)) return;
  let_it_happen(signal);
  // A signal that another process sent is not raised again by returning.
  if (info->si_code <= 0) raise(signal);
  errno = saved_errno;
}

}  // namespace

Status install_fault_entry(const Region& region, const AccessRights& rights, Protocol& protocol) {
  g_entry = {&region, &rights, &protocol};
  struct sigaction action = {};
  action.sa_sigaction = &on_signal;
  // Not on an alternate stack: the handler may run messages' handlers and wants more room than those usually have.
  action.sa_flags = SA_SIGINFO;
  // A program's asynchronous handlers must not run in the middle of the protocol.
  sigfillset(&action.sa_mask);
  for (int synchronous : {SIGILL, SIGTRAP, SIGFPE, SIGABRT}) sigdelset(&action.sa_mask, synchronous);
  for (int signal : {SIGBUS, SIGSEGV})
    if (real_sigaction(signal, &action, nullptr) != 0) return fail_errno(errno, "cannot install the fault handler");
  return {};
}

}  // namespace multigrain
