#include <tessera/base/error.h>
#include <tessera/comm/hierarchical/topology.h>

#include <algorithm>
#include <map>

namespace tessera::comm::hier {

Topology::Topology(const std::vector<std::string>& hosts) {
  TESSERA_CHECK(!hosts.empty(), "a topology without ranks");
  std::map<std::string, int> numbers;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const auto [entry, is_new] = numbers.emplace(hosts[r], static_cast<int>(numbers.size()));
    if (is_new) members_.emplace_back();
    auto& members = members_[static_cast<std::size_t>(entry->second)];
    host_.push_back(entry->second);
    local_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(r));
  }
}

bool Topology::even() const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& members) { return members.size() == members_.front().size(); });
}

std::vector<int> Topology::by_rail() const {
  TESSERA_CHECK(even(), "rails need the same number of ranks on every host");
  std::vector<int> order;
  for (std::size_t local = 0; local < members_.front().size(); ++local) {
    for (const auto& members : members_) order.push_back(members[local]);
  }
  return order;
}

std::vector<int> Topology::by_host() const {
  std::vector<int> order;
  for (const auto& members : members_) order.insert(order.end(), members.begin(), members.end());
  return order;
}

}  // namespace tessera::comm::hier
