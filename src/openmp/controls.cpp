#include "openmp/controls.h"

#include <multigrain/multigrain.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <string_view>

#include "runtime/running.h"

namespace multigrain::openmp {
namespace {

constinit Controls g_initial{};
constinit GlobalControls g_global{};
constinit std::once_flag g_read{};

bool is_node_0() {
  if (__multigrain_is_running() != 0) return mg_node() == 0;
  const char* const number = std::getenv("MULTIGRAIN_NODE");
  return number == nullptr || std::strcmp(number, "0") == 0;
}

void tell(const char* name, std::string_view value, const char* wanted) {
  if (!is_node_0()) return;
  std::fprintf(stderr, "multigrain: OpenMP: the variable %s is '%.*s', which is ignored: it must be %s\n", name,
               static_cast<int>(value.size()), value.data(), wanted);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Returns the variable's value without the spaces around it; an empty one counts as not there.
std::string_view variable(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? trimmed(text) : std::string_view();
}

bool is_word(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::ranges::equal(text, word, same);
}

// Takes text up to the separator off the front of `rest`.
std::string_view next_item(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  const std::string_view item = trimmed(rest.substr(0, end));
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return item;
}

bool read_number(std::string_view text, int64_t smallest, int64_t& number) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < smallest) return false;
  number = std::min<int64_t>(value, std::numeric_limits<int32_t>::max());
  return true;
}

bool read_truth(std::string_view text, bool& truth) {
  for (const std::string_view word : {"true", "1", "yes", "on"})
    if (is_word(text, word)) return truth = true, true;
  for (const std::string_view word : {"false", "0", "no", "off"})
    if (is_word(text, word)) return truth = false, true;
  return false;
}

template <typename T>
void number_variable(const char* name, int64_t smallest, T& target) {
  const std::string_view text = variable(name);
  int64_t number = 0;
  if (text.empty()) return;
  if (read_number(text, smallest, number))
    target = static_cast<T>(number);
  else
    tell(name, text, smallest == 0 ? "a whole number from 0" : "a whole number from 1");
}

bool truth_variable(const char* name, bool& target) {
  const std::string_view text = variable(name);
  if (text.empty()) return false;
  if (read_truth(text, target)) return true;
  tell(name, text, "true or false");
  return false;
}

// The list has a number for each level of nested regions, of which this library has one that is active.
void read_num_threads() {
  const std::string_view text = variable("OMP_NUM_THREADS");
  if (text.empty()) return;
  int64_t first = 0;
  bool is_first = true;
  for (std::string_view rest = text; !rest.empty() || is_first; is_first = false) {
    int64_t number = 0;
    if (!read_number(next_item(rest, ','), 1, number)) {
      tell("OMP_NUM_THREADS", text, "a number from 1, or several with commas between them");
      return;
    }
    if (is_first) first = number;
  }
  g_initial.threads = static_cast<uint32_t>(first);
}

// [modifier:]kind[,chunk]
bool parse_schedule(std::string_view text, Schedule& schedule) {
  Schedule read;
  if (text.find(':') != std::string_view::npos) {
    const std::string_view modifier = next_item(text, ':');
    if (!is_word(modifier, "monotonic") && !is_word(modifier, "nonmonotonic")) return false;
    read.monotonic = is_word(modifier, "monotonic");
  }
  const bool has_chunk = text.find(',') != std::string_view::npos;
  const std::string_view kind = next_item(text, ',');
  if (is_word(kind, "static"))
    read.kind = ScheduleKind::kStatic;
  else if (is_word(kind, "dynamic"))
    read.kind = ScheduleKind::kDynamic;
  else if (is_word(kind, "guided"))
    read.kind = ScheduleKind::kGuided;
  else if (is_word(kind, "auto"))
    read.kind = ScheduleKind::kAuto;
  else
    return false;
  if (has_chunk && !read_number(trimmed(text), 1, read.chunk)) return false;
  schedule = read;
  return true;
}

void read_schedule() {
  const std::string_view text = variable("OMP_SCHEDULE");
  if (!text.empty() && !parse_schedule(text, g_initial.schedule))
    tell("OMP_SCHEDULE", text,
         "static, dynamic, guided or auto, perhaps with a comma and a chunk size from 1 behind it");
}

void read_environment() {
  g_initial.threads = __multigrain_expected_processors();
  read_num_threads();
  read_schedule();
  truth_variable("OMP_DYNAMIC", g_initial.dynamic);
  number_variable("OMP_THREAD_LIMIT", 1, g_initial.thread_limit);
  bool nested = false;
  truth_variable("OMP_NESTED", nested);
  number_variable("OMP_MAX_ACTIVE_LEVELS", 0, g_initial.max_active_levels);
  g_initial.max_active_levels = std::min(g_initial.max_active_levels, kSupportedLevels);
  number_variable("OMP_NUM_TEAMS", 0, g_global.teams);
  number_variable("OMP_TEAMS_THREAD_LIMIT", 0, g_global.teams_thread_limit);
  number_variable("OMP_MAX_TASK_PRIORITY", 0, g_global.max_task_priority);
  number_variable("OMP_DEFAULT_DEVICE", 0, g_initial.default_device);
  bool cancels = false;
  if (truth_variable("OMP_CANCELLATION", cancels) && cancels && is_node_0())
    std::fputs("multigrain: OpenMP: the variable OMP_CANCELLATION is ignored: nothing is ever cancelled\n", stderr);
  const std::string_view display = variable("OMP_DISPLAY_ENV");
  bool shown = is_word(display, "verbose");
  if (display.empty() || (!shown && !read_truth(display, shown))) {
    if (!display.empty()) tell("OMP_DISPLAY_ENV", display, "true, false or verbose");
  } else if (shown && is_node_0()) {
    display_environment(g_initial, is_word(display, "verbose"));
  }
}

const char* name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kDynamic:
      return "DYNAMIC";
    case ScheduleKind::kGuided:
      return "GUIDED";
    case ScheduleKind::kAuto:
      return "AUTO";
    case ScheduleKind::kStatic:
      break;
  }
  return "STATIC";
}

}  // namespace

