#include "trace/format/block_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace multigrain::trace {
namespace {

// A slot's predictor. Slots are named by index here and by byte offset in the decoder.
constexpr uint32_t kNone = ~0u;

// A token is a byte: its low half says what ends a run of correct predictions, its high half how long the run is, with
// kLongRun for "kLongRun + the next number of the values stream". The kind is 2 * the successor's choice + whether the
// address was mispredicted; 0: nothing, the processor's references end.
constexpr unsigned kLongRun = 15;
enum Choice : unsigned {
  kNext = 0,         // the predicted successor
  kAlternativeOnce,  // the alternative successor, which stays the alternative
  kAlternative,      // the alternative successor, which becomes the predicted one, and that the alternative
  kExplicitOnce,     // the slot that the values stream names; nothing is learned
  kExplicitSecond,   // ... it becomes the alternative
  kExplicitFirst,    // ... it becomes the predicted one, and that the alternative
  kChoices,
};

// How a mispredicted address is given, in the low bits of a byte of the addresses' kinds stream; the bits above are the
// bytes of the value - 1.
enum AddressMode : unsigned {
  kFromOwn = 0,   // value + the slot's last address
  kFromPrevious,  // value + the processor's last address
  kFromBase,      // value + the last address of the slot that predictions start from
  kLearnOwn,      // value + the slot's last address, and predict so
  kLearnBase,     // value + the last address of the slot that the values stream names, and predict so
  kAddressModes,
};

// The order of the processors: a byte a run. Its low half is the step from the last run's processor to this one's, less
// 1, modulo their number; its high half the length less 1; kEscape in either: that + the next number of the stream of
// values.
constexpr unsigned kEscape = 15;

unsigned bytes_of(uint64_t value) {
  // Sign-extended: one bit more than the magnitude has.
  const uint64_t magnitude = value ^ (0 - (value >> 63));
  const unsigned bits = 65 - static_cast<unsigned>(std::countl_zero(magnitude));
  return (bits + 7) / 8;
}

uint64_t description_of(const Reference& reference) {
  uint64_t description;
  std::memcpy(&description, reinterpret_cast<const char*>(&reference) + 8, 8);
  return description;
}

// Marks which fields of an event follow, in this order.
enum EventField : unsigned {
  kHasProcessor = 1,
  kHasAddress = 2,
  kHasValue = 4,
  kHasName = 8,
  kHasSite = 16,
  kEventFields = 32,
};
constexpr unsigned kEventKinds = 8;
static_assert(static_cast<unsigned>(EventKind::kEnd) + 1 == kEventKinds);

void encode_events(uint64_t first, std::span<const Event> events, Bytes& kinds, Bytes& values) {
  uint64_t position = first;
  std::array<uint64_t, kEventKinds> addresses{};
  for (const Event& event : events) {
    const auto kind = static_cast<unsigned>(event.kind);
    const unsigned fields = (event.processor != 0 ? kHasProcessor : 0u) | (event.address != 0 ? kHasAddress : 0u) |
                            (event.value != 0 ? kHasValue : 0u) | (event.name != 0 ? kHasName : 0u) |
                            (event.site != 0 ? kHasSite : 0u);
    kinds.push_back(static_cast<uint8_t>(kind * kEventFields + fields));
    put_varint(values, event.position - position);
    position = event.position;
    if (fields & kHasProcessor) put_varint(values, event.processor);
    if (fields & kHasAddress) {
      put_varint(values, zigzag(event.address - addresses[kind]));
      addresses[kind] = event.address;
    }
    if (fields & kHasValue) put_varint(values, event.value);
    if (fields & kHasName) put_varint(values, event.name);
    if (fields & kHasSite) put_varint(values, event.site);
  }
}

// --- Encoding

// Slots of one processor by description.
class SlotTable {
 public:
  void clear() {
    slots_ = 0;
    entries_.assign(64, {0, kNone});
  }
  // The slot, and whether it is new.
  std::pair<uint32_t, bool> find(uint64_t description) {
    if (2 * (slots_ + 1) > entries_.size()) grow();
    Entry& entry = place(description);
    const bool fresh = entry.slot == kNone;
    if (fresh) entry = {description, slots_++};
    return {entry.slot, fresh};
  }
  // The slot, or kNone.
  [[nodiscard]] uint32_t look_up(uint64_t description) { return place(description).slot; }

