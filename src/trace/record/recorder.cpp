#include "trace/record/recorder.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/child_process.h"
#include "base/clock.h"
#include "trace/record/raw.h"

namespace multigrain::trace {
namespace {

// While the program runs, it alone gets the keyboard's signals. If they end it, the recorder merges what it has
// recorded until then.
class KeyboardSignals {
 public:
  KeyboardSignals() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &interrupt_);
    sigaction(SIGQUIT, &ignore, &quit_);
  }
  ~KeyboardSignals() { restore(); }
  KeyboardSignals(const KeyboardSignals&) = delete;
  KeyboardSignals& operator=(const KeyboardSignals&) = delete;
  void restore() const {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGQUIT, &quit_, nullptr);
  }

 private:
  struct sigaction interrupt_ = {};
  struct sigaction quit_ = {};
};

// This is a descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// The traced program's descriptors are far from those that it expects to get from open().
constexpr int kFirstDescriptor = 100;

}  // namespace

Result<int> open_unnamed(const std::string& directory) {
  int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
    // The file system cannot make files without a name, so this makes one with a name and removes the name.
    std::string name = directory + "/.mgtrace-XXXXXX";
    fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd >= 0) unlink(name.c_str());
  }
  if (fd < 0) return fail_errno(errno, fmt::format("cannot make a file for the recorder's streams in '{}'", directory));
  return fd;
}

Result<RunResult> run_command(const std::vector<std::string>& command, bool quiet,
                              const std::vector<std::string>& environment) {
  const KeyboardSignals signals;
  ChildStart program;
  program.command = command;
  program.environment = environment;
  program.parent_death_signal = SIGKILL;
  if (quiet) program.input = program.output = kNullDescriptor;
  program.prepare = [&signals] {
    signals.restore();
    return true;
  };
  const Nanoseconds start = monotonic_ns();
  const auto child = start_child(program);
  if (!child) return tl::unexpected(child.error());
  const int status = wait_for_child(*child);
  RunResult result;
  result.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.exit_status = result.signal != 0 ? 128 + result.signal : WEXITSTATUS(status);
  return result;
}

Result<Recording> record_program(const RecordOptions& options) {
  Recording recording;
  if (!options.baseline.empty()) {
    std::vector<std::string> command = options.command;
    if (!command.empty()) command.front() = options.baseline;
    auto run = run_command(command, true);
    if (!run) return tl::unexpected(run.error());
    recording.baseline = *run;
  }

  auto chunks_file = open_unnamed(options.scratch_directory);
  if (!chunks_file) return tl::unexpected(chunks_file.error());
  const Descriptor chunks(*chunks_file);
  const Descriptor descriptions(memfd_create("mgtrace-descriptions", MFD_CLOEXEC));
  if (descriptions.get() < 0) return fail_errno(errno, "cannot make a file for the recorder's descriptions");
  raw::Control control = {};
  control.version = raw::kVersion;
  control.stop_clock = ~uint64_t{0};
  control.reference_limit = options.max_references;
  control.bursts = options.bursts;
  if (ftruncate(chunks.get(), raw::kChunkBytes) != 0 ||
      pwrite(chunks.get(), &control, sizeof control, 0) != static_cast<ssize_t>(sizeof control)) {
    return fail_errno(errno, fmt::format("cannot write the recorder's streams in '{}'", options.scratch_directory));
  }
  RunResult run;
  {
    // These are copies without close-on-exec, for the program alone.
    const Descriptor inherited_chunks(fcntl(chunks.get(), F_DUPFD, kFirstDescriptor));
    const Descriptor inherited_descriptions(fcntl(descriptions.get(), F_DUPFD, kFirstDescriptor));
    if (inherited_chunks.get() < 0 || inherited_descriptions.get() < 0) {
      return fail_errno(errno, "cannot pass the recorder's files to the program");
    }
    if (lseek(inherited_descriptions.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "cannot use a memory file");
    auto result =
        run_command(options.command, false,
                    {fmt::format("{}={},{}", raw::kEnvironment, inherited_chunks.get(), inherited_descriptions.get())});
    if (!result) return tl::unexpected(result.error());
    run = *result;
  }
  recording.run = run;
  if (pread(chunks.get(), &control, sizeof control, 0) != static_cast<ssize_t>(sizeof control)) {
    return fail_errno(errno, "cannot read the recorder's streams");
  }
  if (control.attached == 0) {
    return fail(
        "'{}' recorded nothing, because it does not contain the recorder: build it with 'mgtrace cc' or "
        "'mgtrace c++', or record it as it is with --single-step",
        options.command.front());
  }
  auto merged =
      MergedTrace::open(chunks.get(), descriptions.get(), fmt::format("{}", fmt::join(options.command, " ")), true);
  if (!merged) return tl::unexpected(merged.error());
  recording.trace = std::move(*merged);
  if (options.bursts.is_on() && recording.trace->capacity() == 0) {
    return fail(
        "none of the {} references of '{}' is in a burst: bursts of {} in intervals of {} are too few for a run that is so "
        "short",
        recording.trace->facts().skipped_references, options.command.front(), options.bursts.burst,
        options.bursts.interval);
  }
  if (recording.baseline.seconds > 0) {
    recording.dilation = run.seconds / recording.baseline.seconds;
    recording.trace->set_dilation(recording.dilation);
  }
  return recording;
}

}  // namespace multigrain::trace
