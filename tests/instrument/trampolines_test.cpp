// The entries that checks call keep every register but r11 and the result's, whatever vectors the program uses and
// whatever the runtime does to them.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "coherence/hazard.h"
#include "fake_line_protocol.h"
#include "instrument/holds.h"

namespace multigrain::testing {
namespace {

// This says which registers a program uses.
enum Vectors : unsigned { kXmm, kYmm, kZmm };

struct alignas(64) Registers {
  std::array<std::array<uint64_t, 8>, 32> vector;
  std::array<uint64_t, 8> mask;     // at 2048
  std::array<uint64_t, 9> general;  // at 2112: rdx, rcx, r8, r9, r10, rbx, mxcsr, rsi, rdi
};
static_assert(offsetof(Registers, general) == 2112);

}  // namespace

// This is a variable of the trampolines: 0 makes them keep registers by xsave.
extern "C" uint8_t multigrain_keep_by_moves;

// Loads the registers from `in`, with `rax` in rax, calls the entry, whose arguments are in rdi and rsi, and stores the
// registers to `out`. Returns what the entry left in rax.
extern "C" uint64_t multigrain_test_call(const void* entry, uint64_t rax, const Registers* in, Registers* out,
                                         unsigned vectors);
asm(R"(
.altmacro
.macro MULTIGRAIN_TEST_LOAD verb register i
  \verb 64 * \i(%r12), %\register\()\i
.endm
.macro MULTIGRAIN_TEST_STORE verb register i
  \verb %\register\()\i, 64 * \i(%r13)
.endm
.macro MULTIGRAIN_TEST_ALL how verb register first last
  .set number, \first
  .rept \last - \first + 1
  MULTIGRAIN_TEST_\how \verb, \register, %number
  .set number, number + 1
  .endr
.endm
.macro MULTIGRAIN_TEST_MASKS to_memory
  .irp i, 0, 1, 2, 3, 4, 5, 6, 7
  .if \to_memory
  kmovq %k\i, 2048 + 8 * \i(%r13)
  .else
  kmovq 2048 + 8 * \i(%r12), %k\i
  .endif
  .endr
.endm
  .text
  .type multigrain_test_call, @function
  .globl multigrain_test_call
multigrain_test_call:
  pushq %rbp
  movq %rsp, %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $24, %rsp
  movq %rdi, %r15
  movq %rsi, %rax
  movq %rdx, %r12
  movq %rcx, %r13
  movl %r8d, %r14d
  stmxcsr -48(%rbp)
  ldmxcsr 2112 + 48(%r12)
  cmpl $1, %r14d
  jb 1f
  ja 2f
  MULTIGRAIN_TEST_ALL LOAD, vmovaps, ymm, 0, 15
  jmp 3f
1:
  MULTIGRAIN_TEST_ALL LOAD, movaps, xmm, 0, 15
  jmp 3f
2:
  MULTIGRAIN_TEST_ALL LOAD, vmovaps, zmm, 0, 31
  MULTIGRAIN_TEST_MASKS 0
3:
  movq 2112 + 56(%r12), %rsi
  movq 2112 + 64(%r12), %rdi
  movq 2112(%r12), %rdx
  movq 2112 + 8(%r12), %rcx
  movq 2112 + 16(%r12), %r8
  movq 2112 + 24(%r12), %r9
  movq 2112 + 32(%r12), %r10
  movq 2112 + 40(%r12), %rbx
  call *%r15
  movq %rdx, 2112(%r13)
  movq %rcx, 2112 + 8(%r13)
  movq %r8, 2112 + 16(%r13)
  movq %r9, 2112 + 24(%r13)
  movq %r10, 2112 + 32(%r13)
  movq %rbx, 2112 + 40(%r13)
  movq %rsi, 2112 + 56(%r13)
  movq %rdi, 2112 + 64(%r13)
  stmxcsr 2112 + 48(%r13)
  ldmxcsr -48(%rbp)
  cmpl $1, %r14d
  jb 1f
  ja 2f
  MULTIGRAIN_TEST_ALL STORE, vmovaps, ymm, 0, 15
  vzeroupper
  jmp 3f
1:
  MULTIGRAIN_TEST_ALL STORE, movaps, xmm, 0, 15
  jmp 3f
2:
  MULTIGRAIN_TEST_ALL STORE, vmovaps, zmm, 0, 31
  MULTIGRAIN_TEST_MASKS 1
  vzeroupper
3:
  leaq -40(%rbp), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size multigrain_test_call, . - multigrain_test_call
.noaltmacro
)");

// For each entry of a load, a function that takes the address in rdi, calls the entry as compiled code does, and returns the
// value in rax.
struct LoadEntry {
  const void* code;
  uint64_t size;
};
extern "C" const std::array<LoadEntry, 92> multigrain_test_load_entries;
asm(R"(
  .pushsection .data.rel.ro, "aw"
  .p2align 4
  .globl multigrain_test_load_entries
multigrain_test_load_entries:
  .popsection
.macro MULTIGRAIN_TEST_LOAD_ENTRY size
  .pushsection .data.rel.ro, "aw"
  .quad 1f, \size
  .popsection
1:
.endm
.macro MULTIGRAIN_TEST_LOAD_INTO size register
  MULTIGRAIN_TEST_LOAD_ENTRY \size
  pushq %\register
  movq %rdi, %\register
  call __multigrain_load_\size\()_\register
  xchgq %\register, (%rsp)
  popq %rax
  ret
.endm
.macro MULTIGRAIN_TEST_LOAD_NUMBER size register
  MULTIGRAIN_TEST_LOAD_ENTRY \size
  pushq %r11
  subq $16, %rsp
  movups %\register, (%rsp)
  movq %rdi, %r11
  call __multigrain_load_\size\()_\register
  movq %\register, %rax
  movups (%rsp), %\register
  addq $16, %rsp
  cmpq %rdi, %r11
  je 2f
  ud2
2:
  popq %r11
  ret
.endm
.irp name, rax, rcx, rdx, rbx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
MULTIGRAIN_TEST_LOAD_INTO 1 \name
MULTIGRAIN_TEST_LOAD_INTO 2 \name
MULTIGRAIN_TEST_LOAD_INTO 4 \name
MULTIGRAIN_TEST_LOAD_INTO 8 \name
.endr
.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
MULTIGRAIN_TEST_LOAD_NUMBER 4 xmm\number
MULTIGRAIN_TEST_LOAD_NUMBER 8 xmm\number
.endr
)");

// The same for each entry of a store, which takes the value from rsi, and of a run. `returns` says that what the entry left in r11 is
// returned; otherwise rax is kept.
struct RegisterEntry {
  const void* code;
  uint64_t size;
  uint64_t returns;
};
extern "C" const std::array<RegisterEntry, 176> multigrain_test_store_entries;
// In the order of `run_names`, and of each name those of 1 to 64 bytes.
extern "C" const std::array<RegisterEntry, 320> multigrain_test_run_entries;
asm(R"(
.macro MULTIGRAIN_TEST_ENTRIES name
  .pushsection .data.rel.ro, "aw"
  .p2align 4
  .globl \name
\name:
  .popsection
.endm
.macro MULTIGRAIN_TEST_ENTRY size returns
  .pushsection .data.rel.ro, "aw"
  .quad 1f, \size, \returns
  .popsection
1:
.endm
.macro MULTIGRAIN_TEST_STORE_FROM size returns register in_loop
  MULTIGRAIN_TEST_ENTRY \size \returns
  pushq %\register
  movq %rdi, %r11
  movq %rsi, %\register
  call __multigrain_store_\size\()_\register\()\in_loop
  cmpq %rsi, %\register
  je 2f
  ud2
2:
  popq %\register
  .if \returns
  movq %r11, %rax
  .endif
  ret
.endm
.macro MULTIGRAIN_TEST_STORE_NUMBER size returns register in_loop
  MULTIGRAIN_TEST_ENTRY \size \returns
  subq $16, %rsp
  movups %\register, (%rsp)
  movq %rdi, %r11
  movq %rsi, %\register
  call __multigrain_store_\size\()_\register\()\in_loop
  .if \returns
  movq %r11, %rax
  .endif
  movq %\register, %r11
  movups (%rsp), %\register
  addq $16, %rsp
  cmpq %rsi, %r11
  je 2f
  ud2
2:
  ret
.endm
.macro MULTIGRAIN_TEST_ALL_STORES returns in_loop
.irp name, rax, rcx, rdx, rbx, rsi, rdi, rbp, r8, r9, r10, r12, r13, r14, r15
MULTIGRAIN_TEST_STORE_FROM 1 \returns \name \in_loop
MULTIGRAIN_TEST_STORE_FROM 2 \returns \name \in_loop
MULTIGRAIN_TEST_STORE_FROM 4 \returns \name \in_loop
MULTIGRAIN_TEST_STORE_FROM 8 \returns \name \in_loop
.endr
.irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
MULTIGRAIN_TEST_STORE_NUMBER 4 \returns xmm\number \in_loop
MULTIGRAIN_TEST_STORE_NUMBER 8 \returns xmm\number \in_loop
.endr
.endm
MULTIGRAIN_TEST_ENTRIES multigrain_test_store_entries
MULTIGRAIN_TEST_ALL_STORES 0
MULTIGRAIN_TEST_ALL_STORES 1 _in_loop

.macro MULTIGRAIN_TEST_RUN name size returns in_loop
  MULTIGRAIN_TEST_ENTRY \size \returns
  movq %rdi, %r11
  call __multigrain_\name\()_\size\()\in_loop
  .if \returns
  movq %r11, %rax
  .endif
  ret
.endm
.macro MULTIGRAIN_TEST_ALL_RUNS name result in_loop
.irp size, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
MULTIGRAIN_TEST_RUN \name \size \result \in_loop
.endr
.irp size, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32
MULTIGRAIN_TEST_RUN \name \size \result \in_loop
.endr
.irp size, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48
MULTIGRAIN_TEST_RUN \name \size \result \in_loop
.endr
.irp size, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64
MULTIGRAIN_TEST_RUN \name \size \result \in_loop
.endr
.endm
MULTIGRAIN_TEST_ENTRIES multigrain_test_run_entries
MULTIGRAIN_TEST_ALL_RUNS check 1 _in_loop
MULTIGRAIN_TEST_ALL_RUNS try_stores 1
MULTIGRAIN_TEST_ALL_RUNS hold 1 _in_loop
MULTIGRAIN_TEST_ALL_RUNS hold_again 1 _in_loop
MULTIGRAIN_TEST_ALL_RUNS begin_stores 0
)");

namespace {

[[gnu::target("avx512f,avx512bw")]] void spoil_avx512() {
  asm volatile(
      "vpternlogd $255, %%zmm0, %%zmm0, %%zmm0\n vpternlogd $255, %%zmm16, %%zmm16, %%zmm16\n"
      "vpternlogd $255, %%zmm31, %%zmm31, %%zmm31\n kxnorq %%k1, %%k1, %%k1\n kxnorq %%k7, %%k7, %%k7\n vzeroall" ::
          : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
            "xmm13", "xmm14", "xmm15", "memory");
}

[[gnu::target("avx")]] void spoil_avx() {
  asm volatile("vcmpps $15, %%ymm3, %%ymm3, %%ymm3\n vzeroall" ::
                   : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                     "xmm12", "xmm13", "xmm14", "xmm15", "memory");
}

bool has(Vectors vectors) {
  switch (vectors) {
    case kXmm:
      return true;
    case kYmm:
      return __builtin_cpu_supports("avx") != 0;
    case kZmm:
      break;
  }
  return __builtin_cpu_supports("avx512bw") != 0;
}

class Spoiling : public FakeLineProtocol {
 public:
  using FakeLineProtocol::FakeLineProtocol;
  void load(uintptr_t address, std::span<std::byte> out) override {
    FakeLineProtocol::load(address, out);
    spoil();
  }
  bool store(uintptr_t address, std::span<const std::byte> value) override {
    const bool taken = FakeLineProtocol::store(address, value);
    spoil();
    return taken;
  }
  void begin_store(uintptr_t address) override {
    FakeLineProtocol::begin_store(address);
    spoil();
  }

