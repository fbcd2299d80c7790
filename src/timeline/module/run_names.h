// Names what the events of a time line are about: lines of the program, blocks of shared memory, objects of synchronisation.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "report/symbols.h"
#include "status/node_status.h"
#include "timeline/module.h"

namespace multigrain::timeline {

// Returns, for instance, "data wait" or "user".
std::string category_name(uint8_t category);
// Returns, for instance, "barrier".
std::string call_name(uint8_t call);
// Returns, for instance, "processor 3" or "service of node 1".
std::string track_name(const WrittenTrack& track);

// The names of a run whose program this process is. Each is looked up once.
class RunNames {
 public:
  explicit RunNames(const NodeStatus& own);
  // Returns what a message's type is called.
  [[nodiscard]] static std::string message(const WrittenRun& run, uint8_t type);
  // Returns, for instance, "write fault: 4096 bytes of sor.c:52".
  std::string fault(const Event& event);
  // Returns, for instance, "relax at sor.c:17", of an instruction or of a call that returns to the address.
  const std::string& instruction(uint64_t address);
  const std::string& call(uint64_t return_address);
  // Returns, for instance, "4096 bytes of sor.c:52", of the block that has the address; "shared memory" if none is known.
  const std::string& block(uint64_t address);
  // Returns, for instance, "lock of water.c:31"; the object's number, if it is not known where it was made.
  const std::string& object(uint8_t call, uint64_t handle);

 private:
  const NodeStatus& own_;
  Symbols symbols_;
  std::map<uint64_t, std::string> instructions_;
  std::map<uint64_t, std::string> calls_;
  std::map<uint64_t, std::string> blocks_;  // by the page of 4 KiB
  std::map<std::pair<uint8_t, uint64_t>, std::string> objects_;
};

}  // namespace multigrain::timeline