 private:
  struct Entry {
    uint64_t description;
    uint32_t slot;
  };
  Entry& place(uint64_t description) {
    const size_t mask = entries_.size() - 1;
    size_t i = static_cast<size_t>((description * 0x9e3779b97f4a7c15u) >> 32) & mask;
    while (entries_[i].slot != kNone && entries_[i].description != description) i = (i + 1) & mask;
    return entries_[i];
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2, {0, kNone});
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.slot != kNone) place(entry.description) = entry;
  }
  std::vector<Entry> entries_;
  uint32_t slots_ = 0;
};

// One site is often several instructions: a line of the source with several accesses to memory. Each deserves a slot
// of its own, with its own stride. They are told apart by where they stand in a stretch of references with the same
// description: by the index in it modulo a period, which is looked for in the first references of a block.
class Periods {
 public:
  static constexpr unsigned kMost = 16;

  void find(std::span<const uint64_t> descriptions, std::span<const uint64_t> addresses) {
    const size_t count = std::min(descriptions.size(), kSample);
    table_.clear();
    index_.resize(count);
    period_.clear();
    for (size_t i = 0; i < count; ++i) {
      if (i > 0 && descriptions[i] == descriptions[i - 1]) {
        index_[i] = index_[i - 1];
        longest_[index_[i]] = std::max(longest_[index_[i]], ++length_);
        continue;
      }
      length_ = 1;
      const auto [index, fresh] = table_.find(descriptions[i]);
      index_[i] = index;
      if (fresh) {
        if (longest_.size() <= index) longest_.resize(index + 1);
        longest_[index] = 1;
        period_.push_back(1);
      }
    }
    best_.assign(period_.size(), 0);
    for (unsigned period = 1; period <= kMost; ++period) score(period, addresses.first(count));
  }
  // Of a description; 1 if it did not occur.
  [[nodiscard]] unsigned of(uint64_t description) {
    const uint32_t index = table_.look_up(description);
    return index == kNone ? 1 : period_[index];
  }

 private:
  static constexpr size_t kSample = 4096;
  struct Last {
    uint64_t address, stride, step;
  };

  // How many references each description has that continue a stride of their own, or one from the reference before.
  void score(unsigned period, std::span<const uint64_t> addresses) {
    last_.assign(period_.size() * period, {});
    hits_.assign(period_.size(), 0);
    unsigned phase = 0;
    for (size_t i = 1; i < addresses.size(); ++i) {
      const uint32_t index = index_[i];
      phase = index == index_[i - 1] && phase + 1 < period ? phase + 1 : 0;
      if (longest_[index] < period) continue;
      Last& last = last_[index * period + phase];
      const uint64_t stride = addresses[i] - last.address, step = addresses[i] - addresses[i - 1];
      hits_[index] += stride == last.stride || step == last.step;
      last = {addresses[i], stride, step};
    }
    for (size_t index = 0; index < period_.size(); ++index) {
      // More slots must be worth what they take.
      const unsigned gain = hits_[index] - std::min(hits_[index], 8 * period);
      if (period == 1 || gain > best_[index] + best_[index] / 16) {
        best_[index] = period == 1 ? hits_[index] : gain;
        period_[index] = period;
      }
    }
  }

  SlotTable table_;
  std::vector<uint32_t> index_;  // of each reference's description
  unsigned length_ = 0;
  std::vector<unsigned> longest_, period_, best_, hits_;  // by description
  std::vector<Last> last_;
};

struct Predictor {
  uint64_t address;
  uint64_t delta;
  uint32_t next;
  uint32_t alternative;
  uint32_t base;
};

// One processor's references of the block, and what becomes of them.
struct Lane {
  ProcessorId processor = 0;
  std::vector<uint64_t> addresses;
  std::vector<uint64_t> descriptions;
  uint32_t slots = 0;
  Bytes table, tokens, values, address_kinds, address_values;
};

