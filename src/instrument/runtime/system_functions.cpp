// These are wrappers of the C library's functions on names, addresses, the environment, streams and threads. Many of
// them make system calls that the runtime interposes, but the C library calls the kernel directly and not by way of the
// runtime's functions.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <climits>
#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

using namespace multigrain::checks;

MG_ENTRY const char* __multigrain_inet_ntop(int family, const void* address, char* to, unsigned size) {
  const size_t bytes = family == AF_INET ? sizeof(in_addr) : family == AF_INET6 ? sizeof(in6_addr) : 0;
  return inet_ntop(family, InBytes(address, bytes), InOutBytes(to, size), size) != nullptr ? to : nullptr;
}
MG_ENTRY int __multigrain_inet_pton(int family, const char* text, void* to) {
  return inet_pton(family, Text(text),
                   InOutBytes(to, family == AF_INET    ? sizeof(in_addr)
                                  : family == AF_INET6 ? sizeof(in6_addr)
                                                       : 0));
}
MG_ENTRY int __multigrain_inet_aton(const char* text, void* to) {
  return inet_aton(Text(text), InOutBytes(to, to != nullptr ? sizeof(in_addr) : 0));
}
MG_ENTRY unsigned __multigrain_inet_addr(const char* text) {
  return inet_addr(Text(text));
}
MG_ENTRY int __multigrain_gethostname(char* to, size_t size) {
  return gethostname(InOutBytes(to, size), size);
}
MG_ENTRY int __multigrain_getdomainname(char* to, size_t size) {
  return getdomainname(InOutBytes(to, size), size);
}
MG_ENTRY char* __multigrain_realpath(const char* path, char* to) {
  if (!is_shared(to)) return realpath(Text(path), to);
  char* const made = realpath(Text(path), nullptr);
  if (made == nullptr) return nullptr;
  __multigrain_strcpy(to, made);
  std::free(made);
  return to;
}
MG_ENTRY char* __multigrain_getenv(const char* name) {
  return std::getenv(Text(name));
}
MG_ENTRY char* __multigrain_secure_getenv(const char* name) {
  return secure_getenv(Text(name));
}
MG_ENTRY int __multigrain_setenv(const char* name, const char* value, int overwrite) {
  return setenv(Text(name), Text(value), overwrite);
}
MG_ENTRY int __multigrain_unsetenv(const char* name) {
  return unsetenv(Text(name));
}
MG_ENTRY int __multigrain_putenv(char* assignment) {
  // The environment keeps the string, so it gets a private copy, which is never freed.
  return putenv(is_shared(assignment) ? strdup(Text(assignment)) : assignment);
}
MG_ENTRY char* __multigrain_setlocale(int category, const char* name) {
  return std::setlocale(category, Text(name));
}
MG_ENTRY char* __multigrain_strerror_r(int error, char* to, size_t size) {
  const InOutBytes text(to, size);
  char* const own = text;
  char* const message = strerror_r(error, own, size);
  return message == own ? to : message;
}
extern "C" int __xpg_strerror_r(int error, char* to, size_t size);
MG_ENTRY int __multigrain___xpg_strerror_r(int error, char* to, size_t size) {
  return __xpg_strerror_r(error, InOutBytes(to, size), size);
}
MG_ENTRY int __multigrain_ttyname_r(int fd, char* to, size_t size) {
  return ttyname_r(fd, InOutBytes(to, size), size);
}
MG_ENTRY int __multigrain_getlogin_r(char* to, size_t size) {
  return getlogin_r(InOutBytes(to, size), size);
}
MG_ENTRY size_t __multigrain_confstr(int name, char* to, size_t size) {
  return confstr(name, InOutBytes(to, to != nullptr ? size : 0), size);
}
MG_ENTRY int __multigrain_getentropy(void* to, size_t size) {
  return getentropy(InOutBytes(to, std::min<size_t>(size, 256)), size);
}
MG_ENTRY int __multigrain_getloadavg(double* to, int count) {
  return getloadavg(InOutBytes(to, count > 0 ? sizeof *to * static_cast<size_t>(std::min(count, 3)) : 0), count);
}
MG_ENTRY long __multigrain_pathconf(const char* path, int name) {
  return pathconf(Text(path), name);
}
MG_ENTRY void __multigrain_perror(const char* s) {
  const int error = errno;
  const Text text(s);
  errno = error;
  std::perror(text);
}
MG_ENTRY void __multigrain_psignal(int number_of_signal, const char* s) {
  psignal(number_of_signal, Text(s));
}
MG_ENTRY FILE* __multigrain_fdopen(int fd, const char* mode) {
  return fdopen(fd, Text(mode));
}

