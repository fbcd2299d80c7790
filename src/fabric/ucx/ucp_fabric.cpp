#include "fabric/ucx/ucp_fabric.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucs/async/async_fwd.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "fabric/copy_words.h"
#include "fabric/ucx/gate.h"
#include "fabric/ucx/job_secret.h"
#include "fabric/ucx/transports.h"
#include "fabric/ucx/ucx_module.h"

namespace multigrain::ucx {
namespace {

constexpr unsigned kBatch = 32;                     // messages a poll() handles at most
constexpr unsigned kFullWindowSpins = 500;          // polls of a sender that finds no room, before it sleeps
constexpr Nanoseconds kFullWindowSleep = 50'000;    // and how long it sleeps then
constexpr Nanoseconds kOperationSpin = 60'000;      // how long a remote operation is waited for by polling
constexpr Nanoseconds kOperationSleep = 1'000'000;  // and how long at most without a look, should nobody serve
constexpr Nanoseconds kWatchedSleep = 20'000;       // the same where somebody else watches
// Waits that follow each other within kBurst are a burst; in one, the service thread looks every kLinger. Where it
// looks more often it takes the core from processors that poll (half as often: page faults over TCP 20 for 40 us), and
// less often lets a request wait that comes when the burst is over.
constexpr Nanoseconds kBurst = 200'000;
constexpr Nanoseconds kLinger = 100'000;
constexpr Nanoseconds kTimerWorthSleeping = 20'000;  // shorter than this, the service thread spins
constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr Nanoseconds kFarewell = kSecond / 10;
constexpr Nanoseconds kFirstHeartbeat = 60 * kSecond;  // a node that starts may be silent for so long
constexpr std::chrono::seconds kConnectTimeout{60};
constexpr uint64_t kTellAfter = kWindow / 4;  // handled cost that the sender must hear of
constexpr size_t kWorthHolding = 2048;        // bytes: longer data stays in UCX's buffer, if UCX offers that
constexpr unsigned kRefusalsShown = 10;

constexpr size_t index(SegmentId segment) {
  return static_cast<size_t>(segment);
}
constexpr uint64_t bit(unsigned node) {
  return uint64_t{1} << node;
}

// A remote key that has been asked for. No key has this address.
ucp_rkey_h asked() {
  return reinterpret_cast<ucp_rkey_h>(uintptr_t{1});
}

// As in the other fabrics. initial-exec: the first use of dynamic TLS may call malloc.
[[gnu::tls_model("initial-exec")]] thread_local bool t_handling = false;

// The batch that this thread is in. In a process with several fabrics, a batch of one in a batch of another is none.
struct Batch {
  const UcpFabric* fabric = nullptr;
  unsigned depth = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Batch t_batch;

tl::unexpected<Error> fail_ucx(const char* what, ucs_status_t status) {
  return fail("{}: UCX says: {}", what, ucs_status_string(status));
}

const char* words_of(LossReason reason, bool from_node_0) {
  if (reason == LossReason::kEnded) return "its program has ended";
  if (reason == LossReason::kSilent)
    return from_node_0 ? "node 0 has not heard from it for too long" : "it has been silent for too long";
  return from_node_0 ? "its connection to node 0 broke" : "its connection broke";
}

// Memory that is zero, and has none where it is not touched.
void* map_sparse(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Of a line of lanes_of(): "tcp/eth0"; empty if it has none.
std::string_view device_of(std::string_view line) {
  const size_t colon = line.find(':', line.find(':') + 1);
  if (colon == std::string_view::npos) return {};
  return line.substr(colon + 1, line.find_first_of(" .", colon) - colon - 1);
}

// Whether the network itself does puts on that lane. (How UCX names the lanes for that depends on its version; on these
// transports it has some, for memory that is not ours.)
bool puts(std::string_view line) {
  const std::string_view device = device_of(line);
  const std::string_view transport = device.substr(0, device.find('/'));
  for (const std::string_view none : {"tcp", "posix", "self"})
    if (transport == none) return false;
  return line.find(" rma") != std::string_view::npos;
}

// The components of UCX's transport layer ("posix", "tcp", ...). Asking loads those that are libraries of their own.
std::vector<std::string> components() {
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

// A setting as UCX has it: from its environment, its configuration file, or its default. It tells that only to a
// stream, a line each.
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

// What a node tells the others in exchange #2. The address and the key of its words follow.
struct CardHead {
  static constexpr uint64_t kMagic = 0x3278637567746c6d;
  uint64_t magic;
  std::array<uint64_t, index(SegmentId::kCount)> base;
  std::array<uint64_t, index(SegmentId::kCount)> length;
  uint32_t address_bytes;
  uint32_t words_key_bytes;
};

}  // namespace

// --- Being inside UCX

// While it exists this thread is the only one inside UCX.
class UcpFabric::Inside {
 public:
  explicit Inside(UcpFabric& fabric) : fabric_(fabric) {
    fabric.enter_library();
    fabric.lock_.lock();
    check_stopped();
  }
  // Only if nobody is; see entered().
  Inside(UcpFabric& fabric, std::try_to_lock_t) : fabric_(fabric) {
    if (!fabric.lock_.try_lock()) {
      entered_ = false;
      return;
    }
    fabric.enter_library();
    check_stopped();
  }
  ~Inside() {
    if (!entered_) return;
    fabric_.lock_.unlock();
    fabric_.leave_library();
    if (fabric_.losses_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      fabric_.report_losses();
    if (wakes_) fabric_.wake_if_unattended();
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  [[nodiscard]] bool entered() const { return entered_; }
  unsigned progress() {
    const unsigned count = ucp_worker_progress(fabric_.worker_);
    fabric_.recycle();
    return count;
  }
  // The thread goes on to handle messages.
  void will_drain() { wakes_ = false; }

 private:
  void check_stopped() {
    if (!fabric_.stopped_.load(std::memory_order_relaxed)) [[likely]]
      return;
    fabric_.lock_.unlock();
    while (true) pause();
  }

  UcpFabric& fabric_;
  bool entered_ = true;
  bool wakes_ = true;
};

// While it exists this thread makes progress again and again.
class UcpFabric::Watch {
 public:
  explicit Watch(UcpFabric& fabric) : fabric_(fabric) { fabric.watch(); }
  ~Watch() { fabric_.unwatch(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  UcpFabric& fabric_;
};

// UCX's asynchronous thread accepts connections, and allocates. It has no entry that we could wrap, but it takes event
// handlers: one of ours runs on it, and calls enter_library() there for good. It exists as long as it has a handler.
class UcpFabric::AsyncThread {
 public:
  static Result<AsyncThread*> start(const UcpFabric& fabric) {
    auto* const self = new AsyncThread(fabric);
    self->fd_ = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
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
  explicit AsyncThread(const UcpFabric& fabric) : fabric_(fabric) {}
  static void run(int /*id*/, ucs_event_set_types_t /*events*/, void* argument) {
    auto& self = *static_cast<AsyncThread*>(argument);
    uint64_t count = 0;
    if (read(self.fd_, &count, sizeof count) < 0 || self.inside_.load(std::memory_order_relaxed) != 0) return;
    self.fabric_.enter_library();
    self.inside_.store(1, std::memory_order_release);
    futex_wake(self.inside_, FutexScope::kProcess);
  }

  const UcpFabric& fabric_;
  int fd_ = -1;
  std::atomic<uint32_t> inside_{0};
};

// --- Start

UcpFabric::UcpFabric(const UcxOptions& options) : options_(options) {
  madvise(static_cast<void*>(this), sizeof *this, MADV_DONTDUMP);  // it holds the keys of the pairs
  context_.self = options.self.value;
  context_.nodes = static_cast<uint16_t>(options.hosts.size());
  context_.segment_bytes = {options.region_size, options.words_bytes, options.lines_bytes};
  frame_chunks_ = (options.region_size + kChunkBytes - 1) / kChunkBytes;
  chunks_ = frame_chunks_ + (options.lines_bytes + kChunkBytes - 1) / kChunkBytes;
  for (unsigned i = 0; i < kOperations; ++i) {
    operations_[i].fabric = this;
    operations_[i].next_free = static_cast<uint16_t>(i + 1 < kOperations ? i + 2 : 0);
  }
  free_operation_ = 1;
}

Result<std::unique_ptr<UcxFabric>> UcpFabric::open(const UcxOptions& options) {
  if (options.hosts.empty() || options.hosts.size() > NodeSet::kCapacity)
    return fail("a run has 1 to {} nodes, not {}", NodeSet::kCapacity, options.hosts.size());
  if (options.self.value >= options.hosts.size())
    return fail("node {} cannot join a run of {} nodes", options.self.value, options.hosts.size());
  set_panic_node(options.self.value);
  if (options.enter_library != nullptr) options.enter_library();
  std::unique_ptr<UcpFabric> fabric(new UcpFabric(options));
  Status started = fabric->start();
  if (options.leave_library != nullptr) options.leave_library();
  if (!started) return tl::unexpected(started.error());
  return fabric;
}

Status UcpFabric::start() {
  const std::vector<std::string> available = components();
  // Before UCX listens anywhere.
  if (Status gated = install_gate(**options_.secret, context_.self, options_.interface); !gated) return gated;
  gated_ = true;
  for (unsigned n = 0; n < context_.nodes; ++n) {
    context_.key[n] = pair_key(**options_.secret, n, context_.self);
    peers_[n].key = pair_key(**options_.secret, context_.self, n);
  }
  options_.secret.reset();
  auto async = AsyncThread::start(*this);
  if (!async) return tl::unexpected(async.error());
  async_ = *async;

  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return fail_ucx("cannot read UCX's configuration (the UCX_* variables)", status);
  // The word's own node uses its processors' atomic instructions, so everybody's must go through its processors.
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
    parameters.estimated_num_eps = context_.nodes;
    parameters.name = "multigrain";
    status = ucp_init(&parameters, config, &ucp_);
  }
  ucp_config_release(config);
  if (status != UCS_OK)
    return fail(
        "UCX cannot be opened{}{}: {} (UCX_TLS and UCX_NET_DEVICES say what it may use; ucx_info -d lists what "
        "there is)",
        options_.interface.empty() ? "" : " on interface ", options_.interface, ucs_status_string(status));

  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(ucp_, &worker, &worker_);
  if (status != UCS_OK) return fail_ucx("UCX cannot start its worker", status);

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.arg = this;
  handler.id = kMessageId;
  handler.cb = &UcpFabric::on_message;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  handler.id = kTrainId;
  handler.cb = &UcpFabric::on_train;
  if (status == UCS_OK) status = ucp_worker_set_am_recv_handler(worker_, &handler);
  handler.id = kPiecesId;
  handler.cb = &UcpFabric::on_pieces;
  if (status == UCS_OK) status = ucp_worker_set_am_recv_handler(worker_, &handler);
  handler.id = kControlId;
  handler.cb = &UcpFabric::on_control;
  if (status == UCS_OK) status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return fail_ucx("UCX does not take message handlers", status);

  status = ucp_worker_get_efd(worker_, &ucx_fd_);
  if (status != UCS_OK)
    return fail_ucx("the transports that UCX chose (see UCX_TLS) cannot wake a sleeping node", status);
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (event_fd_ < 0 || epoll_fd_ < 0) return fail_errno(errno, "cannot create an event descriptor");
  epoll_event event{};
  event.data.fd = ucx_fd_;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, ucx_fd_, &event) != 0)
    return fail_errno(errno, "cannot wait for UCX's descriptor");
  event.events = EPOLLIN;
  event.data.fd = event_fd_;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, event_fd_, &event) != 0)
    return fail_errno(errno, "cannot wait for an event descriptor");
  return map_words();
}

Result<ucp_mem_h> UcpFabric::map_memory(std::byte* base, uint64_t length) {
  ucp_mem_map_params_t parameters{};
  parameters.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  parameters.address = base;
  parameters.length = length;
  parameters.flags = UCP_MEM_MAP_NONBLOCK;  // room for on-demand paging
  ucp_mem_h memory = nullptr;
  const ucs_status_t status = ucp_mem_map(ucp_, &parameters, &memory);
  if (status != UCS_OK)
    return fail_ucx("memory cannot be registered with the network (is `ulimit -l` too low?)", status);
  return memory;
}

Status UcpFabric::map_words() {
  void* const words = map_sparse(options_.words_bytes);
  chunk_memory_ = static_cast<std::atomic<ucp_mem_h>*>(map_sparse(std::max<size_t>(chunks_, 1) * sizeof(void*)));
  if (words == nullptr || chunk_memory_ == nullptr) return fail_errno(errno, "no memory for the words of this node");
  exported_[index(SegmentId::kWords)] = {static_cast<std::byte*>(words), options_.words_bytes};
  auto memory = map_memory(static_cast<std::byte*>(words), options_.words_bytes);
  if (!memory) return tl::unexpected(memory.error());
  words_memory_ = *memory;
  return {};
}

void UcpFabric::export_segment(SegmentId segment, std::byte* base, uint64_t length) {
  MG_CHECK(segment == SegmentId::kFrames || segment == SegmentId::kLines);
  MG_CHECK(!connected_);
  MG_CHECK(length == context_.segment_bytes[index(segment)], length);
  exported_[index(segment)] = {base, length};
}

Status UcpFabric::connect(Wireup& wireup) {
  MG_CHECK(!connected_);
  for (const SegmentId segment : {SegmentId::kFrames, SegmentId::kLines})
    MG_CHECK(context_.segment_bytes[index(segment)] == 0 || exported_[index(segment)].base != nullptr);
  if (wireup.nodes() != context_.nodes || wireup.self() != self())
    return fail("the wire-up is that of node {} of {}, not of node {} of {}", wireup.self().value, wireup.nodes(),
                context_.self, context_.nodes);
  enter_library();
  const auto cards = meet(wireup);
  Status connected;
  if (cards) {
    connected = say_hello(*cards);
  } else {
    connected = tl::unexpected(cards.error());
  }
  leave_library();
  if (connected) connected_ = true;
  return connected;
}

Result<std::vector<Card>> UcpFabric::meet(Wireup& wireup) {
  CardHead head{};
  head.magic = CardHead::kMagic;
  for (size_t i = 0; i < exported_.size(); ++i) {
    head.base[i] = reinterpret_cast<uint64_t>(exported_[i].base);
    head.length[i] = exported_[i].length;
  }
  ucp_address_t* address = nullptr;
  size_t address_bytes = 0;
  ucs_status_t status = ucp_worker_get_address(worker_, &address, &address_bytes);
  if (status != UCS_OK) return fail_ucx("UCX has no address", status);
  void* key = nullptr;
  size_t key_bytes = 0;
  status = ucp_rkey_pack(ucp_, words_memory_, &key, &key_bytes);
  if (status != UCS_OK) return fail_ucx("UCX gives no key for this node's words", status);
  head.address_bytes = static_cast<uint32_t>(address_bytes);
  head.words_key_bytes = static_cast<uint32_t>(key_bytes);
  Card card(sizeof head + address_bytes + key_bytes);
  std::memcpy(card.data(), &head, sizeof head);
  std::memcpy(card.data() + sizeof head, address, address_bytes);
  std::memcpy(card.data() + sizeof head + address_bytes, key, key_bytes);
  ucp_rkey_buffer_release(key);
  ucp_worker_release_address(worker_, address);

  auto cards = wireup.exchange(card, kConnectTimeout);
  if (!cards) return tl::unexpected(cards.error());
  if (cards->size() != context_.nodes) return fail("the wire-up knows {} nodes of {}", cards->size(), context_.nodes);

  for (unsigned n = 0; n < context_.nodes; ++n) {
    if (n == context_.self) continue;
    const Card& theirs = (*cards)[n];
    Peer& peer = peers_[n];
    CardHead their{};
    if (theirs.size() >= sizeof their) std::memcpy(&their, theirs.data(), sizeof their);
    if (their.magic != CardHead::kMagic ||
        theirs.size() != sizeof their + uint64_t{their.address_bytes} + their.words_key_bytes)
      return fail("node {} on host {} has sent an address that cannot be read", n, options_.hosts[n]);
    for (size_t i = 0; i < exported_.size(); ++i) {
      if (their.length[i] != context_.segment_bytes[i])
        return fail("node {} on host {} exports {} bytes where this node expects {}", n, options_.hosts[n],
                    their.length[i], context_.segment_bytes[i]);
    }
    peer.base = their.base;
    peer.chunk_keys =
        static_cast<std::atomic<ucp_rkey_h>*>(map_sparse(std::max<size_t>(chunks_, 1) * sizeof(ucp_rkey_h)));
    if (peer.chunk_keys == nullptr) return fail_errno(errno, "no memory for the remote keys of other nodes");

    // The lower of two nodes connects; the higher one waits for its hello. Two connections that cross would do, but UCX
    // gives one of them up again, with a warning.
    if (context_.self < n) {
      const Inside inside(*this);
      if (Status made = make_endpoint(n, theirs); !made) return tl::unexpected(made.error());
    }
  }
  return cards;
}

Status UcpFabric::make_endpoint(unsigned n, const Card& card) {
  Peer& peer = peers_[n];
  CardHead head{};
  std::memcpy(&head, card.data(), sizeof head);
  const std::byte* const address = card.data() + sizeof head;
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_USER_DATA;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address);
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = [](void* self, ucp_ep_h endpoint, ucs_status_t) {
    auto& fabric = *static_cast<UcpFabric*>(self);
    for (unsigned i = 0; i < fabric.context_.nodes; ++i)
      if (fabric.peers_[i].endpoint == endpoint) fabric.lose(i, LossReason::kBroken, false);
  };
  parameters.err_handler.arg = this;
  parameters.user_data = this;
  ucs_status_t status = ucp_ep_create(worker_, &parameters, &peer.endpoint);
  if (status != UCS_OK)
    return fail(
        "node {} on host {} cannot be reached: UCX says: {} (UCX_TLS and UCX_NET_DEVICES, or mgrun --interface, say "
        "what "
        "it may use)",
        n, options_.hosts[n], ucs_status_string(status));
  status = ucp_ep_rkey_unpack(peer.endpoint, address + head.address_bytes, &peer.words_key);
  if (status != UCS_OK)
    return fail("the key that node {} on host {} has sent cannot be used: UCX says: {}", n, options_.hosts[n],
                ucs_status_string(status));
  send_control(n, ControlKind::kHello);
  return {};
}

// Every connection is made and tried now: one that does not work is reported here, and not at some page fault.
Status UcpFabric::say_hello(const std::vector<Card>& cards) {
  const Nanoseconds deadline = monotonic_ns() + static_cast<Nanoseconds>(kConnectTimeout.count()) * kSecond;
  std::array<void*, NodeSet::kCapacity> flushes{};
  bool flushing = false;
  bool said_ready = false;
  while (true) {
    unsigned missing = context_.nodes;
    {
      Inside inside(*this);
      while (inside.progress() != 0) {
      }
      for (unsigned n = 0; n < context_.nodes; ++n) {
        Peer& peer = peers_[n];
        if (n == context_.self) continue;
        if (peer.said_hello && peer.endpoint == nullptr) {
          if (Status made = make_endpoint(n, cards[n]); !made) return made;
        }
        if (peer.said_hello && !std::exchange(peer.answered_hello, true)) send_control(n, ControlKind::kWelcome);
        if (peer.lost.load(std::memory_order_relaxed))
          return fail("node {} on host {} cannot be reached: {}", n, options_.hosts[n], words_of(peer.loss, false));
        if (!peer.said_hello || !peer.welcomed) missing = n;
      }
      // UCX must have nothing left to do, here or there, that needs this node to make progress: perhaps nobody comes
      // back into it soon. So each flushes its connections, which may need the other's help, and leaves when all have.
      if (missing == context_.nodes && !flushing) {
        flushing = true;
        ucp_request_param_t parameters{};
        for (unsigned n = 0; n < context_.nodes; ++n) {
          if (n == context_.self) continue;
          void* const request = ucp_ep_flush_nbx(peers_[n].endpoint, &parameters);
          if (UCS_PTR_IS_PTR(request)) flushes[n] = request;
        }
      }
      for (unsigned n = 0; flushing && n < context_.nodes; ++n) {
        if (flushes[n] == nullptr) continue;
        if (ucp_request_check_status(flushes[n]) == UCS_INPROGRESS) {
          missing = n;
        } else {
          ucp_request_free(flushes[n]);
          flushes[n] = nullptr;
        }
      }
      if (flushing && missing == context_.nodes) {
        for (unsigned n = 0; n < context_.nodes; ++n) {
          if (n == context_.self) continue;
          if (!said_ready) send_control(n, ControlKind::kReady);
          if (!peers_[n].ready) missing = n;
        }
        said_ready = true;
        if (missing == context_.nodes && controls_under_way_ == 0) break;
      }
    }
    if (monotonic_ns() > deadline)
      return fail("node {} on host {} does not answer over the network (is a firewall between the hosts?)", missing,
                  options_.hosts[missing]);
    sleep_ns(20'000);
  }
  for (Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    for (const std::string& line : lanes_of(peer)) peer.can_put = peer.can_put || puts(line);
  }
  return {};
}

UcpFabric::~UcpFabric() {
  if (stopped_.load()) return;  // other threads wait in it for the end of the process
  enter_library();
  if (worker_ != nullptr) {
    Inside inside(*this);
    // What was sent goes out first, as far as that is soon.
    ucp_request_param_t parameters{};
    const Nanoseconds deadline = monotonic_ns() + kSecond;
    void* request = connected_ && losses_.load() == 0 ? ucp_worker_flush_nbx(worker_, &parameters) : nullptr;
    if (UCS_PTR_IS_PTR(request)) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS && monotonic_ns() < deadline) inside.progress();
      ucp_request_free(request);
    }
    for (Peer& peer : peers_) {
      if (peer.words_key != nullptr) ucp_rkey_destroy(peer.words_key);
      if (peer.chunk_keys == nullptr) continue;
      for (uint64_t i = 0; i < chunks_; ++i) {
        ucp_rkey_h key = peer.chunk_keys[i].load(std::memory_order_relaxed);
        if (key != nullptr && key != asked()) ucp_rkey_destroy(key);
      }
    }
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    for (Peer& peer : peers_) {
      if (peer.endpoint == nullptr) continue;
      request = ucp_ep_close_nbx(peer.endpoint, &parameters);
      if (!UCS_PTR_IS_PTR(request)) continue;
      while (ucp_request_check_status(request) == UCS_INPROGRESS) inside.progress();
      ucp_request_free(request);
    }
    recycle();
    for (Peer& peer : peers_) {
      for (Incoming* list : {peer.early, peer.first}) {
        for (; list != nullptr; list = list->next)
          if (list->held != nullptr) ucp_am_data_release(worker_, list->held);
      }
    }
    losses_.store(0);
    if (words_memory_ != nullptr) ucp_mem_unmap(ucp_, words_memory_);
    for (uint64_t i = 0; chunk_memory_ != nullptr && i < chunks_; ++i) {
      if (ucp_mem_h memory = chunk_memory_[i].load(std::memory_order_relaxed); memory != nullptr)
        ucp_mem_unmap(ucp_, memory);
    }
    ucp_worker_destroy(worker_);
  }
  if (ucp_ != nullptr) ucp_cleanup(ucp_);
  delete async_;
  if (gated_) remove_gate();
  leave_library();
  const size_t table = std::max<size_t>(chunks_, 1) * sizeof(void*);
  for (Peer& peer : peers_)
    if (peer.chunk_keys != nullptr) munmap(static_cast<void*>(peer.chunk_keys), table);
  if (chunk_memory_ != nullptr) munmap(static_cast<void*>(chunk_memory_), table);
  if (const Export& words = exported_[index(SegmentId::kWords)]; words.base != nullptr)
    munmap(words.base, words.length);
  if (event_fd_ >= 0) close(event_fd_);
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

void UcpFabric::stop() {
  Inside inside(*this);
  // Not every transport tells the others that a process is gone (shared memory does not), and silence takes seconds.
  if (connected_) {
    send_trains();
    for (unsigned n = 0; n < context_.nodes; ++n)
      if (n != context_.self) send_control(n, ControlKind::kEnding);
    const Nanoseconds deadline = monotonic_ns() + kFarewell;
    while (controls_under_way_ != 0 && monotonic_ns() < deadline) inside.progress();
  }
  stopped_.store(true, std::memory_order_relaxed);
}

// The lanes of a connection, as UCX describes them: a line each. It tells that only to a stream.
//   lane[0]:  1:tcp/eth0.0 md[1]  -> md[1]/tcp/sysdev[255] am am_bw#0 keepalive
std::vector<std::string> UcpFabric::lanes_of(const Peer& peer) const {
  enter_library();
  char* text = nullptr;
  size_t length = 0;
  std::vector<std::string> lines;
  if (std::FILE* const stream = open_memstream(&text, &length); stream != nullptr) {
    ucp_ep_print_info(peer.endpoint, stream);
    std::fclose(stream);
    const std::string_view all(text, length);
    for (size_t at = all.find("lane["); at != std::string_view::npos; at = all.find("lane[", at + 1))
      lines.emplace_back(all.substr(at, all.find('\n', at) - at));
    std::free(text);
  }
  leave_library();
  return lines;
}

std::string UcpFabric::description() const {
  std::set<std::string> chosen;
  for (const Peer& peer : peers_) {
    if (peer.endpoint == nullptr) continue;
    for (const std::string& line : lanes_of(peer)) {
      std::string device(device_of(line));
      if (device.empty()) continue;
      if (const size_t slash = device.find('/'); slash != std::string::npos) device.replace(slash, 1, " over ");
      chosen.insert(device);
    }
  }
  std::string result;
  for (const std::string& one : chosen) result += (result.empty() ? "" : ", ") + one;
  return result;
}

// --- Memory

void UcpFabric::check_range(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) const {
  if (node.value >= context_.nodes) panic("a remote operation names a node that does not exist:", node.value);
  if (segment >= SegmentId::kCount)
    panic("a remote operation names a segment that does not exist:", static_cast<uint64_t>(segment));
  const uint64_t end = context_.segment_bytes[index(segment)];
  if (length > end || offset > end - length)
    panic("a remote operation is outside of what the node exports (node, offset, length):", node.value, offset, length);
}

std::byte* UcpFabric::own(SegmentId segment, uint64_t offset) const {
  return exported_[index(segment)].base + offset;
}

// The key to the chunk with `offset`, asked for if this is the first use. Null if the node is gone.
ucp_rkey_h UcpFabric::remote_key(unsigned node, SegmentId segment, uint64_t offset) {
  Peer& peer = peers_[node];
  if (segment == SegmentId::kWords) return peer.words_key;
  const uint64_t chunk = offset / kChunkBytes;
  std::atomic<ucp_rkey_h>& entry = peer.chunk_keys[chunk_of(segment, offset)];
  ucp_rkey_h key = entry.load(std::memory_order_acquire);
  if (key != nullptr && key != asked()) [[likely]]
    return key;
  const Watch watch(*this);
  for (unsigned tries = 0; key == nullptr || key == asked(); ++tries) {
    if (peer.lost.load(std::memory_order_relaxed)) return nullptr;
    if (Inside inside(*this, std::try_to_lock); inside.entered()) {
      if (entry.load(std::memory_order_relaxed) == nullptr) {
        entry.store(asked(), std::memory_order_relaxed);
        send_control(node, ControlKind::kRemoteKeyRequest, index(segment), chunk);
      }
      inside.progress();
    }
    if (tries < kFullWindowSpins) {
      cpu_relax();
    } else {
      sleep_ns(kFullWindowSleep);
    }
    key = entry.load(std::memory_order_acquire);
  }
  return key;
}

void UcpFabric::answer_remote_key_request(unsigned source, const WireControl& request) {
  if (request.a == index(SegmentId::kWords)) panic("a key that was given at the start is asked for by node", source);
  const auto segment = static_cast<SegmentId>(request.a);
  const uint64_t begin = request.b * kChunkBytes;
  std::atomic<ucp_mem_h>& entry = chunk_memory_[chunk_of(segment, begin)];
  ucp_mem_h memory = entry.load(std::memory_order_relaxed);
  if (memory == nullptr) {
    const uint64_t length = std::min(kChunkBytes, context_.segment_bytes[request.a] - begin);
    const auto mapped = map_memory(own(segment, begin), length);
    if (!mapped)
      panic("frames cannot be registered with the network: raise `ulimit -l` (offset, length):", begin, length);
    memory = *mapped;
    entry.store(memory, std::memory_order_relaxed);
  }
  void* key = nullptr;
  size_t key_bytes = 0;
  if (ucp_rkey_pack(ucp_, memory, &key, &key_bytes) != UCS_OK || key_bytes > kMaxRemoteKey)
    panic("UCX gives no key for frames (offset):", begin);
  send_control(source, ControlKind::kRemoteKey, request.a, request.b, {static_cast<const std::byte*>(key), key_bytes});
  ucp_rkey_buffer_release(key);
}

void UcpFabric::accept_remote_key(unsigned source, const WireControl& wire, const void* data) {
  Peer& peer = peers_[source];
  if (wire.a == index(SegmentId::kWords)) panic("a key that nobody asked for came from node", source);
  std::atomic<ucp_rkey_h>& entry = peer.chunk_keys[chunk_of(static_cast<SegmentId>(wire.a), wire.b * kChunkBytes)];
  if (entry.load(std::memory_order_relaxed) != asked()) panic("a key that nobody asked for came from node", source);
  ucp_rkey_h key = nullptr;
  if (ucp_ep_rkey_unpack(peer.endpoint, data, &key) != UCS_OK)
    panic("a key that UCX cannot use came from node", source);
  entry.store(key, std::memory_order_release);
}

void UcpFabric::end_part(Operation& operation) {
  if (--operation.parts != 0) return;
  const uint32_t generation = operation.word.load(std::memory_order_relaxed) >> 1;
  const uint32_t old = operation.word.exchange((generation + 1) << 1, std::memory_order_seq_cst);
  operation.next_free = free_operation_;
  free_operation_ = static_cast<uint16_t>(&operation - operations_.data() + 1);
  if ((old & 1) != 0) futex_wake(operation.word, FutexScope::kProcess);
}

// How much of [offset, offset + length) lies in the chunk of its first byte.
uint64_t UcpFabric::in_one_chunk(SegmentId segment, uint64_t offset, uint64_t length) {
  return segment == SegmentId::kWords ? length : std::min(length, kChunkBytes - offset % kChunkBytes);
}

// Sees to it that remote_key() has all keys of the range. False: the node is gone.
bool UcpFabric::get_keys(NodeId node, SegmentId segment, uint64_t offset, uint64_t length) {
  for (const uint64_t end = offset + length; offset < end; offset += in_one_chunk(segment, offset, end - offset))
    if (remote_key(node.value, segment, offset) == nullptr) return false;
  return true;
}

// Takes a free operation, of one part, which ends it with end_part().
Completion UcpFabric::begin_operation(Inside& inside, Operation*& operation) {
  while (free_operation_ == 0) inside.progress();
  operation = &operations_[free_operation_ - 1u];
  const Completion completion{uint64_t{free_operation_} | uint64_t{operation->word.load() >> 1} << 16};
  free_operation_ = operation->next_free;
  operation->parts = 1;
  return completion;
}

// Runs `requests(peer, parameters, take)`, which passes each of UCX's requests that make up the operation to `take`.
template <typename Requests>
Completion UcpFabric::start_requests(NodeId node, Requests&& requests) {
  Inside inside(*this);
  Operation* operation = nullptr;
  const Completion completion = begin_operation(inside, operation);
  Peer& peer = peers_[node.value];
  if (!peer.lost.load(std::memory_order_relaxed)) {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
      auto& ended = *static_cast<Operation*>(user_data);
      ended.fabric->end_part(ended);
      ucp_request_free(request);
    };
    parameters.user_data = operation;
    requests(peer, parameters, [&](void* request) {
      if (UCS_PTR_IS_PTR(request)) {
        ++operation->parts;
      } else if (UCS_PTR_IS_ERR(request)) {
        lose(node.value, LossReason::kBroken, false);
      }
    });
  }
  const bool immediate = operation->parts == 1;
  end_part(*operation);
  return immediate ? Completion{} : completion;
}

// Runs `start(peer, key, piece offset, piece length, parameters)` for every chunk that the range touches.
template <typename Start>
Completion UcpFabric::start_operation(NodeId node, SegmentId segment, uint64_t offset, uint64_t length, Start&& start) {
  if (!get_keys(node, segment, offset, length)) return {};
  return start_requests(node, [&](Peer& peer, ucp_request_param_t& parameters, auto&& take) {
    for (uint64_t done = 0; done < length;) {
      const uint64_t here = in_one_chunk(segment, offset + done, length - done);
      take(start(peer, remote_key(node.value, segment, offset + done), done, here, parameters));
      done += here;
    }
  });
}

Completion UcpFabric::start_put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  check_range(to, segment, offset, bytes.size());
  if (bytes.empty()) return {};
  if (to == self()) {
    put_words(own(segment, offset), bytes.data(), bytes.size());
    return {};
  }
  const uint64_t size = bytes.size();
  // One word is stored once: where UCX copies in software it may store it twice, and who has taken a lock in between
  // would lose it. What was there goes where nobody looks.
  if (size == sizeof(uint64_t) && offset % sizeof(uint64_t) == 0)
    return start_operation(to, segment, offset, size,
                           [&](Peer& peer, ucp_rkey_h key, uint64_t, uint64_t, ucp_request_param_t& parameters) {
                             return start_atomic(peer, key, segment, offset, UCP_ATOMIC_OP_SWAP, bytes.data(),
                                                 &discarded_, parameters);
                           });
  return start_operation(
      to, segment, offset, size,
      [&](Peer& peer, ucp_rkey_h key, uint64_t done, uint64_t length, ucp_request_param_t& parameters) -> void* {
        void* const request = ucp_put_nbx(peer.endpoint, bytes.data() + done, length,
                                          peer.base[index(segment)] + offset + done, key, &parameters);
        if (done + length != size || UCS_PTR_IS_ERR(request)) return request;
        // UCX has completed a put when the buffer is free again. It can be seen there when the endpoint is flushed, and
        // a flush ends after all that was begun before it: so the put needs no counting of its own here.
        if (UCS_PTR_IS_PTR(request)) ++static_cast<Operation*>(parameters.user_data)->parts;
        return ucp_ep_flush_nbx(peer.endpoint, &parameters);
      });
}

Completion UcpFabric::start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) {
  uint64_t end = 0;
  uint64_t data_bytes = 0;
  uint32_t count = 0;
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    end = std::max(end, uint64_t{piece.offset} + piece.length);
    data_bytes += sizeof(WirePiece) + piece.length;
    ++count;
  }
  check_range(to, segment, offset, end);
  if (count == 0) return {};
  if (to == self()) {
    for (const Piece& piece : pieces)
      if (piece.length != 0) put_words(own(segment, offset + piece.offset), piece.bytes, piece.length);
    return {};
  }
  if (!peers_[to.value].can_put && data_bytes <= kMaxPiecesBytes)
    return send_pieces(to, segment, offset, pieces, count, data_bytes);
  if (!get_keys(to, segment, offset, end)) return {};
  return start_requests(to, [&](Peer& peer, ucp_request_param_t& parameters, auto&& take) {
    for (const Piece& piece : pieces) {
      for (uint64_t done = 0; done < piece.length;) {
        const uint64_t at = offset + piece.offset + done;
        const uint64_t here = in_one_chunk(segment, at, piece.length - done);
        take(ucp_put_nbx(peer.endpoint, piece.bytes + done, here, peer.base[index(segment)] + at,
                         remote_key(to.value, segment, at), &parameters));
        done += here;
      }
    }
    take(ucp_ep_flush_nbx(peer.endpoint, &parameters));
  });
}

