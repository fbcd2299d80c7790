// Wire-up over PMIx: Open MPI's mpirun from version 4, prterun, and Slurm's srun --mpi=pmix.
//
// Each call that depends on other processes is started without waiting, and then waited for with a deadline of our own,
// because most servers ignore PMIX_TIMEOUT.
#include <fmt/ranges.h>
#include <pmix.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "fabric/wireup/rank_check.h"
#include "fabric/wireup/wireup_module.h"

namespace multigrain {
namespace {

using Clock = std::chrono::steady_clock;

// A node's card may take this long when it is already known whether all nodes have come.
constexpr std::chrono::seconds kAfterwards{5};

// One request to PMIx. PMIx's own thread answers it, perhaps after the waiting thread has given up, so both threads own
// it.
class Request {
 public:
  // Returns PMIx's `cbdata`: the answering thread's share of the request, which take() turns back into a pointer.
  static void* share(const std::shared_ptr<Request>& request) { return new std::shared_ptr<Request>(request); }
  static std::shared_ptr<Request> take(void* shared) {
    const std::unique_ptr<std::shared_ptr<Request>> share(static_cast<std::shared_ptr<Request>*>(shared));
    return *share;
  }

  void answer(pmix_status_t status, Card card = {}) {
    const LockGuard lock(mutex_);
    answered_ = true;
    status_ = status;
    card_ = std::move(card);
    changed_.notify_all();
  }

  // Returns false if there was no answer by then.
  bool wait_until(Clock::time_point deadline) {
    const LockGuard lock(mutex_);
    while (!answered_ && changed_.wait_until(mutex_, deadline)) {
    }
    return answered_;
  }

  // The caller uses these after wait_until() has returned true: there is only one answer, so it does not change any
  // more.
  [[nodiscard]] pmix_status_t status() const MG_NO_THREAD_SAFETY_ANALYSIS { return status_; }
  [[nodiscard]] Card& card() MG_NO_THREAD_SAFETY_ANALYSIS { return card_; }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool answered_ MG_GUARDED_BY(mutex_) = false;
  pmix_status_t status_ MG_GUARDED_BY(mutex_) = PMIX_SUCCESS;
  Card card_;
};

void fence_answered(pmix_status_t status, void* shared) {
  Request::take(shared)->answer(status);
}

void get_answered(pmix_status_t status, pmix_value_t* value, void* shared) {
  Card card;
  if (status == PMIX_SUCCESS && value->type == PMIX_BYTE_OBJECT) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
    card.assign(bytes, bytes + value->data.bo.size);
  } else if (status == PMIX_SUCCESS) {
    status = PMIX_ERR_TYPE_MISMATCH;
  }
  Request::take(shared)->answer(status, std::move(card));
}

// Keeps the action of SIGPIPE, which PMIx_Init sets to "ignore" in some versions: the program must find its signals as
// they were when it was started.
class SignalsKept {
 public:
  SignalsKept() { sigaction(SIGPIPE, nullptr, &pipe_); }
  ~SignalsKept() { sigaction(SIGPIPE, &pipe_, nullptr); }
  SignalsKept(const SignalsKept&) = delete;
  SignalsKept& operator=(const SignalsKept&) = delete;

 private:
  struct sigaction pipe_{};
};

class PmixWireup final : public Wireup {
 public:
  Status open();

  [[nodiscard]] NodeId self() const override { return NodeId(static_cast<uint16_t>(me_.rank)); }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }
  Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds timeout) override;
  Status finish() override;

 private:
  [[nodiscard]] Status publish(const std::string& key, std::span<const std::byte> card);
  [[nodiscard]] std::vector<std::shared_ptr<Request>> ask_for_cards(const std::string& key) const;
  [[nodiscard]] std::vector<unsigned> silent_nodes(const std::string& key) const;

  pmix_proc_t me_{};
  unsigned nodes_ = 0;
  unsigned round_ = 0;
  bool open_ = false;
  // PMIx reads this until a fence is over, which may never happen.
  pmix_info_t collect_{};
};

Status PmixWireup::open() {
  const SignalsKept kept;
  if (const pmix_status_t status = PMIx_Init(&me_, nullptr, 0); status != PMIX_SUCCESS)
    return fail(
        "cannot reach the PMIx server of the launcher: {}; if this program was not started by mpirun or srun itself, "
        "set MULTIGRAIN_NODES=1",
        PMIx_Error_string(status));
  open_ = true;
  pmix_proc_t job{};
  PMIX_LOAD_PROCID(&job, me_.nspace, PMIX_RANK_WILDCARD);
  pmix_value_t* size = nullptr;
  if (const pmix_status_t status = PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &size); status != PMIX_SUCCESS)
    return fail("PMIx does not say how many processes there are: {}", PMIx_Error_string(status));
  nodes_ = size->type == PMIX_UINT32 ? size->data.uint32 : 0;
  PMIX_VALUE_RELEASE(size);
  bool collect = true;
  PMIX_INFO_LOAD(&collect_, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
  return check_rank(me_.rank, nodes_);
}

