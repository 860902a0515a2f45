#pragma once
/// \file
/// hierarchical/: collectives of ranks on several hosts, first inside a host, then across. This header: the assignment
/// of ranks to hosts. Torch-free.

#include <string>
#include <vector>

namespace tessera::comm::hier {

/// Hosts of the ranks of one group. A host's ranks need not be consecutive.
class Topology {
 public:
  /// `hosts[r]`: any text that is equal for the ranks of one host. Throws Error when empty.
  explicit Topology(const std::vector<std::string>& hosts);

  int ranks() const { return static_cast<int>(host_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }  ///< numbered by their lowest rank
  int host(int rank) const { return host_[static_cast<std::size_t>(rank)]; }
  /// Index of a rank among the ranks of its host, which are ascending.
  int local(int rank) const { return local_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  /// True if every host has the same number of ranks.
  bool even() const;
  /// True if there are several hosts and at least one has several ranks, so that two levels pay off.
  bool two_levels() const { return hosts() > 1 && hosts() < ranks(); }

  /// Ranks ordered [local][host] (even() only) and [host][local].
  std::vector<int> by_rail() const;
  std::vector<int> by_host() const;

 private:
  std::vector<int> host_, local_;
  std::vector<std::vector<int>> members_;
};

}  // namespace tessera::comm::hier