Completion UcpFabric::start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  check_range(from, segment, offset, bytes.size());
  if (bytes.empty()) return {};
  if (from == self()) {
    get_words(bytes.data(), own(segment, offset), bytes.size());
    return {};
  }
  return start_operation(
      from, segment, offset, bytes.size(),
      [&](Peer& peer, ucp_rkey_h key, uint64_t done, uint64_t length, ucp_request_param_t& parameters) {
        return ucp_get_nbx(peer.endpoint, bytes.data() + done, length, peer.base[index(segment)] + offset + done, key,
                           &parameters);
      });
}

// Starts an operation and waits for it. Watches before the request goes out: its answer is not to wake the service
// thread.
template <typename Start>
void UcpFabric::carry_out(Start&& start) {
  Completion completion;
  {
    const Watch watch(*this);
    completion = start();
    if (wait_polling(completion)) return;
  }
  wait_asleep(completion);
}

void UcpFabric::put(NodeId to, SegmentId segment, uint64_t offset, std::span<const std::byte> bytes) {
  if (to == self()) {
    start_put(to, segment, offset, bytes);
  } else {
    carry_out([&] { return start_put(to, segment, offset, bytes); });
  }
}

void UcpFabric::get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) {
  if (from == self()) {
    start_get(from, segment, offset, bytes);
  } else {
    carry_out([&] { return start_get(from, segment, offset, bytes); });
  }
}