Status PmixWireup::publish(const std::string& key, std::span<const std::byte> card) {
  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  // PMIx copies the bytes.
  value.data.bo.bytes = const_cast<char*>(reinterpret_cast<const char*>(card.data()));
  value.data.bo.size = card.size();
  pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key.c_str(), &value);
  if (status == PMIX_SUCCESS) status = PMIx_Commit();
  if (status != PMIX_SUCCESS) return fail("PMIx does not take this node's card: {}", PMIx_Error_string(status));
  return {};
}

std::vector<std::shared_ptr<Request>> PmixWireup::ask_for_cards(const std::string& key) const {
  std::vector<std::shared_ptr<Request>> requests;
  for (unsigned node = 0; node < nodes_; ++node) {
    const auto& request = requests.emplace_back(std::make_shared<Request>());
    pmix_proc_t process{};
    PMIX_LOAD_PROCID(&process, me_.nspace, node);
    void* const shared = Request::share(request);
    if (const pmix_status_t status = PMIx_Get_nb(&process, key.c_str(), nullptr, 0, &get_answered, shared);
        status != PMIX_SUCCESS)
      Request::take(shared)->answer(status);
  }
  return requests;
}

std::vector<unsigned> PmixWireup::silent_nodes(const std::string& key) const {
  const auto requests = ask_for_cards(key);
  const Clock::time_point deadline = Clock::now() + kAfterwards;
  std::vector<unsigned> silent;
  for (unsigned node = 0; node < nodes_; ++node) {
    if (!requests[node]->wait_until(deadline) || requests[node]->status() != PMIX_SUCCESS) silent.push_back(node);
  }
  return silent;
}

Result<std::vector<Card>> PmixWireup::exchange(std::span<const std::byte> card, std::chrono::seconds timeout) {
  if (card.size() > kMaxCard) return fail("a card of {} bytes; the longest is {}", card.size(), kMaxCard);
  const Clock::time_point deadline = Clock::now() + timeout;
  // Each round has its own key, so that a server, or its shared-memory store, cannot hand out the card of an earlier
  // round.
  const std::string key = fmt::format("multigrain-{}", round_++);
  if (const Status published = publish(key, card); !published) return tl::unexpected<Error>(published.error());

  const auto fence = std::make_shared<Request>();
  void* const shared = Request::share(fence);
  const pmix_status_t started = PMIx_Fence_nb(nullptr, 0, &collect_, 1, &fence_answered, shared);
  if (started != PMIX_SUCCESS)
    Request::take(shared)->answer(started == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : started);
  const bool in_time = fence->wait_until(deadline);
  if (!in_time || fence->status() != PMIX_SUCCESS) {
    const std::string reason = in_time ? fmt::format("PMIx's fence failed: {}", PMIx_Error_string(fence->status()))
                                       : fmt::format("not all nodes came within {} s", timeout.count());
    const std::vector<unsigned> silent = silent_nodes(key);
    if (silent.empty()) return fail("{}", reason);
    return fail("{}; nothing was heard of node{} {}", reason, silent.size() == 1 ? "" : "s", fmt::join(silent, ", "));
  }

  const auto requests = ask_for_cards(key);
  const Clock::time_point end = std::max(deadline, Clock::now() + kAfterwards);
  std::vector<Card> cards;
  for (unsigned node = 0; node < nodes_; ++node) {
    Request& request = *requests[node];
    if (!request.wait_until(end)) return fail("PMIx does not hand out the card of node {}", node);
    if (request.status() != PMIX_SUCCESS)
      return fail("PMIx does not hand out the card of node {}: {}", node, PMIx_Error_string(request.status()));
    if (request.card().size() > kMaxCard) return fail("the card of node {} is too long", node);
    cards.push_back(std::move(request.card()));
  }
  return cards;
}

Status PmixWireup::finish() {
  MG_CHECK(open_);
  open_ = false;
  // This is done now and not at exit, because afterwards the launcher does not mind how this process ends, and PMIx's
  // thread is gone before the program runs.
  const SignalsKept kept;
  if (const pmix_status_t status = PMIx_Finalize(nullptr, 0); status != PMIX_SUCCESS)
    return fail("PMIx cannot be left: {}", PMIx_Error_string(status));
  return {};
}

// There is no destructor that finalises PMIx. Without finish() the wire-up has failed, and this process is about to
// end: the launcher must see that as a failure, so that it ends the other processes.

}  // namespace
}  // namespace multigrain

extern "C" [[gnu::visibility("default")]] void multigrain_open_wireup(
    multigrain::Result<std::unique_ptr<multigrain::Wireup>>* out) {
  multigrain::open_wireup_of_module<multigrain::PmixWireup>(out);
}
