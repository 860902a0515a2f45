#include <tessera/base/error.h>
#include <tessera/text/unicode/charsmap.h>
#include <tessera/text/unicode/grapheme.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>

namespace tessera::text {
namespace {

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The fields of a Darts-clone unit.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label_of(std::uint32_t unit) { return unit & (0x80000000 | 0xFF); }
std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  if (blob.size() < 4)
    throw InputError(concat(where, ": the charsmap has ", blob.size(), " bytes, too few for its size field"));
  const std::size_t size = little_endian(blob);
  blob.remove_prefix(4);
  if (size > blob.size() || size % 4 != 0 || size == 0)
    throw InputError(concat(where, ": the charsmap's trie has a listed size of ", size, " bytes, but ", blob.size(),
                            " follow; a trie must consist of at least one unit of 4 bytes"));
  units_.reserve(size / 4);
  for (std::size_t at = 0; at < size; at += 4) units_.push_back(little_endian(blob.substr(at)));
  replacements_ = blob.substr(size);
  if (!is_utf8(replacements_)) throw InputError(concat(where, ": the charsmap's replacements are not UTF-8"));
  for (std::size_t c = 0; c < plain_.size(); ++c) {
    const char character = static_cast<char>(c);
    plain_[c] = !replacement({&character, 1}) && c != '\r';  // CR LF is one grapheme
  }
}

/// The replacement of the shortest key that is a prefix of `piece`.
std::optional<std::string_view> Charsmap::replacement(std::string_view piece) const {
  std::size_t node = offset_of(units_[0]);
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return std::nullopt;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return std::nullopt;
    const std::size_t begin = value_of(units_[node]);
    if (begin >= replacements_.size() || (static_cast<unsigned char>(replacements_[begin]) & 0xC0) == 0x80)
      return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::string_view Charsmap::apply(std::string_view text, std::string& storage) const {
  constexpr std::size_t most_bytes = 5;  // longer graphemes are not looked up as a whole
  bool changed = false;
  std::size_t copied = 0;  // everything before it is already in storage
  const auto replace = [&](std::size_t begin, std::size_t end, std::string_view by) {
    if (!changed) storage.clear();
    changed = true;
    storage.append(text, copied, begin - copied).append(by);
    copied = end;
  };
  const auto is_plain = [&](std::size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    return byte < 0x80 && plain_[byte];
  };
  for (std::size_t at = 0; at < text.size();) {
    if (is_plain(at) && (at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 0x80)) {
      ++at;
      continue;
    }
    const std::size_t end = grapheme_end(text, at);
    if (end - at <= most_bytes) {
      if (const auto by = replacement(text.substr(at, end - at))) {
        replace(at, end, *by);
        at = end;
        continue;
      }
    }
    while (at < end) {
      const std::size_t size = code_point_at(text, at).size;
      if (const auto by = replacement(text.substr(at, size))) replace(at, at + size, *by);
      at += size;
    }
  }
  if (!changed) return text;
  return storage.append(text, copied);
}

std::string decode_base64(std::string_view text, const std::string& where) {
  const auto digit = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  const std::size_t size = text.size();
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[size - 1 - padding] == '=') ++padding;
  if (size % 4 != 0)
    throw InputError(concat(where, ": base64 text of ", size, " characters, which is not a multiple of 4"));
  std::string out;
  out.reserve(size / 4 * 3);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const int value = i >= size - padding ? 0 : digit(text[i]);
    if (value < 0) throw InputError(concat(where, ": character ", i + 1, " of the text is not base64"));
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) out.push_back(static_cast<char>(bits >> shift & 0xFF));
    bits = 0;
  }
  for (; padding > 0; --padding) out.pop_back();
  return out;
}

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < have ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) out += i <= have ? digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

}  // namespace tessera::text
