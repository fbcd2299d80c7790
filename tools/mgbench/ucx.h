// mgbench compares page fetches and prefetching over UCX with the figures of UCX's own benchmark over the same
// transport. This runs that benchmark.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "roles.h"

namespace multigrain::bench {

// A choice of UCX's transports, by the value of UCX_TLS.
struct Transport {
  const char* name;
  const char* tls;
  const char* devices;  // for UCX_NET_DEVICES; nullptr: any
};

// Returns both kinds that nodes on one machine can use: TCP over the loopback interface, and shared memory.
const std::vector<Transport>& transports();

// The figures of ucx_perftest for messages or gets of `bytes` between two processes on two cores of this machine. The
// latency of one get (ucp_get) is not among the figures: where a get needs the target's processor, as over TCP,
// ucx_perftest's target makes no progress while it waits for the end of the test, so the test would measure only UCX's
// own timer, a millisecond.
struct Perftest {
  double request_us = 0;    // a message of 32 bytes, one way (ucp_am_lat)
  double reply_us = 0;      // a message of `bytes`, one way (ucp_am_lat)
  double message_MBps = 0;  // messages of `bytes`, one after the other (ucp_am_bw); 10^6 bytes a second
  double get_MBps = 0;      // gets of `bytes`, 32 at a time (ucp_get)
};
// Runs the tests. An error says that ucx_perftest is not installed, and which package has it, or that it failed.
Result<Perftest> run_perftest(const Transport& transport, size_t bytes);

}  // namespace multigrain::bench
