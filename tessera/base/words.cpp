#include <tessera/base/words.h>

namespace tessera {

std::optional<unsigned char> WordTable::find(std::string_view text) const {
  std::string word = to_lower(text);
  for (const auto& [theirs, ours] : synonyms)
    if (word == theirs) {
      word = ours;
      break;
    }
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == word) return static_cast<unsigned char>(i);
  return std::nullopt;
}

}  // namespace tessera
