// This says which data cause the block moves, and which of those are useless. The thesis stops at totals ([Bolosky],
// chapter 7).
//
// A block move is judged by the use of its copy until the copy was invalidated:
//   cold    the first copy that this processor had of the block
//   useful  the processor used a word (read or wrote it) that another processor had written since this processor last
//           got the block with a cold or useful copy: with blocks of one word, that word would have moved, too
//   false   neither: false sharing
// A false move has a victim, the reference that asked for the block, and a culprit, the write that had taken the copy
// away. Both are known by allocation, by byte range in it, and by source line.
//
// R times the false moves is at most the upper bound of [Bolosky], equation 7.14: within the time of a useful or cold
// copy no word moves twice with blocks of one word, and outside of it no word moves.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/analysis/allocations.h"
#include "trace/analysis/false_sharing.h"

namespace multigrain::trace {

struct MoveKinds {
  uint64_t cold = 0, useful = 0, false_sharing = 0;
};

// A group is the allocations with the same name and source line, which are the instances of one thing. Unnamed memory
// is group 0.
struct Group {
  uint32_t name = 0;
  SiteId site = 0;
  uint64_t instances = 0;
  uint64_t bytes = 0;         // the bytes of all instances
  uint64_t address = 0;       // the address of the first instance
  MoveKinds moves = {};       // moves that references to the group asked for
  uint64_t across_nodes = 0;  // the false ones among them that a write of another node caused
  uint64_t culprit = 0;       // false moves that writes to the group caused
};

enum class Users : uint8_t { kNobody, kOne, kSeveral };

// These are bytes of every instance of a group that are used alike, and that false moves concern.
struct Field {
  uint32_t group = 0;
  uint64_t offset = 0;  // bytes from the allocation's beginning; in group 0, the address
  uint64_t bytes = 0;
  Users readers = Users::kNobody, writers = Users::kNobody;
  ProcessorId reader = 0, writer = 0;  // the processor, if there is only one
  uint64_t victim = 0;                 // false moves that references to the field asked for
  uint64_t culprit = 0;                // false moves that writes to the field caused
};

// These are the false moves from one source line to another.
struct Cause {
  uint32_t victim_group = 0, culprit_group = 0;
  SiteId victim_site = 0, culprit_site = 0;
  uint64_t moves = 0;
};

// This is a block with its moves.
struct HotBlock {
  uint64_t address = 0;
  MoveKinds moves = {};
  std::vector<uint32_t> groups;  // the groups that have words in the block
  std::vector<SiteId> sites;     // the sites that asked for the block most often, at most four
};

struct AttributionResult {
  uint64_t block_bytes = 0;
  MoveKinds moves = {};            // the moves of write-shared blocks, without the replication of read-only blocks
  uint64_t across_nodes = 0;       // the false ones among them that a write of another node caused
  std::vector<Group> groups = {};  // in the order of their numbers
  std::vector<Field> fields = {};  // in descending order of false moves
  std::vector<Cause> causes = {};  // in descending order of moves
  std::vector<HotBlock> hot = {};  // in descending order of moves
};

// This is a word that false sharing may concern, for the plans of address_map.h.
struct WordUse {
  uint64_t address;
  uint32_t group;
  uint64_t allocation_address;  // the address of the instance in which the word was last; 0 in group 0
  ProcessorId owner;            // the processor that wrote the word first, or, if no processor did, used it first
  Users readers, writers;
  ProcessorId reader, writer;  // the processor, if there is only one
  bool joined;                 // a reference touched both this word and the next one
  bool in_false_move;          // some false move had the word as its victim or culprit
};

// This analyses one block size in one pass, after a MoveCounter's pass at the same block size. State: 32 bytes a word
// and 64 bytes a processor for each write-shared block.
class Attribution {
 public:
  static constexpr size_t kHotBlocks = 50;
  static constexpr size_t kHotSites = 4;

  // The MoveCounter `blocks` must outlive the analysis. `node_of`: the node of each processor; empty: each is one.
  Attribution(const MoveCounter& blocks, unsigned word_bytes, unsigned processors,
              std::vector<ProcessorId> node_of = {});
  // With caches, whose lines are the blocks and whose cores are the processors, a line that they replace comes back without
  // a move, as in MoveCounter::refer().
  void consume(const Batch& batch, Caches* caches = nullptr);
  // The caller calls this once, at the end of the trace.
  AttributionResult finish();
  // Returns all words of write-shared blocks that were used, in order of address. Pre: finish().
  [[nodiscard]] std::vector<WordUse> words() const;
  // Returns the false moves that references to these bytes of a group asked for, and that writes to them caused.
  // The caller takes the bytes from a Field of another trace. Pre: finish().
  [[nodiscard]] std::pair<uint64_t, uint64_t> false_moves_of(uint32_t group, uint64_t offset, uint64_t bytes) const;
  // Returns the moves of the block at this address, which need not be a hot one. Pre: finish().
  [[nodiscard]] MoveKinds moves_at(uint64_t address) const {
    const uint32_t number = ids_.find(address >> block_shift_);
    return number == kNone ? MoveKinds{} : blocks_[number].moves;
  }

