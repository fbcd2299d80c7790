#include "hlrc_driver_world.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "coherence/hlrc/driver.h"
#include "coherence/hlrc/words.h"
#include "driver_steps.h"
#include "fabric/forwarding_fabric.h"
#include "fibre.h"
#include "profile/this_thread.h"
#include "support/sim_fabric.h"

namespace multigrain::hlrc {

// What a driver keeps to itself: where it is, and what it says.
struct Explored {
  using Pieces = std::vector<std::span<std::byte>>;
  static constexpr size_t kPages = explored::kMaxPages;
  static constexpr size_t kNodes = explored::kMaxNodes;
  static constexpr size_t kBuffers = 4;   // of a pool, that are ever in use
  static constexpr size_t kEntries = 32;  // of logs, that an acquire reads

  template <typename T>
  static void add(Pieces& pieces, T& what) {
    pieces.push_back(std::as_writable_bytes(std::span(&what, 1)));
  }
  // A free buffer's first word names the next free one. Pages have kMaxWords words that are not zero.
  static void add_pool(Pieces& pieces, PagePool& pool, size_t bytes) {
    add(pieces, pool);
    for (size_t i = 0; i < kBuffers; ++i) pieces.push_back({pool.memory() + i * pool.page_size(), bytes});
  }
  static Pieces pieces(Driver& driver) {
    Pieces all;
    add_pool(all, *driver.twins_, explored::kMaxWords * sizeof(uint64_t));
    add_pool(all, driver.diffs_, sizeof(void*));
    add(all, driver.pages_looked_up_);
    for (size_t page = 0; page < kPages; ++page) add(all, driver.records_[page]);
    add(all, driver.history_);
    FetchLog& fetch_log = driver.fetch_log_;
    add(all, fetch_log.all_fetched_);
    for (size_t n = 0; n < kNodes; ++n) {
      add(all, fetch_log.read_[n]);
      add(all, fetch_log.written_[n].lock);
      add(all, fetch_log.written_[n].end);
      add(all, driver.known_[n]);
    }
    WrittenPages& written = driver.written_;
    add(all, written.lock_);
    add(all, written.current_);
    add(all, written.size_);
    add(all, written.unpublished_);
    for (auto& list : written.lists_) all.push_back(std::as_writable_bytes(std::span(&list[0], kPages)));
    add(all, driver.interval_lock_);
    all.push_back(std::as_writable_bytes(std::span(&driver.noticed_[0], kPages)));
    add(all, driver.notices_);
    add(all, driver.acquire_lock_);
    add(all, driver.reader_->runs_read_);
    all.push_back(std::as_writable_bytes(std::span(&driver.reader_->entries_[0], kEntries)));
    all.push_back(std::as_writable_bytes(std::span(&driver.reader_->runs_[0], kEntries)));
    return all;
  }

  // Overwrites what nobody will read again, and what would make two states differ that are the same.
  static void forget_dead(Driver& driver) {
    WrittenPages& written = driver.written_;
    const auto clear = [](SparseTable<PageId>& list, size_t from) {
      for (size_t i = from; i < kPages; ++i) list[i] = PageId(0);
    };
    clear(written.lists_[written.current_], written.size_);
    if (is_free(driver.interval_lock_)) {
      clear(written.lists_[written.current_ ^ 1], 0);
      std::memset(&driver.noticed_[0], 0, kPages);
    }
    if (is_free(driver.acquire_lock_)) {
      NoticeReader& reader = *driver.reader_;
      reader.runs_read_ = 0;
      std::fill_n(&reader.entries_[0], kEntries, 0);
      std::fill_n(&reader.runs_[0], kEntries, NoticeRun{});
    }
    for (size_t i = 0; i < kBuffers; ++i) {
      std::byte* const buffer = driver.twins_->memory() + i * driver.twins_->page_size();
      bool is_used = false;
      for (size_t page = 0; page < kPages; ++page) is_used = is_used || driver.records_[page].twin == buffer;
      if (!is_used) std::memset(buffer + sizeof(void*), 0, explored::kMaxWords * sizeof(uint64_t) - sizeof(void*));
    }
  }

