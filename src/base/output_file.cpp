#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace multigrain {

Result<std::string> check_output_file(const std::string& name) {
  const auto wrong = [&](int code) { return fail_errno(code, fmt::format("cannot write '{}'", name)); };
  std::error_code failed;
  std::string absolute = std::filesystem::absolute(name, failed);
  if (failed) return wrong(failed.value());
  // A file that does not exist is made, and removed again.
  const int made = open(absolute.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (made >= 0) {
    close(made);
    unlink(absolute.c_str());
    return absolute;
  }
  if (errno != EEXIST) return wrong(errno);
  struct stat there{};
  if (stat(absolute.c_str(), &there) == 0 && S_ISDIR(there.st_mode)) return wrong(EISDIR);
  // The file is not opened: a pipe would wait for its reader, and show it an end.
  if (access(absolute.c_str(), W_OK) != 0) return wrong(errno);
  return absolute;
}

}  // namespace multigrain
