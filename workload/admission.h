// SPDX-License-Identifier: MIT
// Receiver-driven admission, for any collective algorithm: between servers a message leaves only
// when its receiver has said clear-to-send (CTS), and a receiver has only so many of them open.
// Inside a server nothing is asked. Source: "RDMA over Ethernet for Distributed AI Training at
// Meta Scale", SIGCOMM'24 (S03), and NCCL's net_ib, where the receiver writes an entry into the
// sender's FIFO for every buffer that it posts.
//
// A receiver grants in the order of CollectiveRun::receives() as soon as it has arrived, ahead of
// the sender's readiness; where an algorithm cannot tell what comes, when a message is ready.
#pragma once

#include <memory>

#include "sim/collective.h"

namespace trainyard {

/// `params`: the `collectives` block (outstanding, cts_size, cts_class).
std::unique_ptr<CollectiveAlgorithm> admit_by_credits(std::unique_ptr<CollectiveAlgorithm> inner,
                                                      const Params& params);

}  // namespace trainyard