  static bool is_free(SpinLock& lock) {
    if (!lock.try_lock()) return false;
    lock.unlock();
    return true;
  }
  static bool is_locked(Driver& driver, unsigned page) { return !is_free(driver.records_[page].lock); }
  static const Page& page(Driver& driver, unsigned page) { return driver.records_[page].page; }
  static bool has_twin(Driver& driver, unsigned page) { return driver.records_[page].twin != nullptr; }
  static bool is_at_rest(Driver& driver) {
    return driver.written_.unpublished_.load() == 0 && driver.written_.size_ == 0 && is_free(driver.interval_lock_) &&
           is_free(driver.acquire_lock_);
  }
  static PageId& last_fetch() { return Driver::t_last_fetch; }
};

namespace explored {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kRegionSize = uint64_t{1} << 20;
constexpr uint64_t kStride = uint64_t{1} << 30;  // between the regions of two nodes
constexpr size_t kWordBytes = sizeof(uint64_t);
constexpr size_t kOperations = 12;    // that a processor has under way
constexpr uint64_t kLogEntries = 24;  // of a ring, that are ever written, unless it goes round

// --- The state, as far as it is not a driver's or a stack

enum class At : uint8_t { kStep, kSpin, kWait, kLock, kBarrier, kEnd };

// A word of memory that others may access. 0: none.
using Word = uint64_t;
constexpr Word word_at(unsigned node, SegmentId segment, uint64_t offset) {
  return uint64_t{1} << 63 | static_cast<uint64_t>(node) << 48 | static_cast<uint64_t>(segment) << 40 |
         offset / kWordBytes;
}
constexpr unsigned node_of(Word word) {
  return static_cast<unsigned>(word >> 48 & 0xff);
}
constexpr SegmentId segment_of(Word word) {
  return static_cast<SegmentId>(word >> 40 & 0xff);
}
constexpr uint64_t offset_of(Word word) {
  return (word & 0xffffffffff) * kWordBytes;
}

// Where a processor stands.
struct Place {
  At at = At::kEnd;
  bool writes = false;     // kStep: the word
  bool is_behind = false;  // of a barrier, and acquires
  uint8_t pc = 0;
  uint8_t meeting = 0;    // kBarrier
  uint8_t waits_for = 0;  // kWait: the operation
  Category category = Category::kStopped;
  Word word = 0;             // kStep: what it accesses next
  SpinLock* lock = nullptr;  // kSpin
  PageId last_fetch{UINT64_MAX - 1};
};

// A remote operation under way, or a change of rights that takes effect late.
struct Operation {
  enum class Kind : uint8_t { kNone, kPut, kGet, kSwap, kRights };
  Kind kind = Kind::kNone;
  bool nobody_waits = false;
  uint8_t at = 0;     // node
  uint8_t after = 0;  // 1 + which operation of the processor must have taken effect
  SegmentId segment = SegmentId::kFrames;
  uint32_t pending = 0;  // of its words, a bit each
  uint64_t offset = 0;
  std::byte* to = nullptr;
  std::array<std::array<uint8_t, kWordBytes>, kMaxWords> bytes{};  // of puts
  std::array<uint8_t, kMaxWords> mask{};                           // which of them
  uint64_t value = 0;
  uint64_t* old = nullptr;
};

Word word_of(const Operation& operation, unsigned word) {
  return word_at(operation.at, operation.segment, operation.offset + word * kWordBytes);
}

enum class Right : uint8_t { kNone, kRead, kWrite };

struct Shared {
  std::array<Place, kMaxProcessors> places;
  std::array<std::array<Operation, kOperations>, kMaxProcessors> operations;
  std::array<uint8_t, kMaxLocks> lock_holder{};  // 1 + processor
  std::array<uint8_t, kMaxLocks> lock_from{};    // 1 + the node that let it go last
  uint8_t arrived = 0;
  uint8_t meetings = 0;
  std::array<std::array<uint64_t, kMaxWords>, kMaxPages> golden{};
  std::array<std::array<Right, kMaxPages>, kMaxNodes> rights{};  // as the drivers have set them
  std::array<std::array<Right, kMaxPages>, kMaxNodes> actual{};  // what processors may do: the same, but for mutants
};

// --- Saved states: of all bytes, those that are not zero

class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& out) : out_(out) { out_.clear(); }
  void add_size(size_t size) { put(static_cast<uint16_t>(size / kWordBytes)); }
  // Appends the chunks that are not zero, and their numbers.
  void add(std::span<const std::byte> bytes) {
    const size_t counted = out_.size();
    put(0);
    uint16_t count = 0;
    for (size_t at = 0; at < bytes.size(); at += kChunk) {
      const size_t length = std::min(kChunk, bytes.size() - at);
      std::array<std::byte, kChunk> chunk{};
      std::memcpy(chunk.data(), bytes.data() + at, length);
      if (chunk == std::array<std::byte, kChunk>{}) continue;
      put(static_cast<uint16_t>(at / kChunk));
      const auto* const begin = reinterpret_cast<const uint8_t*>(chunk.data());
      out_.insert(out_.end(), begin, begin + length);
      ++count;
    }
    std::memcpy(out_.data() + counted, &count, sizeof count);
  }
  static constexpr size_t kChunk = 32;

 private:
  void put(uint16_t value) {
    out_.push_back(static_cast<uint8_t>(value));
    out_.push_back(static_cast<uint8_t>(value >> 8));
  }
  std::vector<uint8_t>& out_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> in) : in_(in) {}
  size_t size() { return get() * kWordBytes; }
  void read(std::span<std::byte> bytes) {
    std::memset(bytes.data(), 0, bytes.size());
    for (uint16_t count = get(); count != 0; --count) {
      const size_t at = get() * Writer::kChunk;
      const size_t length = std::min(Writer::kChunk, bytes.size() - at);
      std::memcpy(bytes.data() + at, in_.data(), length);
      in_ = in_.subspan(length);
    }
  }

 private:
  uint16_t get() {
    const auto value = static_cast<uint16_t>(in_[0] | in_[1] << 8);
    in_ = in_.subspan(2);
    return value;
  }
  std::span<const uint8_t> in_;
};

// --- Ports

class Homes final : public HomeDirectory {
 public:
  explicit Homes(const std::vector<unsigned>& homes) : homes_(homes) {}
  std::optional<NodeId> home_of(PageId page) override {
    if (page.value >= homes_.size()) return std::nullopt;
    return NodeId(static_cast<uint16_t>(homes_[page.value]));
  }
  bool is_first_touch(PageId) override { return false; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }

 private:
  const std::vector<unsigned>& homes_;
};

// In the fibre: the processor stops before it accesses the word.
void stop_before(Word word, bool writes);
// A new operation of the processor that runs.
Operation& issue(Operation::Kind kind, NodeId at, SegmentId segment, uint64_t offset, size_t words);
Completion completion_of(const Operation& operation);
void wait_for(Completion completion);
// Of the operation that the completion is of.
uint8_t number_of(Completion completion);