 private:
  static void spoil() {
    if (has(kZmm))
      spoil_avx512();
    else if (has(kYmm))
      spoil_avx();
    else
      asm volatile("xorps %%xmm0, %%xmm0\n xorps %%xmm15, %%xmm15" ::: "xmm0", "xmm15");
    _mm_setcsr(_mm_getcsr() | _MM_EXCEPT_MASK);
  }
};

struct Entry {
  const char* name;
  const void* code;
  bool has_result;
  bool takes_size;  // as its second argument
  bool brings_line = true;
  uint64_t loads = 0;  // the bytes of the result, which are those that are at the address
};
template <typename Function>
const void* code(Function* function) {
  return reinterpret_cast<const void*>(function);
}
constexpr size_t kSizes = 64;
constexpr std::array run_names = {"check", "try_stores", "hold", "hold_again", "begin_stores"};
constexpr std::array run_brings_lines = {false, false, true, true, true};

const std::array entries = {
    Entry{"load_8_miss", code(&__multigrain_load_8_miss), true, false, true, 8},
    Entry{"begin_store", code(&__multigrain_begin_store), false, false},
    Entry{"store_1", code(&__multigrain_store_1), false, false},
    Entry{"store_8", code(&__multigrain_store_8), false, false},
    Entry{"store_1_in_loop", code(&__multigrain_store_1_in_loop), true, false},
    Entry{"store_8_in_loop", code(&__multigrain_store_8_in_loop), true, false},
    Entry{"begin_stores", code(&__multigrain_begin_stores), false, true},
    Entry{"try_stores", code(&__multigrain_try_stores), true, true, false},
    Entry{"update_in_loop", code(&__multigrain_update_in_loop), true, false},
    Entry{"hold_in_loop", code(&__multigrain_hold_in_loop), true, true},
    Entry{"hold_again_in_loop", code(&__multigrain_hold_again_in_loop), true, true},
    Entry{"check_in_loop", code(&__multigrain_check_in_loop), true, true, false},
    Entry{"clear_and_poll", code(&__multigrain_clear_and_poll), false, false, false},
};

void expect_registers_kept(FakeLineProtocol& protocol, const Entry& entry, Vectors vectors, bool misses,
                           std::mt19937_64& random) {
  unsigned char* const address = protocol.memory() + 1024;
  Registers in, out;
  for (auto& vector : in.vector)
    for (uint64_t& word : vector) word = random();
  for (uint64_t& word : in.mask) word = random();
  for (uint64_t& word : in.general) word = random();
  if (entry.takes_size) in.general[7] = 8;
  in.general[6] = _MM_MASK_MASK;  // no exception has happened
  in.general[8] = reinterpret_cast<uintptr_t>(address);
  out = in;
  const uint64_t value = random();
  const uint64_t rax = random();
  __multigrain_store(address, sizeof value, &value);
  if (misses) protocol.take_away(reinterpret_cast<uintptr_t>(address));
  for (auto& vector : out.vector) vector.fill(0);
  const uint64_t before = protocol.misses();
  const uint64_t result = multigrain_test_call(entry.code, rax, &in, &out, vectors);
  if (misses && entry.brings_line) {
    EXPECT_GT(protocol.misses(), before);
  }
  for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i) __multigrain_hazards[i] = 0;
  if (!entry.has_result) {
    EXPECT_EQ(result, rax);
  }
  if (entry.loads != 0) {
    EXPECT_EQ(result, value & (~uint64_t{0} >> (64 - 8 * entry.loads)));
  }
  EXPECT_EQ(in.general, out.general);
  EXPECT_EQ(in.mask, out.mask);
  const size_t words = vectors == kXmm ? 2 : vectors == kYmm ? 4 : 8;
  for (size_t i = 0; i < (vectors == kZmm ? 32 : 16); ++i)
    EXPECT_EQ(std::memcmp(&in.vector[i], &out.vector[i], words * 8), 0) << "vector " << i;
}

void expect_registers_kept() {
  Spoiling protocol(4096, 6);
  std::thread([&] {
    protocol.join();
    std::mt19937_64 random(1);
    std::vector<Entry> all(entries.begin(), entries.end());
    for (const LoadEntry& entry : multigrain_test_load_entries)
      all.push_back({"load", entry.code, true, false, true, entry.size});
    for (const RegisterEntry& entry : multigrain_test_store_entries)
      all.push_back({"store", entry.code, entry.returns != 0, false});
    for (size_t i = 0; i < multigrain_test_run_entries.size(); ++i) {
      const RegisterEntry& entry = multigrain_test_run_entries[i];
      all.push_back({run_names[i / kSizes], entry.code, entry.returns != 0, false, run_brings_lines[i / kSizes]});
    }
    for (const Entry& entry : all) {
      for (const Vectors vectors : {kXmm, kYmm, kXmm, kZmm, kYmm, kXmm}) {
        if (!has(vectors)) continue;
        for (const bool misses : {true, false}) {
          SCOPED_TRACE(::testing::Message()
                       << entry.name << " " << entry.loads << ", vectors " << vectors << ", misses " << misses);
          expect_registers_kept(protocol, entry, vectors, misses, random);
        }
      }
    }
  }).join();
}

// What the entries of stores do, line by line: they store, and say whether the loop hazard is published.
TEST(Trampolines, EntriesStoreAndSayWhatIsPublished) {
  FakeLineProtocol protocol(4096, 6);
  std::thread([&] {
    protocol.join();
    auto* const words = reinterpret_cast<uint64_t*>(protocol.memory());
    const auto loop_hazard = [] { return __multigrain_hazards[MG_FINE_LOOP_HAZARD]; };
    const auto any_hazard = [] {
      for (unsigned i = 0; i < MG_FINE_HAZARDS; ++i)
        if (__multigrain_hazards[i] != 0) return true;
      return false;
    };
    __multigrain_store_8(words, 0x1122334455667788);
    __multigrain_store_4(words + 1, 0xaaaaaaaa11223344);
    __multigrain_store_2(words + 2, 0xaaaaaaaaaaaa1122);
    __multigrain_store_1(words + 3, 0xaaaaaaaaaaaaaa11);
    EXPECT_EQ(words[0], 0x1122334455667788);
    EXPECT_EQ(words[1], 0x11223344);
    EXPECT_EQ(words[2], 0x1122);
    EXPECT_EQ(words[3], 0x11);
    EXPECT_FALSE(any_hazard());

    EXPECT_NE(__multigrain_store_8_in_loop(words + 4, 4), MG_FINE_NO_LOOP_HAZARD);
    EXPECT_NE(loop_hazard(), 0);
    const uint64_t published = loop_hazard();
    EXPECT_NE(__multigrain_store_4_in_loop(words + 5, ~uint64_t{0}), MG_FINE_NO_LOOP_HAZARD);
    EXPECT_EQ(loop_hazard(), published);  // it is published once
    EXPECT_EQ(words[4], 4);
    EXPECT_EQ(words[5], 0xffffffff);
    // A run may begin in one line, end in the next but one, and miss in any of them.
    EXPECT_NE(__multigrain_check_in_loop(words + 1, 64), MG_FINE_NO_LOOP_HAZARD);
    __multigrain_hazards[MG_FINE_LOOP_HAZARD] = 0;
    for (const uint64_t missing : {0, 8}) {
      protocol.take_away(reinterpret_cast<uintptr_t>(words + missing));
      EXPECT_EQ(__multigrain_check_in_loop(words + 1, 64), MG_FINE_NO_LOOP_HAZARD) << missing;
      EXPECT_FALSE(any_hazard());
      // The runtime makes the store, under no hazard that is left.
      EXPECT_EQ(__multigrain_store_8_in_loop(words + missing, 9), MG_FINE_NO_LOOP_HAZARD);
      EXPECT_FALSE(any_hazard());
      EXPECT_EQ(words[missing], 9);
    }
    for (const uint64_t missing : {0, 8}) {
      protocol.take_away(reinterpret_cast<uintptr_t>(words + missing));
      EXPECT_NE(__multigrain_hold_in_loop(words + 1, 64), MG_FINE_NO_LOOP_HAZARD);
      EXPECT_NE(loop_hazard(), 0);
      EXPECT_EQ(words[missing], 9);
      __multigrain_hazards[MG_FINE_LOOP_HAZARD] = 0;
      EXPECT_FALSE(any_hazard());
    }
    for (const uint64_t missing : {0, 8}) {
      protocol.take_away(reinterpret_cast<uintptr_t>(words + missing));
      EXPECT_EQ(__multigrain_try_stores(words + 1, 64), 0);
      EXPECT_FALSE(any_hazard());
      __multigrain_begin_stores(words + 1, 64);
      EXPECT_EQ(words[missing], 9);
      EXPECT_EQ(__multigrain_hazards[0],
                make_hazard((reinterpret_cast<uintptr_t>(words) - MG_FINE_VIEW_BASE) >> 6, 2, true));
      __multigrain_hazards[0] = 0;
      EXPECT_FALSE(any_hazard());
      EXPECT_EQ(__multigrain_try_stores(words + 1, 64), 1);
      EXPECT_NE(__multigrain_hazards[0], 0);
      __multigrain_hazards[0] = 0;
    }
    protocol.take_away(reinterpret_cast<uintptr_t>(words));
    __multigrain_begin_store(words);
    EXPECT_NE(__multigrain_hazards[0], 0);
    __multigrain_hazards[0] = 0;
    EXPECT_FALSE(any_hazard());
    protocol.take_away(reinterpret_cast<uintptr_t>(words));
    __multigrain_store_8(words, 10);
    EXPECT_EQ(words[0], 10);
    EXPECT_FALSE(any_hazard());
  }).join();
}

// The entries of loads find parts of the flag value in words that are not, at all alignments, and then touch no hazard. What
// lies in two words is loaded by the runtime.
TEST(Trampolines, EntriesOfLoadsLookAtWholeWords) {
  FakeLineProtocol protocol(4096, 6);
  std::thread([&] {
    protocol.join();
    unsigned char* const memory = protocol.memory();
    constexpr std::array<uint32_t, 8> words = {0xfffd0001, 0x0001fffd, 0xfdfdfdfd, 0xffffffff,
                                               0xfffdfffc, 0xfefdfffd, 0,          0x12345678};
    __multigrain_store(memory, sizeof words, words.data());
    __multigrain_store_8_in_loop(memory + 64, 1);
    const uint64_t published = __multigrain_hazards[MG_FINE_LOOP_HAZARD];
    EXPECT_NE(published, 0);
    Registers in{}, out{};
    in.general[6] = _MM_MASK_MASK;
    for (const LoadEntry& entry : multigrain_test_load_entries) {
      for (size_t at = 0; at + entry.size <= sizeof words; ++at) {
        uint64_t expected = 0;
        std::memcpy(&expected, memory + at, entry.size);
        in.general[8] = reinterpret_cast<uintptr_t>(memory + at);
        EXPECT_EQ(multigrain_test_call(entry.code, 0, &in, &out, kXmm), expected) << entry.size << " at " << at;
        const bool asks = entry.size < 4 ? at % 4 + entry.size > 4 : at % 4 != 0;
        EXPECT_EQ(__multigrain_hazards[MG_FINE_LOOP_HAZARD], asks ? 0 : published) << entry.size << " at " << at;
        __multigrain_hazards[MG_FINE_LOOP_HAZARD] = published;
      }
    }
    __multigrain_hazards[MG_FINE_LOOP_HAZARD] = 0;
    // The flag value may be the program's own, and is asked about.
    const uint64_t flags = MG_FINE_FLAG64;
    __multigrain_store(memory, sizeof flags, &flags);
    for (const LoadEntry& entry : multigrain_test_load_entries) {
      __multigrain_hazards[MG_FINE_LOOP_HAZARD] = published;
      in.general[8] = reinterpret_cast<uintptr_t>(memory);
      EXPECT_EQ(multigrain_test_call(entry.code, 0, &in, &out, kXmm), flags & (~uint64_t{0} >> (64 - 8 * entry.size)));
      EXPECT_EQ(__multigrain_hazards[MG_FINE_LOOP_HAZARD], 0);
    }
  }).join();
}

// The entries that take the address in r11 store what they should, from every register, and say whether the loop hazard is published.
TEST(Trampolines, EntriesOfStoresTakeValuesFromAllRegisters) {
  FakeLineProtocol protocol(4096, 6);
  std::thread([&] {
    protocol.join();
    auto* const words = reinterpret_cast<uint64_t*>(protocol.memory());
    Registers in{}, out{};
    in.general[6] = _MM_MASK_MASK;
    in.general[7] = 0x1122334455667788;
    in.general[8] = reinterpret_cast<uintptr_t>(words);
    for (const RegisterEntry& entry : multigrain_test_store_entries) {
      for (const bool misses : {false, true}) {
        for (const bool is_published : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << entry.size << " bytes, entry " << &entry - multigrain_test_store_entries.data());
          const uint64_t before = 0xa5a5a5a5a5a5a5a5;
          __multigrain_store(words, sizeof before, &before);
          if (misses) protocol.take_away(reinterpret_cast<uintptr_t>(words));
          if (is_published) __multigrain_store_8_in_loop(words + 64, 1);
          const uint64_t result = multigrain_test_call(entry.code, 0, &in, &out, kXmm);
          const uint64_t mask = ~uint64_t{0} >> (64 - 8 * entry.size);
          EXPECT_EQ(words[0], (before & ~mask) | (in.general[7] & mask));
          EXPECT_EQ(__multigrain_hazards[0], 0);
          const bool is_left = __multigrain_hazards[MG_FINE_LOOP_HAZARD] != 0;
          if (entry.returns != 0) {
            EXPECT_EQ(result != MG_FINE_NO_LOOP_HAZARD, !misses);
            EXPECT_EQ(is_left, !misses);
          } else {
            EXPECT_EQ(is_left, is_published && !misses);
          }
          __multigrain_hazards[MG_FINE_LOOP_HAZARD] = 0;
        }
      }
    }
  }).join();
}

