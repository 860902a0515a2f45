// Two lanes of multiply-and-fold, each over the whole input: a 64 x 64 -> 128 bit product whose halves are combined by
// exclusive or mixes all bits of both factors (the basic step of wyhash).

#include <tessera/corpus/cache/content_hash.h>

#include <bit>
#include <cstring>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/corpus/cache/descriptor.h>

namespace tessera::corpus {
namespace {

static_assert(std::endian::native == std::endian::little, "words of the input are read as little-endian numbers");

// Odd numbers with equally many ones and zeros, from the digits of pi.
constexpr std::uint64_t first_key = 0x243f6a8885a308d3u, second_key = 0x13198a2e03707345u,
                        third_key = 0xa4093822299f31d1u, fourth_key = 0x082efa98ec4e6c89u;

std::uint64_t folded(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

ContentHash hash_of(std::span<const std::byte> bytes) {
  std::uint64_t a = third_key ^ bytes.size(), b = fourth_key;
  const auto take = [&](const std::byte* from) {
    std::array<std::uint64_t, 2> x;
    std::memcpy(x.data(), from, sizeof x);
    a = folded(x[0] ^ first_key, x[1] ^ a) + x[0];
    b = folded(x[1] ^ second_key, x[0] ^ b) + x[1];
  };
  std::size_t at = 0;
  for (; bytes.size() - at >= 16; at += 16) take(bytes.data() + at);
  if (at < bytes.size()) {
    std::array<std::byte, 16> rest{};
    std::memcpy(rest.data(), bytes.data() + at, bytes.size() - at);
    take(rest.data());
  }
  const std::uint64_t last = folded(a ^ second_key, b ^ first_key);
  return {{folded(a ^ third_key, last ^ fourth_key), folded(b ^ last, third_key ^ bytes.size())}};
}

ContentHash hash_of(std::string_view bytes) { return hash_of(std::as_bytes(std::span(bytes))); }

std::string ContentHash::hex() const {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t word : words)
    for (int shift = 60; shift >= 0; shift -= 4) text += digits[(word >> shift) & 15];
  return text;
}

ContentHash parse_hash(std::string_view hex, const std::string& where) {
  ContentHash hash;
  const bool good = hex.size() == 32 && hex.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!good) throw InputError(concat(where, ": '", hex, "' is not a hash of 32 hexadecimal digits"));
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = hex[i];
    hash.words[i / 16] = hash.words[i / 16] << 4 | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return hash;
}

std::uint64_t hash_chunks(std::uint64_t bytes) { return (bytes + hash_chunk - 1) / hash_chunk; }

ContentHash joined_hash(std::uint64_t bytes, std::span<const ContentHash> chunks) {
  std::vector<std::uint64_t> words = {bytes};
  for (const ContentHash& chunk : chunks) words.insert(words.end(), chunk.words.begin(), chunk.words.end());
  return hash_of(std::as_bytes(std::span(words)));
}

void hash_file_chunks(const std::string& path, std::uint64_t first, std::uint64_t last, std::uint64_t bytes,
                      std::span<ContentHash> hashes) {
  TESSERA_CHECK(first <= last && last <= hash_chunks(bytes) && hashes.size() == last - first, "chunks [", first, ", ",
                last, ") of ", bytes, " bytes");
  if (first == last) return;
  const Descriptor file = open_to_read(path);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(hash_chunk, bytes));
  for (std::uint64_t chunk = first; chunk < last; ++chunk) {
    const std::uint64_t begin = chunk * hash_chunk, size = std::min(hash_chunk, bytes - begin);
    const std::span<std::byte> into = std::span(buffer).first(size);
    read_all(file, into, begin, path);
    hashes[chunk - first] = hash_of(into);
  }
}

}  // namespace tessera::corpus
