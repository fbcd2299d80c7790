#include "runtime/interpose/thread_sync.h"

#include <atomic>

#include "runtime/interpose/program_site.h"
#include "runtime/interpose/real.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/private/private_heap.h"

namespace multigrain {
namespace {

using Refuse = void(const char* function, const void* object, const char* instead);
constinit std::atomic<Refuse*> g_refuse{nullptr};
constinit std::atomic<const ThreadSync*> g_served{nullptr};

}  // namespace

constinit thread_local const void* t_program_site = nullptr;

void refuse_thread_sync(Refuse* refuse) {
  g_refuse.store(refuse, std::memory_order_release);
}

void serve_thread_sync(const ThreadSync* functions) {
  g_served.store(functions, std::memory_order_release);
}

#if !defined(MULTIGRAIN_NO_MALLOC)  // a sanitizer stands in front of these itself

namespace {

// A spin lock's and a once flag's type may be volatile.
bool is_shared(const volatile void* object) {
  return in_shared_region(const_cast<const void*>(object));
}

void refuse(const char* function, const volatile void* object, const char* instead) {
  if (*instead == '\0') return;
  if (Refuse* const refuse = g_refuse.load(std::memory_order_acquire))
    refuse(function, const_cast<const void*>(object), instead);
}

}  // namespace

#define MG_SYNC(result, name, parameters, arguments, instead)                          \
  MG_SYNC_WRAPPER(result, name, MG_WITHOUT_PARENTHESES parameters) {                   \
    if (is_shared(object)) [[unlikely]] {                                              \
      if (const ThreadSync* const served = g_served.load(std::memory_order_acquire)) { \
        const ProgramSite site(__builtin_return_address(0));                           \
        return served->name arguments;                                                 \
      }                                                                                \
      refuse(#name, object, instead);                                                  \
    }                                                                                  \
    return MG_REAL(name) arguments;                                                    \
  }
#define MG_WITHOUT_PARENTHESES(...) __VA_ARGS__
#define MG_SYNC_WRAPPER(result, name, ...) MG_WRAPPER(result, name, __VA_ARGS__)
#include "runtime/interpose/thread_sync.def"
#undef MG_SYNC

#endif

}  // namespace multigrain
