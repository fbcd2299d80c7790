#include "runtime/interpose/handlers.h"

#include <array>
#include <atomic>
#include <csetjmp>
#include <cstdint>

#include "runtime/interpose/real.h"

namespace multigrain {
namespace {

using Action = struct sigaction;

int real_sigaction_of_library(int signo, const Action* action, Action* old) {
  return real_function<"sigaction", int(int, const Action*, Action*)>()(signo, action, old);
}

struct Hooks {
  std::atomic<void (*)()> begin{nullptr};
  std::atomic<void (*)(bool)> end{nullptr};
};
constinit Hooks g_hooks;

// The program's handler of each signal, with kTakesInfo if it wants three arguments. It is one word, so that a handler
// that begins while another is installed finds the old one or the new one.
constexpr uint64_t kTakesInfo = uint64_t{1} << 63;
constinit std::array<std::atomic<uint64_t>, NSIG> g_handlers{};

// The address of the frame of the thread's outermost handler; 0 if none runs.
[[gnu::tls_model("initial-exec")]] constinit thread_local uintptr_t t_outermost = 0;

void call(uint64_t handler, int signo, siginfo_t* info, void* context) {
  if ((handler & kTakesInfo) != 0)
    reinterpret_cast<void (*)(int, siginfo_t*, void*)>(handler & ~kTakesInfo)(signo, info, context);
  else
    reinterpret_cast<void (*)(int)>(handler)(signo);
}

void run_handler(int signo, siginfo_t* info, void* context) {
  const uint64_t handler = g_handlers[static_cast<size_t>(signo)].load(std::memory_order_acquire);
  HandlerScope scope;
  call(handler, signo, info, context);
  scope.returned();
}

bool is_function(const Action& action) {
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN && action.sa_handler != SIG_ERR;
}

// Returns whether a jump to a function whose stack pointer was `target` stays inside the outermost handler. The handler
// may be on the thread's alternate stack; if it is not, the functions on that stack have been left.
bool stays_inside(uintptr_t target) {
  stack_t alternate{};
  const bool known = sigaltstack(nullptr, &alternate) == 0 && (alternate.ss_flags & SS_DISABLE) == 0;
  const auto begin = reinterpret_cast<uintptr_t>(alternate.ss_sp);
  const auto is_alternate = [&](uintptr_t address) { return known && address - begin < alternate.ss_size; };
  return is_alternate(target) == is_alternate(t_outermost) && target < t_outermost;
}

// Returns the stack pointer that a jmp_buf of glibc holds: its seventh word, rotated and combined with the
// thread's guard.
uintptr_t stack_pointer_of(const void* buffer) {
  constexpr size_t kStackPointer = 6;
  uintptr_t mangled = static_cast<const uintptr_t*>(buffer)[kStackPointer];
  asm("ror $17, %0\n\txor %%fs:0x30, %0" : "+r"(mangled) : : "cc");
  return mangled;
}

void leave_handlers(const void* buffer) {
  if (t_outermost == 0 || stays_inside(stack_pointer_of(buffer))) return;
  t_outermost = 0;
  g_hooks.end.load(std::memory_order_acquire)(false);
}

}  // namespace

HandlerScope::HandlerScope() {
  auto* const begin = g_hooks.begin.load(std::memory_order_acquire);
  if (begin == nullptr || t_outermost != 0) return;
  outermost_ = true;
  t_outermost = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  begin();
}

HandlerScope::~HandlerScope() {
  if (!outermost_) return;
  t_outermost = 0;
  g_hooks.end.load(std::memory_order_acquire)(returned_);
}

void set_handler_hooks(void (*begin)(), void (*end)(bool)) {
  g_hooks.end.store(end, std::memory_order_release);
  g_hooks.begin.store(begin, std::memory_order_release);
}

bool has_handler_hooks() {
  return g_hooks.begin.load(std::memory_order_acquire) != nullptr;
}

int sigaction_of_program(int signo, const Action* action, Action* old) {
  if (!has_handler_hooks() || signo <= 0 || signo >= NSIG) return real_sigaction_of_library(signo, action, old);
  std::atomic<uint64_t>& handler = g_handlers[static_cast<size_t>(signo)];
  const uint64_t before = handler.load(std::memory_order_acquire);
  Action installed;
  if (action != nullptr) {
    installed = *action;
    if (is_function(*action)) {
      const bool takes_info = (action->sa_flags & SA_SIGINFO) != 0;
      handler.store(reinterpret_cast<uint64_t>(action->sa_sigaction) | (takes_info ? kTakesInfo : 0),
                    std::memory_order_release);
      installed.sa_sigaction = &run_handler;
      installed.sa_flags |= SA_SIGINFO;
    }
  }
  Action previous;
  const int result = real_sigaction_of_library(signo, action != nullptr ? &installed : nullptr, &previous);
  if (result != 0) {
    handler.store(before, std::memory_order_release);
    return result;
  }
  if (old == nullptr) return 0;
  *old = previous;
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction == &run_handler) {
    old->sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(before & ~kTakesInfo);
    if ((before & kTakesInfo) == 0) old->sa_flags &= ~SA_SIGINFO;
  }
  return 0;
}

// These are the C library's functions that jump. They get the caller's own buffer.
#define MG_JUMP(name)                               \
  MG_WRAPPER(void, name, void* buffer, int value) { \
    leave_handlers(buffer);                         \
    MG_REAL(name)(buffer, value);                   \
    __builtin_unreachable();                        \
  }
MG_JUMP(longjmp)
MG_JUMP(_longjmp)
MG_JUMP(siglongjmp)
MG_JUMP(__longjmp_chk)

}  // namespace multigrain