class LaneEncoder {
 public:
  void encode(Lane& lane) {
    lane_ = &lane;
    number_slots();
    find_repeats();
    uint32_t current = lane.slots;  // a state before all slots, whose successor is slot 0
    uint64_t run = 0;
    uint64_t previous = 0;
    const size_t count = lane.addresses.size();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t slot = slots_[i];
      const uint64_t address = lane.addresses[i];
      Predictor& mine = predictors_[slot];
      const bool follows = predictors_[current].next == slot;
      const bool predicted = predictors_[mine.base].address + mine.delta == address;
      if (follows && predicted) {
        ++run;
      } else {
        const Choice choice = follows ? kNext : choose_successor(current, i);
        token(run, 2 * choice + (predicted ? 0u : 1u));
        run = 0;
        if (choice >= kExplicitOnce) put_varint(lane.values, slot);
        if (!predicted) mispredicted(i, previous);
      }
      mine.address = address;
      previous = address;
      current = slot;
    }
    token(run, 0);
  }

 private:
  // How far a choice is followed into the future, in occurrences of the slot and in references before each.
  static constexpr unsigned kFuture = 3;
  static constexpr size_t kBefore = 16;
  static constexpr size_t kBases = 8;

  void token(uint64_t run, unsigned kind) {
    const auto half = static_cast<unsigned>(std::min<uint64_t>(run, kLongRun));
    lane_->tokens.push_back(static_cast<uint8_t>(half << 4 | kind));
    if (half == kLongRun) put_varint(lane_->values, run - kLongRun);
  }

  void number_slots() {
    const size_t count = lane_->addresses.size();
    slots_.resize(count);
    first_.clear();
    table_.clear();
    uint64_t site = 0, address = 0;
    periods_.find(lane_->descriptions, lane_->addresses);
    uint64_t last = 0;
    unsigned period = 1, phase = 0;
    for (size_t i = 0; i < count; ++i) {
      if (i == 0 || lane_->descriptions[i] != last) {
        last = lane_->descriptions[i];
        period = periods_.of(last);
        phase = 0;
      } else if (++phase >= period) {
        phase = 0;
      }
      // All are of one processor, whose place the phase can take.
      const uint64_t description = (last & ~(uint64_t{0xffff} << 32)) | static_cast<uint64_t>(phase) << 32;
      // Most often the slot is the one that followed the last time.
      if (i > 0) {
        const uint32_t guess = predictors_[slots_[i - 1]].next;
        if (guess != kNone && descriptions_[guess] == description) {
          slots_[i] = guess;
          continue;
        }
      }
      const auto [slot, fresh] = table_.find(description);
      if (fresh) {
        if (predictors_.size() <= slot) {
          predictors_.resize(slot + 1);
          descriptions_.resize(slot + 1);
        }
        predictors_[slot].next = kNone;
        descriptions_[slot] = description;
        first_.push_back(lane_->addresses[i]);
        const auto new_site = static_cast<uint32_t>(description);
        put_varint(lane_->table, zigzag(new_site - site));
        lane_->table.push_back(static_cast<uint8_t>(description >> 48));  // access
        lane_->table.push_back(static_cast<uint8_t>(description >> 56));  // size
        put_varint(lane_->table, zigzag(lane_->addresses[i] - address));
        site = new_site;
        address = lane_->addresses[i];
      }
      slots_[i] = slot;
      if (i > 0) predictors_[slots_[i - 1]].next = slot;
    }
    lane_->slots = static_cast<uint32_t>(first_.size());
    predictors_.resize(std::max<size_t>(predictors_.size(), lane_->slots + 1));
    descriptions_.resize(predictors_.size());
    for (uint32_t slot = 0; slot < lane_->slots; ++slot) {
      const uint32_t next = slot + 1 < lane_->slots ? slot + 1 : 0;
      predictors_[slot] = {first_[slot], 0, next, slot, slot};
    }
    predictors_[lane_->slots] = {0, 0, 0, 0, 0};
  }

  // next_[i]: where slots_[i] occurs next.
  void find_repeats() {
    const size_t count = slots_.size();
    next_.resize(count);
    last_.assign(lane_->slots, kNone);
    for (size_t i = count; i-- > 0;) {
      next_[i] = last_[slots_[i]];
      last_[slots_[i]] = static_cast<uint32_t>(i);
    }
  }

  Choice choose_successor(uint32_t current, size_t i) {
    Predictor& from = predictors_[current];
    const uint32_t slot = slots_[i];
    // What followed `current` the next times, is it this slot again?
    unsigned when = kNone;
    if (i > 0) {
      uint32_t later = next_[i - 1];
      for (unsigned n = 0; n < kFuture && later != kNone && later + 1 < slots_.size(); ++n, later = next_[later]) {
        if (slots_[later + 1] == slot) {
          when = n;
          break;
        }
      }
    }
    if (from.alternative == slot) {
      if (when != 0) return kAlternativeOnce;
      std::swap(from.next, from.alternative);
      return kAlternative;
    }
    if (when == kNone) return kExplicitOnce;
    if (when != 0) {
      from.alternative = slot;
      return kExplicitSecond;
    }
    from.alternative = from.next;
    from.next = slot;
    return kExplicitFirst;
  }

  // How many of the next occurrences after i `base` + `delta` predicts, up to the first that it does not.
  unsigned future_of(size_t i, uint32_t base, uint64_t delta) const {
    unsigned hits = 0;
    size_t last = i;
    for (uint32_t later = next_[i]; hits < kFuture && later != kNone; last = later, later = next_[later]) {
      size_t from;
      if (base == slots_[i]) {
        from = last;
      } else {
        const size_t stop = later > kBefore ? later - kBefore : 0;
        from = later;
        while (from > stop && slots_[--from] != base) {
        }
        if (slots_[from] != base) break;
      }
      if (lane_->addresses[later] - lane_->addresses[from] != delta) break;
      ++hits;
    }
    return hits;
  }

  void mispredicted(size_t i, uint64_t previous) {
    const uint32_t slot = slots_[i];
    const uint64_t address = lane_->addresses[i];
    Predictor& mine = predictors_[slot];
    const unsigned keep = future_of(i, mine.base, mine.delta);
    unsigned best = 0;
    uint32_t best_base = slot;
    if (keep < kFuture) {
      best = future_of(i, slot, address - mine.address);
      for (size_t back = 1; back <= kBases && back <= i && best < kFuture; ++back) {
        const uint32_t base = slots_[i - back];
        const uint64_t from = predictors_[base].address;
        // Only the base's last occurrence before this reference is what a prediction would start from.
        if (base == slot || from != lane_->addresses[i - back]) continue;
        const unsigned hits = future_of(i, base, address - from);
        if (hits > best) {
          best = hits;
          best_base = base;
        }
      }
    }
    if (best > keep) {
      mine.delta = address - predictors_[best_base].address;
      mine.base = best_base;
      if (best_base == slot) {
        give(kLearnOwn, mine.delta);
      } else {
        put_varint(lane_->values, best_base);
        give(kLearnBase, mine.delta);
      }
      return;
    }
    const uint64_t own = address - mine.address, near = address - previous;
    const uint64_t based = address - predictors_[mine.base].address;
    const unsigned own_bytes = bytes_of(own), near_bytes = bytes_of(near), based_bytes = bytes_of(based);
    if (mine.base != slot && based_bytes < std::min(own_bytes, near_bytes))
      give(kFromBase, based);
    else if (near_bytes < own_bytes)
      give(kFromPrevious, near);
    else
      give(kFromOwn, own);
  }

  void give(AddressMode mode, uint64_t value) {
    const unsigned bytes = bytes_of(value);
    lane_->address_kinds.push_back(static_cast<uint8_t>((bytes - 1) << 3 | mode));
    for (unsigned i = 0; i < bytes; ++i) lane_->address_values.push_back(static_cast<uint8_t>(value >> (8 * i)));
  }

  Lane* lane_ = nullptr;
  SlotTable table_;
  Periods periods_;
  std::vector<Predictor> predictors_;
  std::vector<uint64_t> descriptions_;
  std::vector<uint64_t> first_;
  std::vector<uint32_t> slots_, next_, last_;
};

}  // namespace