bool UcpFabric::is_complete(Completion completion) {
  if (completion.id == 0) return true;
  const uint64_t slot = completion.id & 0xffff;
  MG_CHECK(slot <= kOperations, completion.id);
  return operations_[slot - 1].word.load(std::memory_order_acquire) >> 1 != completion.id >> 16;
}

void UcpFabric::wait(Completion completion) {
  if (is_complete(completion)) return;
  {
    const Watch watch(*this);
    if (wait_polling(completion)) return;
  }
  wait_asleep(completion);
}

// For a bounded time. The caller watches. Returns whether the operation is complete.
bool UcpFabric::wait_polling(Completion completion) {
  if (is_complete(completion)) return true;
  Nanoseconds start = monotonic_ns();
  do {
    if (progress()) {
      start = monotonic_ns();
    } else {
      cpu_relax();
    }
    if (is_complete(completion)) return true;
  } while (monotonic_ns() - start < kOperationSpin);
  return false;
}

// It takes long: the service thread sees to it, or whoever watches. But the watcher may be this very thread, which
// attends in an outer scope; and without a service thread nobody does: so a look from time to time must do.
void UcpFabric::wait_asleep(Completion completion) {
  std::atomic<uint32_t>& word = operations_[(completion.id & 0xffff) - 1].word;
  const auto pending = static_cast<uint32_t>(completion.id >> 16) << 1;
  while (!is_complete(completion)) {
    if (progress()) continue;
    const Nanoseconds limit = watching_.load(std::memory_order_relaxed) == 0 ? kOperationSleep : kWatchedSleep;
    uint32_t expected = pending;
    if (word.compare_exchange_strong(expected, pending | 1, std::memory_order_seq_cst) || expected == (pending | 1))
      futex_wait(word, pending | 1, FutexScope::kProcess, limit);
  }
}

