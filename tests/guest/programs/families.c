// What processes of one family have to do with each other: waiting, groups, sessions, signals, pipes, sockets, and
// files of which both have descriptors. The first argument is a number of rounds; each round is made by the first thread
// and by another one. Prints the same each time, by itself and hosted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int status_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

static volatile sig_atomic_t seen[65];
static void see(int signal) {
  seen[signal]++;
}

static pid_t start(void (*body)(void)) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    body();
    fflush(stdout);
    _exit(0);
  }
  return child;
}

static int told[2];
static pid_t parent;
static void stop_and_end(void) {
  raise(SIGSTOP);
  char byte;
  _exit(read(told[0], &byte, 1) == 1 ? 3 : 1);
}
static void wait_for_ever(void) {
  while (1) pause();
}
static void make_session(void) {
  printf("session: %d", setsid() == getpid());
  printf(" %d %d %d\n", getsid(0) == getpid(), getpgrp() == getpid(), setsid() < 0 ? errno : 0);
}
static void end_with_4(void) {
  _exit(4);
}

static void outlive_parent(void) {
  const pid_t self = getpid();
  if (fork() == 0) {
    while (getppid() == self) usleep(1000);
    if (write(told[1], "o", 1) != 1) _exit(1);
    _exit(6);
  }
  _exit(2);
}

static void waiting(void) {
  int status = 0;
  if (pipe(told) != 0) return;
  pid_t child = start(stop_and_end);
  printf("stopped: %d", waitpid(child, &status, WUNTRACED) == child);
  printf(" %x", status);
  kill(child, SIGCONT);
  printf(", continued %d", waitpid(child, &status, WCONTINUED) == child);
  printf(" %d", WIFCONTINUED(status) != 0);
  siginfo_t info = {0};
  if (write(told[1], "e", 1) != 1) return;
  printf(", seen %d", waitid(P_PID, child, &info, WEXITED | WNOWAIT));
  printf(" %d %d %d, status %x", info.si_code, info.si_status, info.si_pid == child, status_of(child));
  printf(", no child %d %d", waitpid(child, &status, 0), errno);
  printf(", %d %d\n", waitpid(-1, &status, WNOHANG), errno);

  child = start(wait_for_ever);
  setpgid(child, child);
  printf("group: %d %d", getpgid(child) == child, getpgid(0) == getpgrp());
  printf(", none yet %d", waitpid(-child, &status, WNOHANG));
  kill(-child, SIGTERM);
  printf(", %d", waitpid(-child, &status, 0) == child);
  printf(" %x, gone %d %d\n", status, kill(-child, 0), errno);
  status_of(start(make_session));

  struct sigaction action = {.sa_handler = see, .sa_flags = SA_RESTART};
  sigaction(SIGCHLD, &action, NULL);
  seen[SIGCHLD] = 0;
  status = status_of(start(end_with_4));
  // The kernel sends the signal before it lets the parent see the child's end, but any thread may get it.
  for (int i = 0; seen[SIGCHLD] == 0 && i < 10000; ++i) usleep(1000);
  printf("child's signal: %d, status %x", seen[SIGCHLD], status);
  signal(SIGCHLD, SIG_IGN);
  child = start(end_with_4);
  printf(", ignored %d %d\n", waitpid(child, &status, 0), errno);
  signal(SIGCHLD, SIG_DFL);

  prctl(PR_SET_CHILD_SUBREAPER, 1);
  printf("orphan: %x", status_of(start(outlive_parent)));
  char byte = 0;
  const int count = read(told[0], &byte, 1);
  child = wait(&status);
  printf(", %d %c, adopted %d %x\n", count, byte, child > 0, status);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  close(told[0]);
  close(told[1]);

  struct rusage usage;
  child = start(wait_for_ever);
  const int process = syscall(SYS_pidfd_open, child, 0);
  printf("by descriptor: %d", process >= 0);
  syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
  struct pollfd ready = {.fd = process, .events = POLLIN};
  printf(" %d", poll(&ready, 1, 60000));
  printf(" %d", wait4(child, &status, 0, &usage) == child);
  printf(" %x, %d\n", status, syscall(SYS_pidfd_send_signal, process, 0, NULL, 0) < 0 ? errno : 0);
  close(process);
}

static int pair[2];
static void pass_descriptor(void) {
  char text[100];
  const int count = read(told[0], text, sizeof text);
  for (int i = 0; i < count; i++) text[i]++;
  send(pair[1], text, count, 0);
  const int memory = memfd_create("passed", 0);
  if (write(memory, "content", 7) != 7) _exit(1);
  char room[CMSG_SPACE(sizeof memory)] = {0};
  char byte = 'd';
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof memory);
  memcpy(CMSG_DATA(header), &memory, sizeof memory);
  sendmsg(pair[1], &message, 0);
}

