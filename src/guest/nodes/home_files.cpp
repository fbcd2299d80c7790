#include "guest/nodes/home_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/lock_guard.h"
#include "base/own_descriptors.h"
#include "guest/nodes/messages.h"
#include "guest/package.h"

namespace multigrain::guest {

HomeFiles::HomeFiles(Fabric& fabric, const WaitPolicy& policy, const LocalFolders& folders)
    : fabric_(fabric),
      policy_(policy),
      folders_(folders),
      descriptors_(own_descriptors::keep(open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC))) {
  fabric.set_handler(guest_message::kCopyTaken, &HomeFiles::on_answer, this);
}

// A child that shares this process's memory has descriptors of its own.
long HomeFiles::carry_out(Package& package, ThreadBlock& thread, const Asker* asker, std::vector<std::byte>* offer) {
  if (!is_on_.load(std::memory_order_relaxed) || thread.shares_memory) return package.carry_out(thread);
  const DescriptorEffects effects = effects_of(package);
  const CopyUse use = copy_use_of(package);
  const auto number = static_cast<int>(package.arguments()[0]);
  const uint64_t began = begin(effects);
  const long result = package.carry_out(thread);
  end(effects);
  if (result < 0) return result;
  if (effects.kind == DescriptorEffects::Kind::kOpens) {
    remember(static_cast<int>(result), began);
    if (asker != nullptr) offer_copy(static_cast<int>(result), *asker, *offer);
  } else if (use != CopyUse::kNone && asker != nullptr) {
    offer_copy(number, *asker, *offer);
  }
  return result;
}

uint64_t HomeFiles::begin(const DescriptorEffects& effects) {
  if (effects.are_none()) return 0;
  const LockGuard hold(lock_);
  if (effects.uses_offset_of >= 0) {
    if (Number* const number = locked_number(static_cast<unsigned>(effects.uses_offset_of))) ++number->offset_uses;
    const auto file = files_.find(effects.uses_offset_of);
    if (file != files_.end() && (file->second.lessee || effects.adds_number))
      locked_keep_offset(effects.uses_offset_of, file->second);
  }
  if (effects.closes_any()) {
    locked_forget(effects.closes_first, effects.closes_last);
    if (effects.closes_first != effects.closes_last)
      ++range_closes_;
    else if (Number* const number = locked_number(effects.closes_first))
      ++number->closes;
  }
  if (effects.kind == DescriptorEffects::Kind::kShares) locked_begin_sharing();
  if (effects.kind == DescriptorEffects::Kind::kEndsCopies) locked_end();
  return ++now_;
}

void HomeFiles::end(const DescriptorEffects& effects) {
  if (effects.are_none()) return;
  const LockGuard hold(lock_);
  ++now_;
  if (effects.uses_offset_of >= 0)
    if (Number* const number = locked_number(static_cast<unsigned>(effects.uses_offset_of))) --number->offset_uses;
  if (effects.closes_any() && effects.closes_first != effects.closes_last) {
    --range_closes_;
    range_closed_ = now_;
  } else if (effects.closes_any()) {
    if (Number* const number = locked_number(effects.closes_first)) {
      --number->closes;
      number->closed = now_;
    }
  }
  if (effects.kind == DescriptorEffects::Kind::kShares) {
    --shares_;
    shared_ = now_;
  }
}

void HomeFiles::remember(int number, uint64_t began) {
  const LockGuard hold(lock_);
  if (!is_on_.load(std::memory_order_relaxed)) return;
  const Number* const of_number = locked_number(static_cast<unsigned>(number));
  // Another thread may have closed the number since, or be about to (L1).
  if (of_number == nullptr || of_number->closes != 0 || of_number->closed > began || range_closes_ != 0 ||
      range_closed_ > began)
    return;
  File file;
  file.stays = of_number->offset_uses != 0 || shares_ != 0 || shared_ > began;
  const bool is_new = files_.emplace(number, std::move(file)).second;
  MG_CHECK(is_new, static_cast<uint64_t>(number));
}

void HomeFiles::offer_copy(int number, const Asker& asker, std::vector<std::byte>& offer) {
  const LockGuard hold(lock_);
  const auto found = files_.find(number);
  if (found == files_.end()) return;
  File& file = found->second;
  if (std::ranges::any_of(file.copies, [&asker](const Copy& copy) { return copy.asker.node == asker.node; })) return;
  if (!locked_look_up(number, file)) {
    files_.erase(found);
    return;
  }
  CopyOffer offered;
  offered.grant = ++grants_;
  offered.status = file.status;
  offered.number = number;
  offered.folder = file.place->folder;
  offered.path_bytes = static_cast<uint16_t>(file.place->path.size());
  // A call that uses the offset of this number may be under way (L2).
  if (!file.stays && !file.lessee && locked_number(static_cast<unsigned>(number))->offset_uses == 0 && shares_ == 0) {
    const off_t offset = lseek(number, 0, SEEK_CUR);
    if (offset >= 0) {
      offered.has_lease = true;
      offered.offset = static_cast<uint64_t>(offset);
      file.lessee = asker.node;
    }
  }
  file.copies.push_back({.asker = asker, .grant = offered.grant});
  const auto bytes = std::as_bytes(std::span(&offered, 1));
  offer.assign(bytes.begin(), bytes.end());
  const auto path = std::as_bytes(std::span(file.place->path));
  offer.insert(offer.end(), path.begin(), path.end());
}

