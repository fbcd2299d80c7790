// Wire-up over PMI-2: MPICH's mpirun (hydra) and Slurm's srun --mpi=pmi2, both through Slurm's client library, which
// speaks the PMI-2 wire protocol over the descriptor PMI_FD.
//
// PMI-2 carries short texts under short names, so a card is cut into pieces and written in hexadecimal. PMI-2's calls
// wait without limit, so a watchdog shuts the descriptor down when time is over, and the calls fail.
#include <slurm/pmi2.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/hexadecimal.h"
#include "base/mutex.h"
#include "fabric/wireup/rank_check.h"
#include "fabric/wireup/wireup_module.h"

namespace multigrain {
namespace {

using Clock = std::chrono::steady_clock;

// PMI2_MAX_VALLEN is 1024 with the final zero, in Slurm as in MPICH.
constexpr size_t kBytesPerValue = 504;
static_assert(2 * kBytesPerValue < PMI2_MAX_VALLEN);

// Makes reads of a socket fail from `deadline` on, unless this object is destroyed before.
class Watchdog {
 public:
  Watchdog(int fd, Clock::time_point deadline)
      : thread_([this, fd, deadline] {
          const LockGuard lock(mutex_);
          while (!off_ && changed_.wait_until(mutex_, deadline)) {
          }
          if (off_) return;
          barked_ = true;
          // This shuts down only the reading direction: if the launcher saw an end of file, it would kill this process
          // before the process has said why.
          shutdown(fd, SHUT_RD);
        }) {}
  ~Watchdog() {
    {
      const LockGuard lock(mutex_);
      off_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  [[nodiscard]] bool barked() {
    const LockGuard lock(mutex_);
    return barked_;
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool off_ MG_GUARDED_BY(mutex_) = false;
  bool barked_ MG_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member, because it uses the others
};

class Pmi2Wireup final : public Wireup {
 public:
  Status open();

  [[nodiscard]] NodeId self() const override { return NodeId(static_cast<uint16_t>(rank_)); }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }
  Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds timeout) override;
  Status finish() override;

 private:
  [[nodiscard]] std::string key(unsigned node, size_t piece) const {
    return fmt::format("mg-{}-{}-{}", round_, node, piece);
  }
  [[nodiscard]] Status publish(std::span<const std::byte> card) const;
  [[nodiscard]] std::optional<std::string> value(const std::string& key) const;
  [[nodiscard]] Result<Card> card_of(unsigned node) const;

  int fd_ = -1;
  unsigned rank_ = 0;
  unsigned nodes_ = 0;
  unsigned round_ = 0;
  bool open_ = false;
  std::array<char, PMI2_MAX_VALLEN> job_{};
};

Status Pmi2Wireup::open() {
  const char* const descriptor = std::getenv("PMI_FD");
  if (descriptor == nullptr) return fail("PMI_FD is not set: start the program with mpirun or srun --mpi=pmi2");
  fd_ = std::atoi(descriptor);
  int spawned = 0, size = 0, rank = 0, application = 0;
  if (const int status = PMI2_Init(&spawned, &size, &rank, &application); status != PMI2_SUCCESS)
    return fail(
        "the launcher does not answer over PMI-2 (error {}); if this program was not started by mpirun or srun itself, "
        "set MULTIGRAIN_NODES=1",
        status);
  open_ = true;
  rank_ = static_cast<unsigned>(rank);
  nodes_ = static_cast<unsigned>(size);
  if (const int status = PMI2_Job_GetId(job_.data(), static_cast<int>(job_.size())); status != PMI2_SUCCESS)
    return fail("the launcher does not name its job over PMI-2 (error {})", status);
  return check_rank(rank_, nodes_);
}

// Publishes the card in pieces, the first of which is the number of bytes.
Status Pmi2Wireup::publish(std::span<const std::byte> card) const {
  int status = PMI2_KVS_Put(key(rank_, 0).c_str(), std::to_string(card.size()).c_str());
  for (size_t piece = 1; status == PMI2_SUCCESS && !card.empty(); ++piece) {
    const size_t bytes = std::min(card.size(), kBytesPerValue);
    status = PMI2_KVS_Put(key(rank_, piece).c_str(), to_hexadecimal(card.first(bytes)).c_str());
    card = card.subspan(bytes);
  }
  if (status != PMI2_SUCCESS) return fail("the launcher does not take this node's card over PMI-2 (error {})", status);
  return {};
}

std::optional<std::string> Pmi2Wireup::value(const std::string& key) const {
  std::array<char, PMI2_MAX_VALLEN> text{};
  int length = 0;
  if (PMI2_KVS_Get(job_.data(), PMI2_ID_NULL, key.c_str(), text.data(), static_cast<int>(text.size()), &length) !=
          PMI2_SUCCESS ||
      length < 0)
    return std::nullopt;
  return std::string(text.data());
}

Result<Card> Pmi2Wireup::card_of(unsigned node) const {
  const auto size_text = value(key(node, 0));
  if (!size_text) return fail("nothing was heard of node {}", node);
  const std::optional<uint64_t> length = parse_whole(*size_text, kMaxCard);
  if (!length) return fail("the card of node {} came through PMI-2 with a length of '{}'", node, *size_text);
  const size_t size = *length;
  Card card;
  card.reserve(size);
  for (size_t piece = 1; card.size() < size; ++piece) {
    const auto text = value(key(node, piece));
    if (!text) return fail("the card of node {} stops after {} of {} bytes", node, card.size(), size);
    if (text->empty() || !append_hexadecimal(*text, card) || card.size() > size)
      return fail("the card of node {} came through PMI-2 damaged", node);
  }
  return card;
}

Result<std::vector<Card>> Pmi2Wireup::exchange(std::span<const std::byte> card, std::chrono::seconds timeout) {
  if (card.size() > kMaxCard) return fail("a card of {} bytes; the longest is {}", card.size(), kMaxCard);
  Watchdog watchdog(fd_, Clock::now() + timeout);
  const auto because = [&](const std::string& reason) {
    return watchdog.barked() ? fail("{} within {} s", reason, timeout.count()) : fail("{}", reason);
  };
  if (const Status published = publish(card); !published) return because(published.error().message);
  if (const int status = PMI2_KVS_Fence(); status != PMI2_SUCCESS)
    return watchdog.barked() ? because("not all nodes came")
                             : because(fmt::format("PMI-2's fence failed (error {}): the launcher is gone", status));
  std::vector<Card> cards;
  for (unsigned node = 0; node < nodes_; ++node) {
    // Hydra's fence does not wait for a process that has not called PMI-2 yet, but the get of that process's card does.
    Result<Card> one = card_of(node);
    if (!one) return because(one.error().message);
    cards.push_back(std::move(*one));
  }
  ++round_;
  return cards;
}

Status Pmi2Wireup::finish() {
  MG_CHECK(open_);
  open_ = false;
  // This is done now and not at exit, because afterwards the launcher does not mind how this process ends.
  if (const int status = PMI2_Finalize(); status != PMI2_SUCCESS)
    return fail("the launcher does not let this node leave PMI-2 (error {})", status);
  return {};
}

// There is no destructor that finalises PMI-2. Without finish() the wire-up has failed, and this process is about to
// end: the launcher must see that as a failure, so that it ends the other processes.

}  // namespace
}  // namespace multigrain

extern "C" [[gnu::visibility("default")]] void multigrain_open_wireup(
    multigrain::Result<std::unique_ptr<multigrain::Wireup>>* out) {
  multigrain::open_wireup_of_module<multigrain::Pmi2Wireup>(out);
}
