#include <tessera/base/error.h>
#include <tessera/layout/owners.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace tessera::layout {

std::vector<int> assign_owners(std::span<const std::int64_t> bytes, int ranks, std::span<const int> holders) {
  TESSERA_CHECK(ranks >= 1, "tensors assigned to ", ranks, " ranks");
  TESSERA_CHECK(holders.empty() || holders.size() == bytes.size(), holders.size(), " holders of ", bytes.size(),
                " tensors");
  std::int64_t all = 0;
  for (const std::int64_t size : bytes) {
    TESSERA_CHECK(size >= 0, "a tensor of ", size, " bytes");
    TESSERA_CHECK(!__builtin_add_overflow(all, size, &all), "tensors of more than 2^63 bytes together");
  }
  std::vector<int> owner(bytes.size(), -1);
  std::vector<std::int64_t> kept(static_cast<std::size_t>(ranks));
  for (std::size_t tensor = 0; tensor < holders.size(); ++tensor) {
    const int holder = holders[tensor];
    TESSERA_CHECK(holder >= -1 && holder < ranks, "rank ", holder, " of ", ranks, " holds a tensor");
    owner[tensor] = holder;
    if (holder >= 0) kept[static_cast<std::size_t>(holder)] += bytes[tensor];
  }
  std::vector<std::size_t> largest_first;
  for (std::size_t tensor = 0; tensor < bytes.size(); ++tensor)
    if (owner[tensor] < 0) largest_first.push_back(tensor);
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });

  using Load = std::pair<std::int64_t, int>;  // (bytes so far, rank): the smallest pair gets the next tensor
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int rank = 0; rank < ranks; ++rank) loads.emplace(kept[static_cast<std::size_t>(rank)], rank);
  for (const std::size_t tensor : largest_first) {
    const auto [load, rank] = loads.top();
    loads.pop();
    owner[tensor] = rank;
    loads.emplace(load + bytes[tensor], rank);
  }
  return owner;
}

}  // namespace tessera::layout
