// This says how much of what coherence costs is false sharing ([Bolosky], chapter 7).
//
// No definition is precise, practical and intuitive at once, so there are several figures, which bound false sharing:
//
//   the cost components (7.1.6)  Phi_s, the block moves at block size s, against Phi_1, those at blocks of one word:
//                                an upper bound (equation 7.14) and lower ones
//   intervals (7.1.2, 7.1.3)     what could be saved if blocks could be merged where no data is communicated:
//                                a lower bound, from a heuristic choice of intervals
//   full duration (7.1.4)        what turning coherence off would save for blocks that never communicate anything
//
// As in [Bolosky], the machines here have neither remote reference nor global memory, so that there are no decisions to
// make: a block moves to the processor that writes it, and is copied to each processor that reads it. Up to and with a
// block's first write that costs nothing (P_0 of equation 4.2 may be all processors that read the block first), so R
// Phi_s is what optimal.h computes for such a machine. A reference that touches two blocks refers to both of them here,
// while optimal.h takes the first byte's block. A block's words have word_bytes bytes, four in [Bolosky]. R = o + b s
// (equation 7.1) is a MoveCost.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/analysis/block_ids.h"
#include "trace/analysis/caches.h"
#include "trace/analysis/synchronisation.h"
#include "trace/model/machine.h"
#include "trace/trace.h"

namespace multigrain::trace {

// This is Phi: the block moves of each block, on a machine that can do nothing else.
class MoveCounter {
 public:
  MoveCounter(uint64_t block_bytes, unsigned processors);
  // `among` counts larger blocks of the same trace, and was filled before. Those that did not move there are left out:
  // they cannot move here. nullptr: all.
  void consume(const Batch& batch, const MoveCounter* among = nullptr);
  // Takes one reference; returns how many blocks it moved.
  unsigned refer(const Reference& reference);
  // Does the same where the blocks are the lines of these caches, whose cores are the processors. A line that they replace
  // comes back without a move: it would not have been there either if no other processor existed.
  unsigned refer(const Reference& reference, Caches& caches);

  [[nodiscard]] uint64_t moves() const { return moves_; }
  // The references that would have moved a line that the caches have replaced.
  [[nodiscard]] uint64_t replaced_moves() const { return replaced_moves_; }
  [[nodiscard]] const BlockIds& blocks() const { return blocks_; }  // keys: address >> shift()
  [[nodiscard]] uint64_t moves_of(uint32_t block) const { return moves_of_[block]; }
  // Returns whether the block was used by one processor after another had written it; if not, it neither communicates
  // nor shares falsely.
  [[nodiscard]] bool is_write_shared(uint32_t block) const { return moves_of_[block] != 0; }
  [[nodiscard]] unsigned shift() const { return shift_; }

 private:
  bool refer_block(uint64_t block, unsigned processor, Access access);
  void replace(uint64_t block, unsigned processor);

