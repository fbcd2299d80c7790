#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "trace/format/block_codec.h"
#include "trace/format/block_tokens.h"

namespace multigrain::trace {

using namespace block_tokens;

// This is a slot. Other slots are named by byte offsets from the processor's first, which saves an addition for each
// reference.
struct BlockDecoder::State {
  uint64_t address;
  uint64_t delta;
  uint64_t description;
  uint32_t next;
  uint32_t alternative;
  uint32_t base;
  uint32_t unused;
};

struct BlockDecoder::Processor {
  // So many references are decoded at once. Each takes at most 1 token, 3 numbers of 5 bytes, 1 + 8 bytes of an
  // address: that is what kPadding has to cover, because the ends of the streams are looked at between chunks only.
  static constexpr size_t kChunk = 128;
  static_assert(kChunk * 32 <= kPadding);

  ProcessorId id;
  uint64_t references;  // how many are not decoded yet
  uint32_t slots;
  State* states;
  uint32_t current;  // the byte offset of the current slot
  uint64_t run;      // how many predictions still hold
  unsigned kind;     // what comes after these
  uint64_t previous;
  const uint8_t *tokens, *tokens_end;
  const uint8_t *values, *values_end;
  const uint8_t *address_kinds, *address_kinds_end;
  const uint8_t *address_values, *address_values_end;
  bool corrupt;
  Reference* staging;  // the memory to which staged_ points
};

BlockDecoder::BlockDecoder() = default;
BlockDecoder::~BlockDecoder() = default;

namespace {

constexpr uint32_t kStateBytes = 40;

// So many references of a run are copied at once, and kSlack of the next longer ones.
constexpr size_t kShort = 4;

// A number of a values stream takes at most 5 bytes, even if the block is damaged.
inline uint32_t small_varint(const uint8_t*& at) {
  uint32_t value = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    const uint8_t byte = *at++;
    value |= static_cast<uint32_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

}  // namespace

std::string BlockDecoder::open_processor(Processor& processor, Cursor table, const BlockLimits& limits) {
  uint64_t site = 0, address = 0;
  for (uint32_t slot = 0; slot < processor.slots; ++slot) {
    site += unzigzag(table.varint());
    const uint64_t access = table.byte();
    const uint64_t size = table.byte();
    address += unzigzag(table.varint());
    if (!table.good()) return "a table of slots is too short";
    if (site >= limits.sites)
      return fmt::format("it refers to site {}, but the trace has sites 0 to {}", site, limits.sites - 1);
    if (access > 1 || size == 0) return "a table of slots makes no sense";
    const uint32_t next = slot + 1 < processor.slots ? slot + 1 : 0;
    processor.states[slot] = {
        .address = address,
        .delta = 0,
        .description = site | static_cast<uint64_t>(processor.id) << 32 | access << 48 | size << 56,
        .next = next * kStateBytes,
        .alternative = slot * kStateBytes,
        .base = slot * kStateBytes,
        .unused = 0};
  }
  processor.states[processor.slots] = {};
  processor.current = processor.slots * kStateBytes;
  if (!table.at_end()) return "a table of slots is too long";
  return {};
}

std::string BlockDecoder::open_events(Cursor kinds, Cursor values, const BlockLimits& limits) {
  events_.clear();
  if (kinds.left() != limits.events) return "its events are not as many as it says";
  events_.reserve(limits.events);
  uint64_t position = limits.first;
  std::array<uint64_t, kEventKinds> addresses{};
  while (kinds.left() > 0) {
    const unsigned byte = kinds.byte();
    const unsigned kind = byte / kEventFields, fields = byte % kEventFields;
    const uint64_t step = values.varint();
    if (step > limits.first + limits.references - position) return "an event lies behind its last reference";
    position += step;
    const uint64_t processor = fields & kHasProcessor ? values.varint() : 0;
    if (fields & kHasAddress) addresses[kind] += unzigzag(values.varint());
    const uint64_t value = fields & kHasValue ? values.varint() : 0;
    const uint64_t name = fields & kHasName ? values.varint() : 0;
    const uint64_t site = fields & kHasSite ? values.varint() : 0;
    if (!values.good()) return "its events are cut off";
    if (processor >= limits.processors)
      return fmt::format("an event is of processor {}, but the trace has processors 0 to {}", processor,
                         limits.processors - 1);
    if (name >= limits.names || site >= limits.sites) return "an event names a site or a name that the trace lacks";
    events_.push_back({.position = position,
                       .address = fields & kHasAddress ? addresses[kind] : 0,
                       .value = value,
                       .name = static_cast<uint32_t>(name),
                       .site = static_cast<SiteId>(site),
                       .processor = static_cast<ProcessorId>(processor),
                       .kind = static_cast<EventKind>(kind)});
  }
  if (!values.at_end() || events_.size() != limits.events) return "its events are not as many as it says";
  return {};
}

std::string BlockDecoder::open(std::span<const uint8_t> payload, const BlockLimits& limits) {
  static_assert(sizeof(State) == kStateBytes);
  processors_.clear();
  events_.clear();
  run_ = 0;
  corrupt_ = false;
  Cursor in(payload.data(), payload.data() + payload.size());
  const uint64_t count = in.varint();
  if (count > std::min<uint64_t>(limits.processors, limits.references))
    return fmt::format("it says that {} processors made {} references", count, limits.references);
  struct Sizes {
    uint64_t of[5];
  };
  std::vector<Sizes> sizes(count);
  uint64_t references = 0, slots = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Processor processor{};
    const uint64_t id = in.varint();
    processor.references = in.varint();
    const uint64_t own_slots = in.varint();
    for (uint64_t& size : sizes[i].of) size = in.varint();
    if (!in.good()) return "its list of processors is cut off";
    if (id >= limits.processors)
      return fmt::format("it has references of processor {}, but the trace has processors 0 to {}", id,
                         limits.processors - 1);
    if (processor.references == 0 || processor.references > limits.references - references ||
        own_slots > processor.references || own_slots == 0)
      return "its list of processors makes no sense";
    processor.id = static_cast<ProcessorId>(id);
    processor.slots = static_cast<uint32_t>(own_slots);
    references += processor.references;
    slots += own_slots + 1;
    processors_.push_back(processor);
  }
  if (references != limits.references) return "its processors' references are not as many as it says";
  uint64_t last[4];
  for (uint64_t& size : last) size = in.varint();

