#include "calibrate.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/output_file.h"
#include "count/instruction_costs.h"
#include "emulation/machines.h"
#include "memory/access_rights.h"
#include "memory/diff.h"
#include "memory/region.h"
#include "program_run.h"

namespace multigrain::bench {
namespace {

using nlohmann::ordered_json;

constexpr size_t kPageBytes = 4096;
constexpr unsigned kCallRounds = 200;

// A price in nanoseconds, with how it was found out.
struct Price {
  double ns = 0;
  std::string source;
};

// At most three digits behind the point, which is a picosecond.
double rounded(double ns) {
  return std::round(std::max(0.0, ns) * 1000) / 1000;
}

std::string spread_of(const Summary& s) {
  return fmt::format("p50 of {}, p99 {:.3g} ns", s.count, s.p99);
}

Price measured(const Summary& s, std::string_view what) {
  return {s.p50, fmt::format("measured: {} ({})", what, spread_of(s))};
}

ordered_json figure_of(const Price& price) {
  return {{"value", rounded(price.ns)}, {"source", price.source}};
}

template <typename Work>
double duration_of(Work&& work) {
  const uint64_t start = ticks();
  work();
  return static_cast<double>(ticks() - start) * 1000 / ticks_per_us();
}

// --- Rights and pages' bytes

struct PageTimes {
  Summary grant, revoke;               // of a call for one page
  Summary granted_page, revoked_page;  // each page of a call for many
  Summary copy, compare, apply;        // of a byte
  std::string mechanism;
};

Summary divided(std::vector<double> samples, double by) {
  for (double& sample : samples) sample /= by;
  return summarise(std::move(samples));
}

Result<PageTimes> measure_pages() {
  constexpr uint64_t kPages = 64;
  auto region = Region::create(4 * kPages * kPageBytes, kPageBytes);
  if (!region) return tl::unexpected(region.error());
  auto rights = choose(AccessMechanism::kAutomatic, *region);
  if (!rights) return tl::unexpected(rights.error());
  for (uint64_t p = 0; p < kPages; ++p) region->alias(PageId(p))[0] = std::byte{1};
  std::vector<double> grants, revokes, many_grants, many_revokes;
  for (unsigned round = 0; round < kCallRounds; ++round) {
    grants.push_back(duration_of([&] { (*rights)->grant_read(PageId(1), 1); }));
    revokes.push_back(duration_of([&] { (*rights)->revoke(PageId(1), 1); }));
    many_grants.push_back(duration_of([&] { (*rights)->grant_read(PageId(0), kPages); }));
    many_revokes.push_back(duration_of([&] { (*rights)->revoke(PageId(0), kPages); }));
  }
  PageTimes times;
  times.mechanism = (*rights)->name();
  times.grant = summarise(grants);
  times.revoke = summarise(revokes);
  times.granted_page = divided(many_grants, kPages);
  times.revoked_page = divided(many_revokes, kPages);

  std::vector<std::byte> diff(max_encoded_size(kPageBytes));
  std::byte* const page = region->alias(PageId(kPages));
  std::byte* const twin = region->alias(PageId(kPages + 1));
  std::vector<double> copies, compares, applies;
  for (unsigned round = 0; round < kCallRounds; ++round) {
    std::fill_n(page, kPageBytes, static_cast<std::byte>(round));
    copies.push_back(duration_of([&] { copy_page(twin, page, kPageBytes); }));
    // Every eighth word has changed.
    for (size_t i = 0; i < kPageBytes; i += 64) page[i] = static_cast<std::byte>(round + 1);
    size_t length = 0;
    compares.push_back(duration_of([&] { length = encode_diff(page, twin, kPageBytes, diff); }));
    bool good = false;
    const double took = duration_of([&] { good = apply_diff(twin, kPageBytes, std::span(diff).first(length)); });
    if (!good) return fail("a diff does not fit its page");
    applies.push_back(took / static_cast<double>(length));
  }
  times.copy = divided(copies, kPageBytes);
  times.compare = divided(compares, kPageBytes);
  times.apply = summarise(applies);
  return times;
}

// By how much a call costs more if two threads make such calls on two cores; 1 if there are not two.
struct Together {
  double grant = 1, revoke = 1;
};
Together measure_rights_of_two(const std::string& mechanism) {
  ChildStart start;
  start.command = {path_of_mgbench(), "rights", "--threads", "1,2", "--rounds", "20", "--json"};
  const auto output = run_and_read(start);
  const auto json = output && output->succeeded() ? nlohmann::json::parse(output->text, nullptr, false)
                                                  : nlohmann::json(nlohmann::json::value_t::discarded);
  if (json.is_discarded() || json["cores"] < 2) return {};
  double upgrade[3] = {}, downgrade[3] = {};
  for (const auto& row : json["rows"]) {
    if (!mechanism.starts_with(row["mechanism"].get<std::string>())) continue;
    upgrade[row["threads"].get<unsigned>()] = row["upgrade_us"];
    downgrade[row["threads"].get<unsigned>()] = row["downgrade_us"];
  }
  if (upgrade[1] <= 0 || downgrade[1] <= 0) return {};
  return {std::max(1.0, upgrade[2] / upgrade[1]), std::max(1.0, downgrade[2] / downgrade[1])};
}

// --- The runtime

Summaries run_pages(const char* name) {
  const auto role = std::ranges::find_if(roles(), [&](const Role& one) { return std::string_view(one.name) == name; });
  return run_and_collect({path_of_mgrun(), "--nodes", std::to_string(role->nodes), "--procs-per-node", "1",
                          "--protocol", "mgs", "--mgs", "reads=message", "--page-size", std::to_string(kPageBytes),
                          "--prefetch", "0", path_of_program("pages"), role->name, "64", "20"},
                         {{"MULTIGRAIN_SPIN", role->spin_us}});
}

// What is left of something that was measured when these parts of it are taken off.
Price rest_of(const Summary& whole, std::string_view name, double parts, double share, std::string_view which) {
  return {std::max(0.0, whole.p50 - parts) * share,
          fmt::format("measured: {}, {:.4g} ns ({}), less {:.4g} ns that have prices of their own{}{}", name, whole.p50,
                      spread_of(whole), parts, which.empty() ? "" : ": ", which)};
}

ordered_json costs_of(const PageTimes& pages, const Summaries& floors, const Together& together) {
  const Summaries faults = run_pages("faults"), busy = run_pages("faults-busy"), locks = run_pages("locks"),
                  barriers = run_pages("barrier");
  const auto floor = [&](const char* name) -> const Summary& { return floors.at(name); };
  const double line = floor("line round trip").p50 / 2;
  const double grant = pages.grant.p50;
  ordered_json out{{"unit", "ns"}, {"source", "measured by mgbench --calibrate"}};
  const auto put = [&](const char* name, const Price& price) { out[name] = figure_of(price); };

  const Price entry = {
      std::max(0.0, floor("fault, read").p50 - grant),
      fmt::format("measured: a fault whose handler grants one page's right, {:.4g} ns ({}), less that call",
                  floor("fault, read").p50, spread_of(floor("fault, read")))};
  put("fault_entry", entry);
  put("check_miss", {100, "estimated: a call with all registers kept"});
  put("check", {1, "estimated: three instructions"});
  put("load_check", {1, "estimated: a comparison of what was loaded, and a branch"});
  put("store_check", {2, "estimated: a hazard announced and cleared, a state loaded and tested"});
  put("poll", {0.5, "estimated: a word loaded and tested"});
  put("directory", {line, "as network.latency: an entry that another core had, with its line"});
  put("downgrade", {line, "as network.latency: a thread's hazards, with their line"});
  const Summary& resident = faults.at("local fault on a resident page");
  const Price transition = rest_of(resident, "a fault on a page that is here", floor("fault, resident").p50, 1,
                                   "a bare fault and its right");
  put("transition", transition);
  put("translation_fill", {0, "the MMU does it"});
  const double twin = pages.copy.p50 * double{kPageBytes};
  put("queue_page", rest_of(faults.at("upgrade fault"), "an upgrade fault",
                            floor("fault, upgrade").p50 + twin + transition.ns, 1, "fault, right, twin, transition"));
  // A call for many pages says what a page costs, and a call for one the rest.
  const double page = (pages.granted_page.p50 + pages.revoked_page.p50) / 2;
  const auto curve = [&](const Summary& call, double more, const char* what) {
    const double alone = rounded(std::max(0.0, call.p50 - page));
    return ordered_json{
        {"value", {{1, alone}, {2, rounded(alone * more)}}},
        {"source", fmt::format("measured: {} by {} for one page, less rights_page ({}); times {:.3g} by two "
                               "threads at once on two cores",
                               what, pages.mechanism, spread_of(call), more)}};
  };
  out["grant_call"] = curve(pages.grant, together.grant, "a grant");
  out["revoke_call"] = curve(pages.revoke, together.revoke, "a revocation");
  put("rights_page", {page, fmt::format("measured: calls for 64 pages by {}, a page ({}; {})", pages.mechanism,
                                        spread_of(pages.granted_page), spread_of(pages.revoked_page))});
  put("twin_byte", measured(pages.copy, "a page copied, a byte"));
  put("diff_make_byte",
      measured(pages.compare, "a page compared with its twin of which every 64th byte differs, a byte"));
  put("diff_apply_byte", measured(pages.apply, "such a diff applied, a byte of it"));
  put("send_byte", {0, "nodes share this machine's memory: the receiver reads what the sender has written"});
  const Summary& local = locks.at("lock and unlock, held here last");
  const Price half = {local.p50 / 2,
                      fmt::format("measured: half of a lock and unlock, {:.4g} ns ({})", local.p50, spread_of(local))};
  const Price message =
      rest_of(locks.at("lock, free on another node"), "a lock that is free on another node", half.ns + 2 * line, 0.25,
              "a lock here, two lines; a quarter of what is left, for two messages are sent and received");
  const Summary& other = floor("copy, other core's");
  const Summary& read = faults.at("page fault, read");
  put("receive_byte",
      rest_of(read, "a page fault, read", entry.ns + grant + 3 * transition.ns + 4 * message.ns + 2 * line,
              1 / double{kPageBytes},
              fmt::format("fault, right, three transitions, two messages; what is left, by the byte, is the page that "
                          "comes, perhaps into a new frame (to copy it alone: {:.4g} ns)",
                          other.p50)));
  put("message_send", message);
  put("message_receive", message);
  put("interrupt", rest_of(busy.at("page fault, read, home computes"), "a page fault whose home computes", read.p50, 1,
                           "the same fault if it waits"));
  put("remote_issue", {line, "as network.latency: a store that another core sees, with its line"});
  put("get_answer", {0, "nodes share this machine's memory: nobody answers"});
  put("get_answer_byte", {0, "as get_answer"});
  put("atomic_answer", {0, "as get_answer"});
  put("lock_acquire", half);
  put("lock_release", half);
  put("lock_ask", {0, "in message_send and message_receive, which were found out by such a lock"});
  put("lock_pass", {0, "as lock_ask"});
  put("release",
      rest_of(faults.at("single-writer transition"), "a release of one page (single-writer transition)",
              transition.ns + 4 * (2 * message.ns + line + transition.ns), 1, "a transition and four messages"));
  const Price arrive = rest_of(barriers.at("barrier, 2 nodes"), "a barrier of 2 nodes", 4 * message.ns + 2 * line, 0.5,
                               "two messages; half of what is left");
  put("barrier_arrive", arrive);
  put("barrier_leave", arrive);
  put("flag", {half.ns, "as lock_acquire"});
  put("spawn", measured(floor("wake-up"), "a thread that sleeps is woken"));
  put("node_miss", {line, fmt::format("measured: half of a line's way to another core and back ({})",
                                      spread_of(floor("line round trip")))});
  return out;
}

// --- The processor

// One in a chain takes longer than one of many that are independent; code has both.
double mean_of(const ProcessorTimes& times, size_t i) {
  return std::sqrt(times.chain[i].p50 * times.independent[i].p50);
}

ordered_json instructions_of(const ProcessorTimes& times, double scale, const std::string& scale_source) {
  ordered_json out{{"unit", "ns"}, {"source", "measured by mgbench --calibrate" + scale_source}};
  const auto names = counting::class_names();
  for (size_t i = 0; i < names.size(); ++i)
    out[std::string(names[i])] = figure_of(
        {mean_of(times, i) * scale,
         fmt::format("measured: {:.3g} ns where each needs the one before ({}), {:.3g} ns where none does ({}); their "
                     "geometric mean{}",
                     times.chain[i].p50, spread_of(times.chain[i]), times.independent[i].p50,
                     spread_of(times.independent[i]), scale_source)});
  return out;
}

ordered_json calls_of(const std::vector<CallTime>& times) {
  std::vector<double> all;
  for (const CallTime& time : times) all.push_back(time.fixed.p50);
  std::ranges::nth_element(all, all.begin() + static_cast<ptrdiff_t>(all.size() / 2));
  ordered_json out{{"unit", "ns"}, {"source", "measured by mgbench --calibrate"}};
  out["default"] = figure_of({all[all.size() / 2], "estimated: the median of those that were measured"});
  for (const CallTime& time : times) {
    const Price fixed = measured(time.fixed, "many calls one after the other");
    if (!time.has_bytes) {
      out[time.name] = figure_of(fixed);
      continue;
    }
    out[time.name] = {{"fixed", figure_of(fixed)},
                      {"per_byte", figure_of(measured(time.per_byte, "64 KiB, which the caches hold, less 64 bytes"))}};
  }
  return out;
}

// How much of the sum of its instructions' prices code takes: over kernels, which are run by both clocks.
struct Scale {
  double factor = 1;
  std::string source;
};
Scale measure_scale(const MachineDescription& draft) {
  const std::string program = path_of_program("kernels");
  const Summaries wall =
      run_and_collect({path_of_mgrun(), "--nodes", "1", "--procs-per-node", "1", "--protocol", "mgs", program});
  const Summaries counted = run_and_collect({path_of_mgrun(), "--nodes", "1", "--procs-per-node", "1", "--protocol",
                                             "mgs", "--clock", "counted", "--machine", compact(draft), program});
  double logarithms = 0;
  std::string each;
  for (const auto& [name, time] : wall) {
    const double ratio = time.p50 / std::max(1.0, counted.at(name).p50);
    logarithms += std::log(ratio);
    each += fmt::format("{}{} {:.2f}", each.empty() ? "" : ", ", name, ratio);
  }
  const double factor = std::exp(logarithms / static_cast<double>(std::max<size_t>(1, wall.size())));
  return {factor, fmt::format(", times {:.3g}: the geometric mean of the time that kernels take here, of what their "
                              "instructions add up to ({})",
                              factor, each)};
}

// --- The whole

std::string name_of_processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "a processor without a name";
}

std::string today() {
  const time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

Result<std::string> describe_this_machine() {
  const auto tell = [](const char* what) { fmt::print(stderr, "mgbench: measuring {}\n", what); };
  tell("instructions and calls");
  const ProcessorTimes processor = measure_processor();
  const std::vector<CallTime> calls = measure_calls();
  tell("faults, rights and pages");
  const auto pages = measure_pages();
  if (!pages) return tl::unexpected(pages.error());
  const Together together = measure_rights_of_two(pages->mechanism);
  const Summaries floors = run_and_collect({path_of_mgbench(), "floors", "--access", "auto", "--page-size",
                                            std::to_string(kPageBytes), "--pages", "64", "--rounds", "20"});
  tell("the runtime's primitives");
  ordered_json costs = costs_of(*pages, floors, together);

  utsname kernel{};
  uname(&kernel);
  const double line = floors.at("line round trip").p50 / 2;
  ordered_json whole{{"name", "here"},
                     {"what", fmt::format("{}, {} cores, {} {}", name_of_processor(),
                                          std::thread::hardware_concurrency(), kernel.sysname, kernel.release)},
                     {"source", fmt::format("mgbench --calibrate on {}, {}", kernel.nodename, today())}};
  whole["processor"] = {
      {"clock",
       {{"value", std::round(1000 / processor.cycle.p50)},
        {"unit", "MHz"},
        {"source", fmt::format("measured: additions, each of which needs the one before, one a cycle ({})",
                               spread_of(processor.cycle))}}},
      {"instructions", instructions_of(processor, 1, "")},
      {"calls", calls_of(calls)}};
  whole["network"] = {
      {"unit", "ns"},
      {"source", "measured by mgbench --calibrate: nodes share this machine's memory"},
      {"latency", {{"value", std::round(line)}, {"source", costs["node_miss"]["source"]}}},
      {"bandwidth",
       {{"value", "unlimited"}, {"source", "the receiver copies what the sender has written, which is receive_byte"}}},
      {"occupancy", {{"value", 0}, {"source", "no interface has to be told"}}}};
  whole["costs"] = std::move(costs);
  const auto draft = parse_machine(whole.dump(), "what was measured");
  if (!draft) return tl::unexpected(draft.error());
  tell("kernels by both clocks");
  const Scale scale = measure_scale(*draft);
  whole["processor"]["instructions"] = instructions_of(processor, scale.factor, scale.source);
  std::string text = whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  if (const auto machine = parse_machine(text, "what was measured"); !machine) return tl::unexpected(machine.error());
  return text;
}

Status write_file(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  if (error) return fail("cannot make the folder '{}': {}", file.parent_path().string(), error.message());
  return write_output_file(file.string(), text);
}

}  // namespace

int calibrate(const std::string& file) {
  const auto complain = [](const Error& error, int status) {
    fmt::print(stderr, "mgbench: --calibrate: {}\n", error.message);
    return status;
  };
  std::filesystem::path to = file;
  if (file.empty()) {
    const auto own = own_machine_file();
    if (!own) return complain(own.error(), 2);
    to = *own;
  }
  // Before a minute of work.
  std::error_code error;
  if (std::filesystem::is_directory(to, error)) return complain(fail("'{}' is a folder", to.string()).value(), 2);
  const auto text = describe_this_machine();
  if (!text) return complain(text.error(), 1);
  if (const Status written = write_file(to, *text); !written) return complain(written.error(), 1);
  fmt::print("{}\n", to.string());
  fmt::print(stderr, "mgbench: mgrun --clock counted --machine {} takes this machine's prices\n",
             file.empty() ? std::string(kOwnMachine) : file);
  return 0;
}

}  // namespace multigrain::bench