class SteppedFabric final : public ForwardingFabric {
 public:
  using ForwardingFabric::ForwardingFabric;

  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { panic("HLRC puts diffs"); }
  void get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { panic("HLRC starts its gets"); }
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { panic("HLRC puts diffs"); }
  Completion start_put_pieces(NodeId to, SegmentId segment, uint64_t offset, std::span<const Piece> pieces) override {
    Operation& put = issue(Operation::Kind::kPut, to, segment, offset, 0);
    for (const Piece& piece : pieces) {
      for (size_t i = 0; i < piece.length; ++i) {
        const size_t at = piece.offset + i;
        if (at >= kMaxWords * kWordBytes) break;
        put.bytes[at / kWordBytes][at % kWordBytes] = std::to_integer<uint8_t>(piece.bytes[i]);
        put.mask[at / kWordBytes] |= static_cast<uint8_t>(1u << at % kWordBytes);
      }
    }
    for (size_t word = 0; word < kMaxWords; ++word)
      if (put.mask[word] != 0) put.pending |= 1u << word;
    put.nobody_waits = is(Mutant::kDepositsNotWaited);
    return put.nobody_waits ? Completion{} : completion_of(put);
  }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    return start_get_after({}, from, segment, offset, bytes);
  }
  // Of a page the words that programs use.
  Completion start_get_after(Completion earlier, NodeId from, SegmentId segment, uint64_t offset,
                             std::span<std::byte> bytes) override {
    const size_t words = segment == SegmentId::kFrames ? kMaxWords : bytes.size() / kWordBytes;
    Operation& get = issue(Operation::Kind::kGet, from, segment, offset, words);
    get.to = bytes.data();
    const Completion started = completion_of(get);
    if (earlier.id == 0) return started;
    if (is(Mutant::kFetchBeforeLog))
      put_after(earlier, started);
    else
      put_after(started, earlier);
    return started;
  }
  Completion start_fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value,
                                 uint64_t& old) override {
    if (is(Mutant::kNoFetchLog)) return {};
    Operation& swap = issue(Operation::Kind::kSwap, at, segment, offset, 1);
    swap.value = value;
    swap.old = &old;
    return completion_of(swap);
  }
  // Of this node's own words.
  uint64_t fetch_and_set(NodeId at, SegmentId segment, uint64_t offset, uint64_t value) override {
    MG_CHECK(at == self() && segment == SegmentId::kWords);
    const bool is_notice = offset >= words::kNotices;
    if (is(Mutant::kNoTimestamp) && !is_notice) return 0;
    MG_CHECK(!is_notice || offset < words::kNotices + kLogEntries * kWordBytes);
    stop_before(word_at(at.value, segment, offset), true);
    return inner().fetch_and_set(at, segment, offset, value);
  }
  // A node does not write its own ring.
  uint64_t load_own(SegmentId segment, uint64_t offset) override {
    const uint64_t slot = (offset - words::kFetchLog) / kWordBytes;
    if (slot / words::kFetchLogCount != self().value) stop_before(word_at(self().value, segment, offset), false);
    uint64_t word = 0;
    std::memcpy(&word, inner().own_segment(segment).data() + offset, sizeof word);
    return word;
  }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { panic("HLRC adds to no word"); }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override {
    panic("HLRC compares no word");
  }
  bool is_complete(Completion) override { panic("HLRC waits"); }
  void wait(Completion completion) override { wait_for(completion); }
  void set_handler(MessageType, MessageHandler, void*) override { panic("HLRC registers a message handler"); }
  void send(NodeId, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext, Nanoseconds) override {
    panic("HLRC sends a message");
  }

 private:
  static void put_after(Completion later, Completion earlier);
};

// The rights of a node, page by page. The driver stops before it changes them.
class SteppedRights final : public AccessRights {
 public:
  explicit SteppedRights(unsigned node) : node_(node) {}
  void grant_read(PageId first, uint64_t count) override { set(first, count, Right::kRead); }
  void grant_write(PageId first, uint64_t count) override { set(first, count, Right::kWrite); }
  void upgrade(PageId first, uint64_t count) override { set(first, count, Right::kWrite); }
  void revoke_write(PageId first, uint64_t count) override;
  void revoke(PageId first, uint64_t count) override { set(first, count, Right::kNone); }
  [[nodiscard]] std::string_view name() const override { return "stepped"; }
  [[nodiscard]] int fault_signal() const override { return 0; }
  [[nodiscard]] std::optional<Fault> decode(int, const siginfo_t*, const void*) const override { return {}; }

 private:
  void set(PageId first, uint64_t count, Right right);
  const unsigned node_;
};

// --- The machine

struct Node {
  std::optional<Region> region;
  std::optional<SteppedRights> rights;
  std::byte* words = nullptr;
  std::unique_ptr<SteppedFabric> fabric;
  std::unique_ptr<Driver> driver;
};

// What accesses the next step of a processor makes.
struct Footprint {
  struct Access {
    Word word = 0;
    bool writes = false;
  };
  std::vector<Access> words;
  int lock = -1;  // of the program

  [[nodiscard]] bool concerns(Word word, bool writes) const {
    return std::ranges::any_of(words, [&](const Access& each) { return each.word == word && (each.writes || writes); });
  }
};

void play();

class World {
 public:
  explicit World(const Scenario& of);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  using Event = Machine::Event;
  void start();
  void save(std::vector<uint8_t>& out);
  void restore(std::span<const uint8_t> in);
  void enabled(std::vector<Event>& events);
  // And all steps that are taken at once (R2).
  std::string take(const Event& event, std::string* log);
  void settle(std::string* log);
  [[nodiscard]] std::string check_end();
  [[nodiscard]] std::string describe();

  // From fibres.
  void play();
  void stop(At at) {
    self().at = at;
    fibres_[running_].stop();
  }
  Place& self() { return shared_.places[running_]; }
  [[nodiscard]] size_t running() const { return running_; }
  Shared& shared() { return shared_; }
  [[nodiscard]] unsigned node() const { return scenario_.processors[running_]; }

