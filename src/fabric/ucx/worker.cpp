#include "fabric/ucx/worker.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/futex.h"
#include "fabric/ucx/descriptors.h"
#include "fabric/ucx/transports.h"

namespace multigrain::ucx {
namespace {

// Returns a setting as UCX has it: from its environment, its configuration file, or its default. UCX writes its
// settings only to a stream, a line each.
std::string setting_of(const ucp_config_t* config, std::string_view name) {
  char* text = nullptr;
  size_t length = 0;
  std::string value;
  if (std::FILE* const stream = open_memstream(&text, &length); stream != nullptr) {
    ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
    std::fclose(stream);
    const std::string key = "\n" + std::string(name) + "=";
    const std::string all = "\n" + std::string(text, length);
    if (const size_t at = all.find(key); at != std::string::npos)
      value = all.substr(at + key.size(), all.find('\n', at + 1) - at - key.size());
    std::free(text);
  }
  return value;
}

}  // namespace

tl::unexpected<Error> fail_ucx(const char* what, ucs_status_t status) {
  return fail("{}: UCX says: {}", what, ucs_status_string(status));
}

void* map_sparse(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

std::vector<std::string> available_transports() {
  std::vector<std::string> names;
  uct_component_h* all = nullptr;
  unsigned count = 0;
  if (uct_query_components(&all, &count) != UCS_OK) return names;
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
    if (uct_component_query(all[i], &attributes) == UCS_OK) names.emplace_back(attributes.name);
  }
  uct_release_component_list(all);
  return names;
}

// UCX's asynchronous thread accepts connections, and allocates. There is no function of it that could be wrapped, but
// it takes event handlers: a handler of ours runs on it, and calls enter_library() there, once and for all. The thread
// exists as long as it has a handler.
class Worker::AsyncThread {
 public:
  static Result<AsyncThread*> start(const Worker& worker) {
    auto* const self = new AsyncThread(worker);
    self->fd_ = ucx_descriptors::keep(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    if (self->fd_ < 0) return fail_errno(errno, "cannot create an event descriptor");
    const ucs_status_t status = ucs_async_set_event_handler(UCS_ASYNC_MODE_THREAD_SPINLOCK, self->fd_,
                                                            UCS_EVENT_SET_EVREAD, &AsyncThread::run, self, nullptr);
    if (status != UCS_OK) return fail_ucx("cannot start UCX's thread", status);
    while (self->inside_.load(std::memory_order_acquire) == 0)
      futex_wait(self->inside_, 0, FutexScope::kProcess, kSecond);
    return self;
  }
  ~AsyncThread() {
    ucs_async_remove_handler(fd_, 1);
    close(fd_);
  }
  AsyncThread(const AsyncThread&) = delete;
  AsyncThread& operator=(const AsyncThread&) = delete;

 private:
  explicit AsyncThread(const Worker& worker) : worker_(worker) {}
  static void run(int /*id*/, ucs_event_set_types_t /*events*/, void* argument) {
    auto& self = *static_cast<AsyncThread*>(argument);
    uint64_t count = 0;
    if (read(self.fd_, &count, sizeof count) < 0 || self.inside_.load(std::memory_order_relaxed) != 0) return;
    self.worker_.enter_library();
    self.inside_.store(1, std::memory_order_release);
    futex_wake(self.inside_, FutexScope::kProcess);
  }

  const Worker& worker_;
  int fd_ = -1;
  std::atomic<uint32_t> inside_{0};
};

Status Worker::open(std::span<const std::string> available) {
  auto async = AsyncThread::start(*this);
  if (!async) return tl::unexpected(async.error());
  async_ = *async;
  if (Status opened = open_context(available); !opened) return opened;
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = ucp_worker_create(context_, &parameters, &worker_);
  if (status != UCS_OK) return fail_ucx("UCX cannot start its worker", status);
  return {};
}

Status Worker::open_context(std::span<const std::string> available) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return fail_ucx("cannot read UCX's configuration (the UCX_* variables)", status);
  // The node that owns a word uses its processors' atomic instructions, so all nodes' atomics must go through those
  // processors.
  status = ucp_config_modify(config, "ATOMIC_MODE", "cpu");
  const Result<std::string> transports = without_system_v(setting_of(config, "UCX_TLS"), available);
  if (!transports) {
    ucp_config_release(config);
    return tl::unexpected(transports.error());
  }
  if (status == UCS_OK) status = ucp_config_modify(config, "TLS", transports->c_str());
  if (status == UCS_OK && !options_.interface.empty())
    status = ucp_config_modify(config, "NET_DEVICES", options_.interface.c_str());
  if (status == UCS_OK) {
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
    parameters.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    parameters.estimated_num_eps = options_.hosts.size();
    parameters.name = "multigrain";
    status = ucp_init(&parameters, config, &context_);
  }
  ucp_config_release(config);
  if (status != UCS_OK)
    return fail(
        "UCX cannot be opened{}{}: {} (UCX_TLS and UCX_NET_DEVICES say what it may use; ucx_info -d lists what "
        "there is)",
        options_.interface.empty() ? "" : " on interface ", options_.interface, ucs_status_string(status));
  return {};
}

void Worker::destroy_worker() {
  ucp_worker_destroy(worker_);
}

void Worker::destroy_context() {
  if (context_ != nullptr) ucp_cleanup(context_);
  delete async_;
}

}  // namespace multigrain::ucx
