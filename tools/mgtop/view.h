// What mgtop shows of a job: what its processors do, how often things happen, and which memory faults most.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "jobs.h"
#include "profile/profile.h"

namespace multigrain {

class View {
 public:
  // From now on the job's nodes count what costs most (status/costs.h).
  explicit View(const Job& job);
  // Returns the text for the time since the last call, at most `lines` lines of at most `columns` letters; 0: as many as there are.
  std::string frame(unsigned lines, unsigned columns);

 private:
  struct Counts {
    std::vector<ProfileSnapshot> processors;
    ProfileSnapshot service;
  };
  void hottest(std::string& text);

  const Job& job_;
  std::vector<Counts> before_;  // of each node
  Nanoseconds when_ = 0;
  std::map<uint64_t, std::string> names_;  // of calls that have allocated blocks
};

}  // namespace multigrain
