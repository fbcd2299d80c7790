#include "dszoom_driver_mutants.h"

#include <algorithm>
#include <array>
#include <vector>

namespace multigrain::dszoom::explored {

const char* name(Mutant mutant) {
  static constexpr std::array<const char*, static_cast<size_t>(Mutant::kCount)> kNames = {
      "none",
      "all hazards look cleared",
      "gets overtake the atomic that they are behind",
      "no flag value for those who lose a line",
      "the flag value is put, and not waited for",
      "the entry stays locked",
      "the lock of the entry has no effect",
      "a holder's right is not taken",
      "a check stores without a hazard",
      "a check looks at the word, and then publishes",
      "a check leaves its hazard published",
      "a check of a batch looks at one line of two",
      "invalidate without looking at hazards of loads",
      "look at hazards, and then take the right",
      "read the line, and then look at hazards",
      "flag a frame while hazards are published",
      "unlock the entry, and then fill the frame",
      "set the own word, and then fill the frame",
      "store after a miss without a hazard",
      "go on when the entry is locked",
      "a reader does not enter itself",
      "wait with a hazard published",
      "clear the hazard of a right that came ahead, and then read",
      "take along lines that other nodes have",
      "leave entries behind the end of a run locked",
      "unlock entries that another requester has locked",
      "look at hazards over the first line of a run",
      "revoke the right to the first line of a run",
      "rights epochs look as if nothing were cached",
      "of rights epochs that say that nothing is cached, one looks like the other",
      "a check looks at lines, and then says that something is cached",
      "a check reads the rights epoch, and then publishes its hazard",
      "a check looks at one line of a page, and caches both",
      "replace the rights epoch, and do not look at hazards again",
      "trust a rights epoch that is odd, and was known as even before the right was taken",
      "compare the rights epoch with what is known when the look is over",
      "take a look in vain for the first",
      "replace the rights epoch, and then take the right",
  };
  return kNames[static_cast<size_t>(mutant)];
}

namespace {

using Operations = std::vector<Operation>;

void exchange(Operations& operations, Verb first, Verb second) {
  for (size_t i = 0; i + 1 < operations.size(); ++i)
    if (operations[i].verb == first && operations[i + 1].verb == second && operations[i].node == operations[i + 1].node)
      std::swap(operations[i], operations[i + 1]);
}

void move_behind(Operations& operations, Verb what, Verb behind) {
  const auto it = std::ranges::find(operations, what, &Operation::verb);
  const auto target = std::ranges::find(operations, behind, &Operation::verb);
  if (it < target && target != operations.end()) std::rotate(it, it + 1, target + 1);
}

// Flags the frames of nodes that lose the line as soon as the right has been taken, whatever hazards there are.
void flag_early(Operations& operations) {
  const bool invalidates = std::ranges::any_of(
      operations, [](const Operation& o) { return o.verb == Verb::kRevokeRight && o.word == kInvalid; });
  for (size_t i = 0; invalidates && i < operations.size(); ++i) {
    const bool reads = i + 1 < operations.size() && operations[i + 1].verb == Verb::kReadLine;
    if (operations[i].verb != Verb::kScanHazards || reads) continue;
    const NodeId node = operations[i].node;
    operations.insert(operations.begin() + static_cast<ptrdiff_t>(++i), {Verb::kWriteFlags, node});
  }
}

void replace_before_taking(Operations& operations) {
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].verb != Verb::kLock && operations[i].verb != Verb::kRevokeRight) continue;
    const NodeId node = operations[i].node;
    operations.insert(operations.begin() + static_cast<ptrdiff_t>(i++), {Verb::kReplaceEpoch, node});
  }
}

void mutate(Operations& operations) {
  switch (g_mutant) {
    case Mutant::kIgnoresLoadHazards:
      for (Operation& operation : operations) operation.loads = false;
      break;
    case Mutant::kLooksThenTakes:
      exchange(operations, Verb::kRevokeRight, Verb::kScanHazards);
      exchange(operations, Verb::kLock, Verb::kScanHazards);
      break;
    case Mutant::kReadsThenLooks:
      exchange(operations, Verb::kScanHazards, Verb::kReadLine);
      break;
    case Mutant::kFlagsEarly:
      flag_early(operations);
      break;
    case Mutant::kUnlockThenFill:
      move_behind(operations, Verb::kFill, Verb::kUnlock);
      break;
    case Mutant::kOwnThenFill:
      move_behind(operations, Verb::kFill, Verb::kSetOwn);
      break;
    case Mutant::kNoHazardAtEnd:
      std::erase_if(operations, [](const Operation& o) { return o.verb == Verb::kPublishHazard; });
      break;
    case Mutant::kReplacesAlone:
      for (size_t i = 0; i + 1 < operations.size(); ++i)
        if (operations[i].verb == Verb::kReplaceEpoch)
          operations.erase(operations.begin() + static_cast<ptrdiff_t>(i) + 1);
      break;
    case Mutant::kReplacesThenTakes:
      replace_before_taking(operations);
      break;
    default:
      break;
  }
}

}  // namespace

Step mutated(const Step& step) {
  Operations operations(step.begin(), step.end());
  mutate(operations);
  Step made;
  for (const Operation& operation : operations)
    if (operation.verb == Verb::kScanHazards)
      made.scan(operation.node, operation.loads);
    else
      made.add(operation.verb, operation.node, operation.word);
  return made;
}

}  // namespace multigrain::dszoom::explored