 private:
  [[nodiscard]] size_t processors() const { return scenario_.programs.size(); }
  [[nodiscard]] unsigned pages() const { return static_cast<unsigned>(scenario_.homes.size()); }
  uint64_t* frame(unsigned node, unsigned page) {
    return reinterpret_cast<uint64_t*>(nodes_[node].region->alias(PageId(page)));
  }
  std::byte* memory(const Operation& operation) {
    Node& node = nodes_[operation.at];
    return (operation.segment == SegmentId::kFrames ? node.region->alias(PageId(0)) : node.words) + operation.offset;
  }
  void wrong(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  void run(size_t p);
  void execute(const Op& op);
  void access(const Op& op);
  void release();
  void acquire_lock(unsigned lock);
  void meet();

  [[nodiscard]] bool can_go_on(size_t p);
  void go_on(size_t p);
  void perform(size_t p, Operation& operation, unsigned word);
  void complete(size_t p, Operation& operation);
  void complete_earlier(size_t p, const Operation& swap);
  [[nodiscard]] Footprint step_of(size_t p) const;
  void add_operations(size_t p, Footprint& next) const;
  [[nodiscard]] bool may_concern_others(size_t p) const;
  [[nodiscard]] bool is_ever_written(Word word) const;
  [[nodiscard]] bool may_access(size_t q, size_t p, const Footprint& next) const;
  [[nodiscard]] bool access_concerns(unsigned node, const Op& op, const Footprint& next) const;
  [[nodiscard]] bool release_concerns(unsigned node, const Footprint& next) const;
  [[nodiscard]] bool deposits_concern(unsigned node, Word word) const;
  [[nodiscard]] bool acquire_concerns(unsigned node, const Footprint& next) const;
  [[nodiscard]] std::optional<size_t> alone();
  void check();
  [[nodiscard]] std::string in_words(const Event& event) const;

  const Scenario scenario_;
  Homes homes_;
  SimNetwork network_;
  std::array<Node, kMaxNodes> nodes_;
  std::array<exploring_driver::Fibre, kMaxProcessors> fibres_;
  std::vector<std::span<std::byte>> pieces_;  // of all drivers, frames and words
  std::vector<std::byte> gathered_;
  ProcessorProfile profile_;
  Shared shared_;
  size_t running_ = 0;
  std::string wrong_;
};

std::unique_ptr<World> g_world;

// --- From fibres

void stop_before(Word word, bool writes) {
  g_world->self().word = word;
  g_world->self().writes = writes;
  g_world->stop(At::kStep);
}

Operation& issue(Operation::Kind kind, NodeId at, SegmentId segment, uint64_t offset, size_t words) {
  MG_CHECK(words <= 32);
  for (Operation& free : g_world->shared().operations[g_world->running()]) {
    if (free.kind != Operation::Kind::kNone) continue;
    free.kind = kind;
    free.at = static_cast<uint8_t>(at.value);
    free.segment = segment;
    free.offset = offset;
    free.pending = static_cast<uint32_t>((uint64_t{1} << words) - 1);
    return free;
  }
  panic("a processor has too many operations under way");
}

Completion completion_of(const Operation& operation) {
  return {static_cast<uint64_t>(&operation - g_world->shared().operations[g_world->running()].data()) + 1};
}

uint8_t number_of(Completion completion) {
  return static_cast<uint8_t>(completion.id - 1);
}

// Where it has just waited for another operation, all of them are complete: what happens between waits concerns nobody.
void wait_for(Completion completion) {
  if (completion.id == 0) return;
  Operation& operation = g_world->shared().operations[g_world->running()][number_of(completion)];
  if (operation.pending != 0) {
    g_world->self().waits_for = number_of(completion);
    g_world->stop(At::kWait);
  }
  MG_CHECK(operation.kind != Operation::Kind::kNone && operation.pending == 0);
  std::memset(static_cast<void*>(&operation), 0, sizeof operation);
}

void stop_before_lock(const void* lock) {
  g_world->self().lock = static_cast<SpinLock*>(const_cast<void*>(lock));
  g_world->stop(At::kSpin);
}

void SteppedFabric::put_after(Completion later, Completion earlier) {
  g_world->shared().operations[g_world->running()][number_of(later)].after = static_cast<uint8_t>(earlier.id);
}

void SteppedRights::set(PageId first, uint64_t count, Right right) {
  for (uint64_t page = first.value; page < first.value + count; ++page) {
    g_world->shared().rights[node_][page] = right;
    if (right == Right::kNone && is(Mutant::kNotInvalidated)) continue;
    g_world->shared().actual[node_][page] = right;
  }
}

void SteppedRights::revoke_write(PageId first, uint64_t count) {
  if (!is(Mutant::kLateProtection)) return set(first, count, Right::kRead);
  for (uint64_t page = first.value; page < first.value + count; ++page) {
    g_world->shared().rights[node_][page] = Right::kRead;
    Operation& late =
        issue(Operation::Kind::kRights, NodeId(static_cast<uint16_t>(node_)), SegmentId::kFrames, page * kPage, 1);
    late.nobody_waits = true;
  }
}

void play() {
  g_world->play();
  panic("a program goes on after its end");
}

// --- Programs

void World::play() {
  for (const Op& op : scenario_.programs[running_]) {
    execute(op);
    ++self().pc;
  }
  stop(At::kEnd);
}

void World::execute(const Op& op) {
  switch (op.type) {
    case OpType::kRead:
    case OpType::kWrite:
      return access(op);
    case OpType::kLock:
      return acquire_lock(op.page);
    case OpType::kUnlock:
      release();
      shared_.lock_from[op.page] = static_cast<uint8_t>(node() + 1);
      shared_.lock_holder[op.page] = 0;
      return;
    case OpType::kBarrier:
      return meet();
  }
}

void World::access(const Op& op) {
  const unsigned node = this->node();
  const bool is_write = op.type == OpType::kWrite;
  while (true) {
    stop_before(word_at(node, SegmentId::kFrames, op.page * kPage + op.word * kWordBytes), is_write);
    const Right right = shared_.actual[node][op.page];
    if (right == Right::kWrite || (right == Right::kRead && !is_write)) break;
    if (!nodes_[node].driver->on_fault(PageId(op.page), is_write)) panic("a page is not allocated:", op.page);
  }
  uint64_t& word = frame(node, op.page)[op.word];
  uint64_t& golden = shared_.golden[op.page][op.word];
  if (is_write)
    word = golden = op.value;
  else if (word != golden)
    wrong(fmt::format("processor {} read {} from page {} word {}; legal is {}", running_, word, op.page, op.word,
                      golden));
}

void World::release() {
  Driver& driver = *nodes_[node()].driver;
  if (!driver.is_clean()) driver.release();
}

void World::acquire_lock(unsigned lock) {
  stop(At::kLock);
  shared_.lock_holder[lock] = static_cast<uint8_t>(running_ + 1);
  const unsigned from = shared_.lock_from[lock];
  if (from != 0 && from - 1 != node()) nodes_[node()].driver->acquire(NodeId(static_cast<uint16_t>(from - 1)));
}

void World::meet() {
  release();
  self().meeting = shared_.meetings;
  if (++shared_.arrived == processors()) {
    shared_.arrived = 0;
    ++shared_.meetings;
  }
  stop(At::kBarrier);
  self().is_behind = true;
  nodes_[node()].driver->acquire_all();
  self().is_behind = false;
}

// --- Start

World::World(const Scenario& of)
    : scenario_(of), homes_(scenario_.homes), network_([] {
        SimNetwork::Options options;
        options.nodes = kMaxNodes;
        options.frames_bytes = options.words_bytes = options.lines_bytes = 0;
        return options;
      }()) {
  MG_CHECK(processors() <= kMaxProcessors && pages() <= kMaxPages);
  // Padding included: states are compared as bytes.
  std::memset(static_cast<void*>(&shared_), 0, sizeof shared_);
  const auto entries = [](uint64_t capacity, uint64_t bytes) { return capacity != 0 ? capacity : bytes / kWordBytes; };
  words::kNoticeCount = entries(scenario_.log_capacity, words::kNoticeBytes);
  words::kFetchLogCount = entries(scenario_.fetch_log_capacity, words::kFetchLogBytes);
  g_mutant = scenario_.mutant;
  set_this_profile(profile_);
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = nodes_[n];
    auto region = Region::create(kRegionSize, kPage, -1,
                                 {.view = layout::kViewBase + n * kStride, .alias = layout::kAliasBase + n * kStride});
    if (!region) panic("no region for a node:", n);
    node.region.emplace(std::move(*region));
    node.rights.emplace(n);
    void* const words =
        mmap(nullptr, words::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (words == MAP_FAILED) panic("no memory for the words of a node:", n);
    node.words = static_cast<std::byte*>(words);
    network_.export_segment(NodeId(n), SegmentId::kFrames, {node.region->alias(PageId(0)), kRegionSize});
    network_.export_segment(NodeId(n), SegmentId::kWords, {node.words, words::kBytes});
    node.fabric = std::make_unique<SteppedFabric>(network_.node(NodeId(n)));
    auto driver = Driver::create({*node.fabric, *node.region, *node.rights, homes_, WaitPolicy{}},
                                 {.open_ahead = 0, .fetch_ahead = scenario_.fetch_ahead ? 1u : 0u});
    if (!driver) panic("no driver for a node");
    node.driver = std::move(*driver);
    for (const std::span<std::byte> piece : Explored::pieces(*node.driver)) pieces_.push_back(piece);
    for (unsigned p = 0; p < pages(); ++p) pieces_.push_back(std::as_writable_bytes(std::span(frame(n, p), kMaxWords)));
    pieces_.emplace_back(node.words + words::kVector, kMaxNodes * kWordBytes);
    pieces_.emplace_back(node.words + words::kNotices, std::min(words::kNoticeCount, kLogEntries) * kWordBytes);
    for (unsigned writer = 0; writer < kMaxNodes; ++writer)
      pieces_.emplace_back(node.words + words::kFetchLog + writer * words::kFetchLogCount * kWordBytes,
                           std::min(words::kFetchLogCount, kLogEntries) * kWordBytes);
  }
  size_t bytes = 0;
  for (const std::span<std::byte> piece : pieces_) bytes += piece.size();
  gathered_.resize(bytes);
}

World::~World() {
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  g_mutant = Mutant::kNone;
  for (Node& node : nodes_) munmap(node.words, words::kBytes);
}

void World::start() {
  for (size_t p = 0; p < processors(); ++p) {
    running_ = p;
    self().at = At::kEnd;
    self().category = Category::kStopped;
    self().last_fetch = PageId(UINT64_MAX - 1);
    fibres_[p].begin(&explored::play);
    run(p);
  }
  settle(nullptr);
}

// --- Saving

void World::save(std::vector<uint8_t>& out) {
  for (Node& node : nodes_) Explored::forget_dead(*node.driver);
  std::byte* to = gathered_.data();
  for (const std::span<std::byte> piece : pieces_) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
  Writer writer(out);
  writer.add(std::as_bytes(std::span(&shared_, 1)));
  writer.add(gathered_);
  for (size_t p = 0; p < processors(); ++p) {
    writer.add_size(fibres_[p].frames().size());
    writer.add(fibres_[p].frames());
  }
}

void World::restore(std::span<const uint8_t> in) {
  wrong_.clear();
  Reader reader(in);
  reader.read(std::as_writable_bytes(std::span(&shared_, 1)));
  reader.read(gathered_);
  const std::byte* from = gathered_.data();
  for (const std::span<std::byte> piece : pieces_) {
    std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
  for (size_t p = 0; p < processors(); ++p) {
    const size_t size = reader.size();
    reader.read(fibres_[p].make_frames(size));
  }
}

// --- Steps

void World::run(size_t p) {
  running_ = p;
  profile_.enter(self().category);
  Explored::last_fetch() = self().last_fetch;
  fibres_[p].clear_dead();
  fibres_[p].run();
  self().last_fetch = Explored::last_fetch();
  self().category = profile_.current();
  Place& place = self();
  if (place.at != At::kStep) place.word = 0, place.writes = false;
  if (place.at != At::kSpin) place.lock = nullptr;
  if (place.at != At::kWait) place.waits_for = 0;
  if (place.at != At::kBarrier) place.meeting = 0;
}

bool World::can_go_on(size_t p) {
  const Place& place = shared_.places[p];
  switch (place.at) {
    case At::kStep:
    case At::kWait:
      return true;
    case At::kSpin:
      return Explored::is_free(*place.lock);
    case At::kLock:
      return shared_.lock_holder[scenario_.programs[p][place.pc].page] == 0;
    case At::kBarrier:
      return place.meeting != shared_.meetings;
    case At::kEnd:
      return false;
  }
  return false;
}

void World::go_on(size_t p) {
  if (shared_.places[p].at == At::kWait)
    for (Operation& operation : shared_.operations[p])
      if (!operation.nobody_waits) complete(p, operation);
  run(p);
}

void World::complete(size_t p, Operation& operation) {
  while (operation.pending != 0) perform(p, operation, static_cast<unsigned>(std::countr_zero(operation.pending)));
}

// Atomics that a node starts at another one take effect in that order: of entries of a fetch log, that of their positions.
void World::complete_earlier(size_t p, const Operation& swap) {
  constexpr unsigned kLapShift = 44;
  const auto position = [](const Operation& of) { return std::pair(of.value >> kLapShift, of.offset); };
  for (size_t q = 0; q < processors(); ++q)
    for (Operation& other : shared_.operations[q])
      if (scenario_.processors[q] == scenario_.processors[p] && other.kind == Operation::Kind::kSwap &&
          other.at == swap.at && other.pending != 0 && position(other) < position(swap))
        complete(q, other);
}

void World::perform(size_t p, Operation& operation, unsigned word) {
  if (operation.after != 0) complete(p, shared_.operations[p][operation.after - 1u]);
  operation.after = 0;
  if (operation.kind == Operation::Kind::kSwap && !is(Mutant::kReorderFetchLog)) complete_earlier(p, operation);
  std::byte* const at = memory(operation) + word * kWordBytes;
  switch (operation.kind) {
    case Operation::Kind::kNone:
      panic("an operation takes effect that is none");
    case Operation::Kind::kSwap:
      std::memcpy(operation.old, at, kWordBytes);
      std::memcpy(at, &operation.value, kWordBytes);
      break;
    case Operation::Kind::kRights: {
      Right& right = shared_.actual[operation.at][operation.offset / kPage];
      if (right == Right::kWrite) right = Right::kRead;
      break;
    }
    case Operation::Kind::kPut:
      for (size_t i = 0; i < kWordBytes; ++i)
        if ((operation.mask[word] >> i & 1) != 0) at[i] = std::byte{operation.bytes[word][i]};
      break;
    case Operation::Kind::kGet: {
      std::memcpy(operation.to + word * kWordBytes, at, kWordBytes);
      const unsigned page = static_cast<unsigned>(operation.offset / kPage);
      if (operation.segment == SegmentId::kFrames && shared_.rights[scenario_.processors[p]][page] != Right::kNone)
        wrong("H4: a frame is filled that processors have rights to");
      // Of a timestamp that is read as a whole.
      if (is(Mutant::kOnlyReleaser) && operation.segment == SegmentId::kWords && operation.offset == words::kVector &&
          word != operation.at)
        std::memset(operation.to + word * kWordBytes, 0, kWordBytes);
      break;
    }
  }
  operation.pending &= ~(1u << word);
  if (operation.pending == 0 && operation.nobody_waits)
    std::memset(static_cast<void*>(&operation), 0, sizeof operation);
}

// --- Which steps there are

// The next step of the processor.
Footprint World::step_of(size_t p) const {
  Footprint next;
  const Place& place = shared_.places[p];
  if (place.at == At::kStep && place.word != 0) next.words.push_back({place.word, place.writes});
  if (place.at == At::kLock) next.lock = scenario_.programs[p][place.pc].page;
  if (place.at == At::kWait) add_operations(p, next);
  return next;
}

void World::add_operations(size_t p, Footprint& next) const {
  for (const Operation& operation : shared_.operations[p])
    for (uint32_t rest = operation.pending; rest != 0; rest &= rest - 1)
      next.words.push_back(
          {word_of(operation, static_cast<unsigned>(std::countr_zero(rest))), operation.kind != Operation::Kind::kGet});
}

// An access at another node than the page's home is followed by a fetch at most.
bool World::access_concerns(unsigned node, const Op& op, const Footprint& next) const {
  return std::ranges::any_of(next.words, [&](const Footprint::Access& each) {
    const uint64_t offset = offset_of(each.word);
    for (unsigned page = op.page; page < pages() && page <= op.page + (scenario_.fetch_ahead ? 2u : 0u); ++page) {
      const unsigned home = scenario_.homes[page];
      if (node_of(each.word) != home) continue;
      if (segment_of(each.word) == SegmentId::kFrames) {
        if (offset / kPage != page) continue;
        if (home != node ? each.writes
                         : page == op.page && offset % kPage / kWordBytes == op.word &&
                               (each.writes || op.type == OpType::kWrite))
          return true;
      } else if (home != node && offset >= words::kFetchLog &&
                 (offset - words::kFetchLog) / kWordBytes / words::kFetchLogCount == node) {
        return true;
      }
    }
    return false;
  });
}

// Pages that the node writes, and that are at home elsewhere.
bool World::deposits_concern(unsigned node, Word word) const {
  if (segment_of(word) != SegmentId::kFrames) return false;
  const auto page = static_cast<unsigned>(offset_of(word) / kPage);
  if (scenario_.homes[page] == node || node_of(word) != scenario_.homes[page]) return false;
  for (size_t p = 0; p < processors(); ++p)
    if (scenario_.processors[p] == node)
      for (const Op& op : scenario_.programs[p])
        if (op.type == OpType::kWrite && op.page == page) return true;
  return false;
}

bool World::release_concerns(unsigned node, const Footprint& next) const {
  return std::ranges::any_of(next.words, [&](const Footprint::Access& each) {
    // Its timestamp and its notices are written, its fetch logs read.
    if (segment_of(each.word) == SegmentId::kWords)
      return node_of(each.word) == node && (offset_of(each.word) < words::kFetchLog || each.writes);
    return deposits_concern(node, each.word);
  });
}

bool World::acquire_concerns(unsigned node, const Footprint& next) const {
  return std::ranges::any_of(next.words, [&](const Footprint::Access& each) {
    // Timestamps and notices are read, and its own timestamp is written.
    if (segment_of(each.word) == SegmentId::kWords)
      return offset_of(each.word) < words::kFetchLog && (each.writes || node_of(each.word) == node);
    return deposits_concern(node, each.word);
  });
}

// Whether q may access what p does next, before p has done it.
bool World::may_access(size_t q, size_t p, const Footprint& next) const {
  const Place& place = shared_.places[q];
  if (place.at == At::kEnd || (place.at == At::kBarrier && place.meeting == shared_.meetings)) return false;
  const unsigned node = scenario_.processors[q];
  const Program& program = scenario_.programs[q];
  const auto is_held = [&](const Op& op) { return op.type == OpType::kLock && shared_.lock_holder[op.page] == p + 1; };
  if (place.at == At::kLock && is_held(program[place.pc])) return false;
  if (node == scenario_.processors[p]) return true;
  for (size_t i = place.pc; i < program.size(); ++i) {
    const Op& op = program[i];
    switch (op.type) {
      case OpType::kRead:
      case OpType::kWrite:
        if (access_concerns(node, op, next)) return true;
        break;
      case OpType::kLock:
        if (is_held(op)) return false;
        if (op.page == next.lock || acquire_concerns(node, next)) return true;
        break;
      case OpType::kUnlock:
        if (op.page == next.lock || release_concerns(node, next)) return true;
        break;
      case OpType::kBarrier:
        if (i == place.pc && (place.is_behind || place.at == At::kBarrier)) {
          if (acquire_concerns(node, next)) return true;
        } else {
          return release_concerns(node, next);
        }
        break;
    }
  }
  return false;
}

bool World::may_concern_others(size_t p) const {
  const Footprint next = step_of(p);
  for (size_t q = 0; q < processors(); ++q) {
    if (q != p && may_access(q, p, next)) return true;
    // Operations for which nobody waits, of mutants, are nobody's.
    for (const Operation& operation : shared_.operations[q]) {
      if (!operation.nobody_waits) continue;
      if (operation.kind == Operation::Kind::kRights && operation.at == scenario_.processors[p]) return true;
      for (uint32_t rest = operation.pending; rest != 0; rest &= rest - 1)
        if (next.concerns(word_of(operation, static_cast<unsigned>(std::countr_zero(rest))), true)) return true;
    }
  }
  return false;
}

// A processor whose next step is taken alone (R2).
std::optional<size_t> World::alone() {
  if (!scenario_.is_reduced) return std::nullopt;
  for (size_t p = 0; p < processors(); ++p)
    if (can_go_on(p) && !may_concern_others(p)) return p;
  return std::nullopt;
}

// Without R1: any word that some program has written or will write.
bool World::is_ever_written(Word word) const {
  if (segment_of(word) == SegmentId::kFrames || offset_of(word) < words::kNotices) return true;
  if (offset_of(word) >= words::kFetchLog) return true;
  size_t releases = 0;
  for (size_t p = 0; p < processors(); ++p)
    if (scenario_.processors[p] == node_of(word))
      releases += static_cast<size_t>(std::ranges::count_if(scenario_.programs[p], [](const Op& op) {
        return op.type == OpType::kUnlock || op.type == OpType::kBarrier;
      }));
  return (offset_of(word) - words::kNotices) / kWordBytes < releases * pages();
}

void World::enabled(std::vector<Event>& events) {
  events.clear();
  std::array<Footprint, kMaxProcessors> next;
  for (size_t p = 0; p < processors(); ++p) {
    next[p] = step_of(p);
    if (shared_.places[p].at != At::kWait) add_operations(p, next[p]);
  }
  for (size_t p = 0; p < processors(); ++p) {
    if (can_go_on(p)) events.push_back({.processor = static_cast<uint8_t>(p)});
    for (size_t i = 0; i < kOperations; ++i) {
      const Operation& operation = shared_.operations[p][i];
      for (uint32_t rest = operation.pending; rest != 0; rest &= rest - 1) {
        const auto word = static_cast<uint8_t>(std::countr_zero(rest));
        const Word at = word_of(operation, word);
        bool is_offered = operation.nobody_waits || (!scenario_.is_reduced && is_ever_written(at));
        for (size_t q = 0; q < processors() && !is_offered; ++q)
          is_offered = q != p && next[q].concerns(at, operation.kind != Operation::Kind::kGet);
        if (is_offered)
          events.push_back({.processor = static_cast<uint8_t>(p), .operation = static_cast<uint8_t>(i), .word = word});
      }
    }
  }
}

std::string World::take(const Event& event, std::string* log) {
  if (log != nullptr) *log += in_words(event) + "\n";
  if (event.operation == Event::kGoesOn)
    go_on(event.processor);
  else
    perform(event.processor, shared_.operations[event.processor][event.operation], event.word);
  check();
  settle(log);
  return wrong_;
}

void World::settle(std::string* log) {
  while (wrong_.empty()) {
    const std::optional<size_t> p = alone();
    if (!p) return;
    if (log != nullptr) *log += "       " + in_words({.processor = static_cast<uint8_t>(*p)}) + "\n";
    go_on(*p);
    check();
  }
}

// --- What must hold

void World::check() {
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    Driver& driver = *nodes_[n].driver;
    for (unsigned p = 0; p < pages(); ++p) {
      if (Explored::is_locked(driver, p)) continue;
      const Page& page = Explored::page(driver, p);
      const bool is_home = scenario_.homes[p] == n;
      const bool writable = page.state == PageState::kWrite;
      const Right allowed = writable ? Right::kWrite : page.state == PageState::kRead ? Right::kRead : Right::kNone;
      if (shared_.rights[n][p] != allowed)
        wrong(fmt::format("node {} has other rights to page {} than it knows", n, p));
      if (writable && (!is_home || page.shared) && !page.queued)
        wrong(fmt::format("H2: page {} is writable at node {} unlisted", p, n));
      if (Explored::has_twin(driver, p) != (writable && !is_home))
        wrong(fmt::format("H3: the twin of page {} at node {}", p, n));
    }
  }
}

std::string World::check_end() {
  for (size_t p = 0; p < processors(); ++p)
    if (shared_.places[p].at != At::kEnd) return fmt::format("deadlock: processor {} cannot go on", p);
  for (unsigned page = 0; page < pages(); ++page) {
    const uint64_t* const home = frame(scenario_.homes[page], page);
    for (unsigned word = 0; word < kMaxWords; ++word)
      if (home[word] != shared_.golden[page][word])
        return fmt::format("a lost update: page {} word {} is {} at home in the end; it was last written {}", page,
                           word, home[word], shared_.golden[page][word]);
  }
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    if (!Explored::is_at_rest(*nodes_[n].driver)) return fmt::format("node {} is not at rest", n);
    for (unsigned page = 0; page < pages(); ++page)
      if (Explored::is_locked(*nodes_[n].driver, page))
        return fmt::format("page {} of node {} is locked in the end", page, n);
  }
  return {};
}

