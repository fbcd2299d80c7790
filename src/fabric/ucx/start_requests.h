// RemoteOperations::start_requests(): starts an operation that is made of several of UCX's requests. The template is
// not in remote_operations.h because it needs parts.h, which includes that header.
#pragma once

#include "fabric/ucx/parts.h"

namespace multigrain::ucx {

template <typename Requests>
Completion RemoteOperations::start_requests(NodeId node, Requests&& requests) {
  UcxLock lock(parts_);
  Operation* operation = nullptr;
  const Completion completion = begin(lock, operation);
  Peer& peer = parts_.peers[node.value];
  if (!peer.liveness.failed.load(std::memory_order_relaxed)) {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.cb.send = [](void* request, ucs_status_t, void* user_data) {
      auto& ended = *static_cast<Operation*>(user_data);
      inside_ucx.assume_held();
      ended.operations->end_part(ended);
      ucp_request_free(request);
    };
    parameters.user_data = operation;
    requests(peer, parameters, [&](void* request) {
      inside_ucx.assume_held();
      if (UCS_PTR_IS_PTR(request)) {
        ++operation->parts;
      } else if (UCS_PTR_IS_ERR(request)) {
        parts_.failures.peer_failed(node.value, FailureReason::kBroken, false);
      }
    });
  }
  const bool immediate = operation->parts == 1;
  end_part(*operation);
  return immediate ? Completion{} : completion;
}

}  // namespace multigrain::ucx