// The entries of runs look at the lines of as many bytes as their names say, and at no others.
TEST(Trampolines, EntriesOfRunsKnowTheirSize) {
  FakeLineProtocol protocol(4096, MG_FINE_MIN_LINE_SHIFT);
  std::thread([&] {
    protocol.join();
    constexpr uint64_t kLine = uint64_t{1} << MG_FINE_MIN_LINE_SHIFT;
    unsigned char* const memory = protocol.memory();
    Registers in{}, out{};
    in.general[6] = _MM_MASK_MASK;
    const uint64_t value = 1;
    for (size_t i = 0; i < multigrain_test_run_entries.size(); ++i) {
      const RegisterEntry& entry = multigrain_test_run_entries[i];
      for (const uint64_t from : {uint64_t{0}, kLine - 1}) {
        for (uint64_t line = 0; line <= (from + 64) / kLine; ++line) {
          SCOPED_TRACE(::testing::Message() << run_names[i / kSizes] << " of " << entry.size << " bytes from " << from
                                            << " on, without line " << line);
          for (uint64_t other = 0; other <= (from + 64) / kLine; ++other)
            __multigrain_store(memory + other * kLine, sizeof value, &value);
          protocol.take_away(reinterpret_cast<uintptr_t>(memory + line * kLine));
          in.general[8] = reinterpret_cast<uintptr_t>(memory + from);
          const bool needs = line * kLine < from + entry.size && from < (line + 1) * kLine;
          const uint64_t misses = protocol.misses();
          const uint64_t result = multigrain_test_call(entry.code, 0, &in, &out, kXmm);
          if (run_brings_lines[i / kSizes]) {
            EXPECT_EQ(protocol.misses() != misses, needs);
          } else {
            EXPECT_EQ(result == (i / kSizes == 0 ? MG_FINE_NO_LOOP_HAZARD : 0), needs);
          }
          for (unsigned hazard = 0; hazard < MG_FINE_HAZARDS; ++hazard) __multigrain_hazards[hazard] = 0;
        }
      }
    }
  }).join();
}

