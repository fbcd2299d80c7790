// Signals as a program sees them: handlers, masks, interrupted calls, stacks, faults. Prints what it finds, the same
// each time; run by itself and hosted, it must print the same.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t g_count, g_last, g_value, g_depth, g_on_stack;
static sigjmp_buf g_jump;
static void* volatile g_address;
static char g_stack[64 * 1024];

static void on_signal(int signal, siginfo_t* info, void* context) {
  (void)context;
  const int saved = errno;
  g_count++;
  g_last = signal;
  g_value = info->si_value.sival_int;
  errno = saved;
}

static void set(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  if (sigaction(signal, &action, NULL) != 0) perror("sigaction");
}

static void alarm_in(int ms) {
  struct itimerval timer = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void test_delivery(void) {
  set(SIGUSR1, on_signal, 0);
  raise(SIGUSR1);
  printf("raise: %d of signal %d\n", g_count, g_last);
  kill(getpid(), SIGUSR1);
  printf("kill: %d\n", g_count);
  sigset_t set_of_one, before, pending;
  sigemptyset(&set_of_one);
  sigaddset(&set_of_one, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set_of_one, &before);
  raise(SIGUSR1);
  raise(SIGUSR1);
  sigpending(&pending);
  printf("blocked: %d, pending %d\n", g_count, sigismember(&pending, SIGUSR1));
  sigprocmask(SIG_SETMASK, &before, NULL);
  printf("unblocked: %d\n", g_count);
}

static volatile int g_released[65];
static void on_release(int signal) {
  g_released[signal]++;
}

// Blocked signals stay with the process, and each comes when it alone is released. Those that the processor's faults
// have are signals like others if a process sends them.
static void test_releases(void) {
  static const int kSignals[] = {SIGHUP, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV, SIGTERM, SIGSYS};
  enum { kCount = sizeof kSignals / sizeof *kSignals };
  for (int i = 0; i < kCount; i++) {
    signal(kSignals[i], on_release);
    sighold(kSignals[i]);
  }
  printf("releases:");
  for (int round = 0; round < 8; round++) {
    for (int i = 0; i < kCount; i++) kill(getpid(), kSignals[i]);
    for (int i = 0; i < kCount; i++) {
      sigrelse(kSignals[i]);
      for (int j = 0; j < kCount; j++)
        if (g_released[kSignals[j]] != round + (j <= i)) printf(" %d wrong at %d", kSignals[j], kSignals[i]);
    }
    for (int i = 0; i < kCount; i++) sighold(kSignals[i]);
  }
  // The first signal comes, and with it others, of which none is lost.
  sigset_t none;
  sigemptyset(&none);
  for (int i = 0; i < kCount; i++) kill(getpid(), kSignals[i]);
  sigprocmask(SIG_SETMASK, &none, NULL);
  for (int i = 0; i < kCount; i++) {
    printf(" %d", g_released[kSignals[i]]);
    signal(kSignals[i], SIG_DFL);
  }
  printf("\n");
}

static void test_queue(void) {
  g_count = 0;
  set(SIGRTMIN + 3, on_signal, 0);
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGRTMIN + 3);
  sigprocmask(SIG_BLOCK, &one, &before);
  for (int i = 1; i <= 5; i++) sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i * 11});
  siginfo_t info;
  sigwaitinfo(&one, &info);
  printf("sigwaitinfo: %d\n", info.si_value.sival_int);
  sigprocmask(SIG_SETMASK, &before, NULL);
  printf("queued: %d, the last value %d\n", g_count, g_value);
  const struct timespec soon = {0, 1000000};
  sigprocmask(SIG_BLOCK, &one, &before);
  const int waited = sigtimedwait(&one, &info, &soon);
  printf("sigtimedwait: %d %d\n", waited, errno == EAGAIN);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

