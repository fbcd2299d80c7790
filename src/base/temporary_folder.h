// A folder for files of a command's own, which is gone with the object.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace multigrain {

class TemporaryFolder {
 public:
  // Makes the folder where the system's temporary files are. Its name begins with `prefix`.
  explicit TemporaryFolder(const std::string& prefix) {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / (prefix + "-XXXXXX")).string();
    if (!error && mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  // Empty: the folder could not be made.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace multigrain
