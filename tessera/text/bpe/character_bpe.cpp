#include <tessera/text/bpe/character_bpe.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>

namespace tessera::text {
namespace {

constexpr std::string_view visible_blank = "\xE2\x96\x81";  // U+2581
constexpr std::uint32_t visible_blank_code = 0x2581;

std::string byte_token(unsigned byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + '>';
}

std::size_t last_begin(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

CharacterBpe::CharacterBpe(CharacterBpeParts parts) : parts_(std::move(parts)), model_({}, parts_.merges, {}) {
  ascii_.fill(BpeModel::no_token);
  bytes_.fill(BpeModel::no_token);
  for (const auto& [spelling, id] : parts_.ids) {
    if (spelling.empty()) continue;
    const CodePoint c = code_point_at(spelling, 0);
    if (c.size != spelling.size()) continue;
    characters_.emplace(c.value, id);
    if (c.value < ascii_.size()) ascii_[c.value] = id;
  }
  for (unsigned byte = 0; byte < 256; ++byte)
    if (const auto found = parts_.ids.find(byte_token(byte)); found != parts_.ids.end()) bytes_[byte] = found->second;
  find_borders();
  parts_.merges = {};  // the model has its own table of merges
  parts_.spelt = {};
}

void CharacterBpe::find_borders() {
  if (parts_.ignore_merges || !parts_.continuing_prefix.empty() || !parts_.end_suffix.empty()) return;
  if (!characters_.contains(visible_blank_code)) return;
  // Byte tokens and the unknown token represent text that is spelt differently, so their merges could span any border.
  const auto stands_for_other = [&](std::int32_t id) {
    return (parts_.byte_fallback && std::find(bytes_.begin(), bytes_.end(), id) != bytes_.end()) ||
           (parts_.unknown && id == *parts_.unknown);
  };
  for (std::size_t i = 0; i < parts_.merges.size(); ++i) {
    if (stands_for_other(parts_.merges[i].left) || stands_for_other(parts_.merges[i].right)) return;
    const auto& [left, right] = parts_.spelt[i];
    if (left.empty() || !right.starts_with(visible_blank)) continue;
    const std::uint32_t last = code_point_at(left, last_begin(left)).value;
    if (last < ascii_joins_.size())
      ascii_joins_[last] = true;
    else
      joins_.push_back(last);
  }
  std::sort(joins_.begin(), joins_.end());
  joins_.erase(std::unique(joins_.begin(), joins_.end()), joins_.end());
  has_borders_ = true;
}

std::size_t CharacterBpe::part_end(std::string_view word, std::size_t at) const {
  if (!has_borders_) return word.size();
  for (std::size_t end = word.find(visible_blank, at + 1); end != std::string_view::npos;
       end = word.find(visible_blank, end + 1)) {
    const auto before = static_cast<unsigned char>(word[end - 1]);
    if (before < 0x80) {
      if (!ascii_joins_[before]) return end;
    } else {
      const std::uint32_t last = code_point_at(word, last_begin(word.substr(0, end))).value;
      if (!std::binary_search(joins_.begin(), joins_.end(), last)) return end;
    }
  }
  return word.size();
}

std::int32_t CharacterBpe::character(std::string_view spelling) const {
  const CodePoint c = code_point_at(spelling, 0);
  if (c.size != spelling.size()) {  // the character has a prefix or a suffix
    const auto found = parts_.ids.find(std::string(spelling));
    return found == parts_.ids.end() ? BpeModel::no_token : found->second;
  }
  if (c.value < ascii_.size()) return ascii_[c.value];
  const auto found = characters_.find(c.value);
  return found == characters_.end() ? BpeModel::no_token : found->second;
}

void CharacterBpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (parts_.ignore_merges) {
    if (const auto whole = parts_.ids.find(std::string(word)); whole != parts_.ids.end())
      return ids.push_back(whole->second);
  }
  const bool decorated = !parts_.continuing_prefix.empty() || !parts_.end_suffix.empty();
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  bool unknown = false;  // an unknown token is pending; as in Hugging Face's model, byte tokens are emitted before it
  std::string spelt;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = code_point_at(word, at).size;
    std::string_view spelling = word.substr(at, size);
    if (decorated) {
      spelt = at > 0 ? parts_.continuing_prefix : "";
      spelt += spelling;
      if (at + size == word.size()) spelt += parts_.end_suffix;
      spelling = spelt;
    }
    at += size;
    if (const std::int32_t id = character(spelling); id != BpeModel::no_token) {
      if (unknown) symbols.push_back(*parts_.unknown);
      unknown = false;
      symbols.push_back(id);
      continue;
    }
    const auto has_token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] != BpeModel::no_token; };
    if (parts_.byte_fallback && std::all_of(spelling.begin(), spelling.end(), has_token)) {
      for (const char byte : spelling) symbols.push_back(bytes_[static_cast<unsigned char>(byte)]);
      continue;
    }
    if (!parts_.unknown) continue;
    if (unknown && !parts_.fuse_unknown) symbols.push_back(*parts_.unknown);
    unknown = true;
  }
  if (unknown) symbols.push_back(*parts_.unknown);
  model_.join(symbols, ids);
}

}  // namespace tessera::text