static void test_interrupted_calls(void) {
  int ends[2];
  char byte;
  if (pipe(ends) != 0) return;
  set(SIGALRM, on_signal, 0);
  alarm_in(20);
  errno = 0;
  printf("read without SA_RESTART: %zd", read(ends[0], &byte, 1));
  printf(" %s\n", strerror(errno));
  // With SA_RESTART the read goes on until something comes: from a child, later than the signal.
  set(SIGALRM, on_signal, SA_RESTART);
  g_count = 0;
  alarm_in(20);
  const pid_t child = fork();
  if (child == 0) {
    usleep(150000);
    _exit(write(ends[1], "x", 1) != 1);
  }
  errno = 0;
  const ssize_t count = read(ends[0], &byte, 1);
  printf("read with SA_RESTART: %zd, signals %d\n", count, g_count);
  waitpid(child, NULL, 0);
  set(SIGALRM, on_signal, SA_RESTART);
  alarm_in(20);
  struct timespec left, wanted = {5, 0};
  errno = 0;
  printf("nanosleep: %d", nanosleep(&wanted, &left));
  printf(" %s, left %d\n", strerror(errno), left.tv_sec == 4);
  sigset_t none, alarm_only, before;
  sigemptyset(&none);
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  sigprocmask(SIG_BLOCK, &alarm_only, &before);
  alarm_in(20);
  g_count = 0;
  errno = 0;
  printf("sigsuspend: %d", sigsuspend(&none));
  sigset_t now;
  sigprocmask(SIG_SETMASK, NULL, &now);
  printf(" %s, signals %d, blocked again %d\n", strerror(errno), g_count, sigismember(&now, SIGALRM));
  sigprocmask(SIG_SETMASK, &before, NULL);
  alarm_in(20);
  errno = 0;
  printf("pause: %d", pause());
  printf(" %s\n", strerror(errno));
}

// Raises itself and SIGUSR2 while it runs: itself is blocked, and so is SIGUSR2 if the action's mask says so.
static void on_nesting(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  (void)context;
  if (g_depth++ > 0) return;
  raise(SIGUSR1);
  const int itself = g_depth - 1;
  raise(SIGUSR2);
  printf("in a handler: itself %d, another one %d\n", itself, g_depth - 1 - itself);
}

static void test_masks_of_handlers(void) {
  for (int blocks_other = 0; blocks_other < 2; blocks_other++) {
    for (int flags = SA_SIGINFO; flags != 0; flags = flags == SA_SIGINFO ? SA_SIGINFO | SA_NODEFER : 0) {
      struct sigaction action;
      memset(&action, 0, sizeof action);
      action.sa_sigaction = on_nesting;
      action.sa_flags = flags;
      if (blocks_other) sigaddset(&action.sa_mask, SIGUSR2);
      set(SIGUSR2, on_nesting, 0);
      sigaction(SIGUSR1, &action, NULL);
      g_depth = 0;
      raise(SIGUSR1);
      printf("afterwards: %d\n", g_depth);
    }
  }
  set(SIGUSR1, on_signal, SA_RESETHAND);
  g_count = 0;
  raise(SIGUSR1);
  struct sigaction now;
  sigaction(SIGUSR1, NULL, &now);
  printf("SA_RESETHAND: %d, default again %d\n", g_count, now.sa_handler == SIG_DFL);
  set(SIGUSR1, on_signal, 0);
}

// A handler runs under the mask of the call that its signal has ended, and what that blocks stays pending.
static void test_mask_of_sigsuspend(void) {
  set(SIGUSR1, on_signal, 0);
  set(SIGUSR2, on_signal, 0);
  sigset_t both, second, before, pending;
  sigemptyset(&both);
  sigaddset(&both, SIGUSR1);
  sigaddset(&both, SIGUSR2);
  sigemptyset(&second);
  sigaddset(&second, SIGUSR2);
  sigprocmask(SIG_BLOCK, &both, &before);
  raise(SIGUSR2);
  raise(SIGUSR1);
  g_count = 0;
  sigsuspend(&second);
  sigpending(&pending);
  printf("under the mask of sigsuspend: %d of signal %d, pending %d\n", g_count, g_last,
         sigismember(&pending, SIGUSR2));
  sigprocmask(SIG_SETMASK, &before, NULL);
  printf("afterwards: %d of signal %d\n", g_count, g_last);
}

static void on_fault(int signal, siginfo_t* info, void* context) {
  (void)context;
  char here;
  g_last = signal;
  g_address = info->si_addr;
  g_value = info->si_code;
  g_on_stack = &here > g_stack && &here < g_stack + sizeof g_stack;
  siglongjmp(g_jump, 1);
}

static int overflow(int depth) {
  volatile char use[4096];
  use[0] = (char)depth;
  return depth == 1 << 30 ? 0 : overflow(depth + 1) + use[0];
}

