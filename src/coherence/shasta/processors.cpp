#include "coherence/shasta/processors.h"

#include "base/error.h"

namespace multigrain::shasta {

bool StoreQueue::has_waiting() const {
  for (size_t i = 0; i < size_; ++i)
    if (entries_[i].waits) return true;
  return false;
}

bool StoreQueue::masks(BlockId block) const {
  for (size_t i = 0; i < size_; ++i)
    if (entries_[i].block == block && !entries_[i].waits) return true;
  return false;
}

size_t StoreQueue::find(BlockId block) const {
  size_t i = 0;
  while (i < size_ && entries_[i].block != block) ++i;
  return i;
}

void StoreQueue::push(Entry entry) {
  MG_CHECK(!full());
  entries_[size_++] = entry;
}

void StoreQueue::erase(size_t i) {
  MG_CHECK(i < size_);
  for (; i + 1 < size_; ++i) entries_[i] = entries_[i + 1];
  entries_[--size_] = {};
}

uint64_t FenceEpochs::begin() {
  ++counts_[current_ % kCapacity];
  return current_;
}

void FenceEpochs::end(uint64_t epoch) {
  MG_CHECK(epoch >= oldest_ && epoch <= current_ && counts_[epoch % kCapacity] > 0, epoch);
  --counts_[epoch % kCapacity];
  retire();
}

uint64_t FenceEpochs::fence() {
  // If nothing counts in the current epoch, earlier epochs may still count, which fences of other processors have
  // ended.
  if (counts_[current_ % kCapacity] == 0) return current_ - 1;
  MG_CHECK(current_ + 1 - oldest_ < kCapacity);
  return current_++;
}

void FenceEpochs::retire() {
  while (oldest_ < current_ && counts_[oldest_ % kCapacity] == 0) ++oldest_;
}

}  // namespace multigrain::shasta
