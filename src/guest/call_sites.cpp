#include "guest/call_sites.h"

#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guest/calls.h"
#include "guest/entry.h"

namespace multigrain::guest {

struct CallSites::Stub {
  // These bytes are lea site(%rip),%rax; jmp *gate(%rip).
  std::array<uint8_t, 16> code = {0x48, 0x8d, 0x05, 9, 0, 0, 0, 0xff, 0x25, 19, 0, 0, 0, 0xcc, 0xcc, 0xcc};
  CallSite site;
  std::atomic<uint64_t> gate;
  uint64_t unused[3] = {};  // makes a stub one cache line long
};

namespace {

// This is the same behind the instruction whose place the jump has taken, because that sets the flags.
constexpr std::array<uint8_t, 16> kXorStub = {0x31, 0xc0, 0x48, 0x8d, 0x05, 7, 0, 0, 0, 0xff, 0x25, 17, 0, 0, 0, 0xcc};
constexpr uint8_t kMovToEax = 0xb8, kJump = 0xe9, kShortJump = 0xeb;
constexpr std::array<uint8_t, 2> kXorEax = {0x31, 0xc0};
// This stops a thread at a site for as long as the site is being changed: hlt, which the kernel answers with SIGSEGV, a
// signal that the host always receives.
constexpr uint8_t kStop = 0xf4;

void* page_of(uint64_t address) {
  return reinterpret_cast<void*>(page_down(address));
}
constexpr int kAllRights = PROT_READ | PROT_WRITE | PROT_EXEC;

// Makes every processor that runs a thread of this process forget the code that it has fetched before.
bool serialise_all() {
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0) return true;
  return errno == EPERM && syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0) == 0;
}

// Returns whether the bytes that end with `b8` and are followed by a 32-bit constant can begin another instruction than
// `mov $constant,%eax`: one that has a constant behind an address, or a prefix. `before` points to the b8, behind the
// bytes that are looked at.
bool may_be_longer(const uint8_t* before) {
  const auto byte = [before](int back) { return before[-back]; };
  const auto mode = [byte](int back) { return byte(back) >> 6; };
  const auto base = [byte](int back) { return byte(back) & 7; };
  const auto has_constant = [byte](int back) {
    return byte(back) == 0xc7 || byte(back) == 0x81 || byte(back) == 0x69 || byte(back) == 0xf7;
  };
  constexpr int kIndexed = 4;
  if ((byte(1) & 0xf0) == 0x40) return true;            // REX: mov to r8d, or 64 bits
  if (byte(1) == 0x8d || byte(1) == 0x0f) return true;  // lea constant(%rax); 0f b8
  if (byte(1) == 0x1f && byte(2) == 0x0f) return true;  // nop constant(%rax)
  if (byte(2) == 0x64 || byte(2) == 0x65 || byte(3) == 0x64 || byte(3) == 0x65) return true;  // prefixes of fs and gs
  if (has_constant(2) && mode(1) == 0 && base(1) == kIndexed) return true;                    // (%rax,%rdi,4)
  if (has_constant(2) && mode(1) == 1 && base(1) != kIndexed) return true;                    // -72(%rbp)
  if (has_constant(3) && mode(2) == 1 && base(2) == kIndexed) return true;                    // -72(%rsp)
  if (has_constant(5) && (mode(4) == 2 || mode(4) == 0)) return true;  // a displacement of 32 bits
  return has_constant(6) && (mode(5) == 2 || mode(5) == 0) && base(5) == kIndexed;
}

// Returns the same for `xor %eax,%eax`, which may follow a prefix, or end a longer instruction that has the
// same last bytes.
bool may_be_longer_xor(const uint8_t* before) {
  return (before[-1] & 0xf0) == 0x40 || before[-1] == 0x66 || before[-1] == 0x0f || before[-1] == 0x38 ||
         before[-2] == 0xc5 || before[-3] == 0xc4 || before[-4] == 0x62;
}