void UcpFabric::check_word(NodeId at, SegmentId segment, uint64_t offset) const {
  if (offset % sizeof(uint64_t) != 0)
    panic("a remote atomic is not on a multiple of 8 bytes (node, offset):", at.value, offset);
  check_range(at, segment, offset, sizeof(uint64_t));
}

std::atomic_ref<uint64_t> UcpFabric::own_word(SegmentId segment, uint64_t offset) const {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(own(segment, offset)));
}

// `operand` and `result` stay where they are until it is complete.
void* UcpFabric::start_atomic(Peer& peer, ucp_rkey_h key, SegmentId segment, uint64_t offset, ucp_atomic_op_t what,
                              const void* operand, uint64_t* result, ucp_request_param_t& parameters) {
  parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  parameters.datatype = ucp_dt_make_contig(sizeof(uint64_t));
  parameters.reply_buffer = result;
  return ucp_atomic_op_nbx(peer.endpoint, what, operand, 1, peer.base[index(segment)] + offset, key, &parameters);
}

uint64_t UcpFabric::atomic(NodeId at, SegmentId segment, uint64_t offset, ucp_atomic_op_t what, uint64_t operand,
                           uint64_t result) {
  carry_out([&] {
    return start_operation(at, segment, offset, sizeof(uint64_t),
                           [&](Peer& peer, ucp_rkey_h key, uint64_t, uint64_t, ucp_request_param_t& parameters) {
                             return start_atomic(peer, key, segment, offset, what, &operand, &result, parameters);
                           });
  });
  return result;
}

