// Many calls from the same places, by many threads at once, while signals come all the time: nothing of a thread's
// registers, stack or results may differ from what the system alone makes of it. Prints what it finds, the same each
// time.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <errno.h>
#include <fcntl.h>
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
#include <unistd.h>

enum { kThreads = 4, kRounds = 3000 };

// A probe loads these before its call, and finds them afterwards.
struct registers {
  uint64_t rax, rbx, rbp, rdx, rsi, rdi, r8, r9, r10, r12, r13, r14, r15, flags;
  uint64_t red_zone[16];
  uint64_t vectors[16][2];
  uint64_t x87;
  uint32_t control, unused;
};

void probe_getpid(const struct registers* before, struct registers* after);
void probe_mask(const struct registers* before, struct registers* after);
void probe_read(const struct registers* before, struct registers* after);
extern const unsigned char probes[], probes_end[];
long raw_getuid(void);

// Each probe is a place of its own. r11 and rcx are what a system call changes.
#define PROBE(name, instruction)                                                                             \
  ".globl " name "\n" name                                                                                   \
  ":\n"                                                                                                      \
  "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rsi; sub $8, %rsp\n"              \
  "mov %rdi, %r11; stmxcsr (%rsp); pushq 104(%r11); popfq\n"                                                 \
  "ldmxcsr 504(%r11); fninit; fildll 496(%r11)\n"                                                            \
  ".set i, 0; .rept 16; mov 112+8*i(%r11), %rax; mov %rax, -128+8*i(%rsp); .set i, i+1; .endr\n"             \
  "movdqu 240(%r11), %xmm0; movdqu 256(%r11), %xmm1; movdqu 272(%r11), %xmm2; movdqu 288(%r11), %xmm3\n"     \
  "movdqu 304(%r11), %xmm4; movdqu 320(%r11), %xmm5; movdqu 336(%r11), %xmm6; movdqu 352(%r11), %xmm7\n"     \
  "movdqu 368(%r11), %xmm8; movdqu 384(%r11), %xmm9; movdqu 400(%r11), %xmm10; movdqu 416(%r11), %xmm11\n"   \
  "movdqu 432(%r11), %xmm12; movdqu 448(%r11), %xmm13; movdqu 464(%r11), %xmm14; movdqu 480(%r11), %xmm15\n" \
  "mov 8(%r11), %rbx; mov 16(%r11), %rbp; mov 24(%r11), %rdx; mov 32(%r11), %rsi; mov 40(%r11), %rdi\n"      \
  "mov 48(%r11), %r8; mov 56(%r11), %r9; mov 64(%r11), %r10; mov 72(%r11), %r12; mov 80(%r11), %r13\n"       \
  "mov 88(%r11), %r14; mov 96(%r11), %r15\n" instruction                                                     \
  "\nsyscall\n"                                                                                              \
  "mov 8(%rsp), %rcx; mov %rax, (%rcx); mov %rbx, 8(%rcx); mov %rbp, 16(%rcx); mov %rdx, 24(%rcx)\n"         \
  "mov %rsi, 32(%rcx); mov %rdi, 40(%rcx); mov %r8, 48(%rcx); mov %r9, 56(%rcx); mov %r10, 64(%rcx)\n"       \
  "mov %r12, 72(%rcx); mov %r13, 80(%rcx); mov %r14, 88(%rcx); mov %r15, 96(%rcx)\n"                         \
  ".set i, 0; .rept 16; mov -128+8*i(%rsp), %rax; mov %rax, 112+8*i(%rcx); .set i, i+1; .endr\n"             \
  "pushfq; popq 104(%rcx); cld\n"                                                                            \
  "movdqu %xmm0, 240(%rcx); movdqu %xmm1, 256(%rcx); movdqu %xmm2, 272(%rcx); movdqu %xmm3, 288(%rcx)\n"     \
  "movdqu %xmm4, 304(%rcx); movdqu %xmm5, 320(%rcx); movdqu %xmm6, 336(%rcx); movdqu %xmm7, 352(%rcx)\n"     \
  "movdqu %xmm8, 368(%rcx); movdqu %xmm9, 384(%rcx); movdqu %xmm10, 400(%rcx); movdqu %xmm11, 416(%rcx)\n"   \
  "movdqu %xmm12, 432(%rcx); movdqu %xmm13, 448(%rcx); movdqu %xmm14, 464(%rcx); movdqu %xmm15, 480(%rcx)\n" \
  "fistpll 496(%rcx); stmxcsr 504(%rcx); ldmxcsr (%rsp)\n"                                                   \
  "add $16, %rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n"

