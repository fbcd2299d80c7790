#include <fmt/format.h>

#include "sc_world.h"

namespace multigrain::sc::explored {

Machine::Machine(const Scenario& scenario)
    : MachineOf({.nodes = scenario.nodes,
                 .homes = scenario.homes,
                 .processors = scenario.processors,
                 .programs = scenario.programs,
                 .most_faults = kMostFaults}),
      expects_writes_(scenario.expects_writes) {
  for (uint16_t n = 0; n < scenario.nodes; ++n) {
    exploring_pages::NodeOf& node = nodes[n];
    auto driver = Driver::create({*node.fabric, node.memory->region(), node.rights, homes, WaitPolicy{}});
    if (!driver) panic("no driver for a node:", n);
    drivers_[n] = std::move(*driver);
  }
}

void Machine::save(unsigned node, Saved& saved) const {
  saved.resize(sizeof(DriverState::Saved));
  DriverState::Saved all;
  state(node).save(all);
  std::memcpy(saved.data(), &all, sizeof all);
}

void Machine::put_back(unsigned node, const Saved& saved) {
  DriverState::Saved all;
  std::memcpy(&all, saved.data(), sizeof all);
  state(node).put_back(all);
}

std::string Machine::in_words(const exploring_pages::Packet& packet) const {
  return fmt::format("{} for page {} and {} more, requester {}, acks {}", message_name(packet.header.type),
                     packet.header.word[0], packet.header.word[1] - 1, packet.header.small, packet.header.extra);
}

void Machine::carry_out(const Op& op) {
  exploring_pages::Thread& thread = *running;
  if (op.type == OpType::kDiscard) {
    thread.page = kMaxPages;
    if (!driver(thread.node).discard(PageId(op.page), 1)) panic("the driver cannot discard");
  } else {
    state(thread.node).prefetch(op.page, op.value, op.type == OpType::kAskToWrite);
  }
}

World::World(const Scenario& scenario) : exploring_pages::World(std::make_unique<Machine>(scenario)) {
  g_mutant = scenario.mutant;
}

World::~World() {
  g_mutant = Mutant::kNone;
}

const char* name(Mutant mutant) {
  switch (mutant) {
    case Mutant::kNone:
      return "none";
    case Mutant::kNoHold:
      return "a page is taken from a thread that was just granted it";
    case Mutant::kReturningForgotten:
      return "a hold ends before the thread that was granted the page runs";
    case Mutant::kHoldsWhileAsking:
      return "a copy is held while a request is out";
    case Mutant::kAsksWhileToGo:
      return "a copy that is to go causes a request";
    case Mutant::kNoAcknowledgements:
      return "a write is complete before the acknowledgements are there";
    case Mutant::kServedTooEarly:
      return "what is forwarded is served before the request is complete";
    case Mutant::kInvalidationLost:
      return "an invalidation that comes before the data is forgotten";
    case Mutant::kReadersForgotten:
      return "readers are not granted the page when a write is complete";
    case Mutant::kSupplierKeepsRight:
      return "a node that supplies a reader may still write";
    case Mutant::kStaleSupplier:
      return "the home supplies a page of which its copy is to go";
    case Mutant::kDataBeforeRights:
      return "a page is sent, and then rights are taken";
    case Mutant::kAckBeforeRights:
      return "an invalidation is acknowledged, and then rights are taken";
    case Mutant::kMapsBeforeData:
      return "rights are given, and then the page is filled";
    case Mutant::kHoldNotAwaited:
      return "nobody is told that something waits for the end of a hold";
    case Mutant::kListedTwice:
      return "a page is listed though it is in the list";
    case Mutant::kWakesNobody:
      return "readers that wait are not woken";
    case Mutant::kClearsOneCopy:
      return "a page is cleared though other nodes have copies";
    case Mutant::kClearsWhileHeld:
      return "a page is cleared though threads have just been granted it";
    case Mutant::kClearedReadable:
      return "a page is cleared, and threads keep the right to it";
    case Mutant::kDiscardForgotten:
      return "a node that discards is not told of pages that are cleared later";
    case Mutant::kGrantedForgotten:
      return "what is outstanding is given up though a granted thread does not run yet";
    case Mutant::kListForgotten:
      return "what is outstanding is given up though the page is in the list";
    case Mutant::kUnlikeInRun:
      return "what one page of a run asks for is done for all";
    case Mutant::kUnlikeRightsInRun:
      return "the rights of one page of a run are taken for those of all";
    case Mutant::kRunUnlockedEarly:
      return "a run's pages are unlocked, and then what they ask for is done";
    case Mutant::kOnePageOfRun:
      return "only the first page of a run is fetched";
    case Mutant::kOpensWhatIsNotHere:
      return "a prefetched page is mapped though it is not here";
    case Mutant::kReaderNotGranted:
      return "readers that were expected to write are not granted the page";
    case Mutant::kGrantSeenLate:
      return "a thread looks at the grants after it has let go of the page";
    case Mutant::kCount:
      break;
  }
  return "?";
}

}  // namespace multigrain::sc::explored