uint64_t UcpFabric::load_own(SegmentId segment, uint64_t offset) {
  check_word(self(), segment, offset);
  return own_word(segment, offset).load(std::memory_order_seq_cst);
}

uint64_t UcpFabric::fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) {
  check_word(at, segment, offset);
  if (at == self()) return own_word(segment, offset).exchange(value, std::memory_order_seq_cst);
  return atomic(at, segment, offset, UCP_ATOMIC_OP_SWAP, value, 0);
}

uint64_t UcpFabric::fetch_add(NodeId at, SegmentId segment, uint64_t offset, uint64_t addend) {
  check_word(at, segment, offset);
  if (at == self()) return own_word(segment, offset).fetch_add(addend, std::memory_order_seq_cst);
  return atomic(at, segment, offset, UCP_ATOMIC_OP_ADD, addend, 0);
}

uint64_t UcpFabric::compare_and_swap(NodeId at, SegmentId segment, uint64_t offset, uint64_t expected,
                                     uint64_t desired) {
  check_word(at, segment, offset);
  if (at == self()) {
    own_word(segment, offset).compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
    return expected;
  }
  // UCX takes the new value where it puts the old one.
  return atomic(at, segment, offset, UCP_ATOMIC_OP_CSWAP, expected, desired);
}

// --- Sending

void UcpFabric::set_handler(MessageType type, MessageHandler handler, void* context) {
  Handler& entry = handlers_[type];
  MG_CHECK(handler != nullptr, type);
  MG_CHECK(entry.function.load(std::memory_order_relaxed) == nullptr, type);
  entry.context = context;
  entry.function.store(handler, std::memory_order_release);
}

void UcpFabric::send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                     SendContext context, Nanoseconds not_before) {
  MG_CHECK(to.value < context_.nodes && to != self(), to.value);
  MG_CHECK(payload.size() <= kMaxPayload, payload.size());
  MG_CHECK(context == SendContext::kHandler || !t_handling);
  if (slice.length != 0) check_range(self(), slice.segment, slice.offset, slice.length);
  if (try_send(to, header, payload, slice, not_before, context == SendContext::kHandler)) return;

  // Not in a batch, if there is one: this thread waits now, and handles messages meanwhile.
  const Batch batch = in_batch() ? std::exchange(t_batch, Batch{}) : t_batch;
  if (batch.fabric == this) {
    Inside inside(*this);
    send_trains();
  }
  attend();
  for (unsigned tries = 0; !try_send(to, header, payload, slice, not_before, false); ++tries) {
    if (poll() != 0) continue;
    if (tries < kFullWindowSpins) {
      cpu_relax();
    } else {
      sleep_ns(kFullWindowSleep);
    }
  }
  leave();
  t_batch = batch;
}

// Sends, behind what waits already. If the window is full: `keep` says to queue the message instead.
bool UcpFabric::try_send(NodeId to, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice slice,
                         Nanoseconds not_before, bool keep) {
  const bool carried = slice.length != 0 && slice.length <= kMaxCarriedSlice;
  const uint64_t data_bytes = payload.size() + (carried ? slice.length : 0);
  Inside inside(*this);
  Peer& peer = peers_[to.value];
  if (peer.lost.load(std::memory_order_relaxed)) return true;
  const bool fits = peer.overflow_first == nullptr && peer.sent + message_cost(data_bytes) - peer.acked <= kWindow;
  if (!fits) {
    // What gives room is an answer to what is kept here.
    send_train(to.value);
    if (!keep) return false;
  } else if (slice.length == 0 && not_before == 0 && payload.size() <= kMaxTrainPayload &&
             (in_batch() || peer.train != nullptr)) {
    board(to.value, header, payload);
    if (!in_batch()) send_train(to.value);
    return true;
  }

  // UCX may need the header and the payload after this call, so they are copied. The slice stays as it is until the
  // receiver's handler has returned (fabric.h), so it need not be, unless a payload goes before it.
  const bool joined = carried && !payload.empty();
  const size_t copied = payload.size() + (joined ? slice.length : 0);
  auto* const out = new (pool_.allocate(sizeof(Outgoing) + copied)) Outgoing{};
  auto* const copy = reinterpret_cast<std::byte*>(out + 1);
  if (!payload.empty()) std::memcpy(copy, payload.data(), payload.size());
  if (joined) std::memcpy(copy + payload.size(), own(slice.segment, slice.offset), slice.length);
  out->fabric = this;
  out->not_before = not_before;
  out->data = carried && !joined ? own(slice.segment, slice.offset) : copy;
  out->data_bytes = data_bytes;
  out->wire.header = header;
  out->wire.payload_length = static_cast<uint32_t>(payload.size());
  if (slice.length != 0) {
    out->wire.slice_offset = slice.offset;
    out->wire.slice_length = slice.length;
    out->wire.segment = static_cast<uint8_t>(slice.segment);
    out->wire.carried = carried ? 1 : 0;
  }
  out->wire.from = context_.self;
  out->wire.key = peer.key;
  if (fits) {
    transmit(to.value, out);
  } else {
    (peer.overflow_first == nullptr ? peer.overflow_first : peer.overflow_last->next) = out;
    peer.overflow_last = out;
  }
  return true;
}

// Every message tells how much of the other direction has been handled.
void UcpFabric::tell_handled(Peer& peer, uint64_t& field) {
  field = peer.handled.load(std::memory_order_relaxed);
  peer.told.store(field, std::memory_order_relaxed);
}

void UcpFabric::transmit(unsigned to, Outgoing* out) {
  Peer& peer = peers_[to];
  send_train(to);
  peer.sent += message_cost(out->data_bytes);
  out->wire.sequence = peer.next_sequence++;
  tell_handled(peer, out->wire.handled);
  if (out->not_before != 0) {
    // Hosts have clocks of their own: what travels is how much time is left.
    const Nanoseconds now = monotonic_ns();
    out->wire.delay_ns = out->not_before > now ? out->not_before - now : 0;
  }
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
    static_cast<Outgoing*>(user_data)->fabric->pool_.release(user_data);
    ucp_request_free(request);
  };
  parameters.user_data = out;
  void* const request =
      ucp_am_send_nbx(peer.endpoint, kMessageId, &out->wire, sizeof out->wire, out->data, out->data_bytes, &parameters);
  if (UCS_PTR_IS_PTR(request)) return;
  if (UCS_PTR_IS_ERR(request)) lose(to, LossReason::kBroken, false);
  pool_.release(out);
}

bool UcpFabric::in_batch() const {
  return t_batch.fabric == this;
}

void UcpFabric::begin_batch() {
  if (t_batch.fabric == nullptr) t_batch.fabric = this;
  if (in_batch()) ++t_batch.depth;
}

void UcpFabric::end_batch() {
  if (!in_batch() || --t_batch.depth != 0) return;
  t_batch.fabric = nullptr;
  // What this thread has sent it sees; what others have, they see to.
  if (trains_.load(std::memory_order_relaxed) == 0) return;
  Inside inside(*this);
  send_trains();
}

// Puts a small message, for which there is room in the window, into the peer's train.
void UcpFabric::board(unsigned to, const MessageHeader& header, std::span<const std::byte> payload) {
  Peer& peer = peers_[to];
  if (peer.train != nullptr && peer.train->bytes + sizeof(WireMessage) + payload.size() > kMaxTrainBytes)
    send_train(to);
  if (peer.train == nullptr) {
    peer.train = new (pool_.allocate(sizeof(Train))) Train;  // not Train{}: the bytes need not be cleared
    peer.train->fabric = this;
    peer.train->wire = {.key = peer.key, .from = context_.self, .count = 0, .zero = 0};
    peer.train->bytes = 0;
    trains_.fetch_or(bit(to), std::memory_order_relaxed);
  }
  Train& train = *peer.train;
  WireMessage wire{};
  wire.key = peer.key;
  wire.sequence = peer.next_sequence++;
  wire.header = header;
  wire.payload_length = static_cast<uint32_t>(payload.size());
  wire.from = context_.self;
  tell_handled(peer, wire.handled);
  peer.sent += message_cost(payload.size());
  std::memcpy(train.data.data() + train.bytes, &wire, sizeof wire);
  if (!payload.empty()) std::memcpy(train.data.data() + train.bytes + sizeof wire, payload.data(), payload.size());
  train.bytes += static_cast<uint32_t>(sizeof wire + payload.size());
  ++train.wire.count;
}

