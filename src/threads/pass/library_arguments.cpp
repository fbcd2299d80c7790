#include "library_arguments.h"

#include <llvm/ADT/StringSet.h>
#include <llvm/IR/Function.h>

namespace multigrain::threads {

using namespace llvm;

namespace {

// Functions of the C library that return none of the pointers that they are handed, and store none.
const StringSet<>& known_functions() {
  static const StringSet<> names = {
      // Printing and reading.
      "printf", "fprintf", "sprintf", "snprintf", "dprintf", "vprintf", "vfprintf", "vsprintf", "vsnprintf", "puts",
      "fputs", "perror", "scanf", "fscanf", "sscanf", "vsscanf", "__isoc99_scanf", "__isoc99_fscanf", "__isoc99_sscanf",
      "__isoc23_scanf", "__isoc23_fscanf", "__isoc23_sscanf", "__printf_chk", "__fprintf_chk", "__sprintf_chk",
      "__snprintf_chk", "__vsnprintf_chk", "fread", "fwrite", "open", "open64", "openat", "creat", "fopen", "fopen64",
      "read", "write", "pread", "pwrite", "pread64", "pwrite64", "readv", "writev", "stat", "lstat", "fstat", "fstatat",
      "stat64", "lstat64", "fstat64", "access", "unlink", "remove", "rename", "mkdir", "rmdir", "chdir", "readlink",
      "pipe", "pipe2", "poll", "ppoll", "select", "pselect", "epoll_ctl", "epoll_wait", "socketpair", "bind", "connect",
      "accept", "accept4", "getsockname", "getpeername", "getsockopt", "setsockopt", "send", "sendto", "sendmsg",
      "recv", "recvfrom", "recvmsg",
      // Strings and memory.
      "strlen", "strnlen", "strcmp", "strncmp", "strcasecmp", "strncasecmp", "strcoll", "memcmp", "bcmp", "bzero",
      "strspn", "strcspn", "atoi", "atol", "atoll", "atof", "strftime",
      // Time, processes, signals.
      "time", "clock_gettime", "clock_settime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "times",
      "mktime", "timegm", "difftime", "getitimer", "setitimer", "getrusage", "getrlimit", "setrlimit", "uname",
      "sysinfo", "getrandom", "wait", "waitpid", "wait4", "waitid", "system", "execv", "execve", "execvp", "sigaction",
      "sigemptyset", "sigfillset", "sigaddset", "sigdelset", "sigismember", "sigprocmask", "pthread_sigmask", "sigwait",
      "sigtimedwait", "sigwaitinfo", "sigpending", "sigsuspend", "sched_getaffinity", "sched_setaffinity",
      "sched_getparam", "sched_setparam", "sched_setscheduler",
      // Threads: attributes, and where results go.
      "pthread_attr_init", "pthread_attr_destroy", "pthread_attr_setdetachstate", "pthread_attr_getdetachstate",
      "pthread_attr_setstacksize", "pthread_attr_getstacksize", "pthread_attr_setscope", "pthread_attr_setguardsize",
      "pthread_attr_setinheritsched", "pthread_attr_setschedpolicy", "pthread_attr_setschedparam",
      "pthread_attr_setaffinity_np", "pthread_getattr_np", "pthread_attr_getstack", "pthread_mutexattr_init",
      "pthread_mutexattr_destroy", "pthread_mutexattr_settype", "pthread_mutexattr_setpshared",
      "pthread_mutexattr_setprotocol", "pthread_condattr_init", "pthread_condattr_destroy", "pthread_condattr_setclock",
      "pthread_condattr_setpshared", "pthread_barrierattr_init", "pthread_barrierattr_destroy",
      "pthread_rwlockattr_init", "pthread_rwlockattr_destroy", "pthread_join", "pthread_getaffinity_np",
      "pthread_setaffinity_np", "pthread_getschedparam", "pthread_setschedparam", "pthread_setcancelstate",
      "pthread_setcanceltype", "pthread_setname_np", "pthread_getname_np", "pthread_getcpuclockid", "thrd_join",
      "thrd_sleep", "timespec_get",
      // Numbers in two parts.
      "frexp", "frexpf", "frexpl", "modf", "modff", "modfl", "sincos", "sincosf", "sincosl", "remquo", "lgamma_r",
      "drand48_r", "srand48_r", "lrand48_r", "erand48", "nrand48", "jrand48", "rand_r", "random_r", "srandom_r"};
  return names;
}

}  // namespace

bool only_uses_argument(const CallBase& call, unsigned argument) {
  const Function* const callee = call.getCalledFunction();
  if (callee == nullptr || !callee->isDeclaration()) return false;
  const StringRef name = callee->getName();
  // A thread's creator hands over the last argument, and no other.
  if (name == "pthread_create") return argument < 2;
  if (name == "thrd_create") return argument < 1;
  // Functions of Multigrain's that compiled checks call.
  return name.starts_with("__multigrain_") || known_functions().contains(name);
}

}  // namespace multigrain::threads