void HomeFiles::returned(int number, uint64_t grant, std::optional<uint64_t> offset, const Asker& asker) {
  const LockGuard hold(lock_);
  const auto found = files_.find(number);
  if (found == files_.end()) return;
  File& file = found->second;
  // The home may have taken the copy back meanwhile.
  if (std::erase_if(file.copies, [grant](const Copy& copy) { return copy.grant == grant; }) == 0) return;
  if (file.lessee != asker.node) return;
  file.lessee.reset();
  if (offset) lseek(number, static_cast<off_t>(*offset), SEEK_SET);
}

void HomeFiles::begin_sharing(bool shares_table) {
  const LockGuard hold(lock_);
  locked_begin_sharing();
  if (shares_table) locked_end();
}

void HomeFiles::end_sharing() {
  const LockGuard hold(lock_);
  --shares_;
  shared_ = ++now_;
}

void HomeFiles::locked_begin_sharing() {
  ++shares_;
  for (auto& [number, file] : files_) locked_keep_offset(number, file);
}

HomeFiles::Number* HomeFiles::locked_number(unsigned number) {
  if (number >= kNumbers) return nullptr;
  if (number >= numbers_.size()) numbers_.resize(std::min(kNumbers, number * 2 + 64));
  return &numbers_[number];
}

bool HomeFiles::locked_look_up(int number, File& file) {
  if (file.place) return true;
  if (fstat(number, &file.status) != 0 || !S_ISREG(file.status.st_mode)) return false;
  char path[PATH_MAX];
  const auto length = readlinkat(descriptors_, std::to_string(number).c_str(), path, sizeof path);
  if (length <= 0 || static_cast<size_t>(length) == sizeof path) return false;
  file.place = folders_.place_of_real({path, static_cast<size_t>(length)});
  return file.place.has_value();
}

void HomeFiles::locked_take(int number, File& file, Take what) {
  answers_.store(0);
  has_offset_.store(false);
  is_not_there_.store(false);
  unsigned asked = 0;
  {
    PollingScope polling(fabric_);
    for (const Copy& copy : file.copies) {
      if (what == Take::kLease && copy.asker.node != *file.lessee) continue;
      MessageHeader header;
      header.type = guest_message::kTakeCopy;
      header.small = copy.asker.slot;
      header.flags = what == Take::kCopy ? 1 : 0;
      header.extra = static_cast<uint32_t>(number);
      header.word[0] = copy.grant;
      fabric_.send(copy.asker.node, header, SendContext::kOrdinary);
      ++asked;
    }
    wait_until(polling, policy_, changed_, [this, asked] { return answers_.load(std::memory_order_acquire) == asked; });
  }
  if (what == Take::kCopy) return;
  if (has_offset_.load()) lseek(number, static_cast<off_t>(offset_.load()), SEEK_SET);
  // The offer has not arrived there yet, and is void. Otherwise the node keeps the copy without the lease.
  if (is_not_there_.load())
    std::erase_if(file.copies, [&file](const Copy& copy) { return copy.asker.node == *file.lessee; });
  file.lessee.reset();
}

void HomeFiles::locked_keep_offset(int number, File& file) {
  if (file.lessee) locked_take(number, file, Take::kLease);
  file.stays = true;
}

void HomeFiles::locked_forget(unsigned first, unsigned last) {
  if (first > static_cast<unsigned>(INT_MAX)) return;
  auto file = files_.lower_bound(static_cast<int>(first));
  while (file != files_.end() && static_cast<unsigned>(file->first) <= last) {
    if (!file->second.copies.empty()) locked_take(file->first, file->second, Take::kCopy);
    file = files_.erase(file);
  }
}

// The offsets must be the home's before the copies are gone.
void HomeFiles::locked_end() {
  if (!is_on_.exchange(false)) return;
  for (auto& [number, file] : files_) locked_keep_offset(number, file);
  locked_forget(0, INT_MAX);
  answers_.store(0);
  PollingScope polling(fabric_);
  MessageHeader header;
  header.type = guest_message::kTakeCopy;
  header.flags = 2;
  for (unsigned node = 1; node < fabric_.nodes(); ++node)
    fabric_.send(NodeId(static_cast<uint16_t>(node)), header, SendContext::kOrdinary);
  wait_until(polling, policy_, changed_, [this] { return answers_.load() + 1 == fabric_.nodes(); });
}

void HomeFiles::on_answer(void* self, const Message& message) {
  auto& files = *static_cast<HomeFiles*>(self);
  if ((message.header.flags & 1) != 0) {
    files.offset_.store(message.header.word[1]);
    files.has_offset_.store(true);
  }
  if ((message.header.flags & 2) != 0) files.is_not_there_.store(true);
  files.answers_.fetch_add(1, std::memory_order_release);
  files.changed_.notify();
}

}  // namespace multigrain::guest
