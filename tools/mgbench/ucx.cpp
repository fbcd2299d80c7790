#include "ucx.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/child_process.h"

namespace multigrain::bench {
namespace {

constexpr int kFirstPort = 13450;
constexpr int kTries = 50;
constexpr useconds_t kBetweenTries = 100'000;

// Returns two of the cores that this process may use, or none if there are not two.
std::vector<std::string> two_cores() {
  cpu_set_t usable;
  std::vector<std::string> cores;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return cores;
  for (int cpu = 0; cpu < CPU_SETSIZE && cores.size() < 2; ++cpu)
    if (CPU_ISSET(cpu, &usable)) cores.push_back(std::to_string(cpu));
  return cores.size() == 2 ? cores : std::vector<std::string>{};
}

// Returns how to start the command, with nothing for it to read and its messages discarded.
ChildStart over(const Transport& transport, const std::vector<std::string>& command) {
  ChildStart child;
  child.command = command;
  child.environment = {fmt::format("UCX_TLS={}", transport.tls)};
  if (transport.devices != nullptr) child.environment.push_back(fmt::format("UCX_NET_DEVICES={}", transport.devices));
  child.input = child.output = child.error = kNullDescriptor;
  return child;
}

Result<pid_t> start_server(const ChildStart& child) {
  const auto process = try_start_child(child);
  if (process) return *process;
  if (process.error().code == ENOENT)
    return fail("ucx_perftest is not installed, so there is nothing to compare with; install the package ucx-utils");
  return fail_errno(process.error().code, "cannot start ucx_perftest");
}

// Returns the numbers of the last line that ucx_perftest -f -v prints: iterations, latencies (median, average, overall)
// in microseconds, bandwidths (average, overall) in MiB a second, message rates.
Result<std::vector<double>> last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string line, last;
  while (std::getline(lines, line))
    if (!line.empty()) last = line;
  std::vector<double> numbers;
  const char* at = last.data();
  const char* const end = last.data() + last.size();
  while (at < end) {
    double number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return fail("ucx_perftest printed '{}', which is not a line of numbers", last);
    numbers.push_back(number);
    at = next < end ? next + 1 : next;
  }
  if (numbers.size() < 8) return fail("ucx_perftest printed '{}', which has too few numbers", last);
  return numbers;
}

// Runs one test between a server and a client, each on a core of its own.
Result<std::vector<double>> measure(const Transport& transport, const char* test, size_t bytes, unsigned outstanding) {
  static int port = kFirstPort;
  const std::vector<std::string> cores = two_cores();
  std::vector<std::string> server{"ucx_perftest", "-p", std::to_string(++port)};
  std::vector<std::string> client{"ucx_perftest", "127.0.0.1", "-p", std::to_string(port),
                                  "-t",           test,        "-s", std::to_string(bytes),
                                  "-n",           "20000",     "-w", "2000",
                                  "-f",           "-v"};
  if (outstanding != 0) client.insert(client.end(), {"-O", std::to_string(outstanding)});
  if (!cores.empty()) {
    server.insert(server.end(), {"-c", cores[0]});
    client.insert(client.end(), {"-c", cores[1]});
  }
  const auto server_process = start_server(over(transport, server));
  if (!server_process) return tl::unexpected(server_process.error());
  const pid_t serving = *server_process;
  Result<std::vector<double>> result = fail("ucx_perftest's client never reached its server on port {}", port);
  for (int tries = 0; tries < kTries && !result; ++tries) {
    usleep(kBetweenTries);
    int status = 0;
    if (waitpid(serving, &status, WNOHANG) == serving) {
      return fail("ucx_perftest ended at once with status {}", status);
    }
    const auto answer = run_and_read(over(transport, client));
    if (!answer) {
      result = tl::unexpected(answer.error());
      break;
    }
    // If the client fails, the server does not listen yet.
    if (answer->succeeded()) result = last_line(answer->text);
  }
  if (!result) kill(serving, SIGKILL);
  waitpid(serving, nullptr, 0);
  return result;
}

}  // namespace

const std::vector<Transport>& transports() {
  static const std::vector<Transport> all = {{"TCP, loopback", "tcp,self", "lo"},
                                             {"shared memory", "posix,cma,self", nullptr}};
  return all;
}

Result<Perftest> run_perftest(const Transport& transport, size_t bytes) {
  constexpr size_t kMedian = 1, kOverallBandwidth = 5;
  constexpr double kMiB = 1048576.0 / 1e6;
  const auto request = measure(transport, "ucp_am_lat", 32, 0);
  if (!request) return tl::unexpected(request.error());
  const auto reply = measure(transport, "ucp_am_lat", bytes, 0);
  if (!reply) return tl::unexpected(reply.error());
  const auto messages = measure(transport, "ucp_am_bw", bytes, 0);
  if (!messages) return tl::unexpected(messages.error());
  const auto gets = measure(transport, "ucp_get", bytes, 32);
  if (!gets) return tl::unexpected(gets.error());
  return Perftest{.request_us = (*request)[kMedian],
                  .reply_us = (*reply)[kMedian],
                  .message_MBps = (*messages)[kOverallBandwidth] * kMiB,
                  .get_MBps = (*gets)[kOverallBandwidth] * kMiB};
}

}  // namespace multigrain::bench
