#include <tessera/launch/fleet/rank_list.h>

#include <tessera/base/text.h>

namespace tessera::launch {

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    text += concat(text.empty() ? "" : ", ", ranks[i]);
    if (end - i >= 3) text += concat("-", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", list_ranks(ranks));
}

}  // namespace tessera::launch