static void test_faults(void) {
  const stack_t stack = {.ss_sp = g_stack, .ss_size = sizeof g_stack};
  sigaltstack(&stack, NULL);
  set(SIGSEGV, on_fault, SA_ONSTACK);
  set(SIGBUS, on_fault, SA_ONSTACK);
  set(SIGFPE, on_fault, SA_ONSTACK);
  set(SIGILL, on_fault, SA_ONSTACK);
  char* const page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sigsetjmp(g_jump, 1) == 0) page[10] = 1;
  printf("write of a read-only page: %d code %d, at the address %d, on the stack %d\n", g_last, g_value,
         g_address == page + 10, g_on_stack);
  if (sigsetjmp(g_jump, 1) == 0) *(volatile char*)8 = 1;
  printf("write of nothing: %d code %d\n", g_last, g_value);
  if (sigsetjmp(g_jump, 1) == 0) overflow(0);
  printf("stack overflow: %d, on the stack %d\n", g_last, g_on_stack);
  if (sigsetjmp(g_jump, 1) == 0) __asm__ volatile("ud2");
  printf("ud2: %d\n", g_last);
  volatile int zero = 0;
  if (sigsetjmp(g_jump, 1) == 0) zero = 7 / zero;
  printf("division: %d code %d\n", g_last, g_value);
  stack_t now;
  sigaltstack(NULL, &now);
  printf("sigaltstack: %d %zu\n", now.ss_flags, now.ss_size);
  // A system call with a bad address is an error, not a signal.
  void* volatile bad = (void*)8;
  errno = 0;
  printf("write(bad): %zd", write(1, bad, 1));
  printf(" %s\n", strerror(errno));
  errno = 0;
  printf("rt_sigaction(bad): %ld", syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8));
  printf(" %s\n", strerror(errno));
}

// Interrupted everywhere, in computing and in calls: nothing is lost, and floating-point registers are kept.
static void on_tick(int signal, siginfo_t* info, void* context) {
  (void)signal;
  (void)info;
  (void)context;
  volatile double x = g_count;
  for (int i = 0; i < 10; i++) x = x * 1.5 + 2;
  g_count++;
}

static void test_storm(void) {
  g_count = 0;
  set(SIGALRM, on_tick, SA_RESTART);
  struct itimerval timer = {{0, 200}, {0, 200}};
  int ends[2];
  if (pipe(ends) != 0) return;
  setitimer(ITIMER_REAL, &timer, NULL);
  double sum = 0;
  uint64_t bytes = 0;
  int wrong = 0;
  for (int i = 0; i < 200000; i++) {
    sum += 1.0 / (1 + i % 7);
    if (i % 4 == 0) {
      const int sent = i;
      int got = -1;
      if (write(ends[1], &sent, sizeof sent) != sizeof sent) wrong++;
      if (read(ends[0], &got, sizeof got) != sizeof got || got != sent) wrong++;
      bytes += sizeof got;
    }
  }
  memset(&timer, 0, sizeof timer);
  setitimer(ITIMER_REAL, &timer, NULL);
  double again = 0;
  for (int i = 0; i < 200000; i++) again += 1.0 / (1 + i % 7);
  printf("storm: %llu bytes, wrong %d, sums equal %d, signals came %d\n", (unsigned long long)bytes, wrong,
         sum == again, g_count > 10);
}

static void* waiter(void* argument) {
  sigset_t* set_of_one = argument;
  int got = 0;
  sigwait(set_of_one, &got);
  return (void*)(intptr_t)got;
}

static void test_threads(void) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &one, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, waiter, &one);
  kill(getpid(), SIGUSR2);
  void* got = NULL;
  pthread_join(thread, &got);
  printf("sigwait in a thread: %d\n", (int)(intptr_t)got);
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static int status_of_child(void (*body)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

static void die_of_segv(void) {
  signal(SIGSEGV, SIG_DFL);
  *(volatile char*)16 = 1;
}
static void die_of_blocked_segv(void) {
  set(SIGSEGV, on_fault, 0);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  *(volatile char*)16 = 1;
}
static void die_of_sigsys(void) {
  raise(SIGSYS);
}
static void die_of_term(void) {
  signal(SIGTERM, SIG_DFL);
  raise(SIGTERM);
}
static void ignore(void) {
  signal(SIGTERM, SIG_IGN);
  signal(SIGSEGV, SIG_IGN);
  raise(SIGTERM);
  kill(getpid(), SIGSEGV);
}
static void catch_sigsys(void) {
  set(SIGSYS, on_signal, 0);
  g_count = 0;
  raise(SIGSYS);
  _exit(g_count == 1 ? 42 : 1);
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  test_delivery();
  test_releases();
  test_queue();
  test_interrupted_calls();
  test_masks_of_handlers();
  test_mask_of_sigsuspend();
  test_faults();
  test_storm();
  test_threads();
  printf("deaths: %x", status_of_child(die_of_segv) & 0x7f);
  printf(" %x", status_of_child(die_of_blocked_segv) & 0x7f);
  printf(" %x", status_of_child(die_of_sigsys) & 0x7f);
  printf(" %x", status_of_child(die_of_term) & 0x7f);
  printf(" %x", status_of_child(ignore));
  printf(" %x\n", status_of_child(catch_sigsys));
  return 3;
}
