#include "timeline/module.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <tuple>
#include <vector>

#include "timeline/module/files.h"

namespace multigrain::timeline {
namespace {

// Writes beside the file first, so that what was there stays until the new contents are complete; but to a device or a pipe
// directly.
Status write_whole(const std::string& file, const std::string& text) {
  std::error_code ignored;
  const bool is_beside = !std::filesystem::exists(file, ignored) || std::filesystem::is_regular_file(file, ignored);
  const std::string unfinished = is_beside ? file + ".unfinished" : file;
  const auto failed = [&]() -> tl::unexpected<Error> {
    const int code = errno;
    if (is_beside) unlink(unfinished.c_str());
    return fail_errno(code, fmt::format("cannot write {}", file));
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
  if (is_beside && std::rename(unfinished.c_str(), file.c_str()) != 0) return failed();
  return {};
}

Status write(WrittenRun& run, const std::string& file, const NodeStatus& own) {
  // Rows are in the order of nodes, processors before the threads of the runtime; a row's events in the order of their times,
  // of two that begin together first the one that has the other inside.
  std::ranges::sort(run.tracks, {},
                    [](const WrittenTrack& track) { return std::tuple(track.node, track.owner, track.number); });
  // Threads of the runtime that had nothing to do would be empty rows.
  std::erase_if(run.tracks,
                [](const WrittenTrack& track) { return track.owner == Owner::kThread && track.events.empty(); });
  for (WrittenTrack& track : run.tracks)
    std::ranges::sort(track.events, {}, [](const Event& event) { return std::tuple(event.begin, ~event.duration); });
  RunNames names(own);
  return write_whole(file, file.ends_with(".html") ? page(run, names) : trace_events(run, names));
}

constexpr Module kModule{.write = &write};

}  // namespace
}  // namespace multigrain::timeline

extern "C" [[gnu::visibility("default")]] const multigrain::timeline::Module* multigrain_timeline_module() {
  return &multigrain::timeline::kModule;
}