__asm__(".text\n.p2align 12\n.globl probes\nprobes:\n"
        PROBE("probe_getpid", "mov $39, %eax")
        PROBE("probe_mask", "mov $14, %eax")
        ".globl raw_getuid\nraw_getuid: mov $102, %eax; syscall; cmp $-4096, %rax; ja 1f; ret\n"
        "nopw %cs:0(%rax,%rax,1)\n1: ret\n"
        PROBE("probe_read", "xor %eax, %eax")
        ".globl probes_end\nprobes_end:\n.p2align 12\n.byte 0xcc\n");

static volatile int g_stop, g_end;
static int g_done;  // by atomic operations, like the next
static int g_wrong;
static volatile int g_ticks;

static void wrong(const char* what) {
  if (__atomic_fetch_add(&g_wrong, 1, __ATOMIC_RELAXED) < 10) fprintf(stderr, "wrong: %s\n", what);
}

static void on_tick(int signal) {
  (void)signal;
  const int saved = errno;
  // Calls of the places that may just have been interrupted, and other values in vector registers.
  volatile double x = g_ticks;
  for (int i = 0; i < 5; i++) x = x * 1.25 + 1;
  struct registers none, after;
  memset(&none, 0, sizeof none);
  none.rdi = ~0ull, none.flags = 0x202, none.control = 0x1f80;
  probe_read(&none, &after);
  if (after.rax != (uint64_t)-EBADF) wrong("a read in a handler");
  getppid();
  g_ticks++;
  errno = saved;
}

static void set(int signal, void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, NULL);
}

