#include <tessera/parallel/replicas_differ.h>

#include <algorithm>
#include <utility>

#include <tessera/base/text.h>

namespace tessera::parallel {
namespace {

/// Ranks with equal hashes.
struct Party {
  std::int64_t hash;
  std::vector<std::string> ranks;
};

/// "rank 3", "ranks 3, 5".
std::string named_ranks(const std::vector<std::string>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "));
}

}  // namespace

std::string describe_odd_ranks(const std::vector<std::int64_t>& hashes, const std::vector<std::string>& ranks) {
  std::vector<Party> parties;
  for (std::size_t r = 0; r < hashes.size(); ++r) {
    const auto own = std::find_if(parties.begin(), parties.end(), [&](const Party& p) { return p.hash == hashes[r]; });
    if (own == parties.end())
      parties.push_back({hashes[r], {ranks[r]}});
    else
      own->ranks.push_back(ranks[r]);
  }
  if (parties.size() < 2) return "";
  const auto most = std::max_element(parties.begin(), parties.end(),
                                     [](const Party& a, const Party& b) { return a.ranks.size() < b.ranks.size(); });
  if (2 * most->ranks.size() > hashes.size()) {
    std::vector<std::string> odd;
    for (std::size_t r = 0; r < hashes.size(); ++r)
      if (hashes[r] != most->hash) odd.push_back(ranks[r]);
    return concat(" on ", named_ranks(odd), odd.size() == 1 ? " differs" : " differ", " from most ranks (",
                  join(most->ranks, ", "), ")");
  }
  std::string text =
      concat(" on ", named_ranks(parties[1].ranks), " differs from that on ", named_ranks(parties[0].ranks));
  for (std::size_t i = 2; i < parties.size(); ++i) text += concat(" and from that on ", named_ranks(parties[i].ranks));
  return text + (parties.size() == 2 ? ": either may be the wrong one" : ": no majority shows which is right");
}

}  // namespace tessera::parallel
