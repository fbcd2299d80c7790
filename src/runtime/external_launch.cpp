#include "runtime/external_launch.h"

#include <sched.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/config.h"
#include "base/quantity.h"

namespace multigrain {
namespace {

// A launcher's claim about this process, before it is compared with what the user wants.
struct Claim {
  std::string wireup;
  unsigned rank = 0;
  unsigned size = 0;
  unsigned local = 0;  // processes on this host; 0: not said
};

class Facts {
 public:
  explicit Facts(const LaunchFacts& facts) : facts_(facts) {}

  [[nodiscard]] std::optional<std::string_view> text(std::string_view name) const {
    const auto found = facts_.environment.find(name);
    if (found == facts_.environment.end()) return std::nullopt;
    return found->second;
  }
  [[nodiscard]] bool has(std::string_view name) const { return facts_.environment.contains(name); }

  // Reads a variable that must be there.
  [[nodiscard]] Result<unsigned> number(std::string_view name) const {
    const std::string_view all = text(name).value_or("");
    const std::optional<uint64_t> value = parse_whole(all, std::numeric_limits<unsigned>::max());
    if (!value)
      return fail("{} is '{}' where the launcher should have put a number; set MULTIGRAIN_NODES=1 to run without it",
                  name, all);
    return static_cast<unsigned>(*value);
  }
  [[nodiscard]] bool is_socket(unsigned fd) const {
    return std::ranges::find(facts_.sockets, static_cast<int>(fd)) != facts_.sockets.end();
  }
  // Returns how many tasks of the step are on this host, from the list of their numbers; 0 outside of Slurm.
  [[nodiscard]] unsigned slurm_local() const {
    const auto tasks = text("SLURM_GTIDS");
    return tasks ? static_cast<unsigned>(std::ranges::count(*tasks, ',')) + 1 : 0;
  }