struct BlockEncoder::Work {
  std::vector<Lane> lanes;
  std::vector<uint32_t> lane_of;  // by processor; kNone: none in this block
  LaneEncoder encoder;
  Bytes schedule, schedule_values, event_kinds, event_values;
};

BlockEncoder::BlockEncoder() : work_(std::make_unique<Work>()) {
  work_->lane_of.assign(size_t{1} << 16, kNone);
}
BlockEncoder::~BlockEncoder() = default;

void BlockEncoder::encode(uint64_t first, std::span<const Reference> references, std::span<const Event> events,
                          Bytes& out) {
  Work& work = *work_;
  for (Bytes* bytes : {&work.schedule, &work.schedule_values, &work.event_kinds, &work.event_values}) bytes->clear();
  size_t lanes = 0;
  const auto lane_of = [&](ProcessorId processor) {
    uint32_t& lane = work.lane_of[processor];
    if (lane == kNone) {
      lane = static_cast<uint32_t>(lanes++);
      if (work.lanes.size() < lanes) work.lanes.emplace_back();
      Lane& fresh = work.lanes[lane];
      fresh.processor = processor;
      fresh.addresses.clear();
      fresh.descriptions.clear();
      for (Bytes* bytes : {&fresh.table, &fresh.tokens, &fresh.values, &fresh.address_kinds, &fresh.address_values})
        bytes->clear();
    }
    return lane;
  };
  // Two passes: the step from one processor to the next is taken modulo their number.
  for (const Reference& reference : references) {
    Lane& lane = work.lanes[lane_of(reference.processor)];
    lane.addresses.push_back(reference.address);
    lane.descriptions.push_back(description_of(reference));
  }
  uint32_t last = static_cast<uint32_t>(lanes) - 1;
  for (size_t i = 0; i < references.size();) {
    const size_t begin = i;
    while (i < references.size() && references[i].processor == references[begin].processor) ++i;
    const uint32_t lane = work.lane_of[references[begin].processor];
    const auto step = static_cast<unsigned>((lane + lanes - last - 1) % lanes);
    const size_t length = i - begin - 1;
    const unsigned low = std::min(step, kEscape);
    const auto high = static_cast<unsigned>(std::min<size_t>(length, kEscape));
    work.schedule.push_back(static_cast<uint8_t>(high << 4 | low));
    if (low == kEscape) put_varint(work.schedule_values, step - kEscape);
    if (high == kEscape) put_varint(work.schedule_values, length - kEscape);
    last = lane;
  }
  encode_events(first, events, work.event_kinds, work.event_values);

  out.clear();
  put_varint(out, lanes);
  for (size_t i = 0; i < lanes; ++i) {
    Lane& lane = work.lanes[i];
    work.lane_of[lane.processor] = kNone;
    work.encoder.encode(lane);
    put_varint(out, lane.processor);
    put_varint(out, lane.addresses.size());
    put_varint(out, lane.slots);
    for (const Bytes* bytes : {&lane.table, &lane.tokens, &lane.values, &lane.address_kinds, &lane.address_values})
      put_varint(out, bytes->size());
  }
  for (const Bytes* bytes : {&work.schedule, &work.schedule_values, &work.event_kinds, &work.event_values})
    put_varint(out, bytes->size());
  const auto append = [&](const Bytes& bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  // Like with like: zstd does best so.
  for (const Bytes Lane::* stream :
       {&Lane::table, &Lane::tokens, &Lane::values, &Lane::address_kinds, &Lane::address_values})
    for (size_t i = 0; i < lanes; ++i) append(work.lanes[i].*stream);
  for (const Bytes* bytes : {&work.schedule, &work.schedule_values, &work.event_kinds, &work.event_values})
    append(*bytes);
}

// --- Decoding

// A slot. Other slots are named by byte offsets from the processor's first: one addition less for each reference.
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
  // References that are decoded at once. Each takes at most 1 token, 3 numbers of 5 bytes, 1 + 8 bytes of an address:
  // that is what kPadding has to cover, because the ends of the streams are looked at between chunks only.
  static constexpr size_t kChunk = 128;
  static_assert(kChunk * 32 <= kPadding);

  ProcessorId id;
  uint64_t references;  // not yet decoded
  uint32_t slots;
  State* states;
  uint32_t current;  // offset
  uint64_t run;      // predictions that still hold
  unsigned kind;     // what comes after them
  uint64_t previous;
  const uint8_t *tokens, *tokens_end;
  const uint8_t *values, *values_end;
  const uint8_t *address_kinds, *address_kinds_end;
  const uint8_t *address_values, *address_values_end;
  bool corrupt;
  Reference* staging;  // where staged_ points
};

