#pragma once
/// \file
/// hierarchical/: collectives of ranks on several hosts, first inside a host, then across. This header: who is where.
/// Torch-free.

#include <string>
#include <vector>

namespace tessera::comm::hier {

/// Places of the ranks of one group. A host's ranks need not follow each other.
class Topology {
 public:
  /// `hosts[r]`: any text that is equal for the ranks of one host. Throws Error when empty.
  explicit Topology(const std::vector<std::string>& hosts);

  int ranks() const { return static_cast<int>(host_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }  ///< numbered by their lowest rank
  int host(int rank) const { return host_[static_cast<std::size_t>(rank)]; }
  /// Place of a rank among those of its host, which are ascending.
  int local(int rank) const { return local_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  /// Every host has as many ranks.
  bool even() const;
  /// Some host has several ranks, and there are several hosts: worth two levels.
  bool two_levels() const { return hosts() > 1 && hosts() < ranks(); }

  /// Ranks in the order [local][host] (even() only) and [host][local].
  std::vector<int> by_rail() const;
  std::vector<int> by_host() const;

 private:
  std::vector<int> host_, local_;
  std::vector<std::vector<int>> members_;
};

}  // namespace tessera::comm::hier
