#include "library_names.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/ADT/StringMap.h>
#include <llvm/ADT/StringSet.h>
#include <llvm/IR/DerivedTypes.h>
#include <pthread.h>
#include <sys/types.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <type_traits>

#include "library_functions.h"

namespace multigrain::checks {

using namespace llvm;

namespace {

// Tells whether a type of the intermediate language is the one that the binary interface gives to T.
template <typename T>
bool is_type(const Type* type) {
  if constexpr (std::is_void_v<T>)
    return type->isVoidTy();
  else if constexpr (std::is_pointer_v<T>)
    return type->isPointerTy();
  else if constexpr (std::is_same_v<T, double>)
    return type->isDoubleTy();
  else if constexpr (std::is_same_v<T, float>)
    return type->isFloatTy();
  else if constexpr (std::is_same_v<T, long double>)
    return type->isX86_FP80Ty();
  else
    return type->isIntegerTy(8 * sizeof(T));
}
using HasType = bool (*)(const FunctionType* type);
template <typename Result, typename... Parameters>
bool has_parameters(const FunctionType* type) {
  if (type->getNumParams() != sizeof...(Parameters) || !is_type<Result>(type->getReturnType())) return false;
  unsigned i = 0;
  return (is_type<Parameters>(type->getParamType(i++)) && ...);
}
template <typename Result, typename... Parameters>
HasType check_of(Result (*)(Parameters...)) {
  return [](const FunctionType* type) { return !type->isVarArg() && has_parameters<Result, Parameters...>(type); };
}
template <typename Result, typename... Parameters>
HasType check_of(Result (*)(Parameters..., ...)) {
  return [](const FunctionType* type) { return type->isVarArg() && has_parameters<Result, Parameters...>(type); };
}
HasType any_type() {
  return [](const FunctionType*) { return true; };
}

const StringMap<HasType>& wrapped() {
  static const StringMap<HasType> functions = {
#define MG_WRAPPED(result, name, parameters) {#name, check_of(static_cast<result(*) parameters>(nullptr))},
#define MG_WRAPPED_CXX(name) {#name, any_type()},
#include "instrument/wrapped_functions.def"
#undef MG_WRAPPED
#undef MG_WRAPPED_CXX
  };
  return functions;
}

bool has_prefix(StringRef name, ArrayRef<const char*> prefixes) {
  return any_of(prefixes, [&](const char* prefix) { return name.starts_with(prefix); });
}

bool accepts(StringRef name) {
  static const StringSet<> names = {
      // The runtime interposes these (src/runtime/interpose).
      "read", "write", "pread", "pread64", "pwrite", "pwrite64", "readv", "writev", "preadv", "preadv64", "pwritev",
      "pwritev64", "preadv2", "preadv64v2", "pwritev2", "pwritev64v2", "__read_chk", "__pread_chk", "__pread64_chk",
      "fread", "fread_unlocked", "__fread_chk", "__fread_unlocked_chk", "fwrite", "fwrite_unlocked", "fputs",
      "fputs_unlocked", "puts", "setvbuf", "setbuf", "setbuffer", "open", "open64", "openat", "openat64", "__open_2",
      "__open64_2", "__openat_2", "__openat64_2", "creat", "creat64", "fopen", "fopen64", "freopen", "freopen64",
      "popen", "opendir", "stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat", "fstatat64", "truncate",
      "truncate64", "mkstemp", "mkstemp64", "mkostemp", "mkostemp64", "mkstemps", "mkstemps64", "mkostemps",
      "mkostemps64", "mkdtemp", "access", "faccessat", "chdir", "chmod", "chown", "link", "unlink", "unlinkat",
      "rename", "renameat", "remove", "mkdir", "mkdirat", "rmdir", "mkfifo", "symlink", "readlink", "readlinkat",
      "utimensat", "getcwd", "pipe", "pipe2", "system", "execv", "execve", "execvp", "wait", "wait4", "waitpid",
      "waitid", "time", "gettimeofday", "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "getitimer",
      "setitimer", "times", "getrlimit", "getrlimit64", "setrlimit", "setrlimit64", "getrusage", "getrandom", "uname",
      "sched_getaffinity", "sched_setaffinity", "poll", "ppoll", "__poll_chk", "select", "pselect", "epoll_ctl",
      "epoll_wait", "accept", "accept4", "bind", "connect", "getsockname", "getpeername", "getsockopt", "setsockopt",
      "recv", "recvfrom", "recvmsg", "send", "sendto", "sendmsg", "socketpair", "__recv_chk", "__recvfrom_chk",
      "sigaction", "sigprocmask", "pthread_sigmask", "signal", "malloc", "calloc", "realloc", "reallocarray", "free",
      "malloc_usable_size",
      // These keep the pointer, pass it on, or name the memory to the system, and do not access it.
      "atexit", "on_exit", "at_quick_exit", "bsd_signal", "sysv_signal", "pthread_setspecific", "pthread_getspecific",
      "pthread_exit", "tss_set", "madvise", "posix_madvise", "mprotect", "munmap", "msync", "mlock", "munlock", "mmap",
      "mmap64", "__assert_fail", "__assert_perror_fail", "__stack_chk_fail", "_exit", "__libc_start_main"};
  // The functions of exceptions and operator delete do not follow the pointers that they are given.
  return names.contains(name) ||
         has_prefix(name, {"__cxa_", "_Unwind_", "__gxx_", "_ZdlPv", "_ZdaPv",
                           // The streams' templates access files by this class, which ends up in read, write and open.
                           "_ZNSt12__basic_fileIcE", "_ZNKSt12__basic_fileIcE"});
}

bool takes_handles(StringRef name) {
  static const StringSet<> names = {
      // These take streams and folders, which the library itself allocates.
      "fclose", "fflush", "fflush_unlocked", "feof", "feof_unlocked", "ferror", "ferror_unlocked", "clearerr",
      "clearerr_unlocked", "fileno", "fileno_unlocked", "fseek", "fseeko", "fseeko64", "ftell", "ftello", "ftello64",
      "rewind", "fgetc", "fgetc_unlocked", "getc", "getc_unlocked", "_IO_getc", "fputc", "fputc_unlocked", "putc",
      "putc_unlocked", "_IO_putc", "ungetc", "fgetwc", "fputwc", "getwc", "putwc", "ungetwc", "fwide", "setlinebuf",
      "pclose", "flockfile", "ftrylockfile", "funlockfile", "getw", "putw", "__uflow", "__overflow", "readdir",
      "readdir64", "closedir", "rewinddir", "seekdir", "telldir", "dirfd", "dlclose", "freelocale", "duplocale",
      "uselocale", "freeaddrinfo", "iconv_close",
      // These save or restore the place where execution goes on, or call a function once.
      "setjmp", "_setjmp", "__sigsetjmp", "sigsetjmp", "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk",
      "call_once",
      // These take the program's arguments.
      "getopt", "__posix_getopt", "getopt_long", "getopt_long_only"};
  return names.contains(name) ||
         has_prefix(name, {"pthread_", "__pthread_", "sem_", "mtx_", "cnd_", "thrd_", "tss_"}) ||
         // The classes of C++: locales, streams' state, exceptions, paths, and those by which threads
         // wait for each other.
         has_prefix(name, {"_ZNSt6locale",
                           "_ZNKSt6locale",
                           "_ZNSt8ios_base",
                           "_ZNKSt8ios_base",
                           "_ZNSt15__exception_ptr",
                           "_ZNKSt15__exception_ptr",
                           "_ZNKSt5ctype",
                           "_ZNSt18condition_variable",
                           "_ZNSt23__once_callable",
                           "_ZNSt13__future_base",
                           "_ZSteqRKNSt15__exception_ptr",
                           "_ZSt17rethrow_exception",
                           "_ZNSt3pmr",
                           "_ZNSt9exception",
                           "_ZNKSt9exception",
                           "_ZNSt13runtime_error",
                           "_ZNKSt13runtime_error",
                           "_ZNSt11logic_error",
                           "_ZNKSt11logic_error",
                           "_ZNSt12system_error",
                           "_ZNSt11range_error",
                           "_ZNSt14overflow_error",
                           "_ZNSt15underflow_error",
                           "_ZNSt12domain_error",
                           "_ZNSt16invalid_argument",
                           "_ZNSt12length_error",
                           "_ZNSt12out_of_range",
                           "_ZNSt9bad_alloc",
                           "_ZNSt8bad_cast",
                           "_ZNSt10bad_typeid",
                           "_ZNSt13bad_exception",
                           "_ZNSt10filesystem",
                           "_ZNKSt10filesystem",
                           "_ZNSt14error_category",
                           "_ZNKSt14error_category"});
}

}  // namespace

StringRef without_prefix(StringRef name) {
  for (const char* prefix : {"__isoc99_", "__isoc23_"}) name.consume_front(prefix);
  return name;
}

bool is_wrapped(const Function& function) {
  if (!function.isDeclaration() || function.isIntrinsic()) return false;
  const auto found = wrapped().find(without_prefix(function.getName()));
  return found != wrapped().end() && found->second(function.getFunctionType());
}

std::string wrapper_of(const Function& function) {
  return ("__multigrain_" + without_prefix(function.getName())).str();
}

Library kind_of(const Function& function) {
  if (!function.isDeclaration() || function.isIntrinsic()) return Library::kNone;
  const StringRef name = function.getName();
  if (accepts(name)) return Library::kAccepts;
  if (!is_exported(name)) return Library::kNone;
  return takes_handles(name) ? Library::kHandles : Library::kUnchecked;
}

}  // namespace multigrain::checks
