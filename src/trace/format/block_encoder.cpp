#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "trace/format/block_codec.h"
#include "trace/format/block_tokens.h"

namespace multigrain::trace {

using namespace block_tokens;

namespace {

unsigned bytes_of(uint64_t value) {
  // The number is sign-extended, so it takes one bit more than its magnitude.
  const uint64_t magnitude = value ^ (0 - (value >> 63));
  const unsigned bits = 65 - static_cast<unsigned>(std::countl_zero(magnitude));
  return (bits + 7) / 8;
}

uint64_t description_of(const Reference& reference) {
  uint64_t description;
  std::memcpy(&description, reinterpret_cast<const char*>(&reference) + 8, 8);
  return description;
}

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

// These are the slots of one processor by description.
class SlotTable {
 public:
  void clear() {
    slots_ = 0;
    entries_.assign(64, {0, kNone});
  }
  // Returns the slot, and whether it is new.
  std::pair<uint32_t, bool> find(uint64_t description) {
    if (2 * (slots_ + 1) > entries_.size()) grow();
    Entry& entry = place(description);
    const bool fresh = entry.slot == kNone;
    if (fresh) entry = {description, slots_++};
    return {entry.slot, fresh};
  }
  // Returns the slot, or kNone.
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

// One site is often several instructions: a line of the source with several accesses to memory. Each of them should
// have a slot of its own, with its own stride. Their place in a stretch of references with the same description tells
// them apart: the index in the stretch modulo a period. The period is found from the first references of a block.
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
  // Returns the count of a description; 1 if it did not occur.
  [[nodiscard]] unsigned of(uint64_t description) {
    const uint32_t index = table_.look_up(description);
    return index == kNone ? 1 : period_[index];
  }

 private:
  static constexpr size_t kSample = 4096;
  struct Last {
    uint64_t address, stride, step;
  };

  // Counts for each description how many references continue a stride of their own, or a step from the reference
  // before.
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
      // More slots take more bytes, and must be worth these.
      const unsigned gain = hits_[index] - std::min(hits_[index], 8 * period);
      if (period == 1 || gain > best_[index] + best_[index] / 16) {
        best_[index] = period == 1 ? hits_[index] : gain;
        period_[index] = period;
      }
    }
  }

  SlotTable table_;
  std::vector<uint32_t> index_;  // for each reference, the index of its description
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

// These are one processor's references of the block, and what becomes of them.
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
  // This says how far a choice is followed into the future, in occurrences of the slot and in references before each.
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
      // All references here are one processor's, so the phase can take the place of the processor in the description.
      const uint64_t description = (last & ~(uint64_t{0xffff} << 32)) | static_cast<uint64_t>(phase) << 32;
      // Most often this is the slot that followed the last time.
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

  // next_[i] is where slots_[i] occurs next.
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
    // Looks how soon `current` will be followed by this slot again.
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

  // Returns how many of the next occurrences after i `base` + `delta` predicts, up to the first that it does not.
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
        while (from > stop) {
          --from;
          if (slots_[from] == base) break;
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
        // A prediction starts from the base's last occurrence before this reference, so only that one counts.
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
  std::vector<uint32_t> lane_of;  // by processor; kNone: it has no references in this block
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
  // There are two passes, because the step from one processor to the next is taken modulo their number.
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
    // If there are references, there are lanes, but the analyzer does not see that.
    const auto step =
        static_cast<unsigned>((lane + lanes - last - 1) % lanes);  // NOLINT(clang-analyzer-core.DivideZero)
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
  // Like stands with like, because zstd does best so.
  for (const Bytes Lane::* const stream :
       {&Lane::table, &Lane::tokens, &Lane::values, &Lane::address_kinds, &Lane::address_values})
    for (size_t i = 0; i < lanes; ++i) append(work.lanes[i].*stream);
  for (const Bytes* bytes : {&work.schedule, &work.schedule_values, &work.event_kinds, &work.event_values})
    append(*bytes);
}

}  // namespace multigrain::trace
