// Lets clocks, waiting for descriptors and children, and other calls that fill in small structures take shared memory.
//
// POSIX objects in shared memory that the kernel works on by address (pthread mutexes, condition variables, semaphores,
// futexes) are not covered: they would be one node's only. A program uses mg_lock and its kin instead.
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <ctime>

#include "runtime/interpose/bounce.h"
#include "runtime/interpose/real.h"

namespace multigrain {

// --- Time. The vDSO stores from user mode, but falls back to the kernel on machines with an unstable counter.
MG_WRAPPER(int, clock_gettime, clockid_t clock, timespec* now) {
  return MG_REAL(clock_gettime)(clock, InOut(now));
}
MG_WRAPPER(int, clock_getres, clockid_t clock, timespec* unit) {
  return MG_REAL(clock_getres)(clock, InOut(unit));
}
MG_WRAPPER(int, gettimeofday, timeval* now, void* zone) {
  return MG_REAL(gettimeofday)(InOut(now), zone);
}
MG_WRAPPER(time_t, time, time_t* now) {
  return MG_REAL(time)(InOut(now));
}
MG_WRAPPER(clock_t, times, tms* used) {
  return MG_REAL(times)(InOut(used));
}
MG_WRAPPER(int, nanosleep, const timespec* time, timespec* left) {
  return MG_REAL(nanosleep)(In(time), InOut(left));
}
MG_WRAPPER(int, clock_nanosleep, clockid_t clock, int flags, const timespec* time, timespec* left) {
  return MG_REAL(clock_nanosleep)(clock, flags, In(time), InOut(left));
}
MG_WRAPPER(int, getitimer, __itimer_which_t which, itimerval* value) {
  return MG_REAL(getitimer)(which, InOut(value));
}
MG_WRAPPER(int, setitimer, __itimer_which_t which, const itimerval* value, itimerval* old) {
  return MG_REAL(setitimer)(which, In(value), InOut(old));
}

// --- Descriptors.
MG_WRAPPER(int, pipe, int* ends) {
  return MG_REAL(pipe)(InOutBytes(ends, 2 * sizeof(int)));
}
MG_WRAPPER(int, pipe2, int* ends, int flags) {
  return MG_REAL(pipe2)(InOutBytes(ends, 2 * sizeof(int)), flags);
}
MG_WRAPPER(int, poll, pollfd* set, nfds_t count, int timeout) {
  return MG_REAL(poll)(InOutBytes(set, count * sizeof *set), count, timeout);
}
MG_WRAPPER(int, __poll_chk, pollfd* set, nfds_t count, int timeout, size_t set_size) {
  return MG_REAL(__poll_chk)(InOutBytes(set, count * sizeof *set), count, timeout, set_size);
}
MG_WRAPPER(int, ppoll, pollfd* set, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  return MG_REAL(ppoll)(InOutBytes(set, count * sizeof *set), count, In(timeout), In(mask));
}
MG_WRAPPER(int, select, int count, fd_set* in, fd_set* out, fd_set* except, timeval* timeout) {
  return MG_REAL(select)(count, InOut(in), InOut(out), InOut(except), InOut(timeout));
}
MG_WRAPPER(int, pselect, int count, fd_set* in, fd_set* out, fd_set* except, const timespec* timeout,
           const sigset_t* mask) {
  return MG_REAL(pselect)(count, InOut(in), InOut(out), InOut(except), In(timeout), In(mask));
}
MG_WRAPPER(int, epoll_ctl, int epoll, int operation, int fd, epoll_event* event) {
  return MG_REAL(epoll_ctl)(epoll, operation, fd, InOut(event));
}
MG_WRAPPER(int, epoll_wait, int epoll, epoll_event* events, int count, int timeout) {
  const size_t size = count > 0 ? static_cast<size_t>(count) * sizeof *events : 0;
  return MG_REAL(epoll_wait)(epoll, InOutBytes(events, size), count, timeout);
}

// --- Processes and the machine.
MG_WRAPPER(pid_t, wait, int* status) {
  return MG_REAL(wait)(InOut(status));
}
MG_WRAPPER(pid_t, waitpid, pid_t child, int* status, int flags) {
  return MG_REAL(waitpid)(child, InOut(status), flags);
}
MG_WRAPPER(pid_t, wait4, pid_t child, int* status, int flags, rusage* used) {
  return MG_REAL(wait4)(child, InOut(status), flags, InOut(used));
}
MG_WRAPPER(int, waitid, idtype_t type, id_t id, siginfo_t* info, int flags) {
  return MG_REAL(waitid)(type, id, InOut(info), flags);
}
MG_WRAPPER(int, getrusage, __rusage_who_t who, rusage* used) {
  return MG_REAL(getrusage)(who, InOut(used));
}
MG_WRAPPER(int, getrlimit, __rlimit_resource_t which, rlimit* limit) {
  return MG_REAL(getrlimit)(which, InOut(limit));
}
MG_WRAPPER(int, getrlimit64, __rlimit_resource_t which, rlimit64* limit) {
  return MG_REAL(getrlimit64)(which, InOut(limit));
}
MG_WRAPPER(int, setrlimit, __rlimit_resource_t which, const rlimit* limit) {
  return MG_REAL(setrlimit)(which, In(limit));
}
MG_WRAPPER(int, setrlimit64, __rlimit_resource_t which, const rlimit64* limit) {
  return MG_REAL(setrlimit64)(which, In(limit));
}
MG_WRAPPER(int, uname, utsname* name) {
  return MG_REAL(uname)(InOut(name));
}
MG_WRAPPER(ssize_t, getrandom, void* buffer, size_t size, unsigned flags) {
  return MG_REAL(getrandom)(InOutBytes(buffer, size), size, flags);
}
MG_WRAPPER(int, sched_getaffinity, pid_t process, size_t size, cpu_set_t* set) {
  return MG_REAL(sched_getaffinity)(process, size, InOutBytes(set, size));
}
MG_WRAPPER(int, sched_setaffinity, pid_t process, size_t size, const cpu_set_t* set) {
  return MG_REAL(sched_setaffinity)(process, size, InBytes(set, size));
}

}  // namespace multigrain
