// These are faults of threads: what a handler is told, and how a process dies of faults that it does not handle.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread sigjmp_buf back;
static __thread siginfo_t seen;
static char* page;  // what of it may be used changes
static char* gone;  // where nothing is mapped

static void on_fault(int number, siginfo_t* info, void* context) {
  seen = *info;
  siglongjmp(back, number);
}

static void report(const char* what, int number) {
  const char* place = seen.si_addr == page   ? "the page"
                      : seen.si_addr == gone ? "nothing"
                      : seen.si_addr == NULL ? "null"
                      : number == SIGFPE     ? "code"
                                             : "elsewhere";
  printf("%s: signal %d, code %d, at %s\n", what, number, seen.si_code, number ? place : "no place");
}

#define TRY(what, action)                  \
  do {                                     \
    memset(&seen, 0, sizeof seen);         \
    const int number = sigsetjmp(back, 1); \
    if (number == 0) {                     \
      action;                              \
      report(what, 0);                     \
    } else {                               \
      report(what, number);                \
    }                                      \
  } while (0)

static volatile int zero;
static void overflow(volatile char* before) {
  volatile char here[4096];
  here[0] = before != NULL ? before[0] : 1;
  overflow(here);
  here[1] = 1;
}

static void* faults(void* argument) {
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  gone = mmap(NULL, 4096 * 3, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, 4096 * 3);
  gone += 4096;
  TRY("write", *(volatile char*)page = 3);
  mprotect(page, 4096, PROT_READ);
  TRY("write to what can be read", *(volatile char*)page = 4);
  TRY("read", (void)*(volatile char*)page);
  mprotect(page, 4096, PROT_NONE);
  TRY("read of a guard", (void)*(volatile char*)page);
  TRY("execute", ((void (*)(void))page)());
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  TRY("execute what can be written", ((void (*)(void))page)());
  printf("kept %d\n", *page);
  TRY("read of nothing", (void)*(volatile char*)gone);
  TRY("write to nothing", *(volatile char*)gone = 1);
  TRY("read of null", (void)*(volatile char*)NULL);
  TRY("read beyond all addresses", (void)*(volatile char*)0x8000000000000000);
  TRY("division", zero = 100 / zero);
  TRY("an instruction that there is not", __asm__ volatile("ud2"));
  TRY("a breakpoint", __asm__ volatile("int3"));
  // What the system says of it depends on what lies below the stack.
  const int overflowed = sigsetjmp(back, 1);
  if (overflowed == 0) overflow(NULL);
  printf("overflow of the stack: signal %d\n", overflowed);
  FILE* file = tmpfile();
  char* mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  TRY("beyond the end of a file", mapped[4096] = 1);
  // The system, not the program, meets these addresses.
  printf("write: %zd", write(1, gone, 1));
  printf(" %s\n", strerror(errno));
  munmap(page, 4096);
  return argument;
}

static void die(const char* how) {
  const int last = how[strlen(how) - 1];
  const int number = !strncmp(how, "segv", 4)  ? SIGSEGV
                     : !strncmp(how, "fpe", 3) ? SIGFPE
                     : !strncmp(how, "ill", 3) ? SIGILL
                                               : SIGTRAP;
  if (last == 'i') signal(number, SIG_IGN);
  if (last == 'b') {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(number, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
  }
  if (number == SIGSEGV) *(volatile char*)8 = 1;
  if (number == SIGFPE) zero = 100 / zero;
  if (number == SIGILL) __asm__ volatile("ud2");
  if (number == SIGTRAP) __asm__ volatile("int3");
}

static void* dies(void* how) {
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "overflow")) overflow(NULL);
  if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
  if (!strcmp(how, "term")) pthread_kill(pthread_self(), SIGTERM);
  if (!strcmp(how, "rt")) raise(SIGRTMIN + 3);
  if (!strcmp(how, "exit")) exit(23);
  if (!strcmp(how, "_exit")) _exit(24);
  if (!strcmp(how, "cancel")) pthread_cancel(pthread_self()), pause();
  if (!strcmp(how, "badstack")) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    __asm__ volatile(
        "mov $39, %%eax; mov $8192, %%rsp; syscall; mov %%eax, %%edi; mov $10, %%esi; mov $62, %%eax; syscall; mov $60, %%eax; syscall" ::
            : "memory");
  }
  die(how);
  return NULL;
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (argc > 1) {
    pthread_t a;
    pthread_create(&a, NULL, dies, argv[1]);
    pthread_join(a, NULL);
    return 31;
  }
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  const int all[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
  for (int i = 0; i < 5; ++i) sigaction(all[i], &action, NULL);
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, faults, NULL);
    pthread_join(thread, NULL);
  }
  faults(NULL);
  return 12;
}
