#include "guest/proc_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/own_descriptors.h"
#include "guest/cluster.h"
#include "guest/host.h"
#include "guest/processor_files.h"

namespace multigrain::guest {
namespace {

constexpr std::string_view kProc = "/proc/";
constexpr std::string_view kDescriptors = "/dev/fd/";
constexpr std::string_view kSystem = "/sys/devices/system/";

// A path to something in the folder of this process, or of one of its threads (task/TID), in /proc has these parts.
struct Own {
  std::optional<pid_t> thread;  // the thread, if the path has its number
  std::string_view name;        // the rest of the path
};

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Cuts off the first part of a path, up to its slash, and returns it.
std::string_view take_part(std::string_view& path) {
  const size_t end = std::min(path.find('/'), path.size());
  const std::string_view part = path.substr(0, end);
  path.remove_prefix(std::min(end + 1, path.size()));
  return part;
}

std::optional<Own> own_of(std::string_view path) {
  if (path.starts_with(kDescriptors)) {
    // /dev/fd is a link to the folder fd.
    path.remove_prefix(std::string_view("/dev/").size());
    return Own{.thread = std::nullopt, .name = path};
  }
  if (!path.starts_with(kProc)) return std::nullopt;
  path.remove_prefix(kProc.size());
  const std::string_view process = take_part(path);
  Own own;
  if (process != "self" && process != "thread-self" && process != std::to_string(getpid())) {
    // The number of any thread is a name of the process, though /proc does not list it.
    const auto number = number_in(process);
    if (!number || access(fmt::format("/proc/self/task/{}", *number).c_str(), F_OK) != 0) return std::nullopt;
    own.thread = number;
  }
  if (path.starts_with("task/")) {
    take_part(path);
    own.thread = number_in(take_part(path));
  }
  own.name = path;
  return own;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string with_ends(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all.append(text).push_back('\0');
  return all;
}

// Returns the number of the thread that a file is about.
pid_t thread_of(const Own& own) {
  return own.thread.value_or(gettid());
}

// --- These files of this process are about the host; here they are made to be about the guest.

uint64_t guests_kilobytes() {
  return host().space.mapped_bytes() >> 10;
}

std::string status(const std::string& real, pid_t thread) {
  const unsigned processors = host().processors->all;
  const ProcessorMask mask = host().masks.of(thread, processors);
  std::string text;
  for (std::string_view rest = real; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::string_view key = line.substr(0, std::min(line.find(':'), line.size()));
    if (key == "Cpus_allowed")
      text += fmt::format("{}:\t{}\n", key, mask_text(mask, processors));
    else if (key == "Cpus_allowed_list")
      text += fmt::format("{}:\t{}\n", key, list_text(mask, processors));
    else if (key == "VmSize" || key == "VmPeak")
      text += fmt::format("{}:\t{:8} kB\n", key, guests_kilobytes());
    else if (const auto threads = number_in(line.substr(std::min(key.size() + 2, line.size())));
             key == "Threads" && threads)
      text += fmt::format("{}:\t{}\n", key, *threads - static_cast<int>(host().own_threads.size()));
    else
      text.append(line).push_back('\n');
  }
  return text;
}

// Fields are counted from 1; the second, a name in brackets, may have spaces.
std::string stat(const std::string& real) {
  constexpr size_t kThreads = 20, kBytes = 23;
  const size_t after_name = real.rfind(')');
  if (after_name == std::string::npos) return real;
  std::string text = real.substr(0, after_name + 1);
  size_t field = 2;
  for (std::string_view rest = std::string_view(real).substr(after_name + 1); !rest.empty();) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(end);
    ++field;
    const auto threads = number_in(word);
    if (field == kThreads && threads)
      text += fmt::format(" {}", *threads - static_cast<int>(host().own_threads.size()));
    else if (field == kBytes)
      text += fmt::format(" {}", guests_kilobytes() << 10);
    else
      text += fmt::format(" {}", word);
  }
  return text;
}

std::string statm(const std::string& real) {
  const size_t space = real.find(' ');
  if (space == std::string::npos) return real;
  return fmt::format("{}{}", guests_kilobytes() / (kPageSize >> 10), std::string_view(real).substr(space));
}

std::string limits(const std::string& real) {
  constexpr std::string_view kFiles = "Max open files";
  const size_t begin = real.find(kFiles);
  if (begin == std::string::npos) return real;
  const rlimit limit = own_descriptors::limit_of_program();
  const size_t end = std::min(real.find('\n', begin), real.size());
  const std::string line = fmt::format("{:<25} {:<20} {:<20} files     ", kFiles, limit.rlim_cur, limit.rlim_max);
  return real.substr(0, begin) + line + real.substr(end);
}

std::optional<std::string> file_on_nodes(const std::string& path, const Own& own) {
  if (own.name == "status") return status(content_of(path), thread_of(own));
  if (own.name == "stat") return stat(content_of(path));
  if (own.name == "statm") return statm(content_of(path));
  // The numbers that the host kept for itself are a forked process's again.
  if (own.name == "limits" && host().cluster != nullptr) return limits(content_of(path));
  return std::nullopt;
}

bool is_hosts_descriptor(std::string_view name) {
  const std::string_view folder = take_part(name);
  if (folder != "fd" && folder != "fdinfo") return false;
  const auto number = number_in(take_part(name));
  return number && *number >= own_descriptors::lowest();
}

}  // namespace

bool may_be_own_file(std::string_view path) {
  const auto begins_like = [path](std::string_view folder) {
    const size_t telling = std::min({path.size(), folder.size(), kTellingCharacters});
    return telling != 0 && path.substr(0, telling) == folder.substr(0, telling);
  };
  // A path that is written in an unusual way is looked at more closely.
  if (path.starts_with(kProc) || path.starts_with("//") || path.starts_with("/./")) return true;
  return (host().processors && begins_like(kSystem)) || (host().cluster != nullptr && begins_like(kDescriptors));
}

std::string whole_path(int folder, const std::string& path) {
  std::string whole = path;
  if (!path.starts_with('/') && folder != AT_FDCWD) {
    char place[PATH_MAX];
    const ssize_t length = readlink(fmt::format("/proc/self/fd/{}", folder).c_str(), place, sizeof place);
    if (length <= 0 || place[0] != '/') return path;
    whole = fmt::format("{}/{}", std::string_view(place, static_cast<size_t>(length)), path);
  }
  if (!may_be_own_file(whole)) return path;
  std::string plain;
  for (std::string_view rest = whole; !rest.empty();) {
    const std::string_view part = take_part(rest);
    if (part.empty() || part == ".") continue;
    // A link may lead elsewhere, so only the kernel can find the file behind it.
    if (part == "..") return whole;
    plain.append("/").append(part);
  }
  return plain;
}

std::optional<std::string> real_path(const std::string& path) {
  if (const auto own = own_of(path)) {
    if (own->name == "exe") return host().executable.path;
    if (host().cluster == nullptr) return path;
    if ((own->thread && is_host_thread(*own->thread)) || is_hosts_descriptor(own->name)) return std::nullopt;
    return path;
  }
  if (!host().processors) return path;
  const std::string real = processor_path(path, *host().processors);
  return real.empty() ? std::nullopt : std::optional(real);
}

std::optional<std::string> own_link(const std::string& path) {
  const auto own = own_of(path);
  if (!own || own->name != "exe") return std::nullopt;
  return host().executable.path;
}

std::optional<std::string> own_file(const std::string& path) {
  Host& state = host();
  const auto own = own_of(path);
  if (!own) return state.processors ? processor_file(path, *state.processors, &content_of) : std::nullopt;
  if (own->name == "maps") return state.space.describe(content_of("/proc/self/maps"));
  if (own->name == "cmdline") return with_ends(state.executable.arguments);
  if (own->name == "environ") return with_ends(state.environment);
  if (own->name == "auxv") return state.auxiliary;
  return state.processors && !(own->thread && is_host_thread(*own->thread)) ? file_on_nodes(path, *own) : std::nullopt;
}

ProcFolder proc_folder(std::string_view path) {
  // The kernel names the file as /proc/PID/... or /proc/PID/task/TID/...
  const auto own = own_of(path);
  if (!own) return ProcFolder::kOther;
  if (own->name == "fd" || own->name == "fdinfo") return ProcFolder::kDescriptors;
  return own->name == "task" ? ProcFolder::kThreads : ProcFolder::kOther;
}

bool is_host_thread(pid_t tid) {
  return std::ranges::find(host().own_threads, tid) != host().own_threads.end();
}

std::vector<pid_t> threads_beside_this() {
  std::vector<pid_t> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/task"), &closedir);
  if (folder == nullptr) return threads;
  while (const dirent* const entry = readdir(folder.get()))
    if (const auto number = number_in(entry->d_name); number && *number != gettid()) threads.push_back(*number);
  return threads;
}

}  // namespace multigrain::guest
