// The judge finds the races of a run. It is a thread of node 0, which reads the streams of all nodes, compares their accesses,
// tells the user of races as soon as they are found, and tells the nodes which pages to watch.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "races/accesses.h"
#include "races/reports.h"
#include "races/stream.h"
#include "races/suspects.h"

namespace multigrain::races {

class Judge {
 public:
  // Its memory: so many accesses, bytes of sections, and pages. With what it keeps of reports that is 32 MiB.
  static constexpr size_t kAccesses = 1u << 18;
  static constexpr size_t kSectionBytes = 4u << 20;
  static constexpr size_t kPages = 1u << 14;

  struct Machine {
    uint64_t region = 0;  // the address of the shared region
    unsigned page_shift = 0;
  };
  Judge(Fabric& fabric, const Machine& machine, std::unique_ptr<Places> places);

  // Runs until finish() is called and everything was read. The thread that calls it is the judge.
  void run();
  // Waits until the judge has read all that the nodes have told, and has told the user what is left. Ordinary code.
  void finish();
  // Returns whether any race was found.
  [[nodiscard]] bool has_found() const { return found_.load(std::memory_order_acquire); }

 private:
  bool read_all();
  void take(NodeId node, std::span<const uint64_t> words);
  void take_access(const Access& access);
  void suspect(PageId page, Level level);

  Fabric& fabric_;
  const Machine machine_;
  std::unique_ptr<Places> places_;
  std::vector<std::unique_ptr<StreamReader>> readers_;
  SectionTable sections_;
  AccessWindow window_;
  Suspects suspects_;
  Reports reports_;
  uint64_t suspects_told_ = 0;
  std::atomic<bool> finishing_{false};
  std::atomic<bool> ended_{false};
  std::atomic<bool> found_{false};
};

}  // namespace multigrain::races
