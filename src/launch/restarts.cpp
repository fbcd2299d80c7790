#include "launch/restarts.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/files.h"
#include "checkpoint/folder_lock.h"
#include "launch/tell.h"

namespace multigrain {
namespace {

// Returns the number of the folder's checkpoint; 0: there is none that can be used.
uint64_t checkpoint_in(const std::string& folder) {
  if (folder.empty()) return 0;
  const auto head = checkpoint::read_head(folder);
  return head && *head ? (*head)->number : 0;
}

// Returns the lock of the folder to which the run writes checkpoints, if it does.
Result<std::optional<checkpoint::FolderLock>> lock_folder(const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  if (const Status there = checkpoint::make_folder(folder); !there) return tl::unexpected(there.error());
  auto lock = checkpoint::FolderLock::take(folder, checkpoint::FolderLock::Holder::mgrun());
  if (!lock) return tl::unexpected(lock.error());
  return std::move(*lock);
}

}  // namespace

int run_and_restart(LaunchOptions options, const std::function<RunEnd(const LaunchOptions&)>& run_once) {
  const std::string& folder = options.config.checkpoint;
  const bool uses_folder = options.hosts.empty() || options.restarts != 0;
  const auto lock = lock_folder(uses_folder ? folder : "");
  if (!lock) {
    tell("--checkpoint: {}", lock.error().message);
    return 2;
  }
  const uint64_t before = options.restarts == 0 ? 0 : checkpoint_in(folder);
  for (unsigned restarts = 1;; ++restarts) {
    const RunEnd end = run_once(options);
    if (restarts > options.restarts || !end.may_begin_again) return end.status;
    const uint64_t last = checkpoint_in(folder);
    if (last > before) {
      std::erase_if(options.environment, [](const auto& one) { return one.first == "MULTIGRAIN_RESTART"; });
      options.environment.emplace_back("MULTIGRAIN_RESTART", folder);
      options.config.restart = folder;
    }
    const std::string& from = options.config.restart;
    tell("restart {} of {}, from {}", restarts, options.restarts,
         from.empty() ? "the beginning: there is no checkpoint yet" : fmt::format("the checkpoint in {}", from));
  }
}

}  // namespace multigrain
