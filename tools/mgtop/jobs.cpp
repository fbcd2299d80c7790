#include "jobs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/quantity.h"

namespace multigrain {
namespace {

constexpr const char* kName = "/memfd:multigrain-status";

std::string command_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

bool Job::has_ended() const {
  return kill(pid, 0) != 0 && errno == ESRCH;
}

std::string Job::program() const {
  for (const NodeStatus* const node : nodes)
    if (node->is_attached()) return std::filesystem::path(node->program).filename();
  return "(starting)";
}

Result<Job> open_job(pid_t pid) {
  struct stat info{};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &info) != 0) return fail("there is no process {}", pid);
  if (command_of(pid) != "mgrun")
    return fail("process {} is no mgrun: mgtop without a number lists the jobs that there are", pid);
  Job job{.pid = pid, .nodes = {}};
  std::error_code error;
  std::vector<std::filesystem::path> descriptors;
  for (std::filesystem::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(at->path(), gone).string().starts_with(kName)) descriptors.push_back(at->path());
  }
  if (error) return fail("cannot look into process {}, which another user has started: {}", pid, error.message());
  for (const auto& path : descriptors) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;  // the run has ended meanwhile
    const auto status = map_node_status(fd);
    close(fd);
    if (!status) return fail("process {} is an mgrun of another version than this mgtop", pid);
    job.nodes.push_back(*status);
  }
  std::ranges::sort(job.nodes, {}, [](const NodeStatus* node) { return node->is_attached() ? node->node : ~0u; });
  if (job.nodes.empty())
    return fail("process {} has no node on this machine: mgtop shows the nodes of the machine on which it runs", pid);
  return job;
}

std::vector<Job> find_jobs() {
  std::vector<Job> jobs;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const auto pid = parse_whole(at->path().filename().string(), 1u << 30);
    struct stat info{};
    if (!pid || stat(at->path().c_str(), &info) != 0 || info.st_uid != geteuid()) continue;
    if (auto job = open_job(static_cast<pid_t>(*pid))) jobs.push_back(std::move(*job));
  }
  std::ranges::sort(jobs, {}, &Job::pid);
  return jobs;
}

}  // namespace multigrain
