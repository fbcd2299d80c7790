// Files of /proc that are about this process: the guest sees itself in them, not its host.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace multigrain::guest {

// Whether the path may name one, so that most are told by their first characters.
bool may_be_own_file(std::string_view path);

// The path that the guest means: its own program for /proc/self/exe and the names that are the same, else what was given.
std::string real_path(const std::string& path);

// What the guest reads in the file of that path, if the host has to say it (maps, cmdline, environ).
std::optional<std::string> own_file(const std::string& path);

// What the link of that path says, if it is one of the guest's own program.
std::optional<std::string> own_link(const std::string& path);

}  // namespace multigrain::guest