// --- For people

std::string in_words(Word word) {
  const uint64_t offset = offset_of(word);
  const unsigned node = node_of(word);
  if (segment_of(word) == SegmentId::kFrames)
    return fmt::format("page {} word {} of node {}", offset / kPage, offset % kPage / kWordBytes, node);
  if (offset >= words::kFetchLog) {
    const uint64_t slot = (offset - words::kFetchLog) / kWordBytes;
    return fmt::format("entry {} of node {} in the fetch log of node {}", slot % words::kFetchLogCount,
                       slot / words::kFetchLogCount, node);
  }
  if (offset >= words::kNotices)
    return fmt::format("entry {} of the notices of node {}", (offset - words::kNotices) / kWordBytes, node);
  return fmt::format("node {} in the timestamp of node {}", (offset - words::kVector) / kWordBytes, node);
}

std::string World::in_words(const Event& event) const {
  const std::string who =
      fmt::format("processor {} of node {}", event.processor, scenario_.processors[event.processor]);
  if (event.operation != Event::kGoesOn) {
    const Operation& operation = shared_.operations[event.processor][event.operation];
    static constexpr std::array<const char*, 5> kKinds = {"nothing", "put", "get", "atomic", "late change of rights"};
    return fmt::format("{}: its {} at {}", who, kKinds[static_cast<size_t>(operation.kind)],
                       explored::in_words(word_of(operation, event.word)));
  }
  const Place& place = shared_.places[event.processor];
  std::string what;
  if (place.at != At::kEnd) {
    const Op& op = scenario_.programs[event.processor][place.pc];
    static constexpr std::array<const char*, 5> kOps = {"read", "write", "lock", "unlock", "barrier"};
    what = fmt::format(" in its operation {} ({} {})", place.pc, kOps[static_cast<size_t>(op.type)], op.page);
  }
  switch (place.at) {
    case At::kStep:
      if (place.word == 0) return fmt::format("{}{} uses what its node's processors share", who, what);
      return fmt::format("{}{} {} {}", who, what, place.writes ? "writes" : "reads", explored::in_words(place.word));
    case At::kWait: {
      std::string operations;
      for (const Footprint::Access& each : step_of(event.processor).words)
        if (is_ever_written(each.word)) operations += ", " + explored::in_words(each.word);
      return fmt::format("{}{} goes on: complete are its accesses of{}", who, what,
                         operations.empty() ? " nothing" : operations.substr(1));
    }
    case At::kSpin:
      return fmt::format("{}{} takes a lock of its node", who, what);
    case At::kLock:
      return fmt::format("{}{} takes it", who, what);
    case At::kBarrier:
      return fmt::format("{}{} leaves it", who, what);
    case At::kEnd:
      break;
  }
  return who;
}