// With the shortest lines a run of 64 bytes has parts of three, and each of them is looked at.
TEST(Trampolines, EveryLineOfARunIsLookedAt) {
  FakeLineProtocol protocol(4096, MG_FINE_MIN_LINE_SHIFT);
  std::thread([&] {
    protocol.join();
    unsigned char* const begin = protocol.memory() + 8;
    const uint64_t value = 1;
    for (const size_t missing : {0, 24, 56}) {
      EXPECT_NE(__multigrain_check_in_loop(begin, 64), MG_FINE_NO_LOOP_HAZARD) << missing;
      __multigrain_hazards[MG_FINE_LOOP_HAZARD] = 0;
      protocol.take_away(reinterpret_cast<uintptr_t>(begin + missing));
      EXPECT_EQ(__multigrain_check_in_loop(begin, 64), MG_FINE_NO_LOOP_HAZARD) << missing;
      EXPECT_EQ(__multigrain_try_stores(begin, 64), 0) << missing;
      __multigrain_store(begin + missing, sizeof value, &value);
    }
  }).join();
}

// Messages are handled only when no hazard is left.
TEST(Trampolines, TheLoopHazardIsClearedBeforeMessagesAreHandled) {
  for (const bool has_messages : {false, true}) {
    FakeLineProtocol protocol(4096, 6, {.has_messages = has_messages});
    std::thread([&] {
      protocol.join();
      EXPECT_NE(__multigrain_store_8_in_loop(protocol.memory(), 1), MG_FINE_NO_LOOP_HAZARD);
      EXPECT_NE(__multigrain_hazards[MG_FINE_LOOP_HAZARD], 0);
      const uint64_t before = protocol.polls();
      __multigrain_clear_and_poll();
      EXPECT_EQ(__multigrain_hazards[MG_FINE_LOOP_HAZARD], 0);
      EXPECT_EQ(protocol.polls() - before, has_messages ? 1 : 0);
      __multigrain_begin_store(protocol.memory());
      const uint64_t published = __multigrain_hazards[0];
      EXPECT_NE(published, 0);
      __multigrain_clear_and_poll();
      EXPECT_EQ(__multigrain_hazards[0], published);
      EXPECT_EQ(protocol.polls() - before, has_messages ? 1 : 0);
      __multigrain_hazards[0] = 0;
    }).join();
  }
}

TEST(Trampolines, KeepRegisters) {
  expect_registers_kept();
}

TEST(Trampolines, KeepRegistersOfAProcessorThatDoesNotSayWhichAreInUse) {
  const uint8_t before = std::exchange(multigrain_keep_by_moves, uint8_t{0});
  expect_registers_kept();
  multigrain_keep_by_moves = before;
}

}  // namespace
}  // namespace multigrain::testing