// Returns whether all of these bytes are instructions that do nothing, the longer ones with which assemblers fill
// space. A single 0x90 may be the beginning of a function that wants to be changed at run time.
bool is_filling(const uint8_t* code, size_t bytes) {
  struct Nothing {
    size_t size;
    std::array<uint8_t, 8> code;
  };
  static constexpr std::array<Nothing, 7> kNothing = {{{1, {0xcc}},
                                                       {2, {0x66, 0x90}},
                                                       {3, {0x0f, 0x1f, 0x00}},
                                                       {4, {0x0f, 0x1f, 0x40}},
                                                       {5, {0x0f, 0x1f, 0x44}},
                                                       {7, {0x0f, 0x1f, 0x80}},
                                                       {8, {0x0f, 0x1f, 0x84}}}};
  for (size_t at = 0; at < bytes;) {
    const auto* const found = std::ranges::find_if(kNothing, [code, bytes, at](const Nothing& nothing) {
      return nothing.size <= bytes - at && std::memcmp(code + at, nothing.code.data(), nothing.size) == 0;
    });
    const bool is_prefix = code[at] == 0x66 || code[at] == 0x2e;
    if (found == kNothing.end() && !is_prefix) return false;
    at += found == kNothing.end() ? 1 : found->size;
  }
  return bytes > 0 && code[bytes - 1] != 0x66 && code[bytes - 1] != 0x2e;
}

}  // namespace

bool Arrivals::is_often(uint64_t call) {
  Place& place = place_of(call);
  if (place.call.load(std::memory_order_relaxed) != call) {
    place.count.store(1, std::memory_order_relaxed);
    place.call.store(call, std::memory_order_relaxed);
    return false;
  }
  const uint32_t count = place.count.load(std::memory_order_relaxed);
  if (count == kNever) return false;
  place.count.store(count + 1, std::memory_order_relaxed);
  return count + 1 == kOften;
}

void Arrivals::set_unchangeable(uint64_t call) {
  Place& place = place_of(call);
  if (place.call.load(std::memory_order_relaxed) == call) place.count.store(kNever, std::memory_order_relaxed);
}

void Arrivals::start_again(uint64_t call) {
  Place& place = place_of(call);
  if (place.call.load(std::memory_order_relaxed) == call) place.count.store(0, std::memory_order_relaxed);
}

size_t CallSites::bytes_before(uint64_t call, uint64_t number) {
  constexpr size_t kBefore = 6;
  std::array<uint8_t, kBefore + kMov + kSyscall> code{};
  const uint64_t begin = call - kMov - kBefore;
  if (!copy_guarded(code.data(), reinterpret_cast<const void*>(begin), code.size())) return 0;
  const uint8_t* const at = code.data() + kBefore + kMov;
  if (at[0] != 0x0f || at[1] != 0x05) return 0;
  uint32_t constant = 0;
  const uint8_t* const mov = at - kMov;
  std::memcpy(&constant, mov + 1, sizeof constant);
  if (mov[0] == kMovToEax && constant == number) return number != SYS_rt_sigreturn && !may_be_longer(mov) ? kMov : 0;
  const uint8_t* const exclusive = at - kXor;
  const bool is_xor = std::equal(kXorEax.begin(), kXorEax.end(), exclusive) && number == 0;
  return is_xor && !may_be_longer_xor(exclusive) ? kXor : 0;
}

size_t CallSites::arena_near(uint64_t call) const {
  for (size_t i = 0; i < arenas_begun_; ++i) {
    const uint64_t begin = arenas_[i];
    const bool is_near = begin > call ? begin - call < kReach : call - begin < kReach;
    if (is_near && used_[i] < kArenaBytes / sizeof(Stub)) return i;
  }
  return arenas_begun_;
}

void CallSites::add_arena(uint64_t begin) {
  arenas_[arenas_begun_].store(begin);
  used_[arenas_begun_] = 0;
  arenas_begun_.fetch_add(1);
}

CallSites::Stub* CallSites::make_stub(uint64_t call, uint64_t number, bool is_xor) {
  static_assert(sizeof(Stub) == 64);
  const size_t arena = arena_near(call);
  if (arena == arenas_begun_) return nullptr;
  const uint64_t at = arenas_[arena] + used_[arena] * sizeof(Stub);
  // Other threads run through other stubs of the page meanwhile, so the page stays executable.
  if (mprotect(page_of(at), kPageSize, kAllRights) != 0) return nullptr;
  auto* const stub = new (reinterpret_cast<void*>(at))
      Stub{.site = {.next = call + kSyscall, .number = static_cast<uint32_t>(number), .is_xor = is_xor},
           .gate = passes_unseen(number) ? direct_gate() : host_gate()};
  if (is_xor) stub->code = kXorStub;
  mprotect(page_of(at), kPageSize, PROT_READ | PROT_EXEC);
  ++used_[arena];
  return stub;
}

