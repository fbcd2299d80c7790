#include "openmp/memory.h"

#include <multigrain/multigrain.h>
#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "runtime/running.h"

namespace multigrain::openmp {
namespace {

unsigned node() {
  return __multigrain_is_running() != 0 ? mg_node() : 0;
}

constexpr size_t kPage = 4096;

}  // namespace

void end_run(const char* sentence) {
  std::fflush(stdout);
  std::fprintf(stderr, "multigrain: node %u: OpenMP: %s\n", node(), sentence);
  std::fflush(stderr);
  std::_Exit(1);
}

void end_run(const char* sentence, unsigned long number) {
  std::fflush(stdout);
  std::fprintf(stderr, "multigrain: node %u: OpenMP: %s %lu\n", node(), sentence, number);
  std::fflush(stderr);
  std::_Exit(1);
}

// A run has one page protocol, and refuses memory of the others.
void* try_allocate_shared(size_t bytes, size_t alignment) {
  static constexpr std::array kPageProtocols = {MG_PROTOCOL_HLRC, MG_PROTOCOL_MGS, MG_PROTOCOL_SC,
                                                MG_PROTOCOL_PLACEMENT};
  for (const mg_protocol protocol : kPageProtocols) {
    mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
    options.alignment = alignment;
    options.protocol = protocol;
    if (void* const block = mg_alloc(bytes, &options)) return block;
  }
  return nullptr;
}

void* allocate_shared(size_t bytes) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  if (void* const block = try_allocate_shared(bytes, 0)) return block;
  end_run("no shared memory is left for the OpenMP runtime; bytes wanted:", bytes);
}

void free_shared(void* block) {
  mg_free(block);
}

void* allocate_private(size_t bytes) {
  void* const block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) end_run("no memory is left for the OpenMP runtime; bytes wanted:", bytes);
  return block;
}

void free_private(void* block, size_t bytes) {
  ::munmap(block, bytes);
}

}  // namespace multigrain::openmp
