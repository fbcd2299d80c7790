#include "fabric/shm/job_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/config.h"
#include "base/own_descriptors.h"
#include "fabric/emulation/emulation.h"
#include "fabric/shm/ring.h"

namespace multigrain {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxRingBytes = uint64_t{1} << 30;

struct Layout {
  uint64_t doorbells, heads, words, rings, emulation, lines, lines_bytes, pages, pages_bytes, total;
};

constexpr uint64_t round_up(uint64_t bytes) {
  return (bytes + kPage - 1) & ~(kPage - 1);
}

Layout lay_out(uint64_t nodes, uint64_t processors_per_node, uint64_t ring_bytes, uint64_t region_size) {
  Layout layout{};
  layout.doorbells = round_up(sizeof(JobHeader));
  layout.heads = layout.doorbells + round_up(nodes * sizeof(Doorbell));
  layout.words = layout.heads + round_up(nodes * nodes * sizeof(RingHead));
  layout.rings = layout.words + nodes * words::kBytes;
  layout.emulation = layout.rings + nodes * nodes * ring_bytes;
  layout.lines = layout.emulation + round_up(Emulation::bytes(nodes, nodes * processors_per_node));
  layout.lines_bytes = round_up(words::line_table_bytes(region_size));
  layout.pages = layout.lines + nodes * layout.lines_bytes;
  layout.pages_bytes = round_up(words::page_table_bytes(region_size));
  layout.total = layout.pages + nodes * layout.pages_bytes;
  return layout;
}

Status check_sizes(uint64_t nodes, uint64_t ring_bytes, uint64_t region_size) {
  if (nodes == 0 || nodes > NodeSet::kCapacity)
    return fail("a job has 1 to {} nodes, not {}", NodeSet::kCapacity, nodes);
  if (!std::has_single_bit(ring_bytes) || ring_bytes < kMinRingBytes || ring_bytes > kMaxRingBytes)
    return fail("the size of a ring must be a power of two from {} to {} bytes, not {}", kMinRingBytes, kMaxRingBytes,
                ring_bytes);
  if (region_size > Config::kMaxRegionSize)
    return fail("the region has at most {} bytes, not {}", uint64_t{Config::kMaxRegionSize}, region_size);
  return {};
}

// Checks that a file of `bytes` bytes that begins with `header` is a job memory.
Status check_header(const JobHeader& header, int fd, uint64_t bytes) {
  if (header.magic != JobHeader::kMagic) return fail("descriptor {} is not the job memory of a Multigrain run", fd);
  if (header.version != JobHeader::kVersion)
    return fail(
        "the job memory has version {} and this library has {}: start the run with the mgrun that belongs to it",
        header.version, JobHeader::kVersion);
  // The map of words (words.h) grows more often than this header changes.
  if (header.words_bytes != words::kBytes)
    return fail(
        "the job memory has {} bytes of words a node and this library has {}: start the run with the mgrun that "
        "belongs to it",
        header.words_bytes, words::kBytes);
  if (Status sizes = check_sizes(header.nodes, header.ring_bytes, header.region_size); !sizes)
    return fail("the job memory is damaged: {}", sizes.error().message);
  if (header.processors_per_node == 0 || header.processors_per_node > Config::kMaxProcessorsPerNode)
    return fail("the job memory is damaged: it has {} processors a node", header.processors_per_node);
  const Layout layout = lay_out(header.nodes, header.processors_per_node, header.ring_bytes, header.region_size);
  if (header.doorbells_offset != layout.doorbells || header.heads_offset != layout.heads ||
      header.words_offset != layout.words || header.rings_offset != layout.rings ||
      header.emulation_offset != layout.emulation || header.emulation_bytes != layout.lines - layout.emulation ||
      header.lines_offset != layout.lines || header.lines_bytes != layout.lines_bytes ||
      header.pages_offset != layout.pages || header.pages_bytes != layout.pages_bytes ||
      header.total_bytes != layout.total || bytes != layout.total)
    return fail("the job memory is damaged: its layout does not fit its size of {} bytes", bytes);
  return {};
}

}  // namespace

