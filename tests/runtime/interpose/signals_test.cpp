#include "runtime/interpose/signals.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstdlib>

namespace multigrain {
namespace {

// The test's runtime has one page, to which it grants access at the first touch. Every other fault is the program's.
char* g_page = nullptr;
std::atomic<int> g_runtime_faults{0};
std::atomic<int> g_program_faults{0};
sigjmp_buf g_after_fault;

void revoke() {
  ASSERT_EQ(::mprotect(g_page, 4096, PROT_NONE), 0);
}

void runtime_handler(int signo, siginfo_t* info, void* context) {
  auto* address = static_cast<char*>(info->si_addr);
  if (address >= g_page && address < g_page + 4096) {
    ++g_runtime_faults;
    ::mprotect(g_page, 4096, PROT_READ | PROT_WRITE);
    return;
  }
  if (forward_to_user_handler(signo, info, context)) return;
  struct sigaction fate{};
  fate.sa_handler = SIG_DFL;
  real_sigaction(signo, &fate, nullptr);
}

void program_handler(int) {
  ++g_program_faults;
  g_page[0] = 1;  // a handler of the program may touch shared memory
  siglongjmp(g_after_fault, 1);
}

class Signals : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    g_page = static_cast<char*>(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction action{};
    action.sa_sigaction = runtime_handler;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    for (const int signo : {SIGSEGV, SIGBUS}) ASSERT_EQ(real_sigaction(signo, &action, nullptr), 0);
  }
  void SetUp() override {
    g_runtime_faults = 0;
    g_program_faults = 0;
    revoke();
  }
  void TearDown() override {
    ::signal(SIGSEGV, SIG_DFL);
    ::signal(SIGBUS, SIG_DFL);
  }
};

// This load faults, because nothing is mapped there.
void wild_load() {
  volatile uintptr_t nowhere = 64;  // volatile: compilers know that nothing is at address 64
  static_cast<void>(*reinterpret_cast<volatile char*>(nowhere));
}

TEST_F(Signals, TheProgramsHandlerIsRememberedAndTheRuntimesStays) {
  EXPECT_EQ(::signal(SIGSEGV, program_handler), SIG_DFL);
  struct sigaction seen{};
  ASSERT_EQ(::sigaction(SIGSEGV, nullptr, &seen), 0);
  EXPECT_EQ(seen.sa_handler, program_handler);
  EXPECT_EQ(seen.sa_flags & SA_RESTART, SA_RESTART);

  g_page[7] = 1;
  EXPECT_EQ(g_runtime_faults, 1);
  EXPECT_EQ(g_program_faults, 0);

  revoke();
  if (sigsetjmp(g_after_fault, 1) == 0) wild_load();
  EXPECT_EQ(g_program_faults, 1);
  EXPECT_EQ(g_runtime_faults, 2) << "the program's handler touched the page";
  EXPECT_EQ(::signal(SIGSEGV, SIG_IGN), program_handler);
}

TEST_F(Signals, OneShotHandlersAreForgotten) {
  struct sigaction action{};
  action.sa_handler = program_handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ASSERT_EQ(::sigaction(SIGSEGV, &action, nullptr), 0);
  if (sigsetjmp(g_after_fault, 1) == 0) wild_load();
  struct sigaction seen{};
  ASSERT_EQ(::sigaction(SIGSEGV, nullptr, &seen), 0);
  EXPECT_EQ(seen.sa_handler, SIG_DFL);
}

TEST_F(Signals, TheHandlersMaskIsAsTheProgramAsked) {
  static sigset_t during;
  static siginfo_t received;
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    received = *info;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &during);
    siglongjmp(g_after_fault, 1);
  };
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaddset(&action.sa_mask, SIGBUS);
  ASSERT_EQ(::sigaction(SIGSEGV, &action, nullptr), 0);
  if (sigsetjmp(g_after_fault, 1) == 0) wild_load();
  EXPECT_EQ(received.si_addr, reinterpret_cast<void*>(uintptr_t{64}));
  EXPECT_EQ(sigismember(&during, SIGUSR1), 1);
  EXPECT_EQ(sigismember(&during, SIGUSR2), 0) << "the runtime's own mask must not reach the program's handler";
  EXPECT_EQ(sigismember(&during, SIGSEGV), 0);
  EXPECT_EQ(sigismember(&during, SIGBUS), 0);
}

TEST_F(Signals, FaultsWorkWhereTheProgramBlocksAllSignals) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &all, &before), 0);
  g_page[0] = 1;
  revoke();
  ASSERT_EQ(::sigprocmask(SIG_SETMASK, &all, nullptr), 0);
  g_page[0] = 1;
  sigset_t now;
  ASSERT_EQ(::sigprocmask(SIG_SETMASK, &before, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
  EXPECT_EQ(g_runtime_faults, 2);

  // The same holds inside a handler of another signal that blocks all.
  struct sigaction action{};
  action.sa_handler = [](int) { g_page[0] = 2; };
  action.sa_mask = all;
  revoke();
  ASSERT_EQ(::sigaction(SIGUSR1, &action, nullptr), 0);
  ::raise(SIGUSR1);
  EXPECT_EQ(g_runtime_faults, 3);
  EXPECT_EQ(g_page[0], 2);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_F(Signals, WithoutAHandlerTheProcessDiesOfTheFault) {
  EXPECT_EXIT(wild_load(), ::testing::KilledBySignal(SIGSEGV), "");
  // Ignoring a fault does not stop it, but ignores a signal that was sent.
  ::signal(SIGSEGV, SIG_IGN);
  EXPECT_EXIT(wild_load(), ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(
      {
        ::kill(::getpid(), SIGSEGV);
        ::_exit(17);
      },
      ::testing::ExitedWithCode(17), "");
}

}  // namespace
}  // namespace multigrain
