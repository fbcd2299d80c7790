// Lets calls that take paths, and the structures that go with them, take shared memory.
//
// ioctl, fcntl with structures, statfs, the *xattr family, io_uring and aio are not covered: a program passes them
// private memory.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "runtime/interpose/bounce.h"
#include "runtime/interpose/real.h"

namespace multigrain {
namespace {

// open's third argument exists only if the file may be created.
bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

size_t size_with_end(char* string) {
  return string == nullptr ? 0 : length_of_shared(string) + 1;
}

}  // namespace

// Reads the optional mode into `mode`.
#define MG_OPTIONAL_MODE(flags, mode) \
  mode_t mode = 0;                    \
  if (takes_mode(flags)) {            \
    va_list arguments;                \
    va_start(arguments, flags);       \
    mode = va_arg(arguments, mode_t); \
    va_end(arguments);                \
  }

#define MG_FILES(suffix)                                                                                      \
  MG_WRAPPER(int, open##suffix, const char* path, int flags, ...) {                                           \
    MG_OPTIONAL_MODE(flags, mode)                                                                             \
    return MG_REAL(open##suffix)(InString(path), flags, mode);                                                \
  }                                                                                                           \
  MG_WRAPPER(int, openat##suffix, int directory, const char* path, int flags, ...) {                          \
    MG_OPTIONAL_MODE(flags, mode)                                                                             \
    return MG_REAL(openat##suffix)(directory, InString(path), flags, mode);                                   \
  }                                                                                                           \
  MG_WRAPPER(int, __open##suffix##_2, const char* path, int flags) {                                          \
    return MG_REAL(__open##suffix##_2)(InString(path), flags);                                                \
  }                                                                                                           \
  MG_WRAPPER(int, __openat##suffix##_2, int directory, const char* path, int flags) {                         \
    return MG_REAL(__openat##suffix##_2)(directory, InString(path), flags);                                   \
  }                                                                                                           \
  MG_WRAPPER(int, creat##suffix, const char* path, mode_t mode) {                                             \
    return MG_REAL(creat##suffix)(InString(path), mode);                                                      \
  }                                                                                                           \
  MG_WRAPPER(FILE*, fopen##suffix, const char* path, const char* mode) {                                      \
    return MG_REAL(fopen##suffix)(InString(path), mode);                                                      \
  }                                                                                                           \
  MG_WRAPPER(FILE*, freopen##suffix, const char* path, const char* mode, FILE* stream) {                      \
    return MG_REAL(freopen##suffix)(InString(path), mode, stream);                                            \
  }                                                                                                           \
  MG_WRAPPER(int, stat##suffix, const char* path, struct stat##suffix* status) {                              \
    return MG_REAL(stat##suffix)(InString(path), InOut(status));                                              \
  }                                                                                                           \
  MG_WRAPPER(int, lstat##suffix, const char* path, struct stat##suffix* status) {                             \
    return MG_REAL(lstat##suffix)(InString(path), InOut(status));                                             \
  }                                                                                                           \
  MG_WRAPPER(int, fstat##suffix, int fd, struct stat##suffix* status) {                                       \
    return MG_REAL(fstat##suffix)(fd, InOut(status));                                                         \
  }                                                                                                           \
  MG_WRAPPER(int, fstatat##suffix, int directory, const char* path, struct stat##suffix* status, int flags) { \
    return MG_REAL(fstatat##suffix)(directory, InString(path), InOut(status), flags);                         \
  }                                                                                                           \
  MG_WRAPPER(int, truncate##suffix, const char* path, off_t size) {                                           \
    return MG_REAL(truncate##suffix)(InString(path), size);                                                   \
  }                                                                                                           \
  MG_WRAPPER(int, mkstemp##suffix, char* pattern) {                                                           \
    return MG_REAL(mkstemp##suffix)(InOutBytes(pattern, size_with_end(pattern)));                             \
  }

MG_FILES()
MG_FILES(64)

MG_WRAPPER(int, access, const char* path, int mode) {
  return MG_REAL(access)(InString(path), mode);
}
MG_WRAPPER(int, faccessat, int directory, const char* path, int mode, int flags) {
  return MG_REAL(faccessat)(directory, InString(path), mode, flags);
}
MG_WRAPPER(int, unlink, const char* path) {
  return MG_REAL(unlink)(InString(path));
}
MG_WRAPPER(int, unlinkat, int directory, const char* path, int flags) {
  return MG_REAL(unlinkat)(directory, InString(path), flags);
}
MG_WRAPPER(int, remove, const char* path) {
  return MG_REAL(remove)(InString(path));
}
MG_WRAPPER(int, rmdir, const char* path) {
  return MG_REAL(rmdir)(InString(path));
}
MG_WRAPPER(int, mkdir, const char* path, mode_t mode) {
  return MG_REAL(mkdir)(InString(path), mode);
}
MG_WRAPPER(int, mkdirat, int directory, const char* path, mode_t mode) {
  return MG_REAL(mkdirat)(directory, InString(path), mode);
}
MG_WRAPPER(int, mkfifo, const char* path, mode_t mode) {
  return MG_REAL(mkfifo)(InString(path), mode);
}
MG_WRAPPER(int, rename, const char* from, const char* to) {
  return MG_REAL(rename)(InString(from), InString(to));
}
MG_WRAPPER(int, renameat, int from_directory, const char* from, int to_directory, const char* to) {
  return MG_REAL(renameat)(from_directory, InString(from), to_directory, InString(to));
}
MG_WRAPPER(int, link, const char* from, const char* to) {
  return MG_REAL(link)(InString(from), InString(to));
}
MG_WRAPPER(int, symlink, const char* from, const char* to) {
  return MG_REAL(symlink)(InString(from), InString(to));
}
MG_WRAPPER(ssize_t, readlink, const char* path, char* buffer, size_t size) {
  return MG_REAL(readlink)(InString(path), InOutBytes(buffer, size), size);
}
MG_WRAPPER(ssize_t, readlinkat, int directory, const char* path, char* buffer, size_t size) {
  return MG_REAL(readlinkat)(directory, InString(path), InOutBytes(buffer, size), size);
}
MG_WRAPPER(int, chdir, const char* path) {
  return MG_REAL(chdir)(InString(path));
}
MG_WRAPPER(int, chmod, const char* path, mode_t mode) {
  return MG_REAL(chmod)(InString(path), mode);
}
MG_WRAPPER(int, chown, const char* path, uid_t user, gid_t group) {
  return MG_REAL(chown)(InString(path), user, group);
}
MG_WRAPPER(int, utimensat, int directory, const char* path, const timespec* times, int flags) {
  return MG_REAL(utimensat)(directory, InString(path), InBytes(times, 2 * sizeof *times), flags);
}
MG_WRAPPER(DIR*, opendir, const char* path) {
  return MG_REAL(opendir)(InString(path));
}
MG_WRAPPER(char*, mkdtemp, char* pattern) {
  // The function returns its argument, which must be the program's.
  const char* made = MG_REAL(mkdtemp)(InOutBytes(pattern, size_with_end(pattern)));
  return made == nullptr ? nullptr : pattern;
}
MG_WRAPPER(char*, getcwd, char* buffer, size_t size) {
  if (!in_shared_region(buffer)) [[likely]]
    return MG_REAL(getcwd)(buffer, size);
  const char* found = MG_REAL(getcwd)(InOutBytes(buffer, size), size);
  return found == nullptr ? nullptr : buffer;
}

// --- Programs.
MG_WRAPPER(int, execve, const char* path, char* const* arguments, char* const* environment) {
  return MG_REAL(execve)(InString(path), InStrings(arguments), InStrings(environment));
}
MG_WRAPPER(int, execv, const char* path, char* const* arguments) {
  return MG_REAL(execv)(InString(path), InStrings(arguments));
}
MG_WRAPPER(int, execvp, const char* file, char* const* arguments) {
  return MG_REAL(execvp)(InString(file), InStrings(arguments));
}
MG_WRAPPER(int, system, const char* command) {
  return MG_REAL(system)(InString(command));
}
MG_WRAPPER(FILE*, popen, const char* command, const char* mode) {
  return MG_REAL(popen)(InString(command), mode);
}

}  // namespace multigrain