 private:
  // These make parts of the result.
  [[nodiscard]] std::vector<Field> fields_by_moves() const;
  [[nodiscard]] std::vector<Cause> causes_by_moves() const;
  [[nodiscard]] std::vector<HotBlock> hottest_blocks() const;

  static constexpr uint16_t kNobody = 0xffff, kSeveral = 0xfffe;
  static constexpr uint32_t kNone = BlockIds::kNone;
  struct Word {
    uint64_t last_write = 0;  // the time: 1 + the index in the trace
    uint32_t field = kNone;   // set when a move concerns the word
    uint16_t last_writer = kNobody;
    // These hold since the memory was last allocated:
    uint16_t owner = kNobody;
    uint16_t reader = kNobody, writer = kNobody;
    bool joined = false;
    bool in_false_move = false;
  };
  struct Use {
    SiteId site = 0;
    uint32_t word = 0;   // the reference's first word, in words_
    uint32_t field = 0;  // that word's field, in fields_
  };
  // This is one processor's copy of a block: the present one, or the last.
  struct Copy {
    uint64_t given = 0;     // when the copy was made
    uint64_t valid = 0;     // when the processor last got a copy that was cold or useful
    Use victim;             // the reference that asked for this copy
    Use culprit;            // the write that took away the copy before
    ProcessorId taker = 0;  // the processor that made that write
    bool ever = false, moved = false, useful = false, cold = false;
    bool replaced = false;  // a cache has replaced the copy, and it has not come back yet
  };
  struct Block {
    uint32_t first_word = 0;
    bool written = false;
    MoveKinds moves = {};
    SiteId sites[kHotSites] = {};  // the most frequent sites, by the algorithm of [MisraGries]
    uint64_t site_moves[kHotSites] = {};
  };
  struct FieldCount {
    uint32_t group = 0;
    uint32_t words = 1;  // how many words the widest reference that begins with this one touched
    uint64_t victim = 0, culprit = 0;
    uint16_t reader = kNobody, writer = kNobody;
  };
  // These are the victim's group and site, and the culprit's group and site.
  using CauseKey = std::tuple<uint32_t, SiteId, uint32_t, SiteId>;

  void begin_allocation(const Event& event);
  void refer(uint32_t number, const Reference& reference, uint32_t from_word, uint32_t to_word, uint64_t now);
  void end_copy(uint32_t number, unsigned processor);
  // A cache of the processor has replaced its copy of the block.
  void replace(uint64_t block, unsigned processor);
  // A reference from `site` touches the words [word, end) of the block with this number, and a move concerns them.
  Use use(uint32_t number, uint32_t word, uint32_t end, SiteId site);
  void flush(Word& word);
  [[nodiscard]] uint64_t address_of(uint32_t number, uint32_t word_in_block) const {
    return (ids_.key(number) << block_shift_) + (uint64_t{word_in_block} << word_shift_);
  }
  static void note(uint16_t& who, uint16_t processor) {
    if (processor != kNobody) who = who == kNobody || who == processor ? processor : kSeveral;
  }
  static Users users(uint16_t who) {
    return who == kNobody ? Users::kNobody : who == kSeveral ? Users::kSeveral : Users::kOne;
  }

  const MoveCounter& all_blocks_;
  unsigned block_shift_, word_shift_, processors_;
  std::vector<ProcessorId> node_of_;
  uint32_t words_of_block_;
  Allocations allocations_;
  std::vector<uint32_t> group_of_allocation_ = {0};
  std::map<std::pair<uint32_t, SiteId>, uint32_t> group_by_origin_;
  std::vector<Group> groups_ = {Group{}};
  BlockIds ids_;
  std::vector<Block> blocks_;
  std::vector<Copy> copies_;  // one for each block and processor
  ProcessorSets present_;
  std::vector<Word> words_;
  BlockIds field_ids_;  // field_key() makes the keys
  std::vector<FieldCount> fields_;
  std::map<CauseKey, uint64_t> causes_;
  uint64_t position_ = 0;
};

}  // namespace multigrain::trace
