// Carries out the calls that execute another program.
//
// The first process of a guest stays a guest: its host executes itself, with the new program. What other processes of
// the guest execute is no guest: it runs natively, without a host.
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/child_process.h"
#include "base/guest_environment.h"
#include "base/own_descriptors.h"
#include "guest/call_functions.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/proc_files.h"

namespace multigrain::guest::call {
namespace {

constexpr size_t kLongestWord = 128 << 10;  // MAX_ARG_STRLEN

// Reads a vector of strings that ends with null, as execve() has them. Returns nullopt and sets errno if it cannot.
std::optional<std::vector<std::string>> read_words(uint64_t address) {
  std::vector<std::string> words;
  for (; address != 0; address += sizeof(uint64_t)) {
    uint64_t word = 0;
    if (!read_guest(address, word)) {
      errno = EFAULT;
      return std::nullopt;
    }
    if (word == 0) break;
    const auto text = read_guest_string(word, kLongestWord);
    if (!text) {
      if (errno == ENAMETOOLONG) errno = E2BIG;
      return std::nullopt;
    }
    words.push_back(*text);
  }
  return words;
}

// Returns whether the guest can read the vector. Its pages are on this node afterwards, for a while.
bool bring_words(uint64_t address) {
  for (; address != 0; address += sizeof(uint64_t)) {
    uint64_t word = 0;
    if (!read_guest(address, word)) return false;
    if (word == 0) break;
    char piece[256];
    for (size_t length = 0, whole = 0; length == whole; word += length) {
      whole = std::min<uint64_t>(sizeof piece, kPageSize - word % kPageSize);
      if (!read_guest(word, piece, whole)) return false;
      length = strnlen(piece, whole);
    }
  }
  return true;
}

// Does what execve() does, in a process that has this one's memory or a copy of it. The kernel cannot read pages that
// other nodes have: those are brought here, and again if they were away by then. Nothing is allocated, since a child
// that shares memory would leave it behind.
long execute_natively(const char* path, uint64_t arguments, uint64_t environment) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0;; ++attempt) {
    if (host().memory_is_shared && (!bring_words(arguments) || !bring_words(environment))) return -EFAULT;
    syscall(SYS_execve, path, arguments, environment);
    if (errno != EFAULT || !host().memory_is_shared || attempt == kAttempts) return -errno;
  }
}

// Gives the thread the mask that the next program finds, and takes it back if there is no next program.
class MaskForExec {
 public:
  explicit MaskForExec(const Call& call) {
    const uint64_t mask = mask_of(call.context, call.thread);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before_, sizeof mask);
  }
  ~MaskForExec() { syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_); }
  MaskForExec(const MaskForExec&) = delete;
  MaskForExec& operator=(const MaskForExec&) = delete;

 private:
  uint64_t before_ = 0;
};

// Gives a program that runs natively the limits and the cores that it would have without the nodes.
class NativeSettings {
 public:
  NativeSettings() {
    if (host().cluster != nullptr) sched_setaffinity(0, sizeof host().cores_of_processes, &host().cores_of_processes);
  }

 private:
  own_descriptors::LimitForExec limit_;
  SpaceLimits::ForExec space_limits_{host().space.limits()};
};

long execute_guest(const Call& call, const std::string& path, uint64_t arguments, uint64_t environment) {
  auto words = read_words(arguments);
  if (!words) return -errno;
  auto variables = read_words(environment);
  if (!variables) return -errno;
  // Since Linux 5.18 a program has a name, whatever arguments it was given.
  if (words->empty()) words->emplace_back();
  const auto executable = find_executable(path, *words);
  if (!executable) return -executable.error().code;
  if (host().cluster != nullptr) {
    // The nodes are the first program's. A program that takes its place runs without them, as those of its children do.
    const MaskForExec mask(call);
    const NativeSettings settings;
    host().cluster->begin_sharing_descriptors(false);
    host().cluster->process_ends(0);
    const int code = exec_file(path, *words, *variables);
    host().cluster->end_sharing_descriptors();
    return -code;
  }
  std::vector<std::string> command{"mghost"};
  if (host().memory_is_shared) command.emplace_back("--copy-arguments");
  if (host().traps_all_calls) command.emplace_back("--trap-calls");
  command.insert(command.end(), {"--execute", path, "--"});
  command.insert(command.end(), words->begin(), words->end());
  for (std::string& variable : *variables) variable = name_for_host(variable);
  const MaskForExec mask(call);
  return -exec_file("/proc/self/exe", command, *variables);
}

}  // namespace

long execute(Call& call) {
  const auto path = read_guest_string(call.arguments[0], PATH_MAX);
  if (!path) return -errno;
  const std::optional<std::string> real = real_path(*path);
  if (!real) return -ENOENT;
  if (host().is_first && !call.thread.shares_memory)
    return execute_guest(call, *real, call.arguments[1], call.arguments[2]);
  const MaskForExec mask(call);
  const NativeSettings settings;
  return execute_natively(real->c_str(), call.arguments[1], call.arguments[2]);
}

long execute_at(Call& call) {
  const auto path = read_guest_string(call.arguments[1], PATH_MAX);
  if (!path) return -errno;
  if (!host().is_first || call.thread.shares_memory) {
    const MaskForExec mask(call);
    const NativeSettings settings;
    const auto& argument = call.arguments;
    // The path has been copied here, but pages of the vectors may be away.
    if (host().memory_is_shared && (!bring_words(argument[2]) || !bring_words(argument[3]))) return -EFAULT;
    return syscall(SYS_execveat, argument[0], path->c_str(), argument[2], argument[3], argument[4]) == 0 ? 0 : -errno;
  }
  const int flags = call.integer(4);
  if ((flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)) != 0) return -EINVAL;
  if (path->empty() && (flags & AT_EMPTY_PATH) == 0) return -ENOENT;
  const int folder = call.integer(0);
  std::string whole = *path;
  if (path->empty() || (path->front() != '/' && folder != AT_FDCWD)) {
    if (fcntl(folder, F_GETFD) < 0) return -EBADF;
    whole = fmt::format("/proc/self/fd/{}{}{}", folder, path->empty() ? "" : "/", *path);
    char place[PATH_MAX];
    // The folder is given by name, since the descriptor may be closed when the program is executed.
    if (realpath(whole.c_str(), place) != nullptr) whole = place;
  }
  return execute_guest(call, whole, call.arguments[2], call.arguments[3]);
}

}  // namespace multigrain::guest::call