BlockDecoder::BlockDecoder() = default;
BlockDecoder::~BlockDecoder() = default;

namespace {

constexpr uint32_t kStateBytes = 40;

// References of a run that are copied at once; kSlack of the next longer ones.
constexpr size_t kShort = 4;

// A number of a values stream: at most 5 bytes, whatever stands there.
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
    // The first token; what it stands for is checked with the chunk that it begins.
    const unsigned token = processor.tokens == processor.tokens_end ? 0u : *processor.tokens++;
    processor.kind = token & 15;
    processor.run = token >> 4;
    if (processor.run == kLongRun) processor.run += small_varint(processor.values);
  }
  current_ = count == 0 ? 0 : count - 1;
  return open_events(event_kinds, event_values, limits);
}

// Decodes `count` (at most kChunk) references of one processor, which has that many left.
void BlockDecoder::hits_and_misses(Processor& processor, Reference* out, size_t count) {
  char* const states = reinterpret_cast<char*>(processor.states);
  const auto state = [states](uint32_t offset) { return reinterpret_cast<State*>(states + offset); };
  const uint32_t end = processor.slots * kStateBytes;
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

    // A wrong prediction.
    const unsigned kind = processor.kind;
    State* next;
    switch (kind >> 1) {
      case kNext:
        if (kind == 0) {
          processor.corrupt = true;  // the tokens end before the references do
          return;
        }
        next = state(current->next);
        break;
      case kAlternativeOnce:
        next = state(current->alternative);
        break;
      case kAlternative:
        std::swap(current->next, current->alternative);
        next = state(current->next);
        break;
      default: {
        const uint64_t offset = static_cast<uint64_t>(small_varint(processor.values)) * kStateBytes;
        if (offset >= end || kind >= 2 * kChoices) {
          processor.corrupt = true;
          return;
        }
        const auto slot = static_cast<uint32_t>(offset);
        if (kind >> 1 == kExplicitSecond) {
          current->alternative = slot;
        } else if (kind >> 1 == kExplicitFirst) {
          current->alternative = current->next;
          current->next = slot;
        }
        next = state(slot);
      }
    }
    current = next;
    if (kind & 1) {
      const unsigned byte = *processor.address_kinds++;
      const unsigned bits = (byte & 0x38) + 8;
      uint64_t value = get<uint64_t>(processor.address_values) << (64 - bits);
      value = static_cast<uint64_t>(static_cast<int64_t>(value) >> (64 - bits));
      processor.address_values += bits / 8;
      switch (byte & 7) {
        case kFromOwn:
          address = current->address + value;
          break;
        case kFromPrevious:
          address += value;
          break;
        case kFromBase:
          address = state(current->base)->address + value;
          break;
        case kLearnOwn:
          current->base = static_cast<uint32_t>(reinterpret_cast<char*>(current) - states);
          current->delta = value;
          address = current->address + value;
          break;
        case kLearnBase: {
          const uint64_t offset = static_cast<uint64_t>(small_varint(processor.values)) * kStateBytes;
          if (offset >= end) {
            processor.corrupt = true;
            return;
          }
          current->base = static_cast<uint32_t>(offset);
          current->delta = value;
          address = state(current->base)->address + value;
          break;
        }
        default:
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

// The runs that need nothing but copying what is staged, which are most; the first that needs more is left.
inline void BlockDecoder::copy_short_runs(Reference*& out, size_t& count) {
  const size_t processors = processors_.size();
  const uint8_t* at = schedule_.position();
  const uint8_t* const end = schedule_.end();
  size_t current = current_;
  Reference* to = out;
  Reference* const stop = out + count;
  Staged* const of_processor = staged_.data();
  // One run; false if it is none of those.
  const auto copy_run = [&] {
    const unsigned byte = *at, step = byte & 15;
    const size_t length = (byte >> 4) + 1;
    size_t next = current + step + 1;
    next = next >= processors ? next - processors : next;
    if (step == kEscape || length > kEscape || next >= processors) return false;
    Staged& staged = of_processor[next];
    Reference* const from = staged.begin;
    if (length > static_cast<size_t>(staged.end - from)) return false;
    // Without asking how short.
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
  // As many at a time as cannot go beyond what is wanted, however long they are.
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
      if (processor.references == 0) return !(corrupt_ = true);  // the order has more of it than it has
      // Long runs need no detour.
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
