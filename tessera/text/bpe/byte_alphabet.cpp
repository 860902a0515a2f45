#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text {

ByteAlphabet::ByteAlphabet() {
  to_byte_.fill(-1);
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    of_byte_[byte] = itself ? byte : next++;
    to_byte_[of_byte_[byte]] = static_cast<std::int16_t>(byte);
  }
}

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string out;
  for (const char byte : bytes) append_utf8(out, of_byte_[static_cast<unsigned char>(byte)]);
  return out;
}

std::optional<std::string> ByteAlphabet::bytes(std::string_view spelling) const {
  std::string out;
  for (std::size_t at = 0; at < spelling.size();) {
    const CodePoint c = code_point_at(spelling, at);
    if (c.value >= to_byte_.size() || to_byte_[c.value] < 0) return std::nullopt;
    out.push_back(static_cast<char>(to_byte_[c.value]));
    at += c.size;
  }
  return out;
}

}  // namespace tessera::text
