// This lets UCP by itself do what a page fault and reading ahead need of it, which is the honest floor of both.
//
// ucx_perftest sends the same few kilobytes again and again, which stay in the caches of both cores. Pages do not: the
// home wrote them some time ago, and they go to frames that no processor has touched lately. So here the home process
// wrote its memory page after page before each round. It answers a request of 32 bytes with the page that the request
// names, and the requester copies each page to a place of its own.
//
// This is a module (src/fabric/module.h), because nothing else of mgbench needs UCX. mgbench ucp-floor loads it.
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "roles.h"

namespace multigrain::bench {
namespace {

constexpr unsigned kRequestId = 1, kPageId = 2;
constexpr unsigned kAhead = 64;
constexpr unsigned kBulkRounds = 5;

enum class What : uint64_t { kPage, kWriteAll, kEnd };
struct Request {
  What what;
  uint64_t page;
  uint64_t pages;
  uint64_t zero;
};
static_assert(sizeof(Request) == 32);

void check(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  std::fprintf(stderr, "mgbench ucp-floor: %s: %s\n", what, ucs_status_string(status));
  std::exit(1);
}

// One of the two processes.
class Side {
 public:
  Side(int socket, size_t page_size, size_t pages) : page_size_(page_size) {
    void* const memory =
        mmap(nullptr, page_size * pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("mgbench ucp-floor: mmap");
      std::exit(1);
    }
    frames_ = static_cast<char*>(memory);
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_AM;
    check(ucp_init(&parameters, nullptr, &context_), "UCX cannot be opened");
    ucp_worker_params_t worker{};
    check(ucp_worker_create(context_, &worker, &worker_), "UCX cannot start its worker");
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.arg = this;
    handler.id = kRequestId;
    handler.cb = &Side::on_request;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "UCX does not take message handlers");
    handler.id = kPageId;
    handler.cb = &Side::on_page;
    check(ucp_worker_set_am_recv_handler(worker_, &handler), "UCX does not take message handlers");
    connect(socket);
  }

  // Answers requests until one says that the process is to end.
  void answer() {
    while (true) {
      ucp_worker_progress(worker_);
      while (first_ != last_) {
        const Request request = waiting_[first_++ % waiting_.size()];
        if (request.what == What::kEnd) return;
        if (request.what == What::kWriteAll) {
          ++value_;
          for (size_t i = 0; i < request.pages * page_size_; i += 64) frames_[i] = value_;
        }
        send(kPageId, &request.page, sizeof request.page, frames_ + request.page * page_size_, page_size_);
      }
    }
  }

  // Requests all pages, at most `ahead` at a time.
  void fetch_all(uint64_t pages, uint64_t ahead) {
    const uint64_t before = arrived_;
    for (uint64_t page = 0; page < pages; ++page) {
      ask({What::kPage, page, 0, 0});
      while (before + page + 1 - arrived_ >= ahead) ucp_worker_progress(worker_);
    }
    while (arrived_ != before + pages) ucp_worker_progress(worker_);
  }
  void fetch(uint64_t page) {
    const uint64_t before = arrived_;
    ask({What::kPage, page, 0, 0});
    while (arrived_ == before) ucp_worker_progress(worker_);
  }
  void have_all_written(uint64_t pages) {
    const uint64_t before = arrived_;
    ask({What::kWriteAll, 0, pages, 0});
    while (arrived_ == before) ucp_worker_progress(worker_);
  }
  void end_other() {
    ask({What::kEnd, 0, 0, 0});
    ucp_request_param_t parameters{};
    void* const request = ucp_worker_flush_nbx(worker_, &parameters);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
  }

