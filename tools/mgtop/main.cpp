// mgtop shows what a run that mgrun has started on this machine is doing, while it runs.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "base/quantity.h"
#include "base/standard_output.h"
#include "jobs.h"
#include "view.h"

namespace {

using multigrain::Job;

constexpr const char* kHelp =
    "usage: mgtop [--once] [--interval SECONDS] [JOB]\n\n"
    "Shows what the processors of a job do, how often they fault and send messages, and which memory faults most; without JOB,\n"
    "which is the number of an mgrun's process, lists the jobs of this user. Only nodes on this machine are shown.\n\n"
    "  --once                show one interval, and end\n"
    "  --interval SECONDS    time between two pictures, 0.1 to 60 (default 1)\n"
    "  --help, --version\n\n"
    "In a terminal the picture is renewed until q is pressed or the job ends; elsewhere each is printed.\n";

int refuse(const std::string& sentence) {
  fmt::print(stderr, "mgtop: {}\n", sentence);
  return 2;
}

volatile sig_atomic_t g_ended_by = 0;

void note(int signal) {
  g_ended_by = signal;
}

// The terminal shows another screen, and gives each key at once, until this ends. Signals that would end the process before it is
// as it was arrive only in wait_for_end(), which says so.
class Screen {
 public:
  Screen() {
    sigset_t ending;
    sigemptyset(&ending);
    struct sigaction action{};
    action.sa_handler = note;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
      sigaddset(&ending, signal);
      sigaction(signal, &action, nullptr);
    }
    sigprocmask(SIG_BLOCK, &ending, &mask_before_);
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // a shell that gets the terminal back must not find it so
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    multigrain::print_text("\x1b[?1049h\x1b[?25l");
    std::fflush(stdout);
  }
  ~Screen() {
    multigrain::print_text("\x1b[?25h\x1b[?1049l");
    std::fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    if (g_ended_by == 0) return;
    // The caller learns of the signal as if it had not been handled.
    signal(g_ended_by, SIG_DFL);
    raise(g_ended_by);
    sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Waits for so long, or until q is pressed or a signal is to end the process: then returns true.
  [[nodiscard]] bool wait_for_end(int milliseconds) const {
    pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const timespec limit{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000L};
    const int ready = ppoll(&keys, 1, &limit, &mask_before_);
    if (g_ended_by != 0) return true;
    if (ready <= 0) return false;  // a change of the window's size ends the wait, too
    char key = 0;
    return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q';
  }

 private:
  termios before_{};
  sigset_t mask_before_{};
};

int list() {
  const auto jobs = multigrain::find_jobs();
  if (jobs.empty()) {
    multigrain::print_text("no job of this user runs on this machine (mgrun starts one)\n");
    return 0;
  }
  std::string text = fmt::format("{:>9}  {:>7}  {}\n", "job", "nodes", "program");
  for (const Job& job : jobs) text += fmt::format("{:>9}  {:>7}  {}\n", job.pid, job.nodes.size(), job.program());
  multigrain::print_text(text);
  return 0;
}

int show(const Job& job, bool once, double interval) {
  multigrain::View view(job);
  view.frame(0, 0);
  const int milliseconds = static_cast<int>(interval * 1000);
  if (once || isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0) {
    do {
      usleep(static_cast<useconds_t>(milliseconds) * 1000);
      if (job.has_ended()) break;
      multigrain::print_text(view.frame(0, 0) + (once ? "" : "\n"));
      std::fflush(stdout);
    } while (!once && std::ferror(stdout) == 0);
  } else {
    const Screen screen;
    while (!job.has_ended() && !screen.wait_for_end(milliseconds)) {
      winsize size{};
      ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
      multigrain::print_text("\x1b[H\x1b[2J" +
                             view.frame(size.ws_row > 2 ? size.ws_row - 1u : 24u, size.ws_col > 0 ? size.ws_col : 80u));
      std::fflush(stdout);
    }
  }
  if (job.has_ended()) fmt::print(stderr, "mgtop: the job has ended\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  multigrain::fail_if_output_is_lost("mgtop");
  bool once = false;
  double interval = 1;
  std::optional<uint64_t> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") {
      multigrain::print_text(kHelp);
      return 0;
    }
    if (word == "--version") {
      multigrain::print_text("mgtop (Multigrain) " MULTIGRAIN_VERSION "\n");
      return 0;
    }
    if (word == "--once") {
      once = true;
    } else if (word == "--interval") {
      constexpr multigrain::Unit kSeconds[] = {{"", 1}};
      const auto given = i + 1 < argc ? multigrain::parse_quantity(argv[++i], kSeconds) : std::nullopt;
      if (!given || *given < 0.1 || *given > 60) return refuse("--interval must be a number of seconds from 0.1 to 60");
      interval = *given;
    } else if (word.starts_with('-')) {
      return refuse(fmt::format("unknown option '{}' (mgtop --help lists the options)", word));
    } else {
      if (wanted) return refuse("only one job can be shown");
      wanted = multigrain::parse_whole(word, 1u << 30);
      if (!wanted) return refuse(fmt::format("'{}' is no job: a job is the number of an mgrun's process", word));
    }
  }
  if (!wanted) return list();
  const auto job = multigrain::open_job(static_cast<pid_t>(*wanted));
  if (!job) return refuse(job.error().message);
  return show(*job, once, interval);
}