  unsigned shift_, processors_;
  BlockIds blocks_;
  ProcessorSets copies_;
  ProcessorSets replaced_;  // the processors whose caches have replaced their copies; no sets where there are no caches
  bool has_caches_ = false;
  std::vector<uint64_t> moves_of_;
  std::vector<bool> written_;
  uint64_t moves_ = 0, replaced_moves_ = 0;
};

// These are the cost components and what follows from them. All are in units of cost; divided by the references they
// give the MCPR.
struct CostComponents {
  uint64_t block_bytes;
  uint64_t moves;       // Phi_s
  uint64_t word_moves;  // Phi_1
  // This is the cost of placement at s, but for the one unit that each reference costs anyway (equation 7.3).
  double overhead_cost;       // o Phi_s
  double data_transfer_cost;  // b s Phi_s
  // These are against blocks of one word (equation 7.5).
  double overhead_component;       // o (Phi_s - Phi_1)
  double data_transfer_component;  // b (s Phi_s - Phi_1)
  // This is false sharing S. The upper bound sets the fragmentation F to 0 (equation 7.14). The lower one uses that
  // Gamma, the lost grouping, cannot be positive: then S_o >= o (Phi_s - Phi_1), and with equation 7.11 S >= R (Phi_s -
  // Phi_1), which holds of each block, so that it is summed over those where it is positive.
  double false_sharing_lower;
  double false_sharing_upper;
  // F <= min(S_upper b s / (o + b s), b (s - 1) Phi_1), because S is not negative, and Gamma is not positive.
  double fragmentation_upper;
  // This is Gamma from equation 7.2, at F = 0 and at F's upper bound.
  double grouping_lower;
  double grouping_upper;
};

// Equation 7.13 gives S for a known fragmentation F. The block size s is in words.
double false_sharing_for(const CostComponents& components, const MoveCost& cost, unsigned word_bytes,
                         double fragmentation);

CostComponents cost_components(const MoveCounter& at_block_size, const MoveCounter& at_word, const MoveCost& cost);

// Where intervals end, as late as they may.
enum class IntervalEnd : uint8_t {
  // At a read of a word that another processor has written in the interval. That needs foreknowledge.
  kCommunication,
  // At the first reference of a processor to the block once synchronisation has told it of another's write in the interval:
  // it acquired a lock that the writer had released since, or left a barrier. This is what Munin's release consistency can
  // know ([Bolosky], section 7.1.3). A read that communicates without that, in a program with data races, ends one, too.
  kSynchronisation,
};

// These are the definitions by intervals, computed block by block in one pass.
struct IntervalResult {
  uint64_t block_bytes = 0;
  double coherent_cost = 0;  // the cost of block moves, R Phi_s
  double lower_bound = 0;    // the savings from merging with the chosen intervals; never negative
  double full_duration = 0;  // the savings from turning coherence off; never more than lower_bound
  uint64_t full_duration_blocks = 0;
  // The figures above are those of the blocks that one processor uses after another has written them. This is their
  // number.
  uint64_t blocks = 0;
  // These are words that are only read, or used by one processor alone, in blocks that several processors use and one
  // writes: if they could be separated, every access to them could be local (section 7.1.4).
  uint64_t separable_words = 0;
  uint64_t separable_references = 0;  // a reference to two words counts twice
};

// A false-sharing interval of a block is a stretch in which it is written, and used by more than one processor, but in
// which no processor reads a word that another has written in it. Within one, every processor may keep its own copy; at
// its end the w copies that were written are merged at a cost of (w - 1) M, into a copy of one processor; at the end of
// the trace no processor needs that any more.
//
// The heuristic: intervals follow each other, each as long as it can be. Dynamic programming decides whether to use an
// interval or to keep the block coherent through it. It has two states, and takes the cheaper of the two ways to reach
// each, so that a block's result never costs more than coherence does. Any choice of intervals is a lower bound
// (section 7.1.3).
class IntervalAnalysis {
 public:
  // `blocks` has counted the whole trace's moves at this block size. It must outlive the analysis, which keeps state
  // only for the blocks that are write-shared there. `move_cost` is R, and `merge_cost` is M.
  IntervalAnalysis(const MoveCounter& blocks, unsigned word_bytes, unsigned processors, double move_cost,
                   double merge_cost, IntervalEnd end = IntervalEnd::kCommunication);
  void consume(const Batch& batch);
  // The caller calls this at the end of the trace. With kSynchronisation, the full duration is not computed.
  [[nodiscard]] IntervalResult result() const;

 private:
  static constexpr uint16_t kNobody = 0xffff, kSeveral = 0xfffe;
  struct Word {
    uint32_t interval = 0;  // the interval in which `writer` wrote the word
    uint16_t writer = kNobody;
    // These are over the whole trace:
    uint16_t user = kNobody;
    uint16_t any_writer = kNobody;
    bool communicated = false;  // a processor has read the word after another had written it
    uint32_t references = 0;    // stops at its largest value
  };
  static_assert(sizeof(Word) == 16);
  // This is a way to arrive at the beginning of the interval that a block is in: what it cost, and what both ways on
  // from there have cost since.
  struct Way {
    double cost = 0;           // the cost before the interval
    double coherent_cost = 0;  // the cost until now, if the block has been kept coherent since
    unsigned fetched = 0;      // copies that processors had to fetch in the interval
  };
  struct Block {
    uint32_t interval = 1;
    uint32_t first_word;
    unsigned writers = 0;  // how many processors have written in the interval
    uint16_t last_writer = kNobody;
    bool second_way = false;  // false in the first interval
    bool written = false;     // at any time
    uint64_t moves = 0;       // Phi_s
    Way way[2];
  };
  void refer(uint32_t number, const Reference& reference, uint32_t from_word, uint32_t to_word);
  void use(uint32_t number, unsigned processor, Access access);
  void end_interval(uint32_t number, unsigned next_user);
  // Whether synchronisation orders a write of the interval by another processor before what this one does now.
  bool is_told(uint32_t number, unsigned processor);
  static bool move(ProcessorSets& copies, uint32_t number, unsigned processor, Access access);

  const MoveCounter& all_blocks_;
  unsigned block_shift_, word_shift_, processors_;
  double move_cost_, merge_cost_;
  BlockIds ids_;
  std::vector<Block> blocks_;
  std::vector<Word> words_;
  IntervalEnd end_;
  Synchronisation synchronisation_;
  // For kSynchronisation, of each block and processor: when it first wrote in the interval, and of how many acquisitions
  // is_told() knows.
  struct Told {
    uint32_t written = 0, acquisitions = 0;
  };
  std::vector<Told> told_;
  ProcessorSets base_;         // the processors that have copies on the coherent machine
  ProcessorSets users_;        // the processors that have used the block in the interval
  ProcessorSets writers_;      // the processors that have written the block in the interval
  ProcessorSets at_start_[2];  // the copies when the interval began, for either way
  ProcessorSets coherent_[2];  // the copies now, if the block has been coherent since
};

}  // namespace multigrain::trace
