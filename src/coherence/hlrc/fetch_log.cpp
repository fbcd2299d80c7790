#include "coherence/hlrc/fetch_log.h"

#include "coherence/hlrc/words.h"
#include "profile/virtual_time.h"

namespace multigrain::hlrc {

uint64_t FetchLog::capacity() const {
  return words::fetch_log_count(nodes_);
}

uint64_t FetchLog::word_of(size_t node, uint64_t position) const {
  return words::fetch_log_word(nodes_, node, position);
}

FetchLog::FetchLog(Fabric& fabric)
    : fabric_(fabric), nodes_(static_cast<uint16_t>(fabric.nodes())), own_(fabric, !virtual_time::on()) {}

Completion FetchLog::start_append(NodeId home, NoticeRun run, uint64_t& replaced) {
  Written& written = written_[home.value];
  const LockGuard hold(written.lock);
  const uint64_t position = written.end++;
  return fabric_.start_fetch_and_set(home, SegmentId::kWords, word_of(fabric_.self().value, position),
                                     LogEntry::encode(run, position, capacity()), replaced);
}

FetchLogEntry FetchLog::at(uint16_t n, uint64_t position) const {
  return read_fetch_log(own_.load(word_of(n, position)), position, capacity());
}

}  // namespace multigrain::hlrc
