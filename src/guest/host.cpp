#include "guest/host.h"

#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "guest/entry.h"

namespace multigrain::guest {
namespace {

alignas(Host) std::byte g_host[sizeof(Host)];

ucontext_t& first_context(ThreadBlock& block, const Start& start) {
  auto& context = *new (block.frame) ucontext_t{};
  // The kernel sets these at the start of a program. A context without a floating-point state has the initial one.
  constexpr unsigned long kSegments = 6;  // UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
  constexpr greg_t kCodeSegment = 0x33, kStackSegment = 0x2b, kInterrupts = 0x202;
  context.uc_flags = kSegments;
  context.uc_stack = block.stack();
  auto& registers = context.uc_mcontext.gregs;
  registers[REG_RIP] = static_cast<greg_t>(start.instruction);
  registers[REG_RSP] = static_cast<greg_t>(start.stack);
  registers[REG_EFL] = kInterrupts;
  registers[REG_CSGSFS] = kCodeSegment | (kStackSegment << 48);
  return context;
}

// Lets the processes that the guest starts have random addresses, as without the host, though mgrun's nodes have fixed
// ones.
void randomise_addresses() {
  const int persona = ::personality(0xffffffff);
  if (persona >= 0 && (persona & ADDR_NO_RANDOMIZE) != 0)
    ::personality(static_cast<unsigned long>(persona) & ~static_cast<unsigned long>(ADDR_NO_RANDOMIZE));
}

}  // namespace

Host& host() {
  return *std::launder(reinterpret_cast<Host*>(g_host));
}

void* place_of_host() {
  return g_host;
}

uint64_t block_signals() {
  // The host must get the signals of its own faults.
  const uint64_t all = ~(uint64_t{1} << (SIGSEGV - 1) | uint64_t{1} << (SIGBUS - 1) | uint64_t{1} << (SIGSYS - 1));
  uint64_t mask = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof all);
  return mask;
}

CannotExecute run_guest(const std::string& path, std::vector<std::string> arguments,
                        std::vector<std::string> environment, const HostOptions& options) {
  if (const Status machine = check_machine(); !machine) return {.code = ENOSYS, .sentence = machine.error().message};
  // The guest begins with the mask that this process was given; until then no signal comes in.
  const uint64_t mask = block_signals();
  Host& state = *new (place_of_host()) Host;
  state.memory_is_shared = options.memory_is_shared;
  state.traps_all_calls = options.traps_all_calls;
  return run_guest(state, path, std::move(arguments), std::move(environment), mask);
}

CannotExecute run_guest(Host& state, const std::string& path, std::vector<std::string> arguments,
                        std::vector<std::string> environment, uint64_t mask) {
  auto executable = find_executable(path, std::move(arguments));
  if (!executable) return executable.error();
  const auto failed = [](const Error& error) { return CannotExecute{.code = ENOMEM, .sentence = error.message}; };
  const Result<ThreadBlock*> created = create_block();
  if (!created) return failed(created.error());
  ThreadBlock& block = **created;
  state.executable = *executable;
  state.environment = std::move(environment);
  // The program's pages are written with the guest's rights, so faults are handled from here on.
  if (const Status begun = state.actions.begin(); !begun) return failed(begun.error());
  block.actions = &state.actions;
  if (const Status prepared = prepare_thread(block); !prepared) return failed(prepared.error());
  const auto start = load_program(state.space, state.executable, state.environment, state.has_vdso);
  if (!start) return start.error();
  state.auxiliary = start->auxiliary;
  char place[PATH_MAX];
  if (realpath(state.executable.path.c_str(), place) != nullptr) state.executable.path = place;
  // The kernel names a process after the file that it executes; for a script, after the script.
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  prctl(PR_SET_NAME, std::string(name).c_str());
  randomise_addresses();
  ucontext_t& context = first_context(block, *start);
  set_mask(context, block, mask);
  enter_guest(block, context);
  return {.code = ENOSYS, .sentence = "the guest's first thread has returned"};
}

}  // namespace multigrain::guest
