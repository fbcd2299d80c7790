// Files of --local-files: the guest reads a file under one of these folders on the node where the reading thread runs.
// The user promises that the folders hold the same files on every host, and that nobody changes them during the run.
//
// A descriptor's number is the home's, where the kernel has the descriptor as natively. A node that is not the home may
// have a *copy*: it opens the file for itself, and makes there the calls that only read it. The home knows which nodes
// have a copy of which number. It *offers* a copy with the reply to a call, and takes it back by a message that is
// answered. Invariants:
//  (L1) A number of the guest means the file of a copy as long as a node has the copy. The home takes all copies back
//       before a call that closes the number (close, dup2, dup3, close_range), and no number is offered while such a
//       call is under way, or if one ended since the file was opened. So a thread that knows of the close, and of what
//       has the number afterwards, never reads the old file.
//  (L2) The offset of an open file is at one place. That is the home, or one node, which has the *lease*. The home gives
//       the lease with an offer, for a file that has one number and one process, and only while no call that uses the
//       offset is under way at the home for that number. It takes the lease back before such a call, and before the file
//       can get another number (dup, fcntl) or another process (fork, SCM_RIGHTS). It never gives it twice: the offset
//       of a file that several have used stays at the home, where calls that use it are made as before.
//  (L3) What a copy answers is what the home would answer. The file is opened beneath the folder, and must be the same
//       one: the same inode on one machine, and a file of the same size elsewhere. If it is not, the node makes no call
//       by the copy.
//  (L4) Waiting goes one way. The home waits for a node's answer; a node answers in its message handler, or when the
//       calls of the file system that use the lease are over. These touch no memory of the guest and ask nobody.
//  (L5) When the guest changes what names, rights or descriptors mean for a thread (chroot, mounts, user ids, a table of
//       descriptors of its own), all copies are taken back, and nothing is local from then on.
//
// Other processes see the place of an open file in /proc/PID/fdinfo as it was when the lease was given.
#pragma once

#include <sys/stat.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace multigrain::guest {

class Package;

// Says what a call needs of the file to which its first argument refers, if a node with a copy can make the call.
enum class CopyUse : uint8_t {
  kNone,    // the home makes the call
  kFile,    // the bytes
  kOffset,  // the bytes, and the offset, which it may change
  kStatus,  // what fstat() or statx() says
};
CopyUse copy_use_of(const Package& package);

// Says what a call that the home makes does to descriptors.
struct DescriptorEffects {
  enum class Kind : uint8_t {
    kNone,
    kOpens,       // the result is a new descriptor of a file that is only read
    kShares,      // other processes may get descriptors that the guest has
    kEndsCopies,  // see (L5)
  };
  Kind kind = Kind::kNone;
  // The call uses the offset of this number, or makes another number of it (`adds_number`); -1: of none.
  int uses_offset_of = -1;
  bool adds_number = false;
  // The call closes these numbers, if `closes_first` is not above `closes_last`.
  unsigned closes_first = 1;
  unsigned closes_last = 0;

  [[nodiscard]] bool closes_any() const { return closes_first <= closes_last; }
  [[nodiscard]] bool are_none() const { return kind == Kind::kNone && uses_offset_of < 0 && !closes_any(); }
};
DescriptorEffects effects_of(const Package& package);

// What the home tells a node with an offer. The path of the file beneath the folder follows, without a zero.
struct CopyOffer {
  uint64_t grant = 0;   // the number of this offer: later ones are greater
  uint64_t offset = 0;  // if it comes with the lease
  struct stat status{};
  int32_t number = 0;
  uint16_t folder = 0;  // its place among the folders
  uint16_t path_bytes = 0;
  bool has_lease = false;
};
inline constexpr size_t kMaxOffer = sizeof(CopyOffer) + PATH_MAX;

// The folders, on one node.
class LocalFolders {
 public:
  struct Place {
    uint16_t folder;
    std::string path;  // beneath the folder
  };
  LocalFolders() = default;
  LocalFolders(const LocalFolders&) = delete;
  LocalFolders& operator=(const LocalFolders&) = delete;

  // Finds the folders. Fails if one of them is none, but only at the home: another node does without it.
  Status begin(const std::vector<std::string>& names, bool is_home);
  [[nodiscard]] bool has_any() const { return !folders_.empty(); }

  // Returns where a file is whose path has no symbolic links in it; nothing if it is in none of the folders.
  [[nodiscard]] std::optional<Place> place_of_real(std::string_view path) const;
  // Returns where a path leads if it begins with the name of a folder. What comes behind may still lead out again.
  [[nodiscard]] std::optional<Place> place_of_name(std::string_view path) const;
  // Opens what is at that place. Returns a descriptor or -errno: -EXDEV if the path leads out of the folder.
  [[nodiscard]] int open_beneath(uint16_t folder, const char* path, int flags) const;
  [[nodiscard]] const std::string& name(uint16_t folder) const { return folders_[folder].given; }
  [[nodiscard]] size_t count() const { return folders_.size(); }

 private:
  struct Folder {
    std::string given;
    std::string real;
    int fd = -1;
  };
  std::vector<Folder> folders_;
};

}  // namespace multigrain::guest