static void tick_every(int us) {
  const struct itimerval timer = {{0, us}, {0, us}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void check(void (*probe)(const struct registers*, struct registers*), uint64_t seed) {
  struct registers before, after;
  uint64_t* const words = (uint64_t*)&before;
  for (size_t i = 0; i < sizeof before / 8; i++) words[i] = (seed + i) * 0x9e3779b97f4a7c15u >> 1;
  // All of the arithmetic flags, and of the directions: either.
  before.flags = 0x202 | (seed * 0x5851f42d4c957f2du >> 32 & 0x8d5) | (seed & 1 ? 0x400 : 0);
  before.control = seed & 2 ? 0x1f80 : 0x9fc0;  // flush to zero
  before.x87 &= 0xffffffffffff;
  uint64_t result = (uint64_t)getpid();
  if (probe == probe_mask) {
    before.rdi = SIG_BLOCK, before.rsi = 0, before.rdx = 0, before.r10 = 8;
    result = 0;
  } else if (probe == probe_read) {
    before.rdi = ~0ull;
    result = (uint64_t)-EBADF;
  }
  probe(&before, &after);
  if (after.rax != result) wrong("a result");
  // These are the flags as the instruction in the place of `mov` sets them.
  if (probe == probe_read) before.flags = (before.flags & ~0x891ull) | 0x44, after.flags &= ~0x10ull;
  before.rax = after.rax;
  before.unused = after.unused;
  if (memcmp(&before, &after, sizeof before) != 0) {
    wrong("a register");
    for (size_t i = 0; i < sizeof before / 8; i++)
      if (words[i] != ((uint64_t*)&after)[i])
        fprintf(stderr, "word %zu: %llx is %llx\n", i, (long long)words[i], (long long)((uint64_t*)&after)[i]);
  }
}

static void* run_probes(void* argument) {
  const uint64_t seed = (uintptr_t)argument;
  for (uint64_t i = 0; i < kRounds; i++) {
    check(probe_getpid, seed + i);
    check(probe_mask, seed + i * 3);
    check(probe_read, seed + i * 7);
    errno = 77;
    if (raw_getuid() != getuid() || errno != 77) wrong("getuid");
  }
  // Signals are sent to it until it is told to end.
  __atomic_fetch_add(&g_done, 1, __ATOMIC_SEQ_CST);
  while (!g_end) usleep(500);
  return NULL;
}

// The page of the probes can be written and cannot, while threads are there: what is there is what was there.
static void* toggle_rights(void* argument) {
  const unsigned char* const original = argument;
  const size_t bytes = (size_t)(probes_end - probes);
  while (!g_stop) {
    if (mprotect((void*)probes, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) wrong("mprotect");
    if (memcmp(probes, original, bytes) != 0) {
      // Only the space between two functions may be other than it was.
      for (size_t i = 0; i < bytes; i++)
        if (probes[i] != original[i] &&
            !(probes + i > (const unsigned char*)raw_getuid && probes + i < (const unsigned char*)probe_read))
          wrong("code that can be written");
    }
    if (mprotect((void*)probes, 4096, PROT_READ | PROT_EXEC) != 0) wrong("mprotect");
    usleep(300);
  }
  return NULL;
}

static void* send_signals(void* argument) {
  const pthread_t* const threads = argument;
  for (unsigned i = 0; !g_stop; i++) {
    pthread_kill(threads[i % kThreads], SIGUSR1);
    usleep(50);
  }
  return NULL;
}

static void test_registers(int toggles) {
  static unsigned char original[4096];
  if (original[0] == 0) memcpy(original, probes, sizeof original);
  pthread_t threads[kThreads], sender, toggler;
  g_stop = g_end = g_done = 0;
  set(SIGALRM, on_tick, SA_RESTART);
  set(SIGUSR1, on_tick, SA_RESTART);
  tick_every(300);
  for (uintptr_t i = 0; i < kThreads; i++) pthread_create(&threads[i], NULL, run_probes, (void*)(i * 1000003));
  pthread_create(&sender, NULL, send_signals, threads);
  if (toggles) pthread_create(&toggler, NULL, toggle_rights, original);
  while (__atomic_load_n(&g_done, __ATOMIC_SEQ_CST) < kThreads) usleep(1000);
  g_stop = 1;
  pthread_join(sender, NULL);
  g_end = 1;
  for (int i = 0; i < kThreads; i++) pthread_join(threads[i], NULL);
  if (toggles) pthread_join(toggler, NULL);
  tick_every(0);
  printf("registers%s: wrong %d\n", toggles ? " while the code's rights change" : "", g_wrong);
}

static int g_pipe[2];

static void* write_bytes(void* argument) {
  (void)argument;
  for (int i = 0; i < 20000; i++) {
    const unsigned char byte = (unsigned char)i;
    while (write(g_pipe[1], &byte, 1) != 1)
      if (errno != EINTR) wrong("write");
  }
  return NULL;
}

// Reads that block and that do not, interrupted and restarted: no byte is lost or read twice.
static void test_pipe(int flags) {
  if (pipe(g_pipe) != 0) return;
  set(SIGALRM, on_tick, flags);
  tick_every(200);
  pthread_t writer;
  pthread_create(&writer, NULL, write_bytes, NULL);
  int interrupted = 0;
  for (int i = 0; i < 20000;) {
    unsigned char byte = 0;
    const ssize_t count = read(g_pipe[0], &byte, 1);
    if (count == 1) {
      if (byte != (unsigned char)i) wrong("a byte");
      i++;
    } else if (count == -1 && errno == EINTR) {
      interrupted++;
    } else {
      wrong("read");
    }
  }
  tick_every(0);
  pthread_join(writer, NULL);
  close(g_pipe[0]);
  close(g_pipe[1]);
  printf("pipe: wrong %d, interrupted %d\n", g_wrong, flags == SA_RESTART ? interrupted : 0);
}

// A signal comes when it is no longer blocked, and not before.
static volatile int g_came;
static void on_usr2(int signal) {
  (void)signal;
  g_came++;
}
static void test_masks(void) {
  set(SIGUSR2, on_usr2, 0);
  set(SIGALRM, on_tick, SA_RESTART);
  tick_every(150);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  for (int i = 0; i < 5000; i++) {
    g_came = 0;
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), SIGUSR2);
    if (g_came != 0) wrong("a signal that is blocked");
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    if (g_came != 1) wrong("a signal that is not blocked");
    raise(SIGUSR2);
    if (g_came != 2) wrong("raise");
  }
  tick_every(0);
  printf("masks: wrong %d\n", g_wrong);
}

static sigjmp_buf g_jump;
static void on_jump(int signal) {
  (void)signal;
  siglongjmp(g_jump, 1);
}
static void test_jumps(void) {
  volatile int jumps = 0;
  set(SIGALRM, on_jump, 0);
  while (jumps < 300) {
    if (sigsetjmp(g_jump, 1) == 0) {
      const struct itimerval once = {{0, 0}, {0, 150}};
      setitimer(ITIMER_REAL, &once, NULL);
      while (1) {
        getppid();
        sigset_t now;
        sigprocmask(SIG_BLOCK, NULL, &now);
      }
    }
    jumps++;
  }
  set(SIGALRM, SIG_IGN, 0);
  printf("jumps out of calls: %d\n", jumps);
}

static void* wait_for_cancel(void* argument) {
  if (argument != NULL) pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  char byte;
  while (1) {
    for (int i = 0; i < 100; i++) getppid();
    if (argument == NULL) {
      read(g_pipe[0], &byte, 1);
      write(g_pipe[1], "x", 1);
    }
  }
}
static void test_cancel(void) {
  if (pipe(g_pipe) != 0) return;
  if (write(g_pipe[1], "x", 1) != 1) wrong("write");
  int cancelled = 0;
  for (uintptr_t i = 0; i < 200; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_cancel, (void*)(i % 2));
    usleep((unsigned)(i % 5) * 50);
    pthread_cancel(thread);
    void* result;
    pthread_join(thread, &result);
    cancelled += result == PTHREAD_CANCELED;
  }
  printf("cancelled: %d\n", cancelled);
}