 private:
  void connect(int socket) {
    ucp_address_t* address = nullptr;
    size_t length = 0, other_length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "UCX has no address");
    std::vector<char> other;
    bool good = write(socket, &length, sizeof length) == sizeof length &&
                write(socket, address, length) == static_cast<ssize_t>(length) &&
                recv(socket, &other_length, sizeof other_length, MSG_WAITALL) == sizeof other_length;
    if (good) {
      other.resize(other_length);
      good = recv(socket, other.data(), other_length, MSG_WAITALL) == static_cast<ssize_t>(other_length);
    }
    if (!good) {
      std::fprintf(stderr, "mgbench ucp-floor: its other process is gone\n");
      std::exit(1);
    }
    ucp_worker_release_address(worker_, address);
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    parameters.address = reinterpret_cast<const ucp_address_t*>(other.data());
    check(ucp_ep_create(worker_, &parameters, &endpoint_), "UCX cannot connect");
  }

  void ask(const Request& request) { send(kRequestId, &request, sizeof request, nullptr, 0); }

  // The header must stay until the UCX request has ended, so this waits for a request that does not end at once.
  void send(unsigned id, const void* header, size_t header_length, const void* data, size_t length) {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_AM_SEND_FLAG_EAGER;
    void* const request = ucp_am_send_nbx(endpoint_, id, header, header_length, data, length, &parameters);
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) check(UCS_PTR_STATUS(request), "UCX cannot send");
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(worker_);
    ucp_request_free(request);
  }

  static ucs_status_t on_request(void* argument, const void* header, size_t, void*, size_t,
                                 const ucp_am_recv_param_t*) {
    Side& self = *static_cast<Side*>(argument);
    std::memcpy(&self.waiting_[self.last_++ % self.waiting_.size()], header, sizeof(Request));
    return UCS_OK;
  }
  static ucs_status_t on_page(void* argument, const void* header, size_t, void* data, size_t length,
                              const ucp_am_recv_param_t*) {
    Side& self = *static_cast<Side*>(argument);
    uint64_t page = 0;
    std::memcpy(&page, header, sizeof page);
    std::memcpy(self.frames_ + page * self.page_size_, data, length);
    ++self.arrived_;
    return UCS_OK;
  }

  size_t page_size_;
  char* frames_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::array<Request, 2 * kAhead> waiting_{};  // more than can be under way
  uint64_t first_ = 0, last_ = 0, arrived_ = 0;
  char value_ = 0;
};

// Pins this process to one of the cores that it may use, if there are two.
void pin(unsigned which) {
  cpu_set_t usable, one;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < 2) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || which-- != 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void measure(Side& side, size_t page_size, unsigned pages, unsigned rounds) {
  Series exchange{"request and page", {}}, bulk{"64 MiB of pages", {}};
  for (unsigned round = 0; round <= rounds; ++round) {
    side.have_all_written(pages);
    for (unsigned page = 0; page < pages; ++page) {
      const Nanoseconds start = monotonic_ns();
      side.fetch(page);
      if (round != 0) exchange.samples.push_back(static_cast<double>(monotonic_ns() - start));
    }
  }
  const uint64_t all = kScanBytes / page_size;
  for (unsigned round = 0; round <= kBulkRounds; ++round) {
    side.have_all_written(all);
    const Nanoseconds start = monotonic_ns();
    side.fetch_all(all, kAhead);
    if (round != 0) bulk.samples.push_back(static_cast<double>(monotonic_ns() - start));
  }
  print_series({exchange, bulk});
}

}  // namespace
}  // namespace multigrain::bench

// Measures between this process and a child of it, over the transport of UCX_TLS, and prints the series.
// Returns the exit status.
extern "C" [[gnu::visibility("default")]] int multigrain_measure_ucp_floor(size_t page_size, unsigned pages,
                                                                           unsigned rounds) {
  using namespace multigrain::bench;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
    std::perror("mgbench ucp-floor: socketpair");
    return 1;
  }
  const size_t most = kScanBytes / page_size > pages ? kScanBytes / page_size : pages;
  // This calls fork(), because the other process is a copy of this one and runs no other program.
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(1);
    Side(sockets[1], page_size, most).answer();
    _exit(0);
  }
  pin(0);
  Side side(sockets[0], page_size, most);
  measure(side, page_size, pages, rounds);
  side.end_other();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
