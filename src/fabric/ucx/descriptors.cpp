#include "fabric/ucx/descriptors.h"

#include <atomic>

namespace multigrain::ucx_descriptors {
namespace {

std::atomic<int> g_lowest{0};
std::atomic<int (*)(int)> g_keep{nullptr};

}  // namespace

void use(int lowest, int (*keep)(int fd)) {
  g_lowest.store(lowest, std::memory_order_relaxed);
  g_keep.store(keep, std::memory_order_release);
}

int keep(int fd) {
  int (*const function)(int) = g_keep.load(std::memory_order_acquire);
  return function != nullptr ? function(fd) : fd;
}

int lowest() {
  return g_lowest.load(std::memory_order_relaxed);
}

}  // namespace multigrain::ucx_descriptors
