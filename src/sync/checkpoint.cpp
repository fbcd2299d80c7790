// What a checkpoint keeps of synchronisation objects, and puts back in a later run.
#include "sync/sync.h"

namespace multigrain {

SyncImage Sync::image() {
  SyncImage image;
  for (unsigned k = 0; k < kSyncKinds; ++k) image.sources[k] = source_of(static_cast<SyncKind>(k + 1)).image();
  const auto in_use = [&](SyncKind kind) {
    return HandleSource::in_use(image.sources[static_cast<unsigned>(kind) - 1]);
  };
  for (const HandleSource::Index index : in_use(SyncKind::kSem)) {
    ServerRecord& record = sems_[size_t{self_.value} * (sems_.size() / nodes_) + index.value];
    record.guard.lock();
    const uint32_t value = record.state.value();
    record.guard.unlock();
    image.semaphores.push_back({index.value, value});
  }
  for (const HandleSource::Index index : in_use(SyncKind::kFlag)) {
    const uint32_t value = flag_get(SyncHandle{.kind = static_cast<uint8_t>(SyncKind::kFlag),
                                               .generation = index.generation,
                                               .creator = self_,
                                               .argument = 0,
                                               .index = index.value}
                                        .encode());
    if (value != 0) image.flags.push_back({index.value, value});
  }
  return image;
}

Status Sync::restore(const SyncImage& image) {
  for (unsigned k = 0; k < kSyncKinds; ++k)
    if (!source_of(static_cast<SyncKind>(k + 1)).restore(image.sources[k]))
      return fail("the checkpoint's list of synchronisation objects makes no sense");
  const auto generation = [&](SyncKind kind, uint32_t index) -> std::optional<uint8_t> {
    const auto& generations = image.sources[static_cast<unsigned>(kind) - 1].generation;
    if (index >= generations.size()) return std::nullopt;
    return static_cast<uint8_t>(generations[index]);
  };
  for (const SyncImage::Value& semaphore : image.semaphores) {
    const auto known = generation(SyncKind::kSem, semaphore.index);
    if (!known) return fail("the checkpoint has the value of a semaphore that there is not");
    ServerRecord& record = sems_[size_t{self_.value} * (sems_.size() / nodes_) + semaphore.index];
    record.guard.lock();
    record.generation = *known;
    record.state = ServerState::initial(semaphore.value);
    record.guard.unlock();
  }
  for (const SyncImage::Value& flag : image.flags) {
    const auto known = generation(SyncKind::kFlag, flag.index);
    if (!known) return fail("the checkpoint has the value of a flag that there is not");
    flag_set(SyncHandle{.kind = static_cast<uint8_t>(SyncKind::kFlag),
                        .generation = *known,
                        .creator = self_,
                        .argument = 0,
                        .index = flag.index}
                 .encode(),
             flag.value);
  }
  return {};
}

}  // namespace multigrain
