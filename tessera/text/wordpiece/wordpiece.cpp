#include <tessera/text/wordpiece/wordpiece.h>

#include <algorithm>

namespace tessera::text {
namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

WordPiece::WordPiece(std::int32_t unknown, std::string continuing_prefix, std::int64_t most_characters)
    : unknown_(unknown), prefix_(std::move(continuing_prefix)), most_characters_(most_characters) {}

void WordPiece::add(std::string_view spelling, std::int32_t id) {
  begins_.add(spelling, id);
  if (spelling.starts_with(prefix_)) continues_.add(spelling.substr(prefix_.size()), id);
}

void WordPiece::Table::add(std::string_view spelling, std::int32_t id) {
  ids.emplace(spelling, id);
  most_bytes = std::max(most_bytes, spelling.size());
}

std::int32_t WordPiece::Table::longest(std::string_view text, std::size_t& size) const {
  std::size_t end = std::min(text.size(), most_bytes);
  while (end > 0) {
    if (end == text.size() || !continues_character(text[end])) {
      if (const auto found = ids.find(text.substr(0, end)); found != ids.end()) {
        size = end;
        return found->second;
      }
    }
    --end;
  }
  return -1;
}

void WordPiece::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto inside = std::count_if(word.begin(), word.end(), continues_character);
  if (static_cast<std::int64_t>(word.size()) - inside > most_characters_) return ids.push_back(unknown_);
  const std::size_t before = ids.size();
  for (std::size_t at = 0, size = 0; at < word.size(); at += size) {
    const std::int32_t id = (at == 0 ? begins_ : continues_).longest(word.substr(at), size);
    if (id < 0) {
      ids.resize(before);
      return ids.push_back(unknown_);
    }
    ids.push_back(id);
  }
}

}  // namespace tessera::text
