#include "runtime/compiled_races.h"

#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/lock_guard.h"
#include "base/mutex.h"
#include "base/standard_error.h"
#include "fabric/module.h"
#include "races/compiled/abi.h"
#include "races/module.h"
#include "runtime/node.h"
#include "runtime/private/globals.h"
#include "runtime/private/loaded_objects.h"
#include "runtime/private/object_notes.h"
#include "runtime/private/private_heap.h"
#include "status/node_status.h"

// Of threads/program.h, which stands above.
extern "C" [[gnu::weak, gnu::visibility("default")]] const int multigrain_program_of_threads;

namespace multigrain {
namespace {

using races::CompiledDetector;
using races::Contexts;
using races::Race;

constexpr unsigned kMostCalls = 12;

// What reports need of this node.
struct Reports {
  const races::Module* module = nullptr;
  unsigned processors_per_node = 1;
  unsigned processors = 1;
  Mutex lock;
  std::unique_ptr<races::Places> places MG_GUARDED_BY(lock);
};
Reports* g_reports = nullptr;

// Of Multigrain's own, such as the one that names places (fabric/module.h).
bool is_module(std::string_view path) {
  return path.substr(path.rfind('/') + 1).starts_with("multigrain-");
}

// Returns the name of what was not compiled for the detector, of the executable and the libraries that came with it; nothing if
// all were.
std::string find_silent() {
  std::string name;
  const auto visit = [](dl_phdr_info* object, size_t, void* result) {
    const std::string_view path = object->dlpi_name != nullptr ? object->dlpi_name : "";
    const bool is_program = path.empty();
    if (!is_program && (holds(*object, reinterpret_cast<uintptr_t>(&find_silent)) || is_system_library(path) ||
                        is_openmp_runtime(path) || is_module(path)))
      return 0;
    bool has = false;
    for_each_note(*object, [&](uint32_t type, uint32_t version) {
      has |= type == MG_RACES_NOTE_TYPE && version == MG_RACES_VERSION;
    });
    if (has) return 0;
    *static_cast<std::string*>(result) = is_program ? program_invocation_name : path;
    return 1;
  };
  dl_iterate_phdr(visit, &name);
  return name;
}

uint64_t memory_limit(const Config& config) {
  if (config.races_memory != 0) return config.races_memory;
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) / 2;
}

std::string owner_name(unsigned owner) {
  if (owner >= g_reports->processors) return fmt::format("a thread beside processors (number {})", owner);
  return fmt::format("processor {} on node {}", owner, owner / g_reports->processors_per_node);
}

// " or 12 or 14", if the text ends with a line and the code tells of accesses in these lines, too (races/compiled/abi.h).
std::string tell_other_lines(const std::string& text, uint64_t place) {
  const size_t digits = text.find_last_not_of("0123456789") + 1;
  if (digits == text.size() || digits == 0 || text[digits - 1] != ':') return {};
  const int64_t line = std::strtoll(&text[digits], nullptr, 10);
  std::string others;
  for (uint64_t rest = races::g_compiled_detector->memory().other_lines(Contexts::place(place, 0)); rest != 0;
       rest >>= 16)
    others += fmt::format(" or {}", line + static_cast<int16_t>(rest));
  return others;
}

std::string describe(races::Places& places, const Contexts& contexts, const Race::Access& access) {
  const std::string where = places.instruction(Contexts::code_of(access.place));
  std::string text =
      fmt::format("{}{} by {}: {}{}", access.is_atomic ? "atomic " : "", access.is_write ? "write" : "read",
                  owner_name(access.owner), where, tell_other_lines(where, access.place));
  unsigned calls = 0;
  contexts.for_each_call(access.place, [&](uint64_t site) {
    // Not those who call main(), or a function on a processor.
    if (!in_program_code(reinterpret_cast<const void*>(site))) return true;
    text += fmt::format("\n    called from {}", places.instruction(site - 1));
    return ++calls < kMostCalls;
  });
  return text;
}

std::string describe_block(races::Places& places, const races::RaceMemory::Block& block, uint64_t address) {
  std::string text =
      fmt::format(", byte {} of a block of {} bytes at {:#x}", address - block.begin, block.bytes, block.begin);
  if (block.made != 0)
    text += fmt::format(", allocated by {}: {}", owner_name(block.made_by), places.instruction(block.made - 1));
  return text;
}

void tell(const Race& race, const Contexts& contexts) {
  const BootHeapScope boot;
  const LockGuard one_at_a_time(g_reports->lock);
  if (!g_reports->places) g_reports->places = g_reports->module->places(*node_status());
  races::Places& places = *g_reports->places;
  const auto block = races::g_compiled_detector->memory().block_at(race.address);
  const std::string where = block ? describe_block(places, *block, race.address) : std::string();
  write_to_standard_error(
      fmt::format("multigrain: data race at {:#x}{}:\n"
                  "  {}\n"
                  "  an earlier {}\n"
                  "  no synchronisation orders them\n",
                  race.address, where, describe(places, contexts, race.now), describe(places, contexts, race.earlier)));
}

}  // namespace

