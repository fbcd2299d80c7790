// The files of a checkpoint (docs/internals/checkpoints.md), all in one folder:
//
//   checkpoint             the head: which run wrote it, and the length and checksum of every part
//   memory-NUMBER-NODE     a part: a node's books of the shared heap, pages whose home it is, and, of a checkpoint at a barrier
//                          (runtime/program_image.h), what the node has of the program besides: a record, and pages of private memory
//   lock                   an empty file (folder_lock.h)
//
// A node's memory in a checkpoint is a chain of parts. The first has all of its pages, each other one those that have changed
// since the part before it. The last has the checkpoint's number. node_parts.h decides which begin a chain.
//
// The checkpoint NUMBER is there from the moment on at which a head that names it has its name: all parts are on the disk by
// then, and the head replaces the one before by rename(). So a run that ends anywhere in between, or a full disk, leaves the
// last head and its parts as they were.
//
// Numbers are in the order of bytes of x86-64. Functions here are for ordinary code; none waits for another node.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/ids.h"
#include "memory/heap/heap_image.h"

namespace multigrain::checkpoint {

// The version of the files. A file of another version is refused.
inline constexpr uint32_t kVersion = 3;

// The head's file in the folder, and where in it the root is.
inline constexpr const char* kHeadName = "checkpoint";
inline constexpr long kRootInHead = 48;

// In the number of a page of private memory, which is its address by its size besides.
inline constexpr uint64_t kPrivatePage = uint64_t{1} << 62;

// What a run must have in common with the run that wrote the checkpoint.
struct Machine {
  uint64_t program = 0;  // program_fingerprint()
  uint64_t region_size = 0;
  uint64_t page_size = 0;
  uint32_t nodes = 0;
  uint32_t line_size = 0;
  std::array<char, 16> protocol{};

  bool operator==(const Machine&) const = default;
};

struct Part {
  uint64_t number = 0;  // of the checkpoint for which it was written
  uint64_t bytes = 0;
  uint64_t checksum = 0;

  bool operator==(const Part&) const = default;
};

struct Head {
  Machine machine;
  uint64_t number = 0;  // 1 for the first checkpoint of a folder
  uint64_t root = 0;    // the address that the program gave; 0: the checkpoint has private memory, too
  // Each node's chain, the oldest part first.
  std::vector<std::vector<Part>> chains;
};

// Makes the folder, if it is not there. Errors: it cannot be made, or it may not be written to.
Status make_folder(const std::string& folder);

// Returns the name of a part's file in the folder.
std::string part_name(const std::string& folder, uint64_t number, NodeId node);

// Reads the head of the folder's checkpoint; nullopt if there is none, or no folder. Errors: the file cannot be read, is no
// head, is torn or truncated, or has another version.
Result<std::optional<Head>> read_head(const std::string& folder);

// Makes the checkpoint, whose parts are on the disk, the one of the folder, as described above. Errors, after which the
// one before is still there: the disk is full, the folder may not be changed.
Status write_head(const std::string& folder, const Head& head);

// Says in which way the run that wrote the checkpoint differs from this one; nullopt if in none that matters.
std::optional<std::string> difference(const Machine& written, const Machine& here);

// Removes all parts of the folder whose number and node `is_to_go` accepts. What cannot be removed stays.
void remove_parts(const std::string& folder, const std::function<bool(uint64_t number, unsigned node)>& is_to_go);

// Writes a part, compressed.
class PartWriter {
 public:
  // Begins the file; one of the same name is overwritten. `before` is the number of the part that it adds to, or 0 if it begins
  // a chain. Errors: the file cannot be made.
  static Result<PartWriter> create(const std::string& folder, uint64_t number, NodeId node, uint64_t before);

  // The books come first. Another node than 0 has none of the manager's.
  // `program` is the record of private memory, if the part has some.
  void add_books(const SpaceImage& space, const SmallImage& small, std::span<const std::byte> program = {});
  // Then the pages come, in any order, each once; `page` has the bytes of one.
  void add_page(PageId page, std::span<const std::byte> bytes);
  // This one is zero now, or another node's: what earlier parts of the chain have of it does not count.
  void add_absent(PageId page);
  // Ends the file, which is on the disk when this returns. Errors, also those of the functions above: the disk is full, or
  // a limit of the process or of the user is reached. The file is removed then.
  Result<Part> finish();

 private:
  PartWriter(std::string name, FileDescriptor file);
  void add(const void* bytes, size_t size);
  void flush();
  void write(std::span<const std::byte> bytes);

  std::string name_;
  FileDescriptor file_;
  uint64_t number_ = 0;
  std::vector<std::byte> block_;   // that is being filled
  std::vector<std::byte> packed_;  // one as it is in the file
  struct FreeHash {
    void operator()(void* state) const;
  };
  struct FreeCompressor {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, FreeHash> hash_;
  std::unique_ptr<void, FreeCompressor> compressor_;
  uint64_t bytes_ = 0;
  int failed_ = 0;  // an errno value
};

// Reads a part as a whole, after it was found to be what the head says.
class PartReader {
 public:
  // `before` is the part that it adds to, or nullptr if it begins a chain. Errors: the file is not there, cannot be read, has
  // another length or checksum, or is another part's.
  static Result<PartReader> open(const std::string& folder, NodeId node, const Part& part, const Part* before);
  PartReader(PartReader&& other) noexcept
      : name_(std::move(other.name_)),
        rest_(std::exchange(other.rest_, {})),
        all_(std::exchange(other.all_, {})),
        program_(std::move(other.program_)),
        block_(std::move(other.block_)),
        at_(other.at_),
        page_(std::move(other.page_)) {}
  PartReader(const PartReader&) = delete;
  PartReader& operator=(const PartReader&) = delete;
  PartReader& operator=(PartReader&&) = delete;
  ~PartReader();

  // Reads the books, and must be called first. Errors: they make no sense.
  Status read_books(SpaceImage& space, SmallImage& small);
  // What add_books() was given besides, after read_books().
  [[nodiscard]] std::span<const std::byte> program() const { return program_; }
  // Returns the next page, or nullopt after the last. Errors: the file makes no sense.
  struct Page {
    PageId page;
    // None: the page is absent (PartWriter::add_absent). They are there until the next call.
    std::span<const std::byte> bytes;
  };
  Result<std::optional<Page>> next_page(size_t page_size);

 private:
  PartReader(std::string name, std::span<const std::byte> all) : name_(std::move(name)), rest_(all), all_(all) {}
  template <typename Record>
  bool take(Record& record);
  bool take(void* bytes, size_t size);
  bool next_block();
  [[nodiscard]] tl::unexpected<Error> senseless() const;

  std::string name_;
  std::span<const std::byte> rest_;  // of the mapping, behind the block
  std::span<const std::byte> all_;   // the mapping
  std::vector<std::byte> program_;
  std::vector<std::byte> block_;  // unpacked
  size_t at_ = 0;                 // the first byte of it that was not taken
  std::vector<std::byte> page_;
};

}  // namespace multigrain::checkpoint