Result<int> create_job_memory(const JobOptions& options) {
  if (Status sizes = check_sizes(options.nodes, options.ring_bytes, options.region_size); !sizes)
    return tl::unexpected(sizes.error());
  if (options.processors_per_node == 0 || options.processors_per_node > Config::kMaxProcessorsPerNode)
    return fail("a node has 1 to {} processors, not {}", Config::kMaxProcessorsPerNode, options.processors_per_node);
  if (!std::has_single_bit(options.page_size) || options.page_size < Config::kMinTranslatedPageSize ||
      options.page_size > Config::kMaxPageSize)
    return fail("the page size must be a power of two from {} to {} bytes, not {}",
                size_t{Config::kMinTranslatedPageSize}, size_t{Config::kMaxPageSize}, options.page_size);
  const Layout layout = lay_out(options.nodes, options.processors_per_node, options.ring_bytes, options.region_size);

  const int fd = memfd_create("multigrain-job", MFD_ALLOW_SEALING);
  if (fd < 0) return fail_errno(errno, "cannot create the job memory");
  void* memory = MAP_FAILED;
  // The memory is sealed, so that no process can shrink it while others use it.
  if (ftruncate(fd, static_cast<off_t>(layout.total)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    memory = mmap(nullptr, sizeof(JobHeader), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int code = errno;
    close(fd);
    return fail_errno(code, "cannot set up the job memory");
  }
  // Everything that is not set here is zero, because the memfd is new.
  auto& header = *static_cast<JobHeader*>(memory);
  header.version = JobHeader::kVersion;
  header.nodes = options.nodes;
  header.processors_per_node = options.processors_per_node;
  header.page_size = static_cast<uint32_t>(options.page_size);
  header.region_size = options.region_size;
  header.words_bytes = words::kBytes;
  header.ring_bytes = options.ring_bytes;
  header.doorbells_offset = layout.doorbells;
  header.heads_offset = layout.heads;
  header.words_offset = layout.words;
  header.rings_offset = layout.rings;
  header.emulation_offset = layout.emulation;
  header.emulation_bytes = layout.lines - layout.emulation;
  header.lines_offset = layout.lines;
  header.lines_bytes = layout.lines_bytes;
  header.pages_offset = layout.pages;
  header.pages_bytes = layout.pages_bytes;
  header.total_bytes = layout.total;
  header.magic = JobHeader::kMagic;
  munmap(memory, sizeof(JobHeader));
  return fd;
}

Result<JobMemory> JobMemory::map(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, fmt::format("descriptor {} is not the job memory", fd));
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes < sizeof(JobHeader)) return fail("descriptor {} is not the job memory: it has only {} bytes", fd, bytes);
  void* memory = mmap(nullptr, sizeof(JobHeader), PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "cannot map the job memory");
  Status good;
  uint64_t mapped = 0;
  {
    const JobHeader& header = *static_cast<const JobHeader*>(memory);
    good = check_header(header, fd, bytes);
    mapped = header.lines_offset;
  }
  munmap(memory, sizeof(JobHeader));
  if (!good) return tl::unexpected(good.error());
  const int tables_fd = own_descriptors::keep(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (tables_fd < 0) return fail_errno(errno, "cannot keep the job memory open");
  memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    const int code = errno;
    close(tables_fd);
    return fail_errno(code, "cannot map the job memory");
  }
  return JobMemory(static_cast<std::byte*>(memory), mapped, tables_fd, true);
}

JobMemory::JobMemory(JobMemory&& other) noexcept
    : base_(other.base_),
      bytes_(other.bytes_),
      tables_fd_(other.tables_fd_),
      owned_(std::exchange(other.owned_, false)) {}

JobMemory& JobMemory::operator=(JobMemory&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(tables_fd_, other.tables_fd_);
  std::swap(owned_, other.owned_);
  return *this;
}

JobMemory::~JobMemory() {
  if (!owned_) return;
  munmap(base_, bytes_);
  close(tables_fd_);
}

void abort_job(const JobMemory& job, NodeId dead) {
  uint32_t running = 0;
  job.header().aborted.compare_exchange_strong(running, uint32_t{1} + dead.value, std::memory_order_seq_cst);
  for (uint16_t node = 0; node < job.header().nodes; ++node) job.doorbell(NodeId(node)).wake();
}

}  // namespace multigrain
