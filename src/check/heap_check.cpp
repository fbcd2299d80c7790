#include "check/heap_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/lock_guard.h"

namespace multigrain::check {
namespace {

size_t filled(const BlockRecord& record) {
  return std::min<size_t>(record.size, kMostFilled);
}

std::string bytes_from_to(size_t first, size_t last) {
  return first == last ? fmt::format("byte {}", first) : fmt::format("bytes {} to {}", first, last);
}

uint64_t number(const void* block) {
  return reinterpret_cast<uint64_t>(block);
}
std::byte* at(void* block, size_t offset) {
  return static_cast<std::byte*>(block) + offset;
}
const std::byte* at(const void* block, size_t offset) {
  return static_cast<const std::byte*>(block) + offset;
}

}  // namespace

BlockRecord HeapCheck::record_of(const void* block, size_t usable) const {
  BlockRecord record;
  if (usable >= kTail + kLeastRedzone) access_.load(at(block, usable - kTail), sizeof record, &record);
  return record;
}

void HeapCheck::made(void* block, size_t size, size_t usable, uint64_t site, uint32_t processor) {
  BlockRecord record{.block = number(block), .size = size, .made_at = site, .made_by = processor};
  record.seal();
  access_.fill(at(block, size), kRedzoneByte, usable - kTail - size);
  access_.store(at(block, usable - kTail), sizeof record, &record);
  access_.fill(at(block, usable - kGuardBehindRecord), kRedzoneByte, kGuardBehindRecord);
  const LockGuard hold(lock_);
  made_[block] = usable;
}

size_t HeapCheck::size_of(const void* block, size_t usable) const {
  const BlockRecord record = record_of(block, usable);
  return record.is_intact(number(block), usable) ? record.size : usable;
}

std::string HeapCheck::describe(const BlockRecord& record) {
  std::string text = fmt::format("the block of {} bytes at {:#x} was allocated by processor {} at {}", record.size,
                                 record.block, record.made_by, findings_.line_of(record.made_at));
  if (record.state == BlockRecord::State::kFreed)
    text += fmt::format("\n  and freed by processor {} at {}", record.freed_by, findings_.line_of(record.freed_at));
  return text;
}

std::string HeapCheck::found(const When& when) {
  return !when.text.empty()
             ? std::string(when.text)
             : fmt::format("when processor {} freed the block at {}", when.processor, findings_.line_of(when.site));
}

std::string HeapCheck::watch(uint64_t address) {
  return fmt::format(
      "which instruction it was is not seen by pages; gdb stops there, since addresses are the same in each run: "
      "watch *(char *){:#x}",
      address);
}

void HeapCheck::look_behind(void* block, size_t usable, const BlockRecord& record, const When& when) {
  const uint64_t address = number(block);
  if (!record.is_intact(address, usable)) {
    const std::string known = findings_.block_of(address);
    findings_.add(
        fmt::format("a write beyond the end of a block: what --check keeps behind it was overwritten\n"
                    "  {}\n  found {}\n  {}",
                    known.empty() ? fmt::format("the block is at {:#x}", address) : "it begins at " + known,
                    found(when), watch(address + usable - kTail)));
    return;
  }
  const size_t length = usable - kTail - record.size;
  std::vector<uint8_t> redzone(length);
  access_.load(at(block, record.size), length, redzone.data());
  if (const auto damage = find_damage(redzone, kRedzoneByte)) {
    findings_.add(
        fmt::format("a write beyond the end of a block: {} of it, which has {} bytes, changed\n  {}\n  found {}\n  {}",
                    bytes_from_to(record.size + damage->first, record.size + damage->last), record.size,
                    describe(record), found(when), watch(address + record.size + damage->first)));
    return;
  }
  std::vector<uint8_t> guard(kGuardBehindRecord);
  access_.load(at(block, usable - kGuardBehindRecord), guard.size(), guard.data());
  if (const auto damage = find_damage(guard, kRedzoneByte)) {
    const size_t before = kGuardBehindRecord - damage->last;
    findings_.add(fmt::format(
        "a write before the beginning of a block, or far beyond the end of another: memory {} byte{} before {:#x} changed\n"
        "  before that address {}\n  found {}\n  {}",
        before, before == 1 ? "" : "s", address + usable, describe(record), found(when),
        watch(address + usable - before)));
  }
}

bool HeapCheck::freed(void* block, size_t usable, uint64_t site, uint32_t processor) {
  BlockRecord record = record_of(block, usable);
  if (record.is_intact(number(block), usable) && record.state == BlockRecord::State::kFreed) {
    findings_.add(fmt::format("mg_free of a block that was freed before, by processor {} at {}\n  {}", processor,
                              findings_.line_of(site), describe(record)));
    return false;
  }
  const bool is_intact = record.is_intact(number(block), usable);
  look_behind(block, usable, record, {.site = site, .processor = processor});
  if (!is_intact) record = {.block = number(block), .size = usable - kTail - kLeastRedzone};
  record.freed_at = site;
  record.freed_by = processor;
  record.state = BlockRecord::State::kFreed;
  record.seal();
  // What was told is not told again.
  access_.fill(at(block, record.size), kRedzoneByte, usable - kTail - record.size);
  access_.fill(at(block, usable - kGuardBehindRecord), kRedzoneByte, kGuardBehindRecord);
  access_.fill(block, kFreedByte, filled(record));
  access_.store(at(block, usable - kTail), sizeof record, &record);
  const LockGuard hold(lock_);
  made_.erase(block);
  quarantine_.push_back({block, usable, record});
  bytes_ += usable;
  return true;
}

void HeapCheck::freed_no_block(const void* pointer, uint64_t site, uint32_t processor) {
  std::string inside;
  for (const auto& [block, usable] : blocks_made()) {
    const uint64_t offset = number(pointer) - number(block);
    if (offset >= usable) continue;
    const BlockRecord record = record_of(block, usable);
    if (record.is_intact(number(block), usable))
      inside = fmt::format("\n  it points to byte {} of a block; {}", offset, describe(record));
  }
  findings_.add(fmt::format("mg_free of {:#x}, which is no block, by processor {} at {}{}", number(pointer), processor,
                            findings_.line_of(site), inside));
}

bool HeapCheck::is_full() {
  const LockGuard hold(lock_);
  return bytes_ > kMostBytes || quarantine_.size() > kMostBlocks;
}

std::vector<void*> HeapCheck::let_go(bool all) {
  std::vector<Quarantined> taken;
  {
    const LockGuard hold(lock_);
    while (!quarantine_.empty() && (all || bytes_ > kMostBytes / 2 || quarantine_.size() > kMostBlocks / 2)) {
      taken.push_back(quarantine_.front());
      bytes_ -= taken.back().usable;
      quarantine_.pop_front();
    }
  }
  std::vector<void*> blocks;
  for (const Quarantined& one : taken) {
    look_at_freed(one, {.text = "when the block's memory was to be used again"});
    blocks.push_back(one.block);
  }
  return blocks;
}

void HeapCheck::look_at_freed(const Quarantined& one, const When& when) {
  std::vector<uint8_t> bytes(filled(one.record));
  access_.load(one.block, bytes.size(), bytes.data());
  if (const auto damage = find_damage(bytes, kFreedByte)) {
    findings_.add(fmt::format("a write to a freed block: {} of it changed after it was freed\n  {}\n  found {}\n  {}",
                              bytes_from_to(damage->first, damage->last), describe(one.record), found(when),
                              watch(one.record.block + damage->first)));
    return;
  }
  const BlockRecord now = record_of(one.block, one.usable);
  if (std::memcmp(&now, &one.record, sizeof now) == 0) return look_behind(one.block, one.usable, now, when);
  findings_.add(
      fmt::format("a write to a freed block, beyond its end: what --check keeps behind it changed after it was freed\n"
                  "  {}\n  found {}\n  {}",
                  describe(one.record), found(when), watch(one.record.block + one.usable - kTail)));
}

void HeapCheck::look_at_live(void* block, size_t usable) {
  const BlockRecord record = record_of(block, usable);
  if (record.is_intact(number(block), usable) && record.state == BlockRecord::State::kFreed) return;
  look_behind(block, usable, record, kAtTheEnd);
}

HeapCheck::Made HeapCheck::blocks_made() {
  const LockGuard hold(lock_);
  return made_;
}

std::deque<HeapCheck::Quarantined> HeapCheck::quarantined() {
  const LockGuard hold(lock_);
  return quarantine_;
}

}  // namespace multigrain::check
