#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

Status write_output_file(const std::string& name, std::string_view text) {
  std::error_code ignored;
  const bool is_beside = !std::filesystem::exists(name, ignored) || std::filesystem::is_regular_file(name, ignored);
  const std::string unfinished = is_beside ? name + ".unfinished" : name;
  const auto failed = [&]() -> tl::unexpected<Error> {
    const int code = errno;
    if (is_beside) unlink(unfinished.c_str());
    return fail_errno(code, fmt::format("cannot write {}", name));
  };
  std::FILE* const out = std::fopen(unfinished.c_str(), "w");
  if (out == nullptr) return failed();
  const bool is_written = std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0;
  if (!is_written) {
    const int code = errno;
    std::fclose(out);
    errno = code;
    return failed();
  }
  if (std::fclose(out) != 0) return failed();
  if (is_beside && std::rename(unfinished.c_str(), name.c_str()) != 0) return failed();
  return {};
}

}  // namespace multigrain
