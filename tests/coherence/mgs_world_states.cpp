// This makes states of the machine bytes (mgs_world.h), to tell them apart and to return to them, and makes the machine
// a value.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "mgs_world.h"

namespace multigrain::mgs::explored {

using exploring::mix;

namespace {

template <typename T>
void put(std::vector<uint8_t>& out, T value) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

uint64_t g_images = 0;   // how many images were made
uint64_t g_present = 0;  // the image that the machine is in now

}  // namespace

void Running::serialise_page(unsigned node, unsigned page, std::vector<uint8_t>& out) const {
  const auto byte = [&out](auto value) { out.push_back(static_cast<uint8_t>(value)); };
  const auto words = [&](const uint64_t* from) {
    for (unsigned w = 0; w < scenario_->words; ++w) put(out, static_cast<uint16_t>(from[w]));
  };
  const auto nodes_of = [&](NodeSet set) { put(out, static_cast<uint16_t>(set.bits())); };
  const DriverState::Record& record = state(node).record(page);
  const Client& c = record.page.client;
  byte(static_cast<unsigned>(c.state) | static_cast<unsigned>(c.phase) << 2 | (c.single_writer ? 1u : 0u) << 5 |
       (c.release_pending ? 1u : 0u) << 6 | (record.twin != nullptr ? 1u : 0u) << 7);
  byte((record.readable ? 1u : 0u) | (c.fetch_is_void ? 1u : 0u) << 1);
  if (scenario_->has_tables && (c.phase == Phase::kBusyRead || c.phase == Phase::kBusyWrite)) byte(c.requester.value);
  for (uint16_t d = 0; d < domains(); ++d) {
    const DomainId domain(d);
    const bool releases = c.releasing.contains(domain);
    const uint64_t slot = record.in_slot_1.contains(domain) ? 1 : 0;
    byte((c.mapped.contains(domain) ? 1u : 0u) | (c.queued.contains(domain) ? 1u : 0u) << 1 |
         (releases ? 1u : 0u) << 2 | (releases ? (slot ^ state(node).epoch(d)) & 1 : 0) << 3 |
         uint64_t{static_cast<uint8_t>(right(node, d, page))} << 4);
  }
  words(frame(node, page));
  if (record.twin != nullptr) words(reinterpret_cast<const uint64_t*>(record.twin));
  if (scenario_->homes[page] != node) return;
  const Server& s = record.page.server;
  byte(static_cast<unsigned>(s.state) | (s.awaiting_page ? 1u : 0u) << 2 | (s.diffs_waiting ? 1u : 0u) << 3 |
       (s.granting ? 1u : 0u) << 4 | s.read_elsewhere << 5 | (record.is_open ? 1u : 0u) << 7);
  for (const NodeSet& set : {s.read_dir, s.write_dir, s.answers, s.rd, s.wr, s.rl}) nodes_of(set);
  DriverState::each_kept(record, [&](std::span<const std::byte> diff) {
    byte(diff.size());
    for (const std::byte b : diff) byte(b);
  });
  byte(0);
}

void Running::serialise_thread(const Thread& thread, std::vector<uint8_t>& out) const {
  const Position& position = thread.position;
  put(out, static_cast<uint16_t>(position.pc << 4 | static_cast<unsigned>(position.at)));
  if (!position.is_inside()) return;
  const DriverState here = state(thread.node);
  put(out, position.locked);
  out.push_back(
      static_cast<uint8_t>((position.has_queue ? 1u + 4u * position.queue : 0u) | (position.has_marked ? 2u : 0u)));
  if (!thread.is_processor) {
    out.push_back(thread.packet.page);
    out.push_back(static_cast<uint8_t>(thread.packet.kind));
    for (size_t i = 0; i < thread.packet.length; ++i) out.push_back(static_cast<uint8_t>(thread.packet.payload[i]));
  }
  out.push_back(static_cast<uint8_t>(thread.seen.size()));
  for (const Seen& seen : thread.seen) {
    switch (seen.kind) {
      case Seen::Kind::kValue:
        put(out, seen.value);
        break;
      case Seen::Kind::kEntry:
        out.push_back(static_cast<uint8_t>(seen.value > here.head(seen.page) ? seen.value - here.head(seen.page) : 0));
        break;
      case Seen::Kind::kEpoch:
        out.push_back(static_cast<uint8_t>(std::min<uint64_t>(here.epoch(seen.page) - seen.value, 2)));
        break;
      case Seen::Kind::kWakeUps:
        out.push_back(here.record(seen.page).changed.prepare() != seen.value ? 1 : 0);
        break;
    }
  }
}

void Running::serialise(std::vector<uint8_t>& out) const {
  for (unsigned n = 0; n < nodes(); ++n) {
    const DriverState here = state(n);
    for (unsigned page = 0; page < pages(); ++page) serialise_page(n, page, out);
    for (unsigned d = 0; d < domains(); ++d) {
      out.push_back(static_cast<uint8_t>(here.tail(d) - here.head(d)));
      out.push_back(static_cast<uint8_t>(here.queue_size(d).load()));
      for (uint64_t i = here.head(d); i < here.tail(d); ++i) out.push_back(static_cast<uint8_t>(here.queued(d, i)));
      out.push_back(static_cast<uint8_t>(here.pending(d, here.epoch(d))));
      out.push_back(static_cast<uint8_t>(here.pending(d, here.epoch(d) + 1)));
    }
  }
  for (const Packet& packet : flight_) {
    out.push_back(static_cast<uint8_t>(packet.from << 4 | packet.to));
    out.push_back(packet.page);
    out.push_back(static_cast<uint8_t>(packet.kind));
    out.push_back(packet.length);
    for (size_t i = 0; i < packet.length; ++i) out.push_back(static_cast<uint8_t>(packet.payload[i]));
  }
  for (const auto& thread : threads_)
    if (thread->position.at != At::kIdle)
      serialise_thread(*thread, out);
    else
      out.push_back(0xff);
  for (const bool held : lock_held_) out.push_back(held ? 1 : 0);
  if (scenario_->one_sided)
    for (const uint64_t word : words_) put(out, static_cast<uint16_t>(word));
  for (const Value value : golden_) put(out, value);
}

// --- Images ---------------------------------------------------------------------------------------------------------

void Running::save(std::vector<std::byte>& image) const {
  image.clear();
  const auto add = [&](const void* at, size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(at);
    image.insert(image.end(), bytes, bytes + size);
  };
  const auto add_all = [&](const auto& vector) {
    const size_t count = vector.size();
    add(&count, sizeof count);
    add(vector.data(), count * sizeof(vector[0]));
  };
  add(&has_ended_the_run_, sizeof has_ended_the_run_);
  add(&tokens_, sizeof tokens_);
  add(&lock_held_, sizeof lock_held_);
  add_all(rights_);
  add_all(words_);
  add_all(flight_);
  add_all(golden_);
  for (const auto& part : memory_) add(part.data(), part.size());
  for (const auto& thread : threads_) {
    add(&thread->position, sizeof thread->position);
    if (!thread->position.is_inside()) continue;
    add_all(thread->seen);
    if (!thread->is_processor) add(&thread->packet, sizeof thread->packet);
    add_all(thread->frames());
  }
}

void Running::restore(const std::vector<std::byte>& image) {
  const std::byte* from = image.data();
  const auto take = [&](void* to, size_t size) {
    if (size != 0) std::memcpy(to, from, size);
    from += size;
  };
  const auto take_all = [&](auto& vector) {
    size_t count = 0;
    take(&count, sizeof count);
    vector.resize(count);
    take(vector.data(), count * sizeof(vector[0]));
  };
  take(&has_ended_the_run_, sizeof has_ended_the_run_);
  take(&tokens_, sizeof tokens_);
  take(&lock_held_, sizeof lock_held_);
  take_all(rights_);
  take_all(words_);
  take_all(flight_);
  take_all(golden_);
  for (const auto& part : memory_) take(part.data(), part.size());
  for (const auto& thread : threads_) {
    take(&thread->position, sizeof thread->position);
    if (!thread->position.is_inside()) {
      thread->seen.clear();
      continue;
    }
    take_all(thread->seen);
    if (!thread->is_processor) take(&thread->packet, sizeof thread->packet);
    size_t size = 0;
    take(&size, sizeof size);
    take(thread->make_frames(size).data(), size);
  }
}

// --- The machine as a value ---------------------------------------------------------------------------------------

Machine::Machine(const Scenario& scenario) {
  World::start(scenario);
  keep();
}
void Machine::be_there() const {
  if (g_present == number_) return;
  World::restore(image_);
  g_present = number_;
}
void Machine::keep() {
  World::save(image_);
  number_ = g_present = ++g_images;
}
void Machine::enabled(std::vector<Event>& events) const {
  be_there();
  World::enabled(events);
}
std::string Machine::apply(const Event& event, std::string* log) {
  be_there();
  std::string wrong = World::apply(event, log);
  keep();
  return wrong;
}
std::string Machine::check_end() const {
  be_there();
  return World::check_end();
}
void Machine::serialise(std::vector<uint8_t>& out) const {
  be_there();
  World::serialise(out);
}
std::string Machine::describe() const {
  be_there();
  return World::describe();
}
std::string Machine::in_words(const Event& event) {
  if (event.type == Event::kProcessor) return fmt::format("a step of processor {}", event.a);
  return fmt::format("message {} from node {} to node {}", event.c, event.a, event.b);
}

exploring::Report explore(const Scenario& scenario, size_t max_states) {
  exploring::Report report = exploring::explore<Machine>(scenario, max_states, exploring::Order::kDepthFirst);
  if (report.failure.empty()) return report;
  return exploring::explore<Machine>(scenario, max_states);
}

}  // namespace multigrain::mgs::explored