CallSites::Hop* CallSites::hop_at(uint64_t address) {
  const auto found = std::ranges::find_if(hops_, [address](const Hop& hop) { return hop.at == address; });
  return found == hops_.end() ? nullptr : &*found;
}

// A hop has room behind the end of a function as C libraries have it: `syscall; cmp $-4096,%rax; ja error; ret`. No
// thread comes to that place, and the sequence is too long to be anything else. It is looked for on the site's page.
uint64_t CallSites::make_hop(uint64_t site, const Stub& stub) {
  static constexpr std::array<uint8_t, 9> kEnd = {0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77};
  constexpr size_t kEndBytes = kEnd.size() + 2;  // the distance of the `ja`, and the `ret`
  constexpr uint8_t kReturn = 0xc3;
  constexpr uint64_t kShortReach = 127;
  constexpr uint64_t kAlignment = 16;
  const uint64_t page = page_down(site);
  std::array<uint8_t, kPageSize> code;
  if (!copy_guarded(code.data(), page_of(site), code.size())) return 0;
  // A site that has been restored has its hop still.
  for (const Hop& hop : hops_)
    if (hop.at != 0 && hop.site == &stub.site && code[hop.at - page] == kJump) return hop.at;
  Hop* const hop = hop_at(0);
  if (hop == nullptr) return 0;
  for (size_t at = site - page > kShortReach ? site - page - kShortReach : 0; at + kEndBytes + kMov <= kPageSize;
       ++at) {
    if (page + at > site + kShortReach) break;
    if (!std::equal(kEnd.begin(), kEnd.end(), code.data() + at) || code[at + kEndBytes - 1] != kReturn) continue;
    uint64_t place = page + at + kEndBytes;
    // The next function begins there.
    uint64_t end = (place + kAlignment - 1) & ~(kAlignment - 1);
    if (!is_filling(code.data() + at + kEndBytes, end - place)) end = place;
    for (const Hop* other = hop_at(place); other != nullptr; other = hop_at(place)) {
      end = other->end;
      place += kMov;
    }
    const auto distance = static_cast<int64_t>(place - site - kXor);
    if (place + kMov > end || distance < -128 || distance > 127) continue;
    hop->end = end;
    hop->site = &stub.site;
    hop->at.store(place, std::memory_order_release);
    return place;
  }
  return 0;
}

// A processor may execute code that it fetched before another processor's store, and of a store of several bytes it may
// see a part [Intel SDM 3A, 9.1.3; AMD64 APM 2, 7.6.1]. So first one byte alone becomes an instruction that stops
// threads. When every processor has serialised, all that a processor can still have of the old code is behind that
// byte, and no processor executes it. Then the other bytes are written, which all processors see in the same way, and
// then the first.
bool CallSites::replace(uint64_t site, const uint8_t* code, size_t bytes, int rights) {
  // This rejects kernels without the barrier before anything is changed.
  if (!serialise_all()) return false;
  // Threads execute the page meanwhile, so it stays executable.
  if (mprotect(page_of(site), kPageSize, kAllRights) != 0) return false;
  auto* const at = reinterpret_cast<volatile uint8_t*>(site);
  at[0] = kStop;
  serialise_all();
  for (size_t i = 1; i < bytes; ++i) at[i] = code[i];
  serialise_all();
  at[0] = code[0];
  serialise_all();
  mprotect(page_of(site), kPageSize, rights);
  return true;
}

namespace {

std::array<uint8_t, CallSites::kMov> with_distance(uint8_t first, int64_t distance) {
  std::array<uint8_t, CallSites::kMov> code{first};
  const auto constant = static_cast<uint32_t>(distance);
  std::memcpy(code.data() + 1, &constant, sizeof constant);
  return code;
}

}  // namespace