Status start_compiled_races(Node& node) {
  const Config& config = node.config();
  if (const std::string silent = find_silent(); !silent.empty())
    return fail(
        "--check-races: the accesses of {} do not tell of themselves: compile and link all of the program with mgcc or mg++ and "
        "-fmultigrain-races (and -g, to see lines); mgrun --races needs no such option",
        silent);
  const bool is_of_threads = &multigrain_program_of_threads != nullptr;
  if (is_of_threads && config.nodes == 1)
    return fail(
        "--check-races: on one node a program of threads is what it is without Multigrain, and shares no memory of Multigrain's: "
        "give --nodes 2, or more");
  const auto open = load_module(races::kModuleName, races::kModuleSymbol);
  if (!open) return fail("--check-races: {}", open.error().message);
  g_reports = new Reports;
  g_reports->module = reinterpret_cast<decltype(&multigrain_races_module)>(*open)();
  g_reports->processors_per_node = config.processors_per_node;
  g_reports->processors = config.processors();
  auto memory = races::RaceMemory::create(config.races_fd, memory_limit(config));
  if (!memory) return tl::unexpected(memory.error());
  if (config.races_fd >= 0) close(config.races_fd);
  // Processors of one node share its globals.
  std::vector<CompiledDetector::Part> parts;
  const std::span<const Range> globals = program_globals();
  if (config.nodes == 1)
    for (const Range& range : globals) parts.push_back({reinterpret_cast<uint64_t>(range.begin), range.length});
  races::g_compiled_detector = new CompiledDetector(*memory, node.region(),
                                                    {.processors = config.processors(),
                                                     .beside = is_of_threads ? Config::kMaxRacingBeside : 0,
                                                     .has_shared_posix = is_of_threads},
                                                    std::move(parts), &tell);
  return {};
}

bool have_compiled_races_found() {
  return races::g_compiled_detector != nullptr && races::g_compiled_detector->memory().head().found.load() != 0;
}

void finish_compiled_races() {
  if (!have_compiled_races_found()) return;
  const races::RaceMemory::Head& head = races::g_compiled_detector->memory().head();
  const uint64_t pairs = head.pairs.load();
  std::string text =
      fmt::format("multigrain: --check-races: {} pair{} of places race{}, seen {} time{}\n", pairs,
                  pairs == 1 ? "" : "s", pairs == 1 ? "s" : "", head.found.load(), head.found.load() == 1 ? "" : "s");
  if (const uint64_t more = head.not_told.load(); more != 0)
    text += fmt::format("multigrain: --check-races: {} times a race was between places that were not told any more\n",
                        more);
  write_to_standard_error(text);
}

}  // namespace multigrain