 private:
  const LaunchFacts& facts_;
};

// Reads rank, size and (where the launcher says so) the local size from variables of these names; `local` may be empty.
Result<Claim> read_claim(const Facts& facts, std::string_view wireup, std::string_view rank, std::string_view size,
                         std::string_view local) {
  Claim claim{.wireup = std::string(wireup)};
  for (const auto& [name, target] : {std::pair(rank, &claim.rank), std::pair(size, &claim.size)}) {
    const auto number = facts.number(name);
    if (!number) return tl::unexpected<Error>(number.error());
    *target = *number;
  }
  if (claim.rank >= claim.size)
    return fail("the launcher contradicts itself: {} is {} and {} is {}; set MULTIGRAIN_NODES=1 to run without it",
                rank, claim.rank, size, claim.size);
  claim.local = facts.slurm_local();
  if (!local.empty() && facts.has(local)) {
    const auto number = facts.number(local);
    if (!number) return tl::unexpected<Error>(number.error());
    claim.local = *number;
  }
  return claim;
}

Result<std::optional<Claim>> pmix_claim(const Facts& facts) {
  const auto space = facts.text("PMIX_NAMESPACE");
  if (!space || !facts.has("PMIX_RANK")) return std::nullopt;
  if (space->starts_with("slurm.")) {
    if (!facts.has("SLURM_STEP_NUM_TASKS")) return std::nullopt;
    return read_claim(facts, "pmix", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "");
  }
  if (facts.has("OMPI_COMM_WORLD_SIZE"))
    return read_claim(facts, "pmix", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (facts.has("MULTIGRAIN_NODES")) return read_claim(facts, "pmix", "PMIX_RANK", "MULTIGRAIN_NODES", "");
  return fail(
      "a PMIx launcher that is neither Open MPI's nor Slurm's has started this process and does not say of how many; "
      "set MULTIGRAIN_NODES to their number, or to 1 to run without the others");
}

Result<std::optional<Claim>> pmi_claim(const Facts& facts) {
  if (!facts.has("PMI_FD") && facts.has("PMI_PORT") && facts.has("PMI_ID"))
    return fail("mpirun was told to use PMI over ports, which Multigrain does not speak; start it without -pmi-port");
  if (!facts.has("PMI_FD") || !facts.has("PMI_RANK") || !facts.has("PMI_SIZE")) return std::nullopt;
  const auto fd = facts.number("PMI_FD");
  if (!fd) return tl::unexpected<Error>(fd.error());
  if (!facts.is_socket(*fd)) return std::nullopt;
  return read_claim(facts, "pmi2", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS");
}

// Returns the claim that holds, or nothing: a claim of one process is no run.
Result<std::optional<Claim>> choose(const std::optional<Claim>& pmix, const std::optional<Claim>& pmi) {
  const bool by_pmix = pmix && pmix->size > 1;
  const bool by_pmi = pmi && pmi->size > 1;
  if (by_pmix && by_pmi && (pmix->rank != pmi->rank || pmix->size != pmi->size))
    return fail(
        "two launchers, one started by the other, claim this process (number {} of {} by PMIX_RANK, number {} of {} by "
        "PMI_RANK); unset the variables of the outer one before the inner one starts",
        pmix->rank, pmix->size, pmi->rank, pmi->size);
  if (by_pmix) return pmix;
  if (by_pmi) return pmi;
  return std::nullopt;
}

Status check_tasks_can_meet(const Facts& facts, pid_t process) {
  if (!facts.has("SLURM_STEP_NUM_TASKS") || facts.text("SLURM_TASK_PID") != std::to_string(process)) return {};
  const auto tasks = facts.number("SLURM_STEP_NUM_TASKS");
  if (!tasks) return tl::unexpected<Error>(tasks.error());
  if (*tasks == 1) return {};
  return fail(
      "srun has started {} tasks that have no way to meet; use srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list says "
      "which there are), or set MULTIGRAIN_NODES=1 to run {} programs of one node",
      *tasks, *tasks);
}

Status check_settings(const Facts& facts, const Claim& claim) {
  if (claim.size > Config::kMaxUcxNodes)
    return fail("the launcher has started {} processes; a run has at most {} nodes (use MULTIGRAIN_PROCS_PER_NODE)",
                claim.size, Config::kMaxUcxNodes);
  if (facts.has("MULTIGRAIN_NODES")) {
    const auto wanted = facts.number("MULTIGRAIN_NODES");
    if (!wanted || *wanted != claim.size)
      return fail(
          "the launcher has started {} processes, and MULTIGRAIN_NODES is '{}'; unset it, or set it to 1 if each is to "
          "run on its own",
          claim.size, *facts.text("MULTIGRAIN_NODES"));
  }
  if (const auto fabric = facts.text("MULTIGRAIN_FABRIC"); fabric && *fabric != "ucx")
    return fail("MULTIGRAIN_FABRIC is '{}', but under mpirun and srun it can only be ucx; unset it, or use mgrun",
                *fabric);
  return {};
}

// Returns how many cores the run has. Launchers bind processes to cores of their own, or let all of a host share them.
unsigned cores_of_run(const LaunchFacts& facts, const Claim& claim) {
  const unsigned local = std::max(claim.local, 1u);
  const bool own = facts.usable_cores * local <= facts.host_cores;
  return std::max(1u, own ? facts.usable_cores * claim.size : facts.usable_cores * claim.size / local);
}

// --- This process

bool is_socket(int fd) {
  struct stat status{};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

LaunchFacts facts_of_this_process() {
  LaunchFacts facts;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) facts.environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  facts.process = getpid();
  if (const char* const fd = secure_getenv("PMI_FD"); fd != nullptr && is_socket(std::atoi(fd)))
    facts.sockets.push_back(std::atoi(fd));
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) facts.usable_cores = static_cast<unsigned>(CPU_COUNT(&cores));
  facts.host_cores = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return facts;
}

// Returns the executable's own name, so that ps shows the program as it was started, unless another file has
// taken the name.
std::string this_executable() {
  constexpr const char* kLink = "/proc/self/exe";
  std::array<char, 4096> name{};
  const ssize_t length = readlink(kLink, name.data(), name.size() - 1);
  struct stat named{}, running{};
  if (length > 0 && stat(name.data(), &named) == 0 && stat(kLink, &running) == 0 && named.st_dev == running.st_dev &&
      named.st_ino == running.st_ino)
    return name.data();
  return kLink;
}

bool told_by_a_launcher(std::string_view name) {
  constexpr std::string_view kNames[] = {"MULTIGRAIN_NODES",
                                         // Without it, a program that takes this one's place is no task of srun's.
                                         "SLURM_TASK_PID"};
  constexpr std::string_view kPrefixes[] = {"PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MPI_LOCAL"};
  if (name.starts_with("PMIX_MCA_")) return false;  // a user's settings of the library
  return is_told_to_a_node(name) || std::ranges::find(kNames, name) != std::end(kNames) ||
         std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

Result<std::optional<ExternalLaunch>> detect_external_launch(const LaunchFacts& given) {
  const Facts facts(given);
  if (facts.has("MULTIGRAIN_NODE") || facts.has("MULTIGRAIN_JOB_FD")) return std::nullopt;
  if (facts.text("MULTIGRAIN_NODES") == "1") return std::nullopt;
  const auto pmix = pmix_claim(facts);
  if (!pmix) return tl::unexpected<Error>(pmix.error());
  const auto pmi = pmi_claim(facts);
  if (!pmi) return tl::unexpected<Error>(pmi.error());
  const auto claim = choose(*pmix, *pmi);
  if (!claim) return tl::unexpected<Error>(claim.error());
  if (!*claim) {
    if (const Status status = check_tasks_can_meet(facts, given.process); !status)
      return tl::unexpected<Error>(status.error());
    return std::nullopt;
  }
  if (const Status status = check_settings(facts, **claim); !status) return tl::unexpected<Error>(status.error());
  return ExternalLaunch{.wireup = (*claim)->wireup,
                        .node = (*claim)->rank,
                        .nodes = (*claim)->size,
                        .nodes_here = std::max((*claim)->local, 1u),
                        .cores = cores_of_run(given, **claim)};
}

Status join_external_launch(char** argv) {
  // A program with more rights than its caller (setuid) does not believe its environment.
  if (getauxval(AT_SECURE) != 0) return {};
  const auto launch = detect_external_launch(facts_of_this_process());
  if (!launch) return tl::unexpected<Error>(launch.error());
  if (!*launch) return {};
  const ExternalLaunch& found = **launch;
  const int persona = personality(0xffffffff);
  if (persona < 0 || personality(static_cast<unsigned long>(persona) | ADDR_NO_RANDOMIZE) < 0)
    return fail_errno(errno,
                      "cannot turn address randomisation off (personality), which the nodes need to agree on "
                      "addresses; Docker's default profile forbids it: start the container with docker run "
                      "--security-opt seccomp=unconfined, or with a profile that allows personality");
  for (const char* stale : {"MULTIGRAIN_FRAMES_FDS", "MULTIGRAIN_PIN", "MULTIGRAIN_STATUS_FD"}) unsetenv(stale);
  setenv("MULTIGRAIN_NODE", std::to_string(found.node).c_str(), 1);
  setenv("MULTIGRAIN_NODES", std::to_string(found.nodes).c_str(), 1);
  setenv("MULTIGRAIN_WIREUP", found.wireup.c_str(), 1);
  setenv("MULTIGRAIN_FABRIC", "ucx", 1);
  setenv("MULTIGRAIN_CORES", std::to_string(found.cores).c_str(), 1);
  const std::string path = this_executable();
  execv(path.c_str(), argv);
  return fail_errno(errno, fmt::format("cannot execute '{}' anew without address randomisation", path));
}

void forget_launch() {
  // With PMI the launcher, and not the user, has chosen that there is more than one node, and the fabric.
  const char* const wireup = secure_getenv("MULTIGRAIN_WIREUP");
  if (wireup != nullptr && std::string_view(wireup).starts_with("pmi")) unsetenv("MULTIGRAIN_FABRIC");
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (told_by_a_launcher(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace multigrain