void UcpFabric::send_train(unsigned to) {
  Peer& peer = peers_[to];
  if (peer.train == nullptr) return;
  Train* const train = std::exchange(peer.train, nullptr);
  trains_.fetch_and(~bit(to), std::memory_order_relaxed);
  if (peer.lost.load(std::memory_order_relaxed)) {
    pool_.release(train);
    return;
  }
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
    static_cast<Train*>(user_data)->fabric->pool_.release(user_data);
    ucp_request_free(request);
  };
  parameters.user_data = train;
  void* const request = ucp_am_send_nbx(peer.endpoint, kTrainId, &train->wire, sizeof train->wire, train->data.data(),
                                        train->bytes, &parameters);
  if (UCS_PTR_IS_PTR(request)) return;
  if (UCS_PTR_IS_ERR(request)) lose(to, LossReason::kBroken, false);
  pool_.release(train);
}

void UcpFabric::send_trains() {
  for (uint64_t rest = trains_.load(std::memory_order_relaxed); rest != 0; rest &= rest - 1)
    send_train(static_cast<unsigned>(std::countr_zero(rest)));
}

void UcpFabric::flush_overflow(unsigned to) {
  Peer& peer = peers_[to];
  while (peer.overflow_first != nullptr) {
    Outgoing* const out = peer.overflow_first;
    if (peer.sent + message_cost(out->data_bytes) - peer.acked > kWindow) return;
    peer.overflow_first = out->next;
    transmit(to, out);
  }
  peer.overflow_last = nullptr;
}

void UcpFabric::send_control(unsigned to, ControlKind kind, uint64_t a, uint64_t b, std::span<const std::byte> data) {
  Peer& peer = peers_[to];
  if (peer.lost.load(std::memory_order_relaxed)) return;
  auto* const out = new (pool_.allocate(sizeof(ControlOut) + data.size())) ControlOut{};
  auto* const copy = reinterpret_cast<std::byte*>(out + 1);
  if (!data.empty()) std::memcpy(copy, data.data(), data.size());
  out->fabric = this;
  out->wire.key = peer.key;
  tell_handled(peer, out->wire.handled);
  out->wire.a = a;
  out->wire.b = b;
  out->wire.from = context_.self;
  out->wire.kind = kind;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
    UcpFabric& fabric = *static_cast<ControlOut*>(user_data)->fabric;
    --fabric.controls_under_way_;
    fabric.pool_.release(user_data);
    ucp_request_free(request);
  };
  parameters.user_data = out;
  void* const request =
      ucp_am_send_nbx(peer.endpoint, kControlId, &out->wire, sizeof out->wire, copy, data.size(), &parameters);
  if (UCS_PTR_IS_PTR(request)) {
    ++controls_under_way_;
    return;
  }
  if (UCS_PTR_IS_ERR(request)) lose(to, LossReason::kBroken, false);
  pool_.release(out);
}

// Sends all pieces as one message. The operation ends when the target says that they are there.
Completion UcpFabric::send_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces,
                                  uint32_t count, uint64_t data_bytes) {
  Inside inside(*this);
  Operation* operation = nullptr;
  const Completion completion = begin_operation(inside, operation);
  Peer& peer = peers_[to.value];
  if (peer.lost.load(std::memory_order_relaxed)) {
    end_part(*operation);
    return {};
  }
  auto* const out = new (pool_.allocate(sizeof(PiecesOut) + data_bytes)) PiecesOut{};
  auto* const data = reinterpret_cast<std::byte*>(out + 1);
  std::byte* table = data;
  std::byte* bytes = data + count * sizeof(WirePiece);
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    const WirePiece entry{piece.offset, piece.length};
    std::memcpy(table, &entry, sizeof entry);
    table += sizeof entry;
    std::memcpy(bytes, piece.bytes, piece.length);
    bytes += piece.length;
  }
  out->fabric = this;
  out->wire.key = peer.key;
  out->wire.offset = offset;
  out->wire.completion = completion.id;
  out->wire.count = count;
  out->wire.from = context_.self;
  out->wire.segment = static_cast<uint8_t>(segment);
  // Before the message goes out: if the peer is lost in the middle of this, the operation has ended.
  operation->deposits_at = static_cast<uint16_t>(to.value + 1);
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
    static_cast<PiecesOut*>(user_data)->fabric->pool_.release(user_data);
    ucp_request_free(request);
  };
  parameters.user_data = out;
  void* const request =
      ucp_am_send_nbx(peer.endpoint, kPiecesId, &out->wire, sizeof out->wire, data, data_bytes, &parameters);
  if (UCS_PTR_IS_PTR(request)) return completion;
  if (UCS_PTR_IS_ERR(request)) lose(to.value, LossReason::kBroken, false);
  pool_.release(out);
  return completion;
}

// `source` says that pieces are deposited; `id` is their Completion's.
void UcpFabric::end_deposit(unsigned source, uint64_t id) {
  const uint64_t slot = id & 0xffff;
  Operation* const operation = slot - 1 < kOperations ? &operations_[slot - 1] : nullptr;
  if (operation == nullptr || operation->deposits_at != source + 1 ||
      operation->word.load(std::memory_order_relaxed) >> 1 != id >> 16)
    panic("pieces that were not sent are deposited, says node", source);
  operation->deposits_at = 0;
  end_part(*operation);
}

// --- Receiving

ucs_status_t UcpFabric::on_message(void* self, const void* header, size_t header_length, void* data, size_t length,
                                   const ucp_am_recv_param_t* param) {
  return static_cast<UcpFabric*>(self)->receive({static_cast<const std::byte*>(header), header_length}, data, length,
                                                param->recv_attr);
}

ucs_status_t UcpFabric::on_train(void* self, const void* header, size_t header_length, void* data, size_t length,
                                 const ucp_am_recv_param_t* param) {
  auto& fabric = *static_cast<UcpFabric*>(self);
  // As control messages.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    fabric.refuse("it is a train of messages of an impossible kind");
    return UCS_OK;
  }
  fabric.receive_train({static_cast<const std::byte*>(header), header_length},
                       {static_cast<const std::byte*>(data), length});
  return UCS_OK;
}

ucs_status_t UcpFabric::on_control(void* self, const void* header, size_t header_length, void* data, size_t length,
                                   const ucp_am_recv_param_t* param) {
  auto& fabric = *static_cast<UcpFabric*>(self);
  // Control messages are sent without a rendezvous; what comes with one is not ours.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    fabric.refuse("it is a control message of an impossible kind");
    return UCS_OK;
  }
  fabric.receive_control({static_cast<const std::byte*>(header), header_length}, data, length);
  return UCS_OK;
}

ucs_status_t UcpFabric::on_pieces(void* self, const void* header, size_t header_length, void* data, size_t length,
                                  const ucp_am_recv_param_t* param) {
  auto& fabric = *static_cast<UcpFabric*>(self);
  // As control messages.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    fabric.refuse("it is a scattered put of an impossible kind");
    return UCS_OK;
  }
  fabric.receive_pieces({static_cast<const std::byte*>(header), header_length},
                        {static_cast<const std::byte*>(data), length});
  return UCS_OK;
}

// Says that something came from outside of the job, the first few times.
void UcpFabric::refuse(const char* reason) {
  if (++refused_ > kRefusalsShown) return;
  char line[256];
  const int length =
      std::snprintf(line, sizeof line, "multigrain: node %u: refused a message of a stranger: %s%s\n", context_.self,
                    reason, refused_ == kRefusalsShown ? " (no more is said of these)" : "");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(length));
}

// Counts a message whose data is `length` long, and makes room for `copied` bytes of it.
UcpFabric::Incoming* UcpFabric::admit(const WireMessage& wire, size_t length, size_t copied) {
  const unsigned source = wire.from;
  Peer& peer = peers_[source];
  peer.heard = true;
  acknowledge(source, wire.handled);
  if (wire.sequence < peer.expected) panic("a message came twice from node (and its number)", source, wire.sequence);
  peer.arrived += message_cost(length);
  if (peer.arrived - peer.handled.load(std::memory_order_relaxed) > kWindow)
    panic("more messages than it may send came from node", source);
  auto* const in = new (pool_.allocate(sizeof(Incoming) + copied)) Incoming{};
  in->fabric = this;
  in->wire = wire;
  in->due = wire.delay_ns == 0 ? 0 : monotonic_ns() + wire.delay_ns;
  in->data = reinterpret_cast<std::byte*>(in + 1);
  return in;
}

void UcpFabric::receive_train(std::span<const std::byte> header, std::span<const std::byte> data) {
  WireTrain train;
  const Checked checked = decode(context_, header, data.size(), train);
  if (checked.verdict == Verdict::kStranger) [[unlikely]] {
    refuse(checked.reason);
    return;
  }
  if (checked.verdict == Verdict::kBroken) [[unlikely]]
    panic(checked.reason, train.from);
  for (unsigned left = train.count; left != 0; --left) {
    WireMessage wire;
    std::span<const std::byte> payload;
    if (const Checked record = next_record(context_, train, left, data, wire, payload);
        record.verdict != Verdict::kGood) [[unlikely]]
      panic(record.reason, train.from);
    Incoming* const in = admit(wire, payload.size(), payload.size());
    if (!payload.empty()) std::memcpy(in->data, payload.data(), payload.size());
    accept(train.from, in);
  }
}

// Deposits what another node puts. All of it is checked before the first byte is written.
void UcpFabric::receive_pieces(std::span<const std::byte> header, std::span<const std::byte> data) {
  WirePieces wire;
  Checked checked = decode(context_, header, data.size(), wire);
  if (checked.verdict == Verdict::kStranger) [[unlikely]] {
    refuse(checked.reason);
    return;
  }
  if (checked.verdict == Verdict::kGood) checked = check_pieces(context_, wire, data);
  if (checked.verdict == Verdict::kBroken) [[unlikely]]
    panic(checked.reason, wire.from);
  peers_[wire.from].heard = true;
  std::byte* const target = own(static_cast<SegmentId>(wire.segment), wire.offset);
  const std::byte* bytes = data.data() + wire.count * sizeof(WirePiece);
  for (uint32_t i = 0; i < wire.count; ++i) {
    const WirePiece each = piece(data, i);
    put_words(target + each.offset, bytes, each.length);
    bytes += each.length;
  }
  send_control(wire.from, ControlKind::kDeposited, wire.completion);
}

