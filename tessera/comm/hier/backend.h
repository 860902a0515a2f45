#pragma once
/// \file
/// The backend `hier`: an inner group per host (shared memory, or nothing for a rank alone) and outer groups across the
/// hosts. L = ranks of a host, H = hosts, R = L H, S = bytes of the whole tensor; each host sends over the network:
///
///   all_reduce      2 S (H-1)/H   reduce_scatter inside, all_reduce across on each slice, all_gather inside
///   reduce_scatter    S (H-1)/H   reduce_scatter inside, reduce_scatter across
///   all_gather        S (H-1)/H   all_gather across, all_gather inside
///   broadcast, reduce S           across once, then inside (reduce: inside first)
///
/// where a flat ring sends 2 S (R-1)/R between any two neighbours. The ranks with the same place on their hosts form a
/// "rail", a group of H; all rails work at the same time. Hosts with different numbers of ranks go through one leader
/// each. Scatter, gather, all_to_all and messages between hosts go straight to their rank; messages inside a host
/// through the inner transport. bf16/fp16 are widened to fp32 once, before the first stage, and rounded once.

#include <tessera/comm/backend.h>
#include <tessera/comm/hier/topology.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::comm::hier {

/// Makes one end of a group: `name` is unique in this hier group, equal on all its ranks; `rank`, `size` inside it.
/// Collective over the ranks of that group; never called for one rank.
using MakeBackend = std::function<std::shared_ptr<Backend>(const std::string& name, int rank, int size)>;

struct Options {
  std::string name;  ///< of the group
  int rank = 0;
  std::vector<std::string> hosts;  ///< per rank of the group, see Topology
  MakeBackend inner, outer;        ///< transports inside a host and across
};

/// Collective over the group's ranks. CPU tensors.
std::shared_ptr<Backend> make_backend(const Options& options);

}  // namespace tessera::comm::hier