// Reads a line, and stores all of it. InOutBytes would leave out bytes that are equal to those of the buffer before the
// call, which other processors may have changed while the call waited for input.
template <typename Get>
static char* get_line(char* to, int size, Get&& get) {
  if (size <= 0 || !touches_shared(to, static_cast<size_t>(size))) return get(to);
  const std::unique_ptr<char[]> line(new (std::nothrow) char[static_cast<size_t>(size)]);
  if (line == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  if (get(line.get()) == nullptr) return nullptr;
  // A line may contain zeros. The text up to the first of them is copied, as the program cannot tell a zero from the
  // line's end either.
  const int error = errno;
  __multigrain_memcpy(to, line.get(), std::strlen(line.get()) + 1);
  errno = error;
  return to;
}
MG_ENTRY char* __multigrain_fgets(char* to, int size, FILE* stream) {
  return get_line(to, size, [&](char* line) { return std::fgets(line, size, stream); });
}
MG_ENTRY char* __multigrain_fgets_unlocked(char* to, int size, FILE* stream) {
  return get_line(to, size, [&](char* line) { return fgets_unlocked(line, size, stream); });
}
// If the program's buffer comes from malloc, the C library may enlarge it. If the buffer is shared, the program gets a
// new one, because only the program can free a shared buffer.
MG_ENTRY ssize_t __multigrain_getdelim(char** line, size_t* size, int end, FILE* stream) {
  if (!is_shared(line) && !is_shared(size) && !is_shared(*line)) return getdelim(line, size, end, stream);
  char* buffer = load_shared(line);
  size_t room = load_shared(size);
  if (buffer == nullptr || is_shared(buffer)) buffer = nullptr, room = 0;
  const ssize_t length = getdelim(&buffer, &room, end, stream);
  const int error = errno;
  store_shared(line, buffer);
  store_shared(size, room);
  errno = error;
  return length;
}
MG_ENTRY ssize_t __multigrain___getdelim(char** line, size_t* size, int end, FILE* stream) {
  return __multigrain_getdelim(line, size, end, stream);
}
MG_ENTRY ssize_t __multigrain_getline(char** line, size_t* size, FILE* stream) {
  return __multigrain_getdelim(line, size, '\n', stream);
}
MG_ENTRY int __multigrain_fgetpos(FILE* stream, void* position) {
  return std::fgetpos(stream, in_out(static_cast<fpos_t*>(position)));
}
MG_ENTRY int __multigrain_fsetpos(FILE* stream, const void* position) {
  return std::fsetpos(stream, in(static_cast<const fpos_t*>(position)));
}

MG_ENTRY int __multigrain_sigemptyset(void* set) {
  return sigemptyset(in_out(static_cast<sigset_t*>(set)));
}
MG_ENTRY int __multigrain_sigfillset(void* set) {
  return sigfillset(in_out(static_cast<sigset_t*>(set)));
}
MG_ENTRY int __multigrain_sigaddset(void* set, int signal) {
  return sigaddset(in_out(static_cast<sigset_t*>(set)), signal);
}
MG_ENTRY int __multigrain_sigdelset(void* set, int signal) {
  return sigdelset(in_out(static_cast<sigset_t*>(set)), signal);
}
MG_ENTRY int __multigrain_sigismember(const void* set, int signal) {
  return sigismember(in(static_cast<const sigset_t*>(set)), signal);
}

MG_ENTRY int __multigrain_pthread_create(pthread_t* thread, const void* attributes, void* (*run)(void*),
                                         void* argument) {
  if (!is_shared(thread) && !is_shared(attributes))
    return pthread_create(thread, static_cast<const pthread_attr_t*>(attributes), run, argument);
  pthread_t made{};
  const int error = pthread_create(&made, in(static_cast<const pthread_attr_t*>(attributes)), run, argument);
  if (error == 0) store_shared(thread, made);
  return error;
}
MG_ENTRY int __multigrain_pthread_join(pthread_t thread, void** result) {
  if (!is_shared(result)) return pthread_join(thread, result);
  void* returned = nullptr;
  const int error = pthread_join(thread, &returned);
  if (error == 0) store_shared(result, returned);
  return error;
}
MG_ENTRY void* __multigrain_dlopen(const char* path, int flags) {
  return dlopen(Text(path), flags);
}
// If dlsym finds a library's function that has a wrapper, this returns the wrapper: a call through the pointer
// cannot be redirected.
MG_ENTRY void* __multigrain_dlsym(void* library, const char* name) {
  const Text text(name);
  void* const found = dlsym(library, text);
  if (found == nullptr) return nullptr;
#define MG_WRAPPED(result, name, parameters) {#name, reinterpret_cast<void*>(&__multigrain_##name)},
#define MG_WRAPPED_CXX(name)
  static const struct {
    const char* name;
    void* wrapper;
  } wrappers[] = {
#include "instrument/wrapped_functions.def"
  };
#undef MG_WRAPPED
#undef MG_WRAPPED_CXX
  for (const auto& each : wrappers)
    if (std::strcmp(each.name, text) == 0) return dlsym(RTLD_DEFAULT, each.name) == found ? each.wrapper : found;
  return found;
}
