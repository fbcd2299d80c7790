#include "hlrc_driver_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "coherence/hlrc/words.h"
#include "driver_steps.h"
#include "hlrc_world.h"
#include "nonzero_bytes.h"
#include "profile/this_thread.h"

namespace multigrain::hlrc::explored {

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

bool choose() {
  g_world->stop(At::kChoice);
  return g_world->self().choice;
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

void SteppedLines::take(PageId first, uint64_t count, NodeId home) {
  for (uint64_t page = first.value; page < first.value + count; ++page) {
    uint8_t& at = g_world->shared().by_lines[node_][page];
    if (at != 0) g_world->wrong(fmt::format("page {} moves to lines a second time at node {}", page, node_));
    at = static_cast<uint8_t>(home.value + 1);
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

namespace {

void play() {
  g_world->play();
  panic("a program goes on after its end");
}

}  // namespace

// --- Programs

// Flat: frames of calls would hold registers that nobody reads again, and states that are the same would differ by them.
[[gnu::flatten]] void World::play() {
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
    case OpType::kEndSerialPart:
      return nodes_[node()].driver->end_serial_part();
    case OpType::kCatchUp:
      return nodes_[node()].driver->catch_up();
  }
}

void World::access(const Op& op) {
  unsigned node = this->node();
  const bool is_write = op.type == OpType::kWrite;
  const unsigned by_lines_at = shared_.by_lines[node][op.page];
  if (by_lines_at != 0) {
    node = by_lines_at - 1;
    stop_before(word_at(node, SegmentId::kFrames, op.page * kPage + op.word * kWordBytes), is_write);
  }
  while (by_lines_at == 0) {
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

// The pages that the node has published as written in this episode; nullopt: it says that they are too many. Where notices are
// gathered it publishes nothing else, so this is what it will put in.
std::optional<World::Written> World::written_by(unsigned node) {
  Written written{};
  if (scenario_.gathers_by != 0) {
    const auto own = Explored::written(*nodes_[node].driver);
    if (!own) return std::nullopt;
    for (const NoticeRun& run : *own)
      for (uint64_t page = run.first.value; page < run.end(); ++page) written[page] = true;
    return written;
  }
  const std::byte* const list = nodes_[node].memory->words().data() + words::kEpisodes +
                                (is(Mutant::kOnePlace) ? 0u : shared_.meetings % 2u) * words::kEpisodeBytes;
  uint64_t size = 0;
  std::memcpy(&size, list, sizeof size);
  if (size > words::kEpisodeRuns) return std::nullopt;
  for (uint64_t i = 1; i <= size; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, list + i * kWordBytes, sizeof word);
    for (uint64_t page = word & 0xffffffff; page <= (word & 0xffffffff) + (word >> 32); ++page) written[page] = true;
  }
  return written;
}

// Where pages are at home from now on, worked out from what the nodes have written: pages that one of them has written
// alone are taken to it, as on_episode_end() says. None is if only one has written anything, or one too much.
void World::move_homes() {
  shared_.former_homes = shared_.homes;
  std::array<Written, kMaxNodes> written{};
  unsigned nodes = 0;
  size_t gathered = 0;
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    const auto list = written_by(n);
    if (!list) return;
    written[n] = *list;
    const bool has_written = std::ranges::find(*list, true) != list->end();
    nodes += has_written ? 1 : 0;
    gathered += has_written ? 1 : 0;
  }
  // All lists together may be too long, too: there is room for the writers' positions, and the runs of pages with the same writers.
  if (scenario_.gathers_by != 0) {
    for (unsigned page = 0; page < pages(); ++page) {
      const auto by = [&](unsigned of) {
        std::array<bool, kMaxNodes> writers{};
        for (unsigned n = 0; n < kMaxNodes; ++n) writers[n] = written[n][of];
        return std::ranges::count(writers, true) > 1 ? std::array{true, true, true} : writers;
      };
      if (by(page) != std::array<bool, kMaxNodes>{} && (page == 0 || by(page) != by(page - 1))) ++gathered;
    }
    if (2 + gathered > words::kEpisodeRuns + 1) return;
  }
  for (unsigned page = 0; nodes > 1 && page < pages(); ++page) {
    unsigned writers = 0;
    unsigned last = 0;
    for (unsigned n = 0; n < kMaxNodes; ++n)
      if (written[n][page]) ++writers, last = n;
    if (writers == 0) continue;
    const auto alone = writers == 1 ? std::optional(NodeId(static_cast<uint16_t>(last))) : std::nullopt;
    if (on_episode_end(shared_.writers[page], alone)) shared_.homes[page] = static_cast<uint8_t>(last);
  }
}

// Another tree each time: nodes may meet at one barrier and then at another.
BarrierPlace World::tree_place_of(unsigned node, uint8_t meeting) const {
  return {.self = NodeId(static_cast<uint16_t>(node)),
          .root = NodeId(static_cast<uint16_t>(meeting % kMaxNodes)),
          .nodes = kMaxNodes,
          .radix = scenario_.gathers_by,
          .gathers = true};
}

bool World::may_gather(unsigned node, uint8_t meeting) const {
  if (is(Mutant::kGatherEarly)) return true;
  const BarrierPlace place = tree_place_of(node, meeting);
  for (unsigned i = 0; i < place.children(); ++i)
    if (shared_.gathered[place.child(i).value] <= meeting) return false;
  return true;
}

bool World::may_learn(unsigned node, uint8_t meeting) const {
  const BarrierPlace place = tree_place_of(node, meeting);
  if (place.is_root()) return true;
  return is(Mutant::kLearnEarly) ? shared_.meetings > meeting : shared_.learned[place.parent().value] > meeting;
}

// As Sync::gather_and_learn().
void World::gather_and_learn(uint8_t meeting) {
  const unsigned node = this->node();
  const BarrierPlace place = tree_place_of(node, meeting);
  std::array<NodeId, kMaxNodes> children;
  for (unsigned i = 0; i < place.children(); ++i) children[i] = place.child(i);
  self().meeting = meeting;
  stop(At::kGather);
  nodes_[node].driver->gather_at_barrier({children.data(), place.children()});
  shared_.gathered[node] = static_cast<uint8_t>(meeting + 1);
  self().meeting = meeting;
  stop(At::kLearn);
  nodes_[node].driver->learn_at_barrier(place.is_root() ? place.self : place.parent(), place.children() != 0);
  shared_.learned[node] = static_cast<uint8_t>(meeting + 1);
}

// A barrier of all processors: the last of each node releases for all of them.
void World::meet_all() {
  const unsigned node = this->node();
  // The next one is not over before this processor has arrived.
  const uint8_t meeting = shared_.meetings;
  if (++shared_.arrived_here[node] == processors_of(node)) {
    nodes_[node].driver->release_at_barrier();
    shared_.arrived_here[node] = 0;
    unsigned nodes = 0;
    for (unsigned n = 0; n < kMaxNodes; ++n) nodes += processors_of(n) != 0 ? 1 : 0;
    if (++shared_.arrived == nodes) {
      move_homes();
      shared_.arrived = 0;
      ++shared_.meetings;
    }
    self().is_behind = scenario_.gathers_by != 0;
    if (scenario_.gathers_by != 0) gather_and_learn(meeting);
  }
  self().meeting = meeting;
  stop(At::kBarrier);
  self().is_behind = true;
  nodes_[this->node()].driver->acquire_at_barrier();
  self().is_behind = false;
}

void World::meet() {
  if (scenario_.homes_follow) return meet_all();
  release();
  self().meeting = shared_.meetings;
  unsigned all = 0;
  for (unsigned n = 0; n < kMaxNodes; ++n) all += processors_of(n);
  if (++shared_.arrived == all) {
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
    : scenario_(of), homes_(scenario_.homes), network_(node_memory::network_of(kMaxNodes)) {
  MG_CHECK(processors() <= kMaxProcessors && pages() <= kMaxPages);
  for (unsigned n = 0; n < kMaxNodes; ++n) MG_CHECK(scenario_.gathers_by == 0 || processors_of(n) != 0, n);
  // Padding included: states are compared as bytes.
  std::memset(static_cast<void*>(&shared_), 0, sizeof shared_);
  const auto entries = [](uint64_t capacity, uint64_t bytes) { return capacity != 0 ? capacity : bytes / kWordBytes; };
  words::kNoticeCount = entries(scenario_.log_capacity, words::kNoticeBytes);
  words::kFetchLogCount = entries(scenario_.fetch_log_capacity, words::kFetchLogBytes);
  words::kToLinesRuns = entries(scenario_.episode_capacity, words::kToLinesBytes - kWordBytes);
  words::kEpisodeRuns = entries(scenario_.episode_capacity, words::kEpisodeBytes - kWordBytes);
  for (unsigned page = 0; page < pages(); ++page)
    shared_.homes[page] = shared_.former_homes[page] = static_cast<uint8_t>(scenario_.homes[page]);
  g_mutant = scenario_.mutant;
  set_this_profile(profile_);
  for (uint16_t n = 0; n < kMaxNodes; ++n) {
    Node& node = nodes_[n];
    node.memory = std::make_unique<node_memory::ExploredMemory>(n);
    node.rights.emplace(n);
    node.lines.emplace(n);
    node.memory->export_to(network_, NodeId(n));
    std::byte* const words = node.memory->words().data();
    node.fabric = std::make_unique<SteppedFabric>(network_.node(NodeId(n)));
    auto driver =
        Driver::create({*node.fabric, node.memory->region(), *node.rights, homes_, WaitPolicy{}},
                       {.open_ahead = scenario_.runs ? 2u : 0u,
                        .fetch_ahead = scenario_.fetch_ahead ? 1u : 0u,
                        .runs = scenario_.runs,
                        .homes_follow = scenario_.homes_follow,
                        .gathers = scenario_.gathers_by != 0,
                        .updates = scenario_.updates ? Driver::Updates::kAlways : Driver::Updates::kNever,
                        .to_lines = Driver::ToLines::kAtOnce,
                        .chains = scenario_.chains ? PageChains::Follow::kAtOnce : PageChains::Follow::kNever});
    if (!driver) panic("no driver for a node");
    node.driver = std::move(*driver);
    if (scenario_.to_lines && !node.driver->offer_lines(*node.lines)) panic("no tables for a node");
    for (const std::span<std::byte> piece : Explored::pieces(*node.driver)) pieces_.push_back(piece);
    for (unsigned p = 0; p < pages(); ++p) pieces_.push_back(std::as_writable_bytes(std::span(frame(n, p), kMaxWords)));
    pieces_.emplace_back(words + words::kVector, kMaxNodes * kWordBytes);
    for (unsigned place = 0; place < 2; ++place)
      pieces_.emplace_back(words + words::kEpisodes + place * words::kEpisodeBytes,
                           (scenario_.gathers_by != 0 ? kGatheredWords : 1 + kMaxPages) * kWordBytes);
    for (unsigned place = 0; place < 2; ++place)
      pieces_.emplace_back(words + words::kToLines + place * words::kToLinesBytes, (1 + kMaxPages) * kWordBytes);
    pieces_.emplace_back(words + words::kNotices, std::min(words::kNoticeCount, kLogEntries) * kWordBytes);
    // The rings' first entries lie together.
    pieces_.emplace_back(words + words::kFetchLog,
                         kMaxNodes * std::min(words::kFetchLogCount, kLogEntries) * kWordBytes);
  }
  size_t bytes = 0;
  for (const std::span<std::byte> piece : pieces_) bytes += piece.size();
  gathered_.resize(bytes);
}

World::~World() {
  static ProcessorProfile nobody;
  set_this_profile(nobody);
  g_mutant = Mutant::kNone;
}

void World::start() {
  for (size_t p = 0; p < processors(); ++p) {
    running_ = p;
    self().at = At::kEnd;
    self().category = Category::kStopped;
    self().history = {};
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
  exploring::NonzeroWriter writer(out);
  writer.add(std::as_bytes(std::span(&shared_, 1)));
  writer.add(gathered_);
  for (size_t p = 0; p < processors(); ++p) {
    writer.add_size(fibres_[p].frames().size());
    writer.add(fibres_[p].frames());
  }
}

void World::restore(std::span<const uint8_t> in) {
  wrong_.clear();
  exploring::NonzeroReader reader(in);
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
  Explored::history() = self().history;
  fibres_[p].clear_dead();
  fibres_[p].run();
  self().history = Explored::history();
  self().category = profile_.current();
  Place& place = self();
  if (place.at != At::kStep) place.word = 0, place.writes = false;
  if (place.at != At::kSpin) place.lock = nullptr;
  if (place.at != At::kWait) place.waits_for = 0;
  if (place.at != At::kChoice) place.choice = false;
  if (place.at != At::kBarrier && place.at != At::kGather && place.at != At::kLearn) place.meeting = 0;
}

bool World::can_go_on(size_t p) {
  const Place& place = shared_.places[p];
  switch (place.at) {
    case At::kStep:
    case At::kChoice:
    case At::kWait:
      return true;
    case At::kSpin:
      return Explored::is_free(*place.lock);
    case At::kLock:
      return shared_.lock_holder[scenario_.programs[p][place.pc].page] == 0;
    case At::kBarrier:
      return scenario_.gathers_by != 0 ? shared_.learned[scenario_.processors[p]] > place.meeting
                                       : place.meeting != shared_.meetings;
    case At::kGather:
      return may_gather(scenario_.processors[p], place.meeting);
    case At::kLearn:
      return may_learn(scenario_.processors[p], place.meeting);
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

// Whether a get brings a page into the frame of its node, and not beside it.
bool World::fills_frame(size_t p, const Operation& get) {
  const unsigned node = scenario_.processors[p];
  return get.kind == Operation::Kind::kGet && get.segment == SegmentId::kFrames &&
         get.to == reinterpret_cast<std::byte*>(frame(node, static_cast<unsigned>(get.offset / kPage)));
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
  std::byte* const at = memory(operation) + place_of(operation, word);
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
      std::memcpy(operation.to + place_of(operation, word), at, kWordBytes);
      const auto page = static_cast<unsigned>((operation.offset + place_of(operation, word)) / kPage);
      if (fills_frame(p, operation)) {
        // A copy in use is filled while processors may read it.
        const Right right = shared_.rights[scenario_.processors[p]][page];
        if (right == Right::kWrite || (right == Right::kRead && !scenario_.updates))
          wrong("H4: a frame is filled that processors have rights to");
      }
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

std::string World::take(const Event& event, std::string* log) {
  if (log != nullptr) *log += in_words(event) + "\n";
  if (event.operation == Event::kGoesOn) {
    shared_.places[event.processor].choice = event.word != 0;
    go_on(event.processor);
  } else {
    perform(event.processor, shared_.operations[event.processor][event.operation], event.word);
  }
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

}  // namespace multigrain::hlrc::explored

namespace multigrain::exploring_driver {

// Of page_driver.cpp, before rights are changed: nobody but the node's processors sees that.
void step(const void*, size_t) {
  hlrc::explored::stop_before(0, true);
}

bool chooses() {
  return hlrc::explored::choose();
}

void step_of_lock(const void* lock) {
  hlrc::explored::stop_before_lock(lock);
}

void step_of_change(const uint64_t*, uint64_t) {
  panic("HLRC's driver waits for no word");
}

}  // namespace multigrain::exploring_driver