std::string World::describe() {
  std::string out;
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    Driver& driver = *nodes_[n].driver;
    out += fmt::format("node {}: known", n);
    for (uint16_t of = 0; of < kMaxNodes; ++of) out += fmt::format(" {}", driver.known(NodeId(of)));
    for (unsigned p = 0; p < pages(); ++p) {
      const Page& page = Explored::page(driver, p);
      out += fmt::format("; page {} state {} {}{}{}{}{}[{} {}]", p, static_cast<unsigned>(page.state),
                         page.queued ? "queued " : "", page.notice_pending ? "notice_pending " : "",
                         page.shared ? "shared " : "", page.logged ? "logged " : "",
                         Explored::is_locked(driver, p) ? "locked " : "", frame(n, p)[0], frame(n, p)[1]);
    }
    out += "\n";
  }
  return out;
}

}  // namespace

// --- The machine as a value

Machine::Machine(const Scenario& scenario) {
  g_world.reset();
  g_world = std::make_unique<World>(scenario);
  g_world->start();
  g_world->save(state_);
}

void Machine::enabled(std::vector<Event>& events) const {
  g_world->restore(state_);
  g_world->enabled(events);
}

std::string Machine::apply(const Event& event, std::string* log) {
  g_world->restore(state_);
  std::string wrong = g_world->take(event, log);
  if (wrong.empty()) g_world->save(state_);
  return wrong;
}

std::string Machine::check_end() const {
  g_world->restore(state_);
  return g_world->check_end();
}

std::string Machine::describe() const {
  g_world->restore(state_);
  return g_world->describe();
}

std::string Machine::in_words(const Event& event) {
  return fmt::format("a step of processor {}", event.processor);
}

}  // namespace explored
}  // namespace multigrain::hlrc

namespace multigrain::exploring_driver {

// Of page_driver.cpp, before rights are changed: nobody but the node's processors sees that.
void step(const void*, size_t) {
  hlrc::explored::stop_before(0, true);
}

void step_of_lock(const void* lock) {
  hlrc::explored::stop_before_lock(lock);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("HLRC's driver waits for no word");
}

}  // namespace multigrain::exploring_driver
