// What must hold in each state of a machine that runs HLRC's driver, and at the end; and what is said of a state.
#include <fmt/format.h>

#include "coherence/hlrc/words.h"
#include "hlrc_world.h"

namespace multigrain::hlrc::explored {

void World::check() {
  for (unsigned n = 0; n < kMaxNodes; ++n) {
    Driver& driver = *nodes_[n].driver;
    for (unsigned p = 0; p < pages(); ++p) {
      if (Explored::is_locked(driver, p)) continue;
      const Page& page = Explored::page(driver, p);
      const std::optional<NodeId> known_home = Explored::home(driver, p);
      // A node without processors comes to no barrier.
      const bool has_left = !scenario_.homes_follow || Explored::left(driver) == shared_.meetings;
      const unsigned home = has_left ? shared_.homes[p] : shared_.former_homes[p];
      if (known_home && known_home->value != home && processors_of(n) != 0 && Explored::is_between_barriers(driver))
        wrong(fmt::format("H6: page {} is at home elsewhere than node {} knows", p, n));
      const bool is_home = (known_home ? known_home->value : scenario_.homes[p]) == n;
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
    const uint64_t* const home = frame(shared_.homes[page], page);
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

namespace {

std::string in_words(Word word) {
  const uint64_t offset = offset_of(word);
  const unsigned node = node_of(word);
  if (segment_of(word) == SegmentId::kFrames)
    return fmt::format("page {} word {} of node {}", offset / kPage, offset % kPage / kWordBytes, node);
  if (offset >= words::kFetchLog) {
    const words::FetchLogPlace place = words::fetch_log_place(kMaxNodes, offset);
    return fmt::format("entry {} of node {} in the fetch log of node {}", place.entry, place.node, node);
  }
  if (offset >= words::kToLines && offset < words::kNotices)
    return fmt::format("word {} of what node {} wants to move to lines", (offset - words::kToLines) / kWordBytes, node);
  if (offset >= words::kEpisodes && offset < words::kNotices)
    return fmt::format("word {} of what node {} has written", (offset - words::kEpisodes) / kWordBytes, node);
  if (offset >= words::kNotices)
    return fmt::format("entry {} of the notices of node {}", (offset - words::kNotices) / kWordBytes, node);
  return fmt::format("node {} in the timestamp of node {}", (offset - words::kVector) / kWordBytes, node);
}

}  // namespace

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
    static constexpr std::array<const char*, 7> kOps = {
        "read", "write", "lock", "unlock", "barrier", "end of the serial part", "catching up"};
    what = fmt::format(" in its operation {} ({} {})", place.pc, kOps[static_cast<size_t>(op.type)], op.page);
  }
  switch (place.at) {
    case At::kStep:
      if (place.word == 0) return fmt::format("{}{} uses what its node's processors share", who, what);
      return fmt::format("{}{} {} {}", who, what, place.writes ? "writes" : "reads", explored::in_words(place.word));
    case At::kChoice:
      return fmt::format("{}{} takes a page for one {}", who, what, event.word != 0 ? "in use" : "not in use");
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
    case At::kGather:
      return fmt::format("{}{} gathers what its children have", who, what);
    case At::kLearn:
      return fmt::format("{}{} learns what its parent has", who, what);
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
      out += fmt::format("; page {} at {} state {} {}{}{}{}{}[{} {}]", p, shared_.homes[p],
                         static_cast<unsigned>(page.state), page.queued ? "queued " : "",
                         page.notice_pending ? "notice_pending " : "", page.shared ? "shared " : "",
                         page.logged ? "logged " : "", Explored::is_locked(driver, p) ? "locked " : "", frame(n, p)[0],
                         frame(n, p)[1]);
    }
    out += "\n";
  }
  return out;
}

}  // namespace multigrain::hlrc::explored