ucs_status_t UcpFabric::receive(std::span<const std::byte> header, void* data, size_t length, uint64_t attributes) {
  WireMessage wire;
  const Checked checked = decode(context_, header, length, wire);
  if (checked.verdict == Verdict::kStranger) [[unlikely]] {
    refuse(checked.reason);
    return UCS_OK;
  }
  const unsigned source = wire.from;
  if (checked.verdict == Verdict::kBroken) [[unlikely]]
    panic(checked.reason, source);

  const bool rendezvous = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  const bool holds = !rendezvous && (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 && length >= kWorthHolding;
  Incoming* const in = admit(wire, length, holds ? 0 : length);
  if (holds) {
    in->data = static_cast<std::byte*>(data);
    in->held = data;
    accept(source, in);
    return UCS_INPROGRESS;
  }
  if (!rendezvous) {
    if (length != 0) std::memcpy(in->data, data, length);
    accept(source, in);
    return UCS_OK;
  }
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
    auto* const arrived = static_cast<Incoming*>(user_data);
    UcpFabric& fabric = *arrived->fabric;
    ucp_request_free(request);
    // With an error the sender is gone, or this fabric is ending: the message is nobody's.
    if (status == UCS_OK) {
      fabric.accept(arrived->wire.from, arrived);
    } else {
      fabric.pool_.release(arrived);
    }
  };
  parameters.user_data = in;
  void* const request = ucp_am_recv_data_nbx(worker_, data, in->data, length, &parameters);
  if (request == nullptr) {
    accept(source, in);
  } else if (UCS_PTR_IS_ERR(request)) {
    lose(source, LossReason::kBroken, false);
    pool_.release(in);
  }
  return UCS_INPROGRESS;
}

void UcpFabric::receive_control(std::span<const std::byte> header, const void* data, size_t length) {
  WireControl wire;
  const Checked checked = decode(context_, header, length, wire);
  if (checked.verdict == Verdict::kStranger) [[unlikely]] {
    refuse(checked.reason);
    return;
  }
  const unsigned source = wire.from;
  if (checked.verdict == Verdict::kBroken) [[unlikely]]
    panic(checked.reason, source);
  Peer& peer = peers_[source];
  peer.heard = true;
  acknowledge(source, wire.handled);
  switch (wire.kind) {
    case ControlKind::kHello:
      peer.said_hello = true;
      break;
    case ControlKind::kWelcome:
      peer.welcomed = true;
      break;
    case ControlKind::kReady:
      peer.ready = true;
      break;
    case ControlKind::kAlive:
      peer.ever_heard = true;
      break;
    case ControlKind::kEnding:
      lose(source, LossReason::kEnded, false);
      break;
    case ControlKind::kLost:
      // That of this node itself: node 0 has given it up, and so it has lost node 0.
      lose(wire.a == context_.self ? 0 : static_cast<unsigned>(wire.a), static_cast<LossReason>(wire.b), true);
      break;
    case ControlKind::kRemoteKeyRequest:
      answer_remote_key_request(source, wire);
      break;
    case ControlKind::kRemoteKey:
      accept_remote_key(source, wire, data);
      break;
    case ControlKind::kDeposited:
      end_deposit(source, wire.a);
      break;
    case ControlKind::kHandled:
    case ControlKind::kNone:
    case ControlKind::kCount:
      break;
  }
}

// The peer has handled so much of what this node sent.
void UcpFabric::acknowledge(unsigned source, uint64_t handled) {
  Peer& peer = peers_[source];
  if (handled <= peer.acked) return;  // overtaken by a later one
  if (handled > peer.sent) panic("more messages than were sent have been handled, says node", source);
  peer.acked = handled;
  if (peer.overflow_first != nullptr) flush_overflow(source);
}

// Puts a message that is complete into its place: UCX promises no order.
void UcpFabric::accept(unsigned source, Incoming* in) {
  Peer& peer = peers_[source];
  if (in->wire.sequence != peer.expected) {
    Incoming** place = &peer.early;
    while (*place != nullptr && (*place)->wire.sequence < in->wire.sequence) place = &(*place)->next;
    if (*place != nullptr && (*place)->wire.sequence == in->wire.sequence)
      panic("a message came twice from node (and its number)", source, in->wire.sequence);
    in->next = *place;
    *place = in;
    return;
  }
  enqueue(source, in);
  while (peer.early != nullptr && peer.early->wire.sequence == peer.expected) {
    Incoming* const next = peer.early;
    peer.early = next->next;
    enqueue(source, next);
  }
}

void UcpFabric::enqueue(unsigned source, Incoming* in) {
  Peer& peer = peers_[source];
  ++peer.expected;
  in->next = nullptr;
  {
    const std::lock_guard guard(peer.queue_lock);
    (peer.first == nullptr ? peer.first : peer.last->next) = in;
    peer.last = in;
  }
  pending_.fetch_or(bit(source), std::memory_order_seq_cst);
}

// Gives back what has been handled.
void UcpFabric::recycle() {
  if (done_.load(std::memory_order_relaxed) == nullptr) return;
  for (Incoming* in = done_.exchange(nullptr, std::memory_order_acquire); in != nullptr;) {
    Incoming* const next = in->next;
    if (in->held != nullptr) ucp_am_data_release(worker_, in->held);
    pool_.release(in);
    in = next;
  }
}

bool UcpFabric::progress() {
  Inside inside(*this, std::try_to_lock);
  return inside.entered() && inside.progress() != 0;
}

unsigned UcpFabric::poll() {
  MG_CHECK(!t_handling);
  if (Inside inside(*this, std::try_to_lock); inside.entered()) {
    inside.will_drain();
    inside.progress();
  }
  const uint64_t bits = pending_.load(std::memory_order_seq_cst);
  if (bits == 0) return 0;
  const unsigned first = first_source_.load(std::memory_order_relaxed) % 64;
  unsigned handled = 0;
  for (uint64_t rest = std::rotr(bits, static_cast<int>(first)); rest != 0; rest &= rest - 1) {
    if (handled >= kBatch) {
      // What this thread put into the queues and leaves there must have somebody else.
      wake_if_unattended();
      break;
    }
    const unsigned source = (first + static_cast<unsigned>(std::countr_zero(rest))) % 64;
    handled += drain(source, kBatch - handled);
    first_source_.store(source + 1, std::memory_order_relaxed);
  }
  return handled;
}

unsigned UcpFabric::drain(unsigned source, unsigned limit) {
  Peer& peer = peers_[source];
  const Nanoseconds due = peer.due.load(std::memory_order_relaxed);
  if (due != 0 && due > monotonic_ns()) return 0;
  if (peer.token.load(std::memory_order_relaxed) != 0 || peer.token.exchange(1, std::memory_order_seq_cst) != 0)
    return 0;
  unsigned handled = 0;
  uint64_t cost = peer.handled.load(std::memory_order_relaxed);
  bool more = false;
  pending_.fetch_and(~bit(source), std::memory_order_seq_cst);
  peer.due.store(0, std::memory_order_relaxed);
  begin_batch();
  while (true) {
    Incoming* in = nullptr;
    {
      const std::lock_guard guard(peer.queue_lock);
      in = peer.first;
      if (in == nullptr) break;
      if (handled == limit) {
        more = true;
        break;
      }
      if (in->due != 0 && in->due > monotonic_ns()) {
        peer.due.store(in->due, std::memory_order_relaxed);
        more = true;
        break;
      }
      peer.first = in->next;
    }
    handle(source, *in);
    ++handled;
    cost += message_cost(in->wire.payload_length + (in->wire.carried != 0 ? in->wire.slice_length : 0));
    peer.handled.store(cost, std::memory_order_relaxed);
    in->next = done_.load(std::memory_order_relaxed);
    while (!done_.compare_exchange_weak(in->next, in, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }
  end_batch();
  if (more) pending_.fetch_or(bit(source), std::memory_order_seq_cst);
  if (handled != 0) {
    // `told` may be changed by others meanwhile: somebody has told it then.
    if (cost - peer.told.load(std::memory_order_relaxed) >= kTellAfter) {
      Inside inside(*this);
      inside.will_drain();
      if (cost - peer.told.load(std::memory_order_relaxed) >= kTellAfter) send_control(source, ControlKind::kHandled);
    }
  }
  peer.token.store(0, std::memory_order_seq_cst);
  if ((pending_.load(std::memory_order_seq_cst) & bit(source)) != 0) wake_if_unattended();
  return handled;
}

void UcpFabric::handle(unsigned source, Incoming& in) {
  const WireMessage& wire = in.wire;
  const Handler& handler = handlers_[wire.header.type];
  const MessageHandler function = handler.function.load(std::memory_order_acquire);
  if (function == nullptr)
    panic("a message of a type that nobody handles came from node (and its type)", source, wire.header.type);
  t_handling = true;
  const RemoteSlice slice{static_cast<SegmentId>(wire.segment), wire.slice_offset, wire.slice_length};
  function(handler.context,
           Message{NodeId(static_cast<uint16_t>(source)), wire.header, {in.data, wire.payload_length}, slice});
  t_handling = false;
}

// A slice that came along lies behind the payload; fetch() is called with what handle() passed on.
void UcpFabric::fetch(const Message& message, std::span<std::byte> bytes) {
  MG_CHECK(bytes.size() == message.slice.length, bytes.size());
  if (message.slice.length <= kMaxCarriedSlice) {
    if (!bytes.empty()) std::memcpy(bytes.data(), message.payload.data() + message.payload.size(), bytes.size());
    return;
  }
  get(message.from, message.slice.segment, message.slice.offset, bytes);
}

// --- Looking after

void UcpFabric::listen(bool on) {
  epoll_event event{};
  event.events = on ? uint32_t{EPOLLIN} : 0;
  event.data.fd = ucx_fd_;
  MG_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, ucx_fd_, &event) == 0, static_cast<uint64_t>(errno));
  listening_.store(on, std::memory_order_seq_cst);
}

