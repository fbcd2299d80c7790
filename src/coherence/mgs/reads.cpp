// A part of the driver: pages that a node reads by itself, and the words by which their homes allow that (page_words.h).
//
// The requester does what DSZOOM's does: it changes a word of the directory by a remote atomic, and reads the data. It
// takes no lock of the home, because the home closes the word before any event of which a reader would have to hear.
//
//  O1  A word is open only if the server is in state READ or WRITE, all that its last round has brought is in the home
//      copy, and no thread of the home is in the middle of an event of the page.
//  O2  The directory of readers is read_dir and the bits of the open word. Before every event the home closes the word,
//      and moves the bits into read_dir: so the event finds all readers. Behind it the home opens the word, without bits.
//  O3  A node adds its bit before it reads. If the word was open, the node has been in the directory since before it
//      read: every round that begins later sends it INV, or has it among those that it does not concern. If the word was
//      closed, the bit means nothing, the node does not use what it has read, and asks the home.
//  O4  A node adds its bit once between two closings: its page is not INV then, or it is in the middle of this, up to an
//      INV, which the home sends only if it has found the bit. And once to a word that is closed: it asks the home then,
//      and has no copy before the home has opened the word, which overwrites the bit. So no bit is ever carried over.
//  O5  INV may come before the read has ended. The page is not mapped, so it is answered at once; what has been read is
//      dropped then, and the node asks the home. So a read is made at most once by each fault, and always ends.
#include "base/steps.h"
#include "coherence/mgs/driver.h"
#include "coherence/mgs/page_words.h"
#include "profile/this_thread.h"
#include "profile/virtual_time.h"

namespace multigrain::mgs {

// --- The home

void Driver::close(PageId page, Record& record) {
  if (!record.is_open) return;
  record.is_open = false;
  const PageWord word(words_.exchange(PageWord::at(page), PageWord::kClosed), self_);
  if (!word.is_open() || !on_readers(record.page, context(record), word.readers()))
    panic("the word of a page has been changed by a node that cannot have read the page (page, word)", page.value,
          word.value());
}

// What a reader has added to a closed word is overwritten: the reader asks by message.
void Driver::open(PageId page, Record& record) {
  if (!options_.reads_one_sided || record.home() != self_ || !may_be_read(record.page)) return;
  words_.exchange(PageWord::at(page), PageWord::bit(self_));
  record.is_open = true;
}

// --- The requester

bool Driver::fetch(Fetch& fetch, std::optional<PollingScope>& polling) {
  read(fetch);
  bool is_here = false;
  const MessageBatch batch(services_.fabric);
  for (uint32_t i = 0, next; i < fetch.size(); i = next) {
    if (!fetch[i].is_open()) {
      ask(fetch, i, polling);
      next = i + 1;
      continue;
    }
    next = fetch.end_of_run(i);
    const bool has_first = finish(fetch, i, next - i, polling);
    is_here = is_here || (i == 0 && has_first);
  }
  return is_here;
}

// Adds this node's bit to the words of all pages, and then reads those whose words were open: consecutive pages of one
// home by one operation. It does not begin to read before it knows that: while a word is closed, the home may have yet to
// take this node's last copy, which 1WDATA says is in the frame.
void Driver::read(Fetch& fetch) {
  Fabric& fabric = services_.fabric;
  const CategoryScope waiting(this_profile(), Category::kDataWait);
  for (uint32_t i = 0; i < fetch.size(); ++i) {
    Fetch::Part& part = fetch[i];
    part.added =
        fabric.start_fetch_add(part.home, SegmentId::kPages, PageWord::at(part.page), PageWord::bit(self_), part.word);
  }
  for (uint32_t i = 0; i < fetch.size(); ++i) fabric.wait(fetch[i].added);
  std::array<Completion, Fetch::kMostPages> gets;
  uint32_t started = 0;
  uint64_t pages = 0;
  for (uint32_t i = 0, next; i < fetch.size(); i = next) {
    next = fetch.end_of_run(i);
    if (!fetch[i].is_open()) continue;
    const Fetch::Part& first = fetch[i];
    gets[started++] = fabric.start_get(first.home, SegmentId::kFrames, offset(first.page),
                                       {frame(first.page), (next - i) * page_size_});
    pages += next - i;
  }
  for (uint32_t i = 0; i < started; ++i) fabric.wait(gets[i]);
  this_profile().count(Counter::kPagesFetched, pages);
}

// Makes the transitions of `count` consecutive pages that have been read, and maps them by one call. Returns whether the
// first one is here; it is not if INV has come meanwhile. Without thread safety analysis: it holds the locks of all of
// them.
bool Driver::finish(const Fetch& fetch, uint32_t first, uint32_t count,
                    std::optional<PollingScope>& polling) MG_NO_THREAD_SAFETY_ANALYSIS {
  std::array<bool, Fetch::kMostPages> is_here;
  for (uint32_t i = 0; i < count; ++i) {
    const PageId page = fetch[first + i].page;
    Record& record = records_[page.value];
    MULTIGRAIN_LOCK_STEP(record.lock);
    record.lock.lock();
    Actions actions;
    virtual_time::spend(&MachineCosts::transition);
    on_fetched(record.page, context(record), actions);
    is_here[i] = record.page.client.phase == Phase::kIdle;
    record.readable = is_here[i];
    if (is_here[i]) continue;
    if (first + i == 0 && !polling) polling.emplace(services_.fabric);
    perform(page, record, actions, nullptr);
  }
  for (uint32_t i = 0, next; i < count; i = next) {
    next = i + 1;
    if (!is_here[i]) continue;
    while (next < count && is_here[next]) ++next;
    grant_read(fetch[first + i].page, next - i);
  }
  for (uint32_t i = count; i-- > 0;) {
    Record& record = records_[fetch[first + i].page.value];
    if (is_here[i]) record.changed.notify();
    record.lock.unlock();
  }
  return is_here[0];
}

// The home's word was closed.
void Driver::ask(const Fetch& fetch, uint32_t which, std::optional<PollingScope>& polling) {
  const PageId page = fetch[which].page;
  Record& record = records_[page.value];
  Actions actions;
  MULTIGRAIN_LOCK_STEP(record.lock);
  const LockGuard hold(record.lock);
  if (which == 0 && !polling) polling.emplace(services_.fabric);
  virtual_time::spend(&MachineCosts::transition);
  on_refused(record.page, context(record), actions);
  perform(page, record, actions, nullptr);
}

}  // namespace multigrain::mgs
