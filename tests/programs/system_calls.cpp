// These are system calls and stdio with shared buffers. The kernel cannot take Multigrain's faults, so every call here
// is given pages to which the caller's node has no access; and what the kernel wrote must reach the other nodes.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "program.h"

namespace {

size_t bytes;
unsigned char* source;       // written by one processor, read by all
unsigned char* destination;  // one part for each processor
mg_barrier_t barrier;
constexpr unsigned kRounds = 5;

void through_read_and_write(const unsigned char* from, unsigned char* to) {
  const int file = memfd_create("read_and_write", 0);
  REQUIRE(file >= 0);
  REQUIRE(write(file, from, bytes) == static_cast<ssize_t>(bytes));
  REQUIRE(lseek(file, 0, SEEK_SET) == 0);
  REQUIRE(read(file, to, bytes) == static_cast<ssize_t>(bytes));
  REQUIRE(close(file) == 0);
}

void through_pread_and_pwrite(const unsigned char* from, unsigned char* to) {
  const int file = memfd_create("pread_and_pwrite", 0);
  REQUIRE(file >= 0);
  REQUIRE(pwrite(file, from, bytes, 100) == static_cast<ssize_t>(bytes));
  REQUIRE(pread(file, to, bytes, 100) == static_cast<ssize_t>(bytes));
  REQUIRE(close(file) == 0);
}

void through_readv_and_writev(const unsigned char* from, unsigned char* to) {
  const int file = memfd_create("readv_and_writev", 0);
  REQUIRE(file >= 0);
  // These are parts that begin and end inside pages, and an empty one.
  const size_t cut[] = {0, 17, 17, bytes / 2 + 3, bytes};
  iovec out[4];
  iovec in[4];
  for (size_t i = 0; i < 4; ++i) {
    out[i] = {const_cast<unsigned char*>(from) + cut[i], cut[i + 1] - cut[i]};
    in[i] = {to + cut[i], cut[i + 1] - cut[i]};
  }
  REQUIRE(writev(file, out, 4) == static_cast<ssize_t>(bytes));
  REQUIRE(lseek(file, 0, SEEK_SET) == 0);
  REQUIRE(readv(file, in, 4) == static_cast<ssize_t>(bytes));
  REQUIRE(close(file) == 0);
}

void through_send_and_recv(const unsigned char* from, unsigned char* to) {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  constexpr size_t kPiece = 5000;  // far less than a socket buffer holds
  for (size_t i = 0; i < bytes; i += kPiece) {
    const size_t piece = i + kPiece < bytes ? kPiece : bytes - i;
    REQUIRE(send(ends[0], from + i, piece, 0) == static_cast<ssize_t>(piece));
    REQUIRE(recv(ends[1], to + i, piece, MSG_WAITALL) == static_cast<ssize_t>(piece));
  }
  REQUIRE(close(ends[0]) == 0 && close(ends[1]) == 0);
}

void through_stdio(const unsigned char* from, unsigned char* to) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  REQUIRE(std::fwrite(from, 1, bytes, file) == bytes);
  std::rewind(file);
  REQUIRE(std::fread(to, 1, bytes, file) == bytes);
  REQUIRE(std::fclose(file) == 0);
}

using Way = void (*)(const unsigned char*, unsigned char*);
constexpr Way kWays[kRounds] = {through_read_and_write, through_pread_and_pwrite, through_readv_and_writev,
                                through_send_and_recv, through_stdio};

void slave(void*) {
  const unsigned me = mg_processor();
  const unsigned all = mg_processors();
  for (unsigned round = 0; round < kRounds; ++round) {
    if (me == round % all)
      for (size_t i = 0; i < bytes; ++i) source[i] = program::pattern(i, round);
    mg_barrier(barrier);
    kWays[round](source, destination + me * bytes);
    mg_barrier(barrier);
    const unsigned char* const theirs = destination + (me + 1) % all * bytes;
    for (size_t i = 0; i < bytes; ++i) REQUIRE(theirs[i] == program::pattern(i, round));
    mg_barrier(barrier);
  }
}

}  // namespace

int main() {
  bytes = 3 * mg_page_size() + 123;
  source = program::shared<unsigned char>(bytes);
  // The parts are not aligned to pages: two processors' buffers meet inside a page.
  destination = program::shared<unsigned char>(bytes * mg_processors(), MG_HOME_NODE, mg_nodes() - 1);
  barrier = mg_barrier_create(0);
  program::run_on_all(slave);
  return 0;
}