void UcpFabric::watch() {
  if (watching_.fetch_add(1, std::memory_order_seq_cst) != 0) return;
  if (!listening_.load(std::memory_order_seq_cst)) return;  // a burst, or somebody else mutes it
  const Inside inside(*this);
  if (listening_.load(std::memory_order_relaxed) && watching_.load(std::memory_order_seq_cst) != 0) listen(false);
}

void UcpFabric::unwatch() {
  const uint32_t left = watching_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  MG_CHECK(left != ~uint32_t{0});
  if (left != 0) return;
  const Nanoseconds now = monotonic_ns();
  const Nanoseconds before = last_unwatch_.exchange(now, std::memory_order_relaxed);
  if (now - before < kBurst) {
    if (looking_.load(std::memory_order_seq_cst)) return;
    looking_.store(true, std::memory_order_seq_cst);
    wake();
    return;
  }
  Inside inside(*this);
  while (watching_.load(std::memory_order_seq_cst) == 0 && !listening_.load(std::memory_order_relaxed)) {
    if (!try_listen(inside)) inside.progress();
  }
}

// Asks UCX to make its descriptor readable at the next arrival, and lets that wake the service thread. False: there is
// something already.
bool UcpFabric::try_listen(Inside& /*inside*/) {
  const ucs_status_t status = ucp_worker_arm(worker_);
  if (status == UCS_ERR_BUSY) return false;
  if (status != UCS_OK) panic("UCX cannot wait for messages; its status is minus", static_cast<uint64_t>(-status));
  if (!listening_.load(std::memory_order_relaxed)) listen(true);
  return true;
}

void UcpFabric::attend() {
  attendance_.fetch_add(1, std::memory_order_seq_cst);
  watch();
}

void UcpFabric::leave() {
  const uint32_t left = attendance_.fetch_sub(1, std::memory_order_seq_cst) - 1;
  MG_CHECK(left != ~uint32_t{0});
  unwatch();
  wake_if_unattended();
}

// S3: somebody must handle what is in the queues.
void UcpFabric::wake_if_unattended() {
  if (pending_.load(std::memory_order_seq_cst) == 0 || attendance_.load(std::memory_order_seq_cst) != 0) return;
  if (!waking_.exchange(true, std::memory_order_seq_cst)) wake();
}

void UcpFabric::wake() {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
  errno = saved;
}

// When there will be messages to handle that nobody sees to: 0 now, kNever only after somebody is woken.
Nanoseconds UcpFabric::next_work() {
  Nanoseconds when = kNever;
  for (uint64_t rest = pending_.load(std::memory_order_seq_cst); rest != 0; rest &= rest - 1) {
    const Peer& peer = peers_[static_cast<unsigned>(std::countr_zero(rest))];
    if (peer.token.load(std::memory_order_seq_cst) != 0) continue;
    const Nanoseconds due = peer.due.load(std::memory_order_relaxed);
    if (due == 0) return 0;
    if (due < when) when = due;
  }
  return when;
}

// Sees to it that arrivals are noticed while the service thread sleeps, and returns for how long it may at most; 0:
// there is something to do first.
Nanoseconds UcpFabric::prepare_to_sleep() {
  Inside inside(*this);
  inside.will_drain();
  if (looking_.load(std::memory_order_seq_cst)) {
    const Nanoseconds since = monotonic_ns() - last_unwatch_.load(std::memory_order_relaxed);
    if (watching_.load(std::memory_order_seq_cst) != 0) {
      if (since < kBurst) return kLinger;
    } else if (since < kLinger && !listening_.load(std::memory_order_relaxed)) {
      return kLinger - since;
    }
    // The burst is over. Whoever stops watching from now on sees that; whoever did before is seen below.
    looking_.store(false, std::memory_order_seq_cst);
  }
  if (watching_.load(std::memory_order_seq_cst) != 0) return kNever;
  if (!try_listen(inside)) {
    inside.progress();
    return 0;
  }
  return kNever;
}

void UcpFabric::serve() {
  if (!precise_timers_) {
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    precise_timers_ = true;
  }
  while (true) {
    waking_.store(false, std::memory_order_seq_cst);
    if (stop_serving_.exchange(false, std::memory_order_seq_cst)) return;
    tend();
    Nanoseconds when = kNever;
    uint32_t nobody = 0;
    if (attendance_.compare_exchange_strong(nobody, 1, std::memory_order_seq_cst)) {
      unsigned handled = 0;
      while (const unsigned batch = poll()) {
        handled += batch;
        // A processor that has come to wait handles the rest itself.
        if (attendance_.load(std::memory_order_relaxed) > 1) break;
      }
      const uint32_t left = attendance_.fetch_sub(1, std::memory_order_seq_cst) - 1;
      if (left == 0) when = next_work();
      if (handled != 0) return;
    }
    if (when == 0) continue;
    const Nanoseconds nap = prepare_to_sleep();
    if (nap == 0) continue;
    const Nanoseconds now = monotonic_ns();
    const Nanoseconds until = std::min({when, next_tick_, nap == kNever ? kNever : now + nap});
    if (until <= now) continue;
    const Nanoseconds rest = until - now;
    if (when != kNever && rest < kTimerWorthSleeping) {
      cpu_relax();
      continue;
    }
    const timespec limit{static_cast<time_t>(rest / kSecond), static_cast<long>(rest % kSecond)};
    std::array<epoll_event, 2> events{};
    const int count = epoll_pwait2(epoll_fd_, events.data(), static_cast<int>(events.size()),
                                   until == kNever ? nullptr : &limit, nullptr);
    for (int i = 0; i < count; ++i) {
      uint64_t value = 0;
      if (events[static_cast<size_t>(i)].data.fd == event_fd_)
        if (read(event_fd_, &value, sizeof value) < 0) continue;
    }
  }
}

void UcpFabric::wake_service() {
  stop_serving_.store(true, std::memory_order_seq_cst);
  wake();
}

// --- Who is still there

// Heartbeats form a star: every node and node 0 say twice a second that they are there, and node 0 tells the others who
// is not. Everything that arrives counts as a sign of life.
void UcpFabric::tend() {
  if (options_.silence_limit == 0 || context_.nodes == 1) {
    next_tick_ = kNever;
    return;
  }
  const Nanoseconds now = monotonic_ns();
  if (now < next_tick_) return;
  const bool first = next_heartbeat_ == 0;
  const Nanoseconds period = std::min(kSecond / 2, options_.silence_limit / 8);
  // The time in which this process was stopped itself is nobody's silence.
  const Nanoseconds pause = first ? 0 : now - (next_tick_ - period / 2);
  const Nanoseconds own_pause = pause > 3 * period ? pause : 0;
  next_tick_ = now + period / 2;
  const bool speaks = now >= next_heartbeat_;
  if (speaks) next_heartbeat_ = now + period;
  const Inside inside(*this);
  for (unsigned n = 0; n < context_.nodes; ++n) {
    Peer& peer = peers_[n];
    if (n == context_.self || (context_.self != 0 && n != 0) || peer.lost.load(std::memory_order_relaxed)) continue;
    if (speaks) send_control(n, ControlKind::kAlive);
    peer.last_heard = std::min(now, peer.last_heard + own_pause);
    if (first || std::exchange(peer.heard, false)) peer.last_heard = now;
    const Nanoseconds limit =
        peer.ever_heard ? options_.silence_limit : std::max(options_.silence_limit, kFirstHeartbeat);
    // A pause that is shorter than the limit is borne wherever between two signs of life it begins.
    if (now - peer.last_heard > limit + period) lose(n, LossReason::kSilent, false);
  }
}

void UcpFabric::lose(unsigned node, LossReason reason, bool from_node_0) {
  Peer& peer = peers_[node];
  if (node == context_.self || peer.lost.load(std::memory_order_relaxed)) return;
  peer.loss = reason;
  peer.loss_from_node_0 = from_node_0;
  peer.lost.store(true, std::memory_order_relaxed);
  losses_.fetch_or(bit(node), std::memory_order_relaxed);
  // Other operations end with an error of UCX's; nobody will say that these are done.
  for (Operation& operation : operations_) {
    if (operation.deposits_at != node + 1) continue;
    operation.deposits_at = 0;
    end_part(operation);
  }
  if (context_.self == 0 && connected_) {
    for (unsigned n = 1; n < context_.nodes; ++n)
      if (n != node) send_control(n, ControlKind::kLost, node, static_cast<uint64_t>(reason));
  }
}

// Outside of the lock: the callback may do whatever it likes.
void UcpFabric::report_losses() {
  for (uint64_t rest = losses_.exchange(0, std::memory_order_relaxed); rest != 0; rest &= rest - 1) {
    const auto node = static_cast<uint16_t>(std::countr_zero(rest));
    const Peer& peer = peers_[node];
    if (connected_ && options_.peer_lost != nullptr)
      options_.peer_lost(options_.context, NodeId(node), words_of(peer.loss, peer.loss_from_node_0));
  }
}

}  // namespace multigrain::ucx

// Through arguments: a function of C linkage returns no C++ object.
extern "C" [[gnu::visibility("default")]] void multigrain_ucx_open(
    const multigrain::UcxOptions& options, multigrain::Result<std::unique_ptr<multigrain::UcxFabric>>& result);

extern "C" [[gnu::visibility("default")]] void multigrain_ucx_agree(multigrain::Wireup& wireup,
                                                                    multigrain::JobSecret& secret,
                                                                    multigrain::Status& result);

void multigrain_ucx_agree(multigrain::Wireup& wireup, multigrain::JobSecret& secret, multigrain::Status& result) {
  result = multigrain::ucx::agree(wireup, secret);
}

void multigrain_ucx_open(const multigrain::UcxOptions& options,
                         multigrain::Result<std::unique_ptr<multigrain::UcxFabric>>& result) {
  result = multigrain::ucx::UcpFabric::open(options);
}
