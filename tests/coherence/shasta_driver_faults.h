// Where Shasta's driver is explored, what it stands on may have these deliberate faults.
#pragma once

#include <array>
#include <cstdint>

namespace multigrain::shasta::explored {

// These are faults of what the driver stands on, and of compiled checks. Faults of the driver itself are made in its
// source (shasta_driver_mutants.cmake), and have the numbers that follow.
enum class Fault : uint8_t {
  kNone,
  kSeesNoHazards,       // the driver finds no hazard
  kMessagesOvertake,    // of two messages between two nodes the later one may be handled first
  kServiceIsNotWoken,   // Fabric::wake_service() has no effect
  kStoreWithoutHazard,  // compiled checks look at the word, and store
  kLookThenPublish,     // compiled checks look at the word, and then publish the hazard
  kCount
};
[[nodiscard]] const char* name(Fault fault);

// Under Mutant::kTouchedBeforeLock this is what the handler that has the lock of a node's driver had found before it
// took the lock. It belongs to the node's memory.
enum class Found : uint8_t { kNothing, kTouched, kUntouched };
inline std::array<Found, 8> found_touched{};

}  // namespace multigrain::shasta::explored
