// Files of /proc and /sys that are about this process or its processors: the guest sees itself in them, not its host.
//
// They are the home's: a thread that is away has its calls about them carried out there.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace multigrain::guest {

// Whether the path may name one, so that most are told by their first characters: this many at least, or all there are.
inline constexpr size_t kTellingCharacters = 8;
bool may_be_own_file(std::string_view path);

// The same file by a path that the functions below understand: of a folder's descriptor, the whole path, and no name twice.
std::string whole_path(int folder, const std::string& path);

// The path that the guest means: its own program for /proc/self/exe and the names that are the same, else what was given.
// nullopt: there is no such file for the guest.
std::optional<std::string> real_path(const std::string& path);

// What the guest reads in the file of that path, if the host has to say it (maps, cmdline, environ).
std::optional<std::string> own_file(const std::string& path);

// What the link of that path says, if it is one of the guest's own program.
std::optional<std::string> own_link(const std::string& path);

// A folder in which the host has entries: of descriptors or of threads of this process.
enum class ProcFolder { kOther, kDescriptors, kThreads };
ProcFolder proc_folder(std::string_view path);
// Whether a thread of this process is none of the guest's.
bool is_host_thread(pid_t tid);
// All threads of this process but the calling one are the host's.
std::vector<pid_t> threads_beside_this();

}  // namespace multigrain::guest