static void test_processes(void) {
  set(SIGALRM, on_tick, SA_RESTART);
  tick_every(400);
  int right = 0;
  for (int i = 0; i < 30; i++) {
    const pid_t child = fork();
    if (child == 0) {
      g_wrong = 0;
      for (uint64_t k = 0; k < 50; k++) {
        check(probe_getpid, k);
        check(probe_read, k);
      }
      _exit(g_wrong == 0 && getppid() != 1 ? 7 : 1);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    right += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    const pid_t second = vfork();
    if (second == 0) {
      for (int k = 0; k < 20; k++) raw_getuid();
      _exit(9);
    }
    while (waitpid(second, &status, 0) < 0 && errno == EINTR) continue;
    right += WIFEXITED(status) && WEXITSTATUS(status) == 9;
  }
  tick_every(0);
  printf("processes: %d\n", right);
}

static long call_often(const void* code) {
  long result = 0;
  for (int i = 0; i < 50; i++) result = ((long (*)(void))code)();
  return result;
}

// mov $number,%eax; syscall; ret
static void write_code(unsigned char* at, int number) {
  const unsigned char code[] = {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xb8, (unsigned char)number,
                                0,    0,    0,    0x0f, 0x05, 0xc3};
  memcpy(at, code, sizeof code);
}

// Code that the program writes itself, moves, and replaces.
static void test_own_code(void) {
  unsigned char* const page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  write_code(page, SYS_getpid);
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  printf("own code: %d", call_often(page) == getpid());
  mprotect(page, 4096, PROT_READ | PROT_WRITE);
  printf(" %d", page[6] == 0xb8 && page[7] == SYS_getpid);
  page[7] = SYS_getppid;
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  printf(" %d", call_often(page) == getppid());
  unsigned char* const moved = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, page + 4096);
  printf(" %d", moved == page + 4096 && call_often(moved) == getppid());
  mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  write_code(page, SYS_getuid);
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  printf(" %d", call_often(page) == getuid());
  munmap(page, 8192);
  // An address that is gone is no place any more.
  unsigned char* const again = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  write_code(again, SYS_gettid);
  mprotect(again, 4096, PROT_READ | PROT_EXEC);
  printf(" %d\n", call_often(again) == syscall(SYS_gettid));
}

// A page that is forgotten is the file's again.
static void test_forgotten_code(void) {
  madvise((void*)probes, 4096, MADV_DONTNEED);
  for (uint64_t i = 0; i < 100; i++) check(probe_getpid, i);
  printf("after MADV_DONTNEED: wrong %d\n", g_wrong);
}

static uint64_t g_through_gs[4] = {11, 22, 33, 44};
static void* use_gs(void* argument) {
  (void)argument;
  uint64_t found = 0, base = 0;
  __asm__ volatile("movq %%gs:8, %0" : "=r"(found));
  for (uint64_t i = 0; i < 200; i++) check(probe_getpid, i);
  syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
  return (void*)(uintptr_t)(found == 22 && base == (uintptr_t)g_through_gs);
}

// A program may have a use for gs of its own.
static void test_gs(void) {
  uint64_t base = 1, found = 0;
  syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
  printf("gs: %d", base == 0);
  syscall(SYS_arch_prctl, ARCH_SET_GS, g_through_gs);
  for (uint64_t i = 0; i < 200; i++) {
    check(probe_getpid, i);
    check(probe_read, i);
  }
  __asm__ volatile("movq %%gs:16, %0" : "=r"(found));
  syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
  pthread_t thread;
  void* right = NULL;
  pthread_create(&thread, NULL, use_gs, NULL);
  pthread_join(thread, &right);
  printf(" %d %d %d", found == 33, base == (uintptr_t)g_through_gs, (int)(uintptr_t)right);
  // A pointer to nothing: what reads through it must not be taken for the program's fault.
  syscall(SYS_arch_prctl, ARCH_SET_GS, 4096ul);
  for (uint64_t i = 0; i < 200; i++) check(probe_mask, i);
  syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
  for (uint64_t i = 0; i < 200; i++) check(probe_getpid, i);
  syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
  printf(" %d, wrong %d\n", base == 0, g_wrong);
}

// With an argument: without what a guest on several nodes cannot do.
int main(int count, char** words) {
  (void)words;
  setvbuf(stdout, NULL, _IONBF, 0);
  test_registers(0);
  test_registers(1);
  test_pipe(SA_RESTART);
  test_pipe(0);
  test_masks();
  test_jumps();
  test_cancel();
  test_processes();
  test_own_code();
  if (count == 1) test_forgotten_code();
  if (count == 1) test_gs();
  return g_wrong == 0 ? 5 : 1;
}
