#include <tessera/text/unigram/seed_pieces.h>

#include <algorithm>
#include <map>
#include <string_view>

#include <tessera/text/unicode/utf8.h>

namespace tessera::text {
namespace {

/// Larger counts first, then by spelling.
void sort_pieces(std::vector<std::pair<std::string, double>>& pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
}

std::vector<std::pair<std::string, double>> characters_of(const CountedWords& words) {
  std::map<std::string, double> counts;
  for (const auto& [word, count] : words)
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = code_point_at(word, at).size;
      counts[word.substr(at, size)] += static_cast<double>(count);
      at += size;
    }
  std::vector<std::pair<std::string, double>> pieces(counts.begin(), counts.end());
  sort_pieces(pieces);
  return pieces;
}

/// The first `longest` characters of every end of every word, sorted.
std::vector<std::string_view> suffixes_of(const CountedWords& words, std::size_t longest) {
  std::vector<std::string_view> suffixes;
  std::vector<std::size_t> begins;  // where the characters of a word begin, and its end
  for (const auto& [word, count] : words) {
    begins.clear();
    for (std::size_t at = 0; at < word.size(); at += code_point_at(word, at).size) begins.push_back(at);
    begins.push_back(word.size());
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      const std::size_t end = begins[std::min(i + longest, begins.size() - 1)];
      suffixes.push_back(std::string_view(word).substr(begins[i], end - begins[i]));
    }
  }
  std::sort(suffixes.begin(), suffixes.end());
  return suffixes;
}

/// Bytes that two texts have in common at their beginnings, up to the end of a character.
std::size_t common(std::string_view a, std::string_view b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  auto size = static_cast<std::size_t>(x - a.begin());
  const auto inside = [&](std::string_view text) {
    return size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80;
  };
  while (size > 0 && (inside(a) || inside(b))) --size;
  return size;
}

std::size_t characters_in(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<std::pair<std::string, double>> seed_pieces(const CountedWords& words, std::size_t longest,
                                                        std::size_t most) {
  std::vector<std::pair<std::string, double>> pieces = characters_of(words), repeated;
  const std::vector<std::string_view> suffixes = suffixes_of(words, longest);

  // Intervals of suffixes with a common beginning, as a stack: what is open at suffix i, by its length.
  struct Open {
    std::size_t bytes, first;  ///< length of the common beginning; the suffix that it begins with
  };
  std::vector<Open> open = {{0, 0}};
  for (std::size_t i = 1; i <= suffixes.size(); ++i) {
    const std::size_t shared = i < suffixes.size() ? common(suffixes[i - 1], suffixes[i]) : 0;
    std::size_t first = i - 1;
    while (open.back().bytes > shared) {
      first = open.back().first;
      const std::string_view text = suffixes[first].substr(0, open.back().bytes);
      if (const std::size_t size = characters_in(text); size >= 2)
        repeated.emplace_back(text, static_cast<double>((i - first) * size));
      open.pop_back();
    }
    if (open.back().bytes < shared) open.push_back({shared, first});
  }
  sort_pieces(repeated);
  if (const std::size_t room = most > pieces.size() ? most - pieces.size() : 0; repeated.size() > room)
    repeated.resize(room);
  pieces.insert(pieces.end(), std::make_move_iterator(repeated.begin()), std::make_move_iterator(repeated.end()));
  return pieces;
}

}  // namespace tessera::text
