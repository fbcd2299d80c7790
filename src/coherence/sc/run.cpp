#include "coherence/sc/run.h"

#include <algorithm>
#include <utility>

namespace multigrain::sc {

Actions& Driver::Run::next() {
  lists_[1 - current_].clear();
  return lists_[1 - current_];
}

void Driver::Run::add(PageId page, Record& record) MG_NO_THREAD_SAFETY_ANALYSIS {
  const Actions& asked = lists_[1 - current_];
  if (asked.empty()) {
    record.lock.unlock();
    return;
  }
  const bool is_alike = count_ != 0 && count_ < driver_.most_pages_of_run() && page.value == first_.value + count_ &&
                        record.right == right_ && record.is_prefetched == is_prefetched_ &&
                        record.for_reader == for_reader_ && std::ranges::equal(asked, lists_[current_]);
  if (is_alike) {
    ++count_;
    return;
  }
  finish();
  current_ = 1 - current_;
  first_ = page;
  count_ = 1;
  right_ = record.right;
  is_prefetched_ = record.is_prefetched;
  for_reader_ = record.for_reader;
}

void Driver::Run::finish() MG_NO_THREAD_SAFETY_ANALYSIS {
  if (count_ == 0) return;
  driver_.perform(first_, count_, lists_[current_], message_);
  for (uint32_t i = std::exchange(count_, 0); i-- > 0;) driver_.records_[PageId(first_.value + i)].lock.unlock();
}

}  // namespace multigrain::sc