bool CallSites::change(uint64_t call, uint64_t number, int rights) {
  const size_t bytes = bytes_before(call, number);
  const uint64_t site = call - bytes;
  if (bytes == 0 || page_down(site) != page_down(call)) return false;
  const auto found = known_.find(site);
  const bool has_stub = found != known_.end() && found->second.stub->site.number == number;
  Stub* const stub = has_stub ? found->second.stub : make_stub(call, number, bytes == kXor);
  if (stub == nullptr) return false;
  // step_over() must find the site for threads that are stopped there.
  Known& known = known_.insert_or_assign(site, Known{.stub = stub, .bytes = bytes, .is_changed = false}).first->second;
  const auto stub_address = reinterpret_cast<uint64_t>(stub);
  if (bytes == kMov) {
    const Code code = with_distance(kJump, static_cast<int64_t>(stub_address - call));
    known.is_changed = replace(site, code.data(), kMov, rights);
    return known.is_changed;
  }
  const uint64_t hop = make_hop(site, *stub);
  // No thread executes the hop yet, so its bytes need no care.
  if (hop == 0 || mprotect(page_of(hop), kPageSize, kAllRights) != 0) return false;
  const Code code = with_distance(kJump, static_cast<int64_t>(stub_address - hop - kMov));
  std::memcpy(reinterpret_cast<void*>(hop), code.data(), kMov);
  const uint8_t jump[kXor] = {kShortJump, static_cast<uint8_t>(hop - call)};
  known.is_changed = replace(site, jump, kXor, rights);
  if (!known.is_changed) mprotect(page_of(hop), kPageSize, rights);
  return known.is_changed;
}

// The site's page may have the file's content again, since the guest can drop its own copy (madvise), and it may not be
// readable. A hop stays, since a thread may be there; no other thread comes to it.
void CallSites::undo(uint64_t site, Known& known, int rights) {
  if (mprotect(page_of(site), kPageSize, kAllRights) != 0) return;
  const uint8_t first = *reinterpret_cast<const volatile uint8_t*>(site);
  if (known.bytes == kMov && first == kJump)
    replace(site, with_distance(kMovToEax, known.stub->site.number).data(), kMov, rights);
  if (known.bytes == kXor && first == kShortJump) replace(site, kXorEax.data(), kXor, rights);
  mprotect(page_of(site), kPageSize, rights);
  known.is_changed = false;
}

void CallSites::restore(Range range, int rights) {
  const auto end = known_.lower_bound(range.end);
  for (auto at = known_.lower_bound(range.begin); at != end; ++at)
    if (at->second.is_changed) undo(at->first, at->second, rights);
}

void CallSites::forget(Range range) {
  const auto end = known_.lower_bound(range.end);
  for (auto at = known_.lower_bound(range.begin); at != end; ++at) at->second.is_changed = false;
  for (Hop& hop : hops_)
    if (hop.at >= range.begin && hop.at < range.end) hop.at = 0;
}

void CallSites::close() {
  is_closed_ = true;
  for (size_t arena = 0; arena < arenas_begun_; ++arena) {
    const uint64_t begin = arenas_[arena];
    mprotect(page_of(begin), kArenaBytes, kAllRights);
    auto* const stubs = reinterpret_cast<Stub*>(begin);
    for (size_t i = 0; i < used_[arena]; ++i) stubs[i].gate.store(closed_gate());
    mprotect(page_of(begin), kArenaBytes, PROT_READ | PROT_EXEC);
  }
}

bool CallSites::step_over(gregset_t& registers) const {
  const auto found = known_.find(static_cast<uint64_t>(registers[REG_RIP]));
  if (found == known_.end()) return false;
  const Known& known = found->second;
  const CallSite& site = known.stub->site;
  // By now the change may have been undone, and the guest may have written anything there; then the fault is its own.
  if (!known.is_changed && bytes_before(site.next - kSyscall, site.number) != known.bytes) return false;
  go_to_site(registers, site);
  return true;
}

const CallSite* CallSites::site_of_stub(uint64_t instruction) const {
  const size_t count = arenas_begun_.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t begin = arenas_[i].load(std::memory_order_relaxed);
    if (instruction - begin < kArenaBytes)
      return &reinterpret_cast<const Stub*>(begin)[(instruction - begin) / sizeof(Stub)].site;
  }
  for (const Hop& hop : hops_)
    if (hop.at.load(std::memory_order_acquire) == instruction) return hop.site;
  return nullptr;
}

}  // namespace multigrain::guest
