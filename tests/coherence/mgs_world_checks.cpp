// This checks what must hold in every state of the machine and at its ends, and describes states (mgs_world.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "mgs_world.h"

namespace multigrain::mgs::explored {

void Running::poison_dead_frames(unsigned page) {
  if (!is_strict())
    return;  // where processors write dead frames, it is the loss of what they wrote that must be noticed
  for (unsigned n = 0; n < nodes(); ++n) {
    const Page& p = page_at(n, page);
    const bool is_dead = scenario_->homes[page] == n
                             ? p.server.state == ServerState::kSwrite && !p.server.write_dir.contains(node_id(n))
                             : p.client.state == PageState::kInv && p.client.phase != Phase::kFetching &&
                                   std::ranges::none_of(flight_, [&](const Packet& m) {
                                     return m.from == n && m.page == page && m.by_reference;
                                   });
    if (is_dead) std::fill_n(frame(n, page), scenario_->words, uint64_t{kPoison});
  }
}

// Checks a page that no node has locked.
void Running::check_page(unsigned page) {
  const unsigned home = scenario_->homes[page];
  // These are the kinds of messages under way from the home to each node and back, one bit each. No kind is ever twice
  // in a channel.
  std::array<std::array<uint16_t, 2>, kMaxNodes> mail{};
  static_assert(static_cast<unsigned>(MessageKind::kKindCount) <= 16);
  for (const Packet& m : flight_) {
    if (m.page != page) continue;
    const bool to_home = m.to == home;
    if (!to_home && m.from != home) wrong("a message goes past the home");
    uint16_t& kinds = mail[to_home ? m.from : m.to][to_home ? 1 : 0];
    const auto bit = static_cast<uint16_t>(1u << static_cast<unsigned>(m.kind));
    if ((kinds & bit) != 0) wrong(fmt::format("{} of page {} is twice in a channel", mgs::name(m.kind), page));
    kinds = static_cast<uint16_t>(kinds | bit);
  }
  check_server(page);
  for (unsigned n = 0; n < nodes(); ++n) check_client(page, n, mail[n][0], mail[n][1]);
}

NodeSet Running::readers_of(unsigned page) const {
  const PageWord word(words_[page], node_id(scenario_->homes[page]));
  return word.is_open() ? word.readers() : NodeSet();
}

void Running::check_server(unsigned page) {
  const unsigned home = scenario_->homes[page];
  const DriverState::Record& record = state(home).record(page);
  const Server& s = record.page.server;
  const NodeSet readers = readers_of(page);
  const NodeSet directory = s.read_dir | s.write_dir | readers;
  const bool in_round = s.state == ServerState::kRelInProgress;
  const auto expect = [&](bool condition, const char* what) {
    if (!condition) wrong(fmt::format("page {} at its home, node {}: {}", page, home, what));
  };
  expect(directory.size() == s.read_dir.size() + s.write_dir.size() + readers.size(),
         "a node is in the directory twice");
  expect(record.is_open == PageWord(words_[page], node_id(home)).is_open(),
         "the word is not what the home takes it for");
  expect(!record.is_open || may_be_read(record.page), "the word is open while nodes must not read the page");
  expect(in_round != s.answers.empty(), "a round is in progress, and nothing is awaited, or the other way round");
  expect(in_round || (s.rd | s.wr | s.rl).empty(), "requests wait for a round that is not in progress");
  expect(!s.awaiting_page || in_round, "a whole page is awaited outside a round");
  // An empty diff is not kept.
  expect(s.diffs_waiting || record.kept == nullptr, "diffs are kept and the server does not know");
  expect(s.state != ServerState::kRead || s.write_dir.empty(), "server READ with a write copy");
  expect(s.state != ServerState::kWrite || !s.write_dir.empty(), "server WRITE without a write copy");
  if (s.state != ServerState::kSwrite) return;
  const bool one = directory.size() == 1 && s.write_dir.size() == 1;
  expect(one, "server SWRITE with other than one copy");
  if (one) expect(page_at(s.write_dir.first().value, page).client.single_writer, "the writer is not told");
}

void Running::check_client(unsigned page, unsigned n, uint16_t to_client, uint16_t to_server) {
  const unsigned home = scenario_->homes[page];
  const Server& s = page_at(home, page).server;
  const DriverState here = state(n);
  const DriverState::Record& record = here.record(page);
  const Client& c = record.page.client;
  const NodeSet directory = s.read_dir | s.write_dir | readers_of(page);
  const NodeId id = node_id(n);
  const bool in_round = s.state == ServerState::kRelInProgress;
  const bool has_copy = c.state != PageState::kInv;
  const bool invalidating = c.phase >= Phase::kReadInvInProgress;
  const bool answered = in_round && !s.answers.contains(id);
  const auto expect = [&](bool condition, const char* what) {
    if (!condition) wrong(fmt::format("page {} at node {}: {}", page, n, what));
  };
  const auto is_in = [](uint16_t kinds, std::initializer_list<MessageKind> any) {
    return std::ranges::any_of(any, [&](MessageKind kind) { return (kinds >> static_cast<unsigned>(kind) & 1) != 0; });
  };
  const auto coming = [&](std::initializer_list<MessageKind> kinds) { return is_in(to_client, kinds); };
  const auto going = [&](std::initializer_list<MessageKind> kinds) { return is_in(to_server, kinds); };
  const bool answering = going({MessageKind::kAck, MessageKind::kDiff, MessageKind::k1wdata});

  expect(!has_copy || directory.contains(id), "a copy that the directory does not list");
  const bool is_reading = c.phase == Phase::kFetching && !c.fetch_is_void;
  expect(has_copy || is_reading || !directory.contains(id) || answered || answering ||
             coming({MessageKind::kRdat, MessageKind::kWdat}),
         "the directory lists a copy that is not there");
  expect(c.state != PageState::kWrite || s.write_dir.contains(id) || going({MessageKind::kWnotify}) ||
             (in_round && s.answers.contains(id)),
         "a write copy that the directory takes for a read copy");
  expect(c.state != PageState::kRead || !s.write_dir.contains(id),
         "a read copy that the directory takes for a write copy");

  if (c.single_writer) {
    expect(c.state == PageState::kWrite, "a single writer without a write copy");
    expect(s.state == ServerState::kSwrite || in_round, "a single writer and the server does not know");
    expect(directory == set_of(n), "a single writer while others have copies");
    for (unsigned other = 0; other < nodes(); ++other)
      expect(other == n || page_at(other, page).client.state == PageState::kInv, "a copy beside a single writer");
    // The home can be its own single writer without a grant, and then what a round took before may still be queued.
    expect(c.queued.empty() || n == home, "a single writer's page is queued");
  }
  expect((record.twin != nullptr) == (c.state == PageState::kWrite && !c.single_writer && n != home),
         "a twin is missing or needless");

  expect(!invalidating, "an invalidation that has not ended");
  const auto count = [](bool request, bool waits, bool answer) {
    return static_cast<int>(request) + static_cast<int>(waits) + static_cast<int>(answer);
  };
  const int reads = count(going({MessageKind::kRreq}), s.rd.contains(id), coming({MessageKind::kRdat}));
  const int writes = count(going({MessageKind::kWreq}), s.wr.contains(id), coming({MessageKind::kWdat}));
  const int releases = count(going({MessageKind::kRel}), s.rl.contains(id), coming({MessageKind::kRack}));
  expect(reads == (c.phase == Phase::kBusyRead ? 1 : 0), "a read request that nobody answers, or two");
  expect(writes == (c.phase == Phase::kBusyWrite ? 1 : 0), "a write request that nobody answers, or two");
  expect(releases == (c.release_pending ? 1 : 0), "a release that nobody answers, or two");
  expect(c.release_pending != c.releasing.empty(), "a release for nobody, or none for somebody");
  const int answers = count(coming({MessageKind::kInv, MessageKind::k1winv, MessageKind::k1wgr}), answering,
                            going({MessageKind::kAck1w}));
  expect(answers == (s.answers.contains(id) ? 1 : 0), "an answer that will not come, or that nobody awaits");

  for (uint16_t d = 0; d < domains(); ++d) {
    bool is_queued = here.pending(d) != 0;  // a release may have just taken it
    for (uint64_t i = here.head(d); i < here.tail(d); ++i) is_queued = is_queued || here.queued(d, i) == page;
    is_queued = is_queued || DriverState::is_locked(here.queue_lock(d));
    expect(!c.queued.contains(DomainId(d)) || is_queued, "a queued page that is not in the queue");
    expect(!c.releasing.contains(DomainId(d)) || here.pending(d) != 0, "a release that no epoch counts");
  }
  if (!is_strict()) return;
  if (scenario_->has_tables) return check_rights(page, n);
  const Right has = right(n, page);
  // A home that loses its page to readers keeps the right to read.
  const bool stays = n == home && c.phase == Phase::kBusyRead && has == Right::kRead;
  expect(!c.mapped.empty() == (has != Right::kNone) || stays, "the client and the rights differ");
  expect(has == Right::kNone || has_copy || stays, "a right to a page that is not there");
  expect(has != Right::kWrite || c.state == PageState::kWrite, "a right to write a read copy");
  expect(record.readable == (has == Right::kRead), "the driver does not know its rights");
  // Otherwise the node's next release would not know of its writes.
  expect(has != Right::kWrite || c.single_writer || !c.queued.empty() || c.release_pending,
         "a right to write a page that is not queued");
}

// Where each processor has a table.
void Running::check_rights(unsigned page, unsigned n) {
  const Client& c = page_at(n, page).client;
  for (uint16_t d = 0; d < domains(); ++d) {
    const auto expect = [&](bool condition, const char* what) {
      if (!condition) wrong(fmt::format("page {} at node {}, processor {}: {}", page, n, d, what));
    };
    const Right has = right(n, d, page);
    const DomainId domain(d);
    expect(c.mapped.contains(domain) == (has != Right::kNone), "the directory and the table differ");
    expect(has == Right::kNone || c.state != PageState::kInv, "a right to a page that is not there");
    expect(has != Right::kWrite || c.state == PageState::kWrite, "a right to write a read copy");
    // Otherwise the processor's next release would not know of its writes.
    expect(has != Right::kWrite || c.single_writer || c.queued.contains(domain) || c.releasing.contains(domain),
           "a right to write a page that is not queued");
  }
}

std::string Running::check_end() const {
  std::string stuck;
  for (size_t p = 0; p < processors(); ++p)
    if (threads_[p]->position.at != At::kEnd) stuck += fmt::format(" {} (operation {})", p, threads_[p]->position.pc);
  if (!stuck.empty()) return "deadlock: nothing can happen, and these processors have not ended:" + stuck;
  if (!flight_.empty()) return "a message was never delivered";
  for (unsigned n = 0; n < nodes(); ++n) {
    for (unsigned d = 0; d < domains(); ++d) {
      if (state(n).head(d) != state(n).tail(d)) return "a delayed update queue is not empty after the last release";
      if (state(n).pending(d) != 0) return "a release epoch never ended";
    }
  }
  for (unsigned page = 0; page < pages(); ++page) {
    const unsigned home = scenario_->homes[page];
    const DriverState::Record& record = state(home).record(page);
    const Server& s = record.page.server;
    if (s.state == ServerState::kRelInProgress) return fmt::format("page {}: a round never ended", page);
    if (record.kept != nullptr) return fmt::format("page {}: a diff was kept and never merged", page);
    const unsigned owner = s.state == ServerState::kSwrite ? s.write_dir.first().value : home;
    for (unsigned n = 0; n < nodes(); ++n) {
      const Client& c = page_at(n, page).client;
      if (c.phase != Phase::kIdle || c.release_pending)
        return fmt::format("page {} at node {} is not at rest", page, n);
      if (n != owner && c.state == PageState::kInv) continue;
      for (unsigned w = 0; w < scenario_->words; ++w) {
        const size_t index = page * scenario_->words + w;
        const Value expected = scenario_->golden ? golden_[index] : scenario_->final_values[index];
        const uint64_t found = frame(n, page)[w];
        if (found != expected)
          return fmt::format("page {} word {} at node {} is {} in the end; it was last written {}", page, w, n,
                             found == kPoison ? "dead" : fmt::format("{}", found), expected);
      }
    }
  }
  return {};
}

namespace {

std::string list(NodeSet set) {
  std::string out = "{";
  set.for_each([&](NodeId node) { out += fmt::format("{}{}", out.size() > 1 ? "," : "", node.value); });
  return out + "}";
}

}  // namespace

std::string Running::describe() const {
  static constexpr std::array<const char*, 3> kStates = {"INV", "READ", "WRITE"};
  static constexpr std::array<const char*, 7> kPhases = {
      "", " BUSY(RREQ)", " BUSY(WREQ)", " FETCHING", " INV_IN_PROG(read)", " INV_IN_PROG(write)", " INV_IN_PROG(sole)"};
  static constexpr std::array<const char*, 4> kServers = {"READ", "WRITE", "SWRITE", "REL_IN_PROG"};
  static constexpr std::array<const char*, 3> kRights = {"no access", "reads", "writes"};
  std::string out;
  const auto values = [&](const uint64_t* words) {
    std::string text;
    for (unsigned w = 0; w < scenario_->words; ++w)
      text += words[w] == kPoison ? " dead" : fmt::format(" {}", words[w]);
    return text;
  };
  for (unsigned page = 0; page < pages(); ++page) {
    const Server& s = page_at(scenario_->homes[page], page).server;
    out += fmt::format(
        "page {}, home node {}: server {}, read_dir {}, write_dir {}, answers {}, rd {}, wr {}, rl {}, word {:#x}\n",
        page, scenario_->homes[page], kServers[static_cast<size_t>(s.state)], list(s.read_dir), list(s.write_dir),
        list(s.answers), list(s.rd), list(s.wr), list(s.rl), words_[page]);
    for (unsigned n = 0; n < nodes(); ++n) {
      const DriverState::Record& record = state(n).record(page);
      const Client& c = record.page.client;
      out += fmt::format(
          "  node {}: {}{}{}{}{}{}, {}, frame{}{}\n", n, kStates[static_cast<size_t>(c.state)],
          kPhases[static_cast<size_t>(c.phase)], c.fetch_is_void ? " void" : "",
          c.single_writer ? " single writer" : "", c.release_pending ? " REL is out" : "",
          c.queued.empty() ? "" : " queued", kRights[static_cast<size_t>(right(n, page))], values(frame(n, page)),
          record.twin == nullptr ? std::string() : ", twin" + values(reinterpret_cast<const uint64_t*>(record.twin)));
    }
  }
  for (unsigned n = 0; n < nodes(); ++n)
    for (unsigned d = 0; d < domains(); ++d)
      out += fmt::format("node {}, domain {}: {} queued, {} being released\n", n, d,
                         state(n).tail(d) - state(n).head(d), state(n).pending(d));
  for (const Packet& m : flight_)
    out += fmt::format("in flight: {} of page {} from node {} to node {}\n", mgs::name(m.kind), m.page, m.from, m.to);
  static constexpr std::array<const char*, 9> kAts = {
      "ready", "waits for a token", "wants a lock",  "at a barrier", "ended",
      "idle",  "in the driver",     "before a lock", "asleep"};
  for (const auto& thread : threads_) {
    const Position& position = thread->position;
    if (thread->is_processor)
      out += fmt::format("processor {} on node {}: operation {}, {}\n", thread->number, thread->node, position.pc,
                         kAts[static_cast<size_t>(position.at)]);
    else if (position.at != At::kIdle)
      out += fmt::format("node {} handles {} of page {}: {}\n", thread->node, mgs::name(thread->packet.kind),
                         thread->packet.page, kAts[static_cast<size_t>(position.at)]);
  }
  return out;
}

}  // namespace multigrain::mgs::explored
