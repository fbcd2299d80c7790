// Keeps two runs from one folder of checkpoints: each would remove the other's parts, and a restart would find those of
// both.
//
// The locks are on bytes of the file `lock` in the folder. A byte is mgrun's, which holds it also between the end of a run
// and its restart; each node has another. So nodes that mgrun did not start exclude each other, too, and a node that is not
// gone yet keeps the next run from the parts that it writes.
//
// They are POSIX record locks of the process: they end with it, however that ends, and its children have none. Where the
// nodes are on several hosts they work as far as the file system has locks between hosts.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/ids.h"

namespace multigrain::checkpoint {

class FolderLock {
 public:
  // Whose byte of the folder it is.
  struct Holder {
    static Holder mgrun() { return {0}; }
    static Holder node(NodeId node) { return {1 + long{node.value}}; }
    long byte;
  };

  // Takes the lock, to write checkpoints to a folder that exists. Errors: another process holds it, of which the message has
  // the number where it is known; the file cannot be made. A file system that has no locks gives a lock that excludes nobody
  // (excludes_others()).
  static Result<FolderLock> take(const std::string& folder, Holder holder);
  // The same to read the folder's checkpoint: others may read it, too. Nothing is made in the folder.
  static Result<FolderLock> take_to_read(const std::string& folder, Holder holder);

  [[nodiscard]] bool excludes_others() const { return excludes_; }

 private:
  FolderLock(FileDescriptor file, bool excludes) : file_(std::move(file)), excludes_(excludes) {}
  static Result<FolderLock> lock(FileDescriptor file, const std::string& folder, Holder holder, short kind);

  // A process that closes any descriptor of a file loses all its record locks there, so it opens the file once.
  FileDescriptor file_;
  bool excludes_;
};

}  // namespace multigrain::checkpoint
