// The guest's memory at the home of a guest on several nodes: which addresses are pages under the protocol, and which
// are mappings of files that every node makes for itself.
//
// Anonymous memory, and private mappings that can be written, are pages of the shared region at their own addresses
// (the content of a file is copied into them). Private mappings that cannot be written, and shared mappings, are the
// file's own pages on every node: nodes of one machine see the same ones. If the nodes are of several machines, the
// home alone has the file. There a mapping by which processes can talk to each other is the home's alone, and a thread
// that uses it comes home (Cluster::come_home()): shared memory without a name, shared mappings of files that can be
// written or are memory, and System V segments. All other mappings are pages.
//
//  (M1) A page of the region that is in no area, or in an area of a file, reads as zeros to the next area that has it.
//  (M2) What another node has mapped of an address is what the account of areas says, or nothing: before the account
//       takes a right or replaces an area, every node has invalidated it.
//  (M3) Memory that another process can see is the kernel's on every node that has it mapped, never pages.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coherence/protocol.h"
#include "guest/mappings.h"
#include "guest/nodes/areas_of_files.h"
#include "guest/nodes/kept_files.h"
#include "memory/access_rights.h"
#include "memory/heap/shared_heap.h"
#include "memory/region.h"

namespace multigrain::guest {

// The other nodes know the areas that their threads have needed so far, as processors know pages by their TLBs. This
// invalidates what they know.
class AreaCaches {
 public:
  virtual ~AreaCaches() = default;
  // Returns when no other node has anything mapped in the range.
  virtual void invalidate(Range range) = 0;
};

// Says which nodes can map the guest's files.
enum class Files : uint8_t {
  kOfEveryNode,  // nodes of one machine map the same files
  kAtHome        // only the home has the files; mappings become pages, or are the home's alone
};

class SharedMappings final : public Mappings {
 public:
  // `protocol` must be able to discard pages.
  SharedMappings(Region& region, AccessRights& rights, SharedHeap& heap, Protocol& protocol, AreasOfFiles& of_files,
                 AreaCaches& others, Files files)
      : region_(region),
        rights_(rights),
        heap_(heap),
        protocol_(protocol),
        of_files_(of_files),
        others_(others),
        files_(files) {}
  ~SharedMappings() override;

  long map(Area& area, int flags, int fd, uint64_t offset, const std::vector<Area>& before) override;
  long unmap(Range range, uint64_t length, const std::vector<Area>& before) override;
  long protect(Range range, uint64_t length, int rights, int key, std::vector<Area>& before) override;
  long remap(Range old, uint64_t old_length, uint64_t new_length, int flags, uint64_t to,
             const std::vector<Area>& before, const std::vector<Area>& replaced) override;
  long discard(Range range, const std::vector<Area>& before) override;
  long attach(Area& area, int segment, int flags, const std::vector<Area>& before) override;
  long detach(uint64_t address, const std::vector<Area>& before) override;
  long map_for_host(Range range) override;
  // Each node has mapped the file for itself, and keeps its own copy of a page that it changes.
  [[nodiscard]] bool has_own_code(const Area& area) const override { return area.file != 0 && !area.is_shared; }

  // Returns the number by which another process finds the file of an area.
  [[nodiscard]] static int descriptor_of(uint32_t file) { return static_cast<int>(file) - 1; }

 private:
  long map_file(Area& area, int flags, int fd, uint64_t offset);
  long remap_file(const Area& area, uint64_t bytes, uint64_t to, const std::vector<Area>& before,
                  const std::vector<Area>& replaced);
  long fill(Range range, int fd, uint64_t offset);
  // Takes these areas away from every node.
  void vacate(const std::vector<Area>& before);
  // Makes all pages of the range zeros.
  void clear(Range range);
  void view_again(Range range);

  Region& region_;
  AccessRights& rights_;
  SharedHeap& heap_;
  Protocol& protocol_;
  AreasOfFiles& of_files_;
  AreaCaches& others_;
  const Files files_;
  KeptFiles kept_;
};

// All of the guest's pages as they are at one moment, for a process that is forked: memory without a file, as the
// process would have it without the host, one area behind the other. `areas` are all that there are.
//
// Copies the pages. No other node has any of the areas mapped. Returns where the copy is, or -errno; 0 if there is
// nothing to copy.
long save_pages(const Region& region, SharedHeap& heap, const std::vector<Area>& areas);
// Moves the copy to the areas' addresses, in the child, which has inherited no part of the view.
void restore_pages(long saved, const std::vector<Area>& areas);
// Gives the copy up, in the parent.
void forget_pages(long saved, const std::vector<Area>& areas);

// Maps a file of this machine over a part of the view. Returns -errno or 0.
long map_over_view(Range range, int rights, bool is_shared, int fd, uint64_t offset);

}  // namespace multigrain::guest
