#include "runtime/checkpoints.h"

#include <link.h>
#include <sys/personality.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <unordered_set>
#include <utility>
#include <vector>

#include "instrument/abi.h"
#include "runtime/interpreter.h"
#include "runtime/private/globals.h"
#include "runtime/private/loaded_objects.h"
#include "runtime/private/private_heap.h"
#include "runtime/program_stacks.h"

namespace multigrain {

using checkpoint::FolderLock;
using checkpoint::Head;
using checkpoint::NodeParts;
using checkpoint::Part;
using checkpoint::PartReader;

constinit Checkpoints* Checkpoints::g_checkpoints = nullptr;

namespace {

Status refuse_kinds_of_runs(const Node& node) {
  const Config& config = node.config();
  const char* what = nullptr;
  if (config.translates())
    what = "--mgs translation=compiled";
  else if (config.clock != ClockKind::kWall)
    what = "--clock other than wall";
  else if (config.check)
    what = "--check";
  else if (config.races)
    what = "--races";
  else if (config.nodes > 1 && !private_heap_active() && !interpreter::is_here())
    what = "builds with a sanitizer";
  if (what == nullptr) return {};
  return fail("there are no checkpoints (--checkpoint, --restart) with {}", what);
}

// The runtime of OpenMP keeps threads, and what it knows of them, in variables of its own.
bool uses_openmp() {
  const auto see = [](dl_phdr_info* object, size_t, void*) {
    return object->dlpi_name != nullptr && is_openmp_runtime(object->dlpi_name) ? 1 : 0;
  };
  return dl_iterate_phdr(see, nullptr) != 0;
}

// The same for checkpoints at barriers, of a program that does not call mg_checkpoint().
Status refuse_kinds_of_programs(const Node& node) {
  const char* what = nullptr;
  const int persona = personality(0xffffffff);
  if (node.has_line_protocol())
    what = "has compiled access checks";
  else if (node.config().fabric != FabricKind::kShm)
    what = "runs on several hosts, or with --fabric ucx";
  else if (uses_openmp())
    what = "is one of OpenMP";
  else if (!private_heap_active())
    what = "is built with a sanitizer";
  else if (persona < 0 || (persona & ADDR_NO_RANDOMIZE) == 0)
    what = "has other addresses in each run, since address randomisation cannot be turned off here";
  if (const char* const function = ProgramImage::unkept_function(); function != nullptr && what == nullptr)
    return fail("there are no checkpoints of a program that calls {}(), unless it calls mg_checkpoint()", function);
  if (what == nullptr) return {};
  return fail(
      "the program does not call mg_checkpoint(), and there are no checkpoints of a program without its help that {}",
      what);
}

}  // namespace

Status Checkpoints::create(Node& node) {
  MG_CHECK(g_checkpoints == nullptr);
  const Config& config = node.config();
  if (config.checkpoint.empty() && config.restart.empty()) return {};
  if (Status refused = refuse_kinds_of_runs(node); !refused) return refused;
  std::unique_ptr<Checkpoints> made(new Checkpoints(node));
  if (ProgramImage::is_wanted(config)) {
    if (Status refused = refuse_kinds_of_programs(node); !refused) return refused;
    made->program_ = std::make_unique<ProgramImage>(config);
    program_stacks::stays_on_thread(&Checkpoints::go_on_here);
  }
  const std::string& folder = config.checkpoint;
  if (!folder.empty()) {
    if (const Status there = checkpoint::make_folder(folder); !there)
      return fail("--checkpoint: {}", there.error().message);
    auto lock = FolderLock::take(folder, FolderLock::Holder::node(config.node));
    if (!lock) return fail("--checkpoint: {}", lock.error().message);
    if (config.node == NodeId(0) && !lock->excludes_others())
      std::fprintf(
          stderr,
          "multigrain: --checkpoint: the file system of '%s' has no locks, so nothing keeps two runs from that folder\n",
          folder.c_str());
    made->lock_ = std::move(*lock);
  }
  if (!folder.empty()) {
    auto head = checkpoint::read_head(folder);
    if (!head && config.node != NodeId(0)) head = std::nullopt;  // Node 0 refuses the run.
    if (!head) return fail("--checkpoint: {}; remove it, or name another folder", head.error().message);
    if (*head && (*head)->machine.program != made->machine().program && config.node == NodeId(0))
      return fail(
          "--checkpoint: '{}' has a checkpoint of another program, or of another build of this one; remove it, or name another "
          "folder",
          folder);
    if (*head) made->number_ = (*head)->number;
    const bool has_parts = *head && config.node.value < (*head)->chains.size();
    made->parts_.emplace(folder, config.node, has_parts ? (*head)->chains[config.node.value] : std::vector<Part>{});
  }
  // On node 0 this is done when main() is about to be called.
  if (made->program_ != nullptr && config.node != NodeId(0)) made->program_->note_beginning();
  g_checkpoints = made.release();
  return {};
}

checkpoint::Machine Checkpoints::machine() const {
  const Config& config = node_.config();
  checkpoint::Machine machine{.program = program_fingerprint(),
                              .region_size = config.region_size,
                              .page_size = config.page_size,
                              .nodes = config.nodes,
                              .line_size = static_cast<uint32_t>(config.line_size),
                              .protocol = {}};
  const std::string_view name = config.traits().name;
  name.copy(machine.protocol.data(), machine.protocol.size() - 1);
  return machine;
}

// A barrier of all processors is a handle and no more (sync/handle.h): node 0 makes it as its first, so all nodes know it.
SyncId Checkpoints::meeting_point() const {
  return SyncHandle{.kind = static_cast<uint8_t>(SyncKind::kBarrier),
                    .generation = 0,
                    .creator = NodeId(0),
                    .argument = node_.config().processors(),
                    .index = 0}
      .encode();
}

// It is the first allocation of a run with checkpoints, and so the first of one that goes on from a checkpoint, too.
volatile Checkpoints::Control& Checkpoints::control() const {
  return *reinterpret_cast<volatile Control*>(node_.region().base());
}

volatile Checkpoints::Saved& Checkpoints::saved(unsigned node) const {
  return reinterpret_cast<volatile Saved*>(node_.region().base() + sizeof(Control))[node];
}

Status Checkpoints::begin() {
  const BootHeapScope boot;
  if (!node_.config().checkpoint.empty()) {
    const SyncId made = node_.sync().barrier_create(0);
    MG_CHECK(made == meeting_point());
  }
  if (!node_.config().restart.empty()) {
    const auto head = head_to_restore();
    if (!head) return tl::unexpected(head.error());
    if (const Status restored = restore_own_parts(*head); !restored)
      return fail("--restart: {}", restored.error().message);
    const Config& config = node_.config();
    std::string error;
    if (program_ != nullptr)
      if (const Status begun = begin_again(); !begun) return fail("--restart: {}", begun.error().message);
    for (unsigned n = 1; n < config.nodes && program_ == nullptr; ++n)
      if (node_.processors().spawn(n * config.processors_per_node, &Checkpoints::restore_here, nullptr, error) != 0)
        return fail("--restart: {}", error);
    for (unsigned n = 1; n < config.nodes && program_ == nullptr; ++n)
      if (node_.processors().join(n * config.processors_per_node, error) != 0) return fail("--restart: {}", error);
    restored_root_ = reinterpret_cast<void*>(head->root);
    std::fprintf(stderr, "multigrain: the run goes on from checkpoint %llu in %s\n",
                 static_cast<unsigned long long>(head->number), node_.config().restart.c_str());
  } else if (!node_.config().checkpoint.empty()) {
    Placement placement = node_.default_placement(control_bytes(), Grain::kPage);
    placement.policy = HomePolicy::kNode;
    placement.node = NodeId(0);
    const auto made = node_.heap().allocate(control_bytes(), node_.config().page_size, placement);
    if (!made) return fail("--checkpoint: {}", made.error().message);
    if (made->address != node_.region().base())
      return fail("--checkpoint: shared memory was allocated before the run had begun");
  }
  if (program_ != nullptr) program_->note_beginning();
  last_ = monotonic_ns();
  return {};
}

// Starts all processors but this one where they were. Private state is copied to a node with its first processor, and that
// processor then puts the checkpoint's in its place; no node's is copied later, because it is not idle.
Status Checkpoints::begin_again() {
  std::string error;
  for (unsigned p = 1; p < node_.config().processors(); ++p)
    if (node_.processors().spawn(p, &Checkpoints::go_on_here, nullptr, error) != 0) return fail("{}", error);
  return {};
}

// What these processors run, on the stacks of their threads.
void Checkpoints::go_on_here(void*) {
  Checkpoints& self = *get();
  const unsigned place = self.node_.processors().current() % self.node_.config().processors_per_node;
  if (place == 0) {
    const BootHeapScope boot;
    const auto head = self.head_to_restore();
    if (!head) die(2, head.error().message.c_str());
    if (const Status restored = self.restore_own_parts(*head); !restored)
      die(2, {"--restart: ", restored.error().message.c_str()});
  }
  self.go_on(place);
}

int Checkpoints::go_on(unsigned place) {
  // Memory and objects of all nodes are there when all have come. It is a release and an acquire of all of them, too.
  node_.sync().barrier(meeting_point());
  return program_->go_on(place);
}

Result<Head> Checkpoints::head_to_restore() const {
  auto head = checkpoint::read_head(node_.config().restart);
  if (!head) return fail("--restart: {}", head.error().message);
  if (!*head) return fail("--restart: there is no checkpoint in '{}'", node_.config().restart);
  if (const auto other = checkpoint::difference((*head)->machine, machine()))
    return fail("--restart: the checkpoint in '{}' cannot be used: {}", node_.config().restart, *other);
  if (((*head)->root == 0) != (program_ != nullptr))
    return fail("--restart: the checkpoint in '{}' is of another kind than those that this run writes",
                node_.config().restart);
  return std::move(**head);
}

// What a processor of each other node runs. It writes to memory as the program could, so no protocol need know of restarts.
void Checkpoints::restore_here(void*) {
  const BootHeapScope boot;
  Checkpoints& self = *get();
  const auto head = self.head_to_restore();
  if (!head) die(2, head.error().message.c_str());
  if (const Status restored = self.restore_own_parts(*head); !restored)
    die(2, {"--restart: ", restored.error().message.c_str()});
  self.restored_root_ = reinterpret_cast<void*>(head->root);
}

// A run that writes its checkpoints where this one reads one would take the parts away.
Result<std::optional<FolderLock>> Checkpoints::keep_writers_away() const {
  const Config& config = node_.config();
  std::error_code not_both_there;
  if (lock_ && std::filesystem::equivalent(config.checkpoint, config.restart, not_both_there)) return std::nullopt;
  auto lock = FolderLock::take_to_read(config.restart, FolderLock::Holder::node(config.node));
  if (!lock) return tl::unexpected(lock.error());
  return std::move(*lock);
}

Status Checkpoints::restore_own_parts(const Head& head) {
  const NodeId self = node_.config().node;
  const auto undisturbed = keep_writers_away();
  if (!undisturbed) return tl::unexpected(undisturbed.error());
  // All is looked at before memory is touched.
  const std::vector<Part>& chain = head.chains[self.value];
  std::vector<PartReader> parts;
  for (size_t i = 0; i < chain.size(); ++i) {
    auto part = PartReader::open(node_.config().restart, self, chain[i], i == 0 ? nullptr : &chain[i - 1]);
    if (!part) return tl::unexpected(part.error());
    parts.push_back(std::move(*part));
  }
  SpaceImage space;
  SmallImage small;
  if (const Status read = parts.back().read_books(space, small); !read) return read;
  if (program_ != nullptr)
    if (const Status known = program_->read(parts.back().program()); !known) return known;
  SharedHeap& heap = node_.heap();
  if (self == NodeId(0))
    if (const Status restored = heap.restore(space); !restored) return restored;
  if (const Status restored = heap.restore(small); !restored) return restored;
  if (program_ != nullptr) program_->begin_writing();
  // Of each page the last part that has it counts. An earlier one may be of memory that was freed since, which must stay untouched.
  std::unordered_set<uint64_t> done;
  while (!parts.empty()) {
    const bool is_last_to_read = parts.size() == 1;
    while (true) {
      const auto page = parts.back().next_page(node_.region().page_size());
      if (!page) return tl::unexpected(page.error());
      if (!*page) break;
      if (is_last_to_read ? done.contains((*page)->page.value) : !done.insert((*page)->page.value).second) continue;
      if ((*page)->bytes.empty()) continue;
      if (const Status restored = restore((*page)->page, (*page)->bytes); !restored) return restored;
    }
    parts.pop_back();
    SpaceImage earlier_space;
    SmallImage earlier_small;
    if (!parts.empty())
      if (const Status read = parts.back().read_books(earlier_space, earlier_small); !read) return read;
  }
  return program_ != nullptr ? program_->finish_writing(node_.sync()) : Status();
}

Status Checkpoints::restore(PageId page, std::span<const std::byte> bytes) {
  if ((page.value & checkpoint::kPrivatePage) != 0) {
    if (program_ == nullptr) return fail("the checkpoint has private memory, which it should not have");
    return program_->write(page, bytes);
  }
  if (!node_.heap().find(page)) return fail("the checkpoint has a page outside of its extents");
  std::byte* const to = node_.region().view(page);
  if (node_.has_line_protocol())
    __multigrain_store(to, bytes.size(), bytes.data());
  else
    std::memcpy(to, bytes.data(), bytes.size());
  return {};
}

int Checkpoints::take(const void* root, Meet meet, const void* site) {
  if (node_.config().checkpoint.empty()) return 0;
  const uint64_t number = decide(meeting_point(), meet, site);
  return number == 0 ? 0 : write(number, root, meet, site);
}

void Checkpoints::pass_barrier(SyncId barrier, Meet meet, const void* site) {
  Checkpoints& self = *get();
  const auto place = Processors::place_of_this_thread();
  if (!place || !self.node_.sync().is_barrier_of_all(barrier)) {
    meet(self.node_, barrier, site);
    return;
  }
  const uint64_t number = self.decide(barrier, meet, site);
  if (number == 0) return;
  // In the later run there is none of what is in this frame.
  if (program_stacks::save(self.program_->thread(*place).context) != 0) return;
  self.write_at_barrier(number, *place, meet, site);
}

void Checkpoints::write_at_barrier(uint64_t number, unsigned place, Meet meet, const void* site) {
  {
    const BootHeapScope boot;
    program_->note_thread(place);
  }
  // Behind this one the node's first processor knows what all have noted.
  meet(node_, meeting_point(), site);
  static_cast<void>(write(number, nullptr, meet, site));
}

// Meets the others at a barrier of all processors, and returns the number of the checkpoint that is to be written behind it, or 0.
uint64_t Checkpoints::decide(SyncId barrier, Meet meet, const void* site) {
  const Config& config = node_.config();
  const unsigned processor = node_.processors().current();
  const unsigned place = processor % config.processors_per_node;
  const uint64_t call = calls_[place]++;
  volatile uint64_t& due = control().due[call % 2];
  if (processor == 0) {
    const bool is_time = monotonic_ns() - last_ >= config.checkpoint_every.value_or(0);
    const uint64_t number = is_time ? number_ + 1 : 0;
    // An unchanged value costs the other nodes nothing.
    if (due != number) due = number;
  }
  meet(node_, barrier, site);
  return due;
}

int Checkpoints::write(uint64_t number, const void* root, Meet meet, const void* site) {
  const Config& config = node_.config();
  const unsigned processor = node_.processors().current();
  const unsigned place = processor % config.processors_per_node;
  // From here until the next barrier no processor writes to shared memory but to the control block, whose contents nobody
  // needs after a restart.
  if (place == 0) {
    const BootHeapScope boot;
    volatile Saved& mine = saved(config.node.value);
    const auto written = save(number);
    if (!written)
      std::fprintf(stderr, "multigrain: node %u: --checkpoint: %s\n", config.node.value,
                   written.error().message.c_str());
    mine.bytes = written ? written->part.bytes : 0;
    mine.checksum = written ? written->part.checksum : 0;
    mine.before = written ? written->before : 0;
    mine.has_failed = written ? 0 : 1;
  }
  meet(node_, meeting_point(), site);
  if (processor == 0) {
    const BootHeapScope boot;
    control().result = commit(number, root);
    last_ = monotonic_ns();
  }
  meet(node_, meeting_point(), site);
  const auto result = static_cast<int>(control().result);
  if (place == 0) {
    const BootHeapScope boot;
    parts_->end(result == 1);
    // What a run with more nodes has left.
    if (result == 1 && processor == 0)
      checkpoint::remove_parts(config.checkpoint, [&](uint64_t, unsigned node) { return node >= config.nodes; });
  }
  return result;
}

// Every page is read as the program could read it. So what is saved is what the program would have seen.
Result<NodeParts::Written> Checkpoints::save(uint64_t number) {
  const Config& config = node_.config();
  SharedHeap& heap = node_.heap();
  const SpaceImage space = config.node == NodeId(0) ? heap.space_image() : SpaceImage{};
  if (program_ != nullptr)
    if (const Status found = program_->find(node_.sync()); !found) return tl::unexpected(found.error());
  const auto record = program_ != nullptr ? program_->record() : std::span<const std::byte>();
  if (const Status begun = parts_->begin(number, space, heap.small_image(), record); !begun)
    return tl::unexpected(begun.error());
  const Region& region = node_.region();
  const size_t size = region.page_size();
  std::vector<std::byte> page(size);
  const std::vector<std::byte> zeros(size);
  for (uint64_t next = 0; next < region.page_count();) {
    // A page that any node has written has memory at its home (SharedHeap::for_each_touched relies on it, too).
    const auto run = region.next_resident(PageId(next), region.page_count() - next);
    if (!run) break;
    next = run->first.value + run->count;
    for (PageId at = run->first; at.value < next; ++at.value) {
      if (heap.home_of(at) != config.node) continue;
      const std::byte* const from = region.view(at);
      if (node_.has_line_protocol())
        __multigrain_load(from, size, page.data());
      else
        std::memcpy(page.data(), from, size);
      if (std::memcmp(page.data(), zeros.data(), size) != 0) parts_->add(at, page);
    }
  }
  if (program_ != nullptr) {
    const HeapFreeze frozen;
    program_->for_each_page(size, [&](PageId at, std::span<const std::byte> bytes) { parts_->add(at, bytes); });
  }
  return parts_->finish();
}

int Checkpoints::commit(uint64_t number, const void* root) {
  const auto tell = [&](const std::string& why) {
    std::fprintf(stderr, "multigrain: checkpoint %llu was not written: %s; the run goes on%s\n",
                 static_cast<unsigned long long>(number), why.c_str(),
                 number_ == 0 ? "" : fmt::format(", and checkpoint {} stays", number_).c_str());
  };
  if (program_ == nullptr && !node_.region().contains(root)) {
    tell("the root that mg_checkpoint() was given is not in shared memory");
    return -EINVAL;
  }
  if (program_ == nullptr && program_globals().empty() && !interpreter::is_here()) {
    tell("there are no checkpoints of programs that share their globals (mg_share_globals)");
    return -ENOTSUP;
  }
  Head head{.machine = machine(), .number = number, .root = reinterpret_cast<uint64_t>(root), .chains = chains_};
  head.chains.resize(node_.config().nodes);
  for (unsigned n = 0; n < node_.config().nodes; ++n) {
    const volatile Saved& part = saved(n);
    if (part.has_failed != 0) {
      tell(fmt::format("node {} could not write its part", n));
      return -EIO;
    }
    std::vector<Part>& chain = head.chains[n];
    if (part.before == 0) chain.clear();
    MG_CHECK(part.before == (chain.empty() ? 0 : chain.back().number), n, part.before);
    chain.push_back({number, part.bytes, part.checksum});
  }
  if (const Status written = checkpoint::write_head(node_.config().checkpoint, head); !written) {
    tell(written.error().message);
    return -EIO;
  }
  chains_ = std::move(head.chains);
  number_ = number;
  return 1;
}

}  // namespace multigrain
