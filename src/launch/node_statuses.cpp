#include "launch/node_statuses.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/file_descriptor.h"
#include "launch/limits.h"
#include "report/crash_report.h"

namespace multigrain {

NodeStatuses::~NodeStatuses() {
  for (const NodeStatus* const status : statuses_) unmap_node_status(const_cast<NodeStatus*>(status));
}

Result<int> NodeStatuses::open_next() {
  const FileSizes sizes;
  const auto created = create_node_status();
  if (!created) return fail("{}{}", created.error().message, sizes.advice());
  FileDescriptor fd(*created);
  const auto mapped = map_node_status(fd.get());
  if (!mapped) return tl::unexpected<Error>(mapped.error());
  statuses_.push_back(*mapped);
  FileDescriptor kept(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!kept.is_open()) return fail_errno(errno, "cannot keep the memory in which a node says what it does");
  kept_.push_back(std::move(kept));
  return fd.release();
}

const NodeStatus* NodeStatuses::status_of(NodeId node) const {
  const size_t place = size_t{node.value} - first_.value;
  return place < statuses_.size() ? statuses_[place] : nullptr;
}

std::string NodeStatuses::last_words(NodeId node) const {
  const NodeStatus* const status = status_of(node);
  if (status == nullptr) return {};
  std::string text = describe_mistake(*status, statuses_);
  return text.empty() ? describe_crash(*status, statuses_) : text;
}

bool NodeStatuses::run_is_over(NodeId node) const {
  const NodeStatus* const status = status_of(node);
  return status != nullptr && status->run_over.load() != 0;
}

Stillness NodeStatuses::stillness() const {
  Stillness all{.still = true};
  for (const NodeStatus* const status : statuses_) {
    const Stillness one = stillness_of(*status);
    if (!one.still) return {};
    all.anyone = all.anyone || one.anyone;
    all.outside = all.outside || one.outside;
    all.digest = all.digest * 31 + one.digest;
  }
  return all;
}

std::vector<NodeSnapshot> NodeStatuses::snapshots() const {
  std::vector<NodeSnapshot> result;
  for (size_t i = 0; i < pids_.size(); ++i) {
    result.push_back(take_snapshot(*statuses_[i], pids_[i], statuses_));
    result.back().node = first_.value + static_cast<unsigned>(i);
  }
  return result;
}

}  // namespace multigrain