static int timer, event;
static void wait_and_tell(void) {
  uint64_t value = 0;
  if (read(timer, &value, sizeof value) < 0) _exit(1);
  value = 41;
  if (write(event, &value, sizeof value) < 0) _exit(1);
}
static void signal_parent(void) {
  kill(parent, SIGUSR1);
}
static void signal_parent_with_value(void) {
  const union sigval value = {.sival_int = 77};
  sigqueue(parent, SIGUSR1, value);
}
static void signal_parent_100_times(void) {
  for (int i = 0; i < 100; ++i) {
    const union sigval value = {.sival_int = i};
    while (sigqueue(parent, SIGRTMIN + 3, value) != 0 && errno == EAGAIN) usleep(1000);
  }
}
static char path[64];
static void make_file(void) {
  close(open(path, O_CREAT | O_RDWR, 0600));
}
static int locked;
static void try_locks(void) {
  const int other = open(path, O_RDWR);
  const int result = flock(other, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  fcntl(locked, F_GETLK, &lock);
  printf("locks: %d, %d %d", result, lock.l_type == F_WRLCK, lock.l_pid == parent);
  printf(", %d\n", fcntl(locked, F_SETLK, &lock) < 0 ? errno : 0);
}

static void talking(void) {
  parent = getpid();
  char text[500] = {0};
  if (pipe(told) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) return;
  pid_t child = start(pass_descriptor);
  if (write(told[1], "HAL", 3) != 3) return;
  recv(pair[0], text, sizeof text, 0);
  printf("pipe and socket: %s", text);
  char room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {text, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  recvmsg(pair[0], &message, 0);
  int passed = -1;
  memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
  memset(text, 0, sizeof text);
  const int length = pread(passed, text, sizeof text, 0);
  printf(", descriptor %d %s, status %x\n", length, text, status_of(child));
  close(passed);
  for (int i = 0; i < 2; ++i) {
    close(told[i]);
    close(pair[i]);
  }

  event = eventfd(0, 0);
  timer = timerfd_create(CLOCK_MONOTONIC, 0);
  const int poller = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLIN, .data = {.fd = event}};
  epoll_ctl(poller, EPOLL_CTL_ADD, event, &wanted);
  const struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
  timerfd_settime(timer, 0, &soon, NULL);
  child = start(wait_and_tell);
  struct epoll_event found[2];
  uint64_t value = 0;
  const int ready = epoll_wait(poller, found, 2, 60000);
  if (read(event, &value, sizeof value) < 0) return;
  printf("epoll: %d %d, status %x", ready, (int)value, status_of(child));
  close(event);
  close(timer);
  close(poller);

  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGRTMIN + 3);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  const int signals = signalfd(-1, &set, 0);
  child = start(signal_parent);
  struct signalfd_siginfo from = {0};
  if (read(signals, &from, sizeof from) < 0) return;
  printf(", signalfd %d %d", from.ssi_signo, from.ssi_pid == (uint32_t)child);
  status_of(child);
  close(signals);
  child = start(signal_parent_with_value);
  siginfo_t info;
  const int signal = sigwaitinfo(&set, &info);
  printf(", value %d %d %d", signal, info.si_value.sival_int, info.si_pid == child);
  status_of(child);
  // Each of these is queued, in order.
  child = start(signal_parent_100_times);
  int in_order = 0;
  for (int i = 0; i < 100; ++i) in_order += sigwaitinfo(&set, &info) == SIGRTMIN + 3 && info.si_value.sival_int == i;
  printf(", in order %d\n", in_order);
  status_of(child);

  char folder[] = "/tmp/families-XXXXXX";
  if (mkdtemp(folder) == NULL) return;
  const int watch = inotify_init();
  inotify_add_watch(watch, folder, IN_CREATE);
  snprintf(path, sizeof path, "%s/file", folder);
  child = start(make_file);
  printf("inotify: %d\n", read(watch, text, sizeof text) > 0);
  status_of(child);
  close(watch);
  locked = open(path, O_RDWR);
  flock(locked, LOCK_EX);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  fcntl(locked, F_SETLK, &lock);
  status_of(start(try_locks));
  close(locked);
  unlink(path);
  rmdir(folder);
}

static void* round_of_thread(void* argument) {
  waiting();
  talking();
  return argument;
}

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  for (int i = 0; i < atoi(argv[1]); ++i) {
    round_of_thread(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, round_of_thread, NULL);
    pthread_join(thread, NULL);
  }
  fflush(stdout);
  return 6;
}