  states_.resize(slots);
  constexpr size_t kStaging = Processor::kChunk + kSlack;
  staging_.resize(count * kStaging);
  staged_.resize(count);
  std::vector<Cursor> streams[5];
  for (size_t stream = 0; stream < 5; ++stream)
    for (const Sizes& size : sizes) streams[stream].push_back(in.part(size.of[stream]));
  schedule_ = in.part(last[0]);
  schedule_values_ = in.part(last[1]);
  const Cursor event_kinds = in.part(last[2]), event_values = in.part(last[3]);
  if (!in.at_end()) return "its streams are not as long as it says";

  State* states = states_.data();
  for (size_t i = 0; i < count; ++i) {
    Processor& processor = processors_[i];
    processor.states = states;
    states += processor.slots + 1;
    std::string wrong = open_processor(processor, streams[0][i], limits);
    if (!wrong.empty()) return wrong;
    const auto place = [&](size_t stream, const uint8_t*& begin, const uint8_t*& end) {
      begin = streams[stream][i].position();
      end = streams[stream][i].end();
    };
    place(1, processor.tokens, processor.tokens_end);
    place(2, processor.values, processor.values_end);
    place(3, processor.address_kinds, processor.address_kinds_end);
    place(4, processor.address_values, processor.address_values_end);
    processor.staging = staging_.data() + i * kStaging;
    staged_[i] = {processor.staging, processor.staging};
    // This is the first token; what it stands for is checked with the chunk that it begins.
    const unsigned token = processor.tokens == processor.tokens_end ? 0u : *processor.tokens++;
    processor.kind = token & 15;
    processor.run = token >> 4;
    if (processor.run == kLongRun) processor.run += small_varint(processor.values);
  }
  current_ = count == 0 ? 0 : count - 1;
  return open_events(event_kinds, event_values, limits);
}

// Returns the state that follows `current` after a wrong prediction of this kind, learned or not; nullptr if there is
// none.
[[gnu::always_inline]] inline BlockDecoder::State* BlockDecoder::mispredicted_successor(Processor& processor,
                                                                                        State* current) {
  char* const states = reinterpret_cast<char*>(processor.states);
  const auto state = [states](uint32_t offset) { return reinterpret_cast<State*>(states + offset); };
  const unsigned kind = processor.kind;
  switch (kind >> 1) {
    case kNext:
      return kind == 0 ? nullptr : state(current->next);  // kind 0: the tokens end before the references do
    case kAlternativeOnce:
      return state(current->alternative);
    case kAlternative:
      std::swap(current->next, current->alternative);
      return state(current->next);
    default: {
      const uint64_t offset = static_cast<uint64_t>(small_varint(processor.values)) * kStateBytes;
      if (offset >= processor.slots * kStateBytes || kind >= 2 * kChoices) return nullptr;
      const auto slot = static_cast<uint32_t>(offset);
      if (kind >> 1 == kExplicitSecond) {
        current->alternative = slot;
      } else if (kind >> 1 == kExplicitFirst) {
        current->alternative = current->next;
        current->next = slot;
      }
      return state(slot);
    }
  }
}

// Replaces `address`, the processor's last one, by one that `current` does not predict. Returns false if there is no
// such way to give an address.
[[gnu::always_inline]] inline bool BlockDecoder::mispredicted_address(Processor& processor, State* current,
                                                                      uint64_t& address) {
  char* const states = reinterpret_cast<char*>(processor.states);
  const auto state = [states](uint32_t offset) { return reinterpret_cast<State*>(states + offset); };
  const unsigned byte = *processor.address_kinds++;
  const unsigned bits = (byte & 0x38) + 8;
  uint64_t value = get<uint64_t>(processor.address_values) << (64 - bits);
  value = static_cast<uint64_t>(static_cast<int64_t>(value) >> (64 - bits));
  processor.address_values += bits / 8;
  switch (byte & 7) {
    case kFromOwn:
      address = current->address + value;
      return true;
    case kFromPrevious:
      address += value;
      return true;
    case kFromBase:
      address = state(current->base)->address + value;
      return true;
    case kLearnOwn:
      current->base = static_cast<uint32_t>(reinterpret_cast<char*>(current) - states);
      current->delta = value;
      address = current->address + value;
      return true;
    case kLearnBase: {
      const uint64_t offset = static_cast<uint64_t>(small_varint(processor.values)) * kStateBytes;
      if (offset >= processor.slots * kStateBytes) return false;
      current->base = static_cast<uint32_t>(offset);
      current->delta = value;
      address = state(current->base)->address + value;
      return true;
    }
    default:
      return false;
  }
}

// Decodes `count` (at most kChunk) references of one processor, which has at least so many left.
void BlockDecoder::hits_and_misses(Processor& processor, Reference* out, size_t count) {
  char* const states = reinterpret_cast<char*>(processor.states);
  const auto state = [states](uint32_t offset) { return reinterpret_cast<State*>(states + offset); };
  State* current = state(processor.current);
  uint64_t address = processor.previous;
  Reference* const stop = out + count;
  const auto emit = [](Reference* to, uint64_t at, uint64_t description) {
    std::memcpy(to, &at, 8);
    std::memcpy(reinterpret_cast<char*>(to) + 8, &description, 8);
  };
  while (true) {
    const size_t hits = std::min<uint64_t>(processor.run, static_cast<size_t>(stop - out));
    processor.run -= hits;
    for (Reference* const until = out + hits; out != until; ++out) {
      current = state(current->next);
      address = state(current->base)->address + current->delta;
      current->address = address;
      emit(out, address, current->description);
    }
    if (out == stop) break;

    // The prediction was wrong.
    State* const next = mispredicted_successor(processor, current);
    if (next == nullptr) [[unlikely]] {
      processor.corrupt = true;
      return;
    }
    current = next;
    if (processor.kind & 1) {
      if (!mispredicted_address(processor, current, address)) [[unlikely]] {
        processor.corrupt = true;
        return;
      }
    } else {
      address = state(current->base)->address + current->delta;
    }
    current->address = address;
    emit(out++, address, current->description);

    const unsigned token = *processor.tokens++;
    processor.kind = token & 15;
    processor.run = token >> 4;
    if (processor.run == kLongRun) processor.run += small_varint(processor.values);
    if (out == stop) break;
  }
  processor.current = static_cast<uint32_t>(reinterpret_cast<char*>(current) - states);
  processor.previous = address;
  processor.references -= count;
  if (processor.tokens > processor.tokens_end || processor.values > processor.values_end ||
      processor.address_kinds > processor.address_kinds_end ||
      processor.address_values > processor.address_values_end ||
      (processor.references == 0 &&
       (processor.run != 0 || processor.kind != 0 || processor.tokens != processor.tokens_end ||
        processor.values != processor.values_end || processor.address_kinds != processor.address_kinds_end ||
        processor.address_values != processor.address_values_end)))
    processor.corrupt = true;
}

// Takes the runs for which copying what is staged is enough, which are most, and stops before the first that needs
// more.
inline void BlockDecoder::copy_short_runs(Reference*& out, size_t& count) {
  const size_t processors = processors_.size();
  const uint8_t* at = schedule_.position();
  const uint8_t* const end = schedule_.end();
  size_t current = current_;
  Reference* to = out;
  Reference* const stop = out + count;
  Staged* const of_processor = staged_.data();
  // Takes one run. Returns false if it is none of those.
  const auto copy_run = [&] {
    const unsigned byte = *at, step = byte & 15;
    const size_t length = (byte >> 4) + 1;
    size_t next = current + step + 1;
    next = next >= processors ? next - processors : next;
    if (step == kEscape || length > kEscape || next >= processors) return false;
    Staged& staged = of_processor[next];
    Reference* const from = staged.begin;
    if (length > static_cast<size_t>(staged.end - from)) return false;
    // The copy does not ask how short the run is.
    if (length <= kShort)
      std::memcpy(static_cast<void*>(to), from, kShort * sizeof(Reference));
    else
      std::memcpy(static_cast<void*>(to), from, kSlack * sizeof(Reference));
    staged.begin = from + length;
    to += length;
    current = next;
    ++at;
    return true;
  };
  // This takes as many runs at a time as cannot go beyond what is wanted, however long they are.
  bool more = true;
  while (more) {
    const size_t room = std::min(static_cast<size_t>(stop - to) / kEscape, static_cast<size_t>(end - at));
    if (room == 0) break;
    for (const uint8_t* const until = at + room; more && at != until;) more = copy_run();
  }
  while (more && at != end && static_cast<size_t>(*at >> 4) < static_cast<size_t>(stop - to)) more = copy_run();
  current_ = current;
  schedule_ = Cursor(at, end);
  count = static_cast<size_t>(stop - to);
  out = to;
}

bool BlockDecoder::decode(Reference* out, size_t count) {
  while (count > 0 && !corrupt_) {
    if (run_ == 0) {
      copy_short_runs(out, count);
      if (count == 0) break;
      const unsigned byte = schedule_.byte();
      uint64_t step = byte & 15, length = byte >> 4;
      if (step == kEscape) step += schedule_values_.varint();
      if (length == kEscape) length += schedule_values_.varint();
      if (!schedule_.good() || !schedule_values_.good() || step >= processors_.size()) break;
      current_ += static_cast<size_t>(step) + 1;
      if (current_ >= processors_.size()) current_ -= processors_.size();
      run_ = length + 1;
      if (run_ == 0) break;
    }
    Processor& processor = processors_[current_];
    Staged& staging = staged_[current_];
    auto wanted = static_cast<size_t>(std::min<uint64_t>(run_, count));
    run_ -= wanted;
    count -= wanted;
    while (true) {
      const auto staged = static_cast<size_t>(staging.end - staging.begin);
      const size_t now = std::min(staged, wanted);
      std::memcpy(static_cast<void*>(out), staging.begin, now * sizeof(Reference));
      out += now;
      staging.begin += now;
      wanted -= now;
      if (wanted == 0) break;
      if (processor.references == 0) return !(corrupt_ = true);  // the order has more references of it than it has
      // Long runs are decoded without going through the staging memory.
      const auto chunk = static_cast<size_t>(std::min<uint64_t>(processor.references, Processor::kChunk));
      if (wanted >= chunk) {
        hits_and_misses(processor, out, chunk);
        out += chunk;
        wanted -= chunk;
      } else {
        hits_and_misses(processor, processor.staging, chunk);
        staging = {processor.staging, processor.staging + chunk};
      }
      if (processor.corrupt) return !(corrupt_ = true);
      if (wanted == 0) break;
    }
  }
  corrupt_ = corrupt_ || count != 0;
  return !corrupt_;
}

}  // namespace multigrain::trace
