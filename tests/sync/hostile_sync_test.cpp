// Locks, barriers and the other objects get messages here that no correct node sends.
#include "../fabric/hostile.h"
#include "sync/messages.h"
#include "sync/sync.h"

namespace multigrain::testing {
namespace {

constexpr unsigned kNodes = 3;
constexpr unsigned kProcessors = 2;

class Quiet final : public SyncHost {
 public:
  void release() override {}
  [[nodiscard]] const WaitPolicy& wait_policy() const override { return policy_; }
  void enter(SyncActivity) override {}
  void leave() override {}

 private:
  WaitPolicy policy_;
};

// This is a node that has used some objects, and has handles of all kinds that other nodes may name.
struct Node {
  explicit Node(NodeId self) : fabric(self, kNodes), sync(host, fabric, kNodes, kProcessors, options()) {
    const SyncId lock = sync.lock_create();
    (void)sync.trylock(lock);  // the lock stays held if it could be taken without another node
    sync.flag_set(sync.flag_create(), 7);
    sync.sem_post(sync.sem_create(0));
    handles = {lock,
               sync.lock_create(),
               sync.barrier_create(0),
               sync.barrier_create(3),
               sync.barrier_create(1),
               sync.cond_create(),
               sync.cond_create(),
               sync.sem_create(0),
               sync.sem_create(UINT32_MAX),
               sync.flag_create()};
  }
  static SyncOptions options() {
    SyncOptions options;
    options.max_locks = 64;
    options.max_others = 64;
    return options;
  }
  Quiet host;
  HostileFabric fabric;
  Sync sync;
  std::vector<SyncId> handles;
};

SyncKind kind_for(MessageType type, uint8_t call, std::mt19937_64& random) {
  if (type <= sync_message::kLockBusy) return SyncKind::kLock;
  if (type <= sync_message::kBarrierDepart) return SyncKind::kBarrier;
  if (type == sync_message::kRecycle) return static_cast<SyncKind>(1 + random() % 5);
  if (call <= static_cast<uint8_t>(ServerCall::kCondBroadcast)) return SyncKind::kCond;
  return call <= static_cast<uint8_t>(ServerCall::kSemPost) ? SyncKind::kSem : SyncKind::kFlag;
}

// Makes a message that might be right: a known type, an object of its kind, small numbers.
MessageHeader plausible(const Node& node, std::mt19937_64& random) {
  MessageHeader header;
  header.type = static_cast<MessageType>(sync_message::kLockRequest +
                                         random() % (sync_message::kEnd - sync_message::kLockRequest));
  header.flags = static_cast<uint8_t>(random() % 9);
  header.small = static_cast<uint16_t>(random() % 4);
  header.extra = static_cast<uint32_t>(random() % 3);
  const SyncKind kind = kind_for(header.type, header.flags, random);
  std::vector<SyncId> fitting;
  for (const SyncId id : node.handles)
    if (SyncHandle::decode(id).kind == static_cast<uint8_t>(kind)) fitting.push_back(id);
  SyncHandle handle = SyncHandle::decode(fitting[random() % fitting.size()]);
  // Objects of other nodes look the same but for their creator.
  if (random() % 2 == 0) handle.creator = NodeId(static_cast<uint16_t>(random() % kNodes));
  header.word[0] = handle.encode().value;
  return header;
}

TEST(HostileSync, AcceptsOrEndsWithASentence) {
  const HostileCounts counts = run_trials(400, [](std::mt19937_64& random) {
    Node node(NodeId(0));
    for (int i = 0; i < 60; ++i) {
      MessageHeader header = plausible(node, random);
      if (random() % 8 == 0) damage(header, random);
      node.fabric.deliver(NodeId(static_cast<uint16_t>(1 + random() % (kNodes - 1))), header);
    }
  });
  EXPECT_GT(counts.ended, 200u);
}

TEST(HostileSync, SequencesOfOneTypeAtATime) {
  // The first refusal ends a trial, so a type that is nearly always refused is tried alone.
  HostileCounts all;
  for (MessageType type = sync_message::kLockRequest; type != sync_message::kEnd; ++type) {
    const HostileCounts counts = run_trials(40, [type](std::mt19937_64& random) {
      Node node(NodeId(0));
      for (int i = 0; i < 20; ++i) {
        MessageHeader header = plausible(node, random);
        header.type = type;
        if (random() % 4 == 0) damage(header, random);
        node.fabric.deliver(NodeId(static_cast<uint16_t>(1 + random() % (kNodes - 1))), header);
      }
    });
    all.accepted += counts.accepted;
    all.ended += counts.ended;
  }
  EXPECT_GT(all.ended, 100u);
}

}  // namespace
}  // namespace multigrain::testing