const Controls& initial_controls() {
  std::call_once(g_read, &read_environment);
  return g_initial;
}

GlobalControls& global_controls() {
  initial_controls();
  return g_global;
}

void display_environment(const Controls& controls, bool verbose) {
  std::fprintf(stderr, "\nOPENMP DISPLAY ENVIRONMENT BEGIN\n   _OPENMP='201811'\n");
  const auto number = [](const char* name, unsigned long value) {
    std::fprintf(stderr, "  [host] %s='%lu'\n", name, value);
  };
  const auto text = [](const char* name, const char* value) {
    std::fprintf(stderr, "  [host] %s='%s'\n", name, value);
  };
  text("OMP_CANCELLATION", "FALSE");
  number("OMP_DEFAULT_DEVICE", static_cast<unsigned long>(controls.default_device));
  text("OMP_DYNAMIC", controls.dynamic ? "TRUE" : "FALSE");
  number("OMP_MAX_ACTIVE_LEVELS", controls.max_active_levels);
  number("OMP_MAX_TASK_PRIORITY", static_cast<unsigned long>(g_global.max_task_priority));
  text("OMP_NESTED", "FALSE");
  number("OMP_NUM_TEAMS", g_global.teams);
  number("OMP_NUM_THREADS", controls.threads);
  text("OMP_PROC_BIND", "FALSE");
  std::fprintf(stderr, "  [host] OMP_SCHEDULE='%s%s", controls.schedule.monotonic ? "MONOTONIC:" : "",
               name_of(controls.schedule.kind));
  if (controls.schedule.chunk != 0) std::fprintf(stderr, ",%ld", static_cast<long>(controls.schedule.chunk));
  std::fputs("'\n", stderr);
  number("OMP_TEAMS_THREAD_LIMIT", g_global.teams_thread_limit);
  number("OMP_THREAD_LIMIT", controls.thread_limit);
  if (verbose && __multigrain_is_running() != 0) {
    std::fprintf(stderr, "  [host] MULTIGRAIN_NODES='%u'\n", mg_nodes());
    std::fprintf(stderr, "  [host] MULTIGRAIN_PROCS_PER_NODE='%u'\n", mg_processors_per_node());
  }
  std::fputs("OPENMP DISPLAY ENVIRONMENT END\n\n", stderr);
}

}  // namespace multigrain::openmp
