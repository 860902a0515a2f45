#include <tessera/launch/store/hmac.h>

#include <tessera/base/error.h>

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

namespace {

constexpr std::size_t block_bytes = 64;

// FIPS 180-4, 4.2.2: the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t load_big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | p[3];
}

void store_big_endian(std::uint32_t value, std::uint8_t* p) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
}

}  // namespace

// FIPS 180-4, 5.3.3: the fractional parts of the square roots of the first 8 primes.
Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, rest_{} {}

void Sha256::compress(const std::uint8_t* blocks, std::size_t count) {
  std::array<std::uint32_t, 64> w;
  for (; count > 0; --count, blocks += block_bytes) {
    for (std::size_t t = 0; t < 16; ++t) w[t] = load_big_endian(blocks + 4 * t);
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t choice = (e & f) ^ (~e & g);
      const std::uint32_t t1 = h + sum1 + choice + round_constants[t] + w[t];
      const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + sum0 + majority;
    }
    state_[0] += a, state_[1] += b, state_[2] += c, state_[3] += d;
    state_[4] += e, state_[5] += f, state_[6] += g, state_[7] += h;
  }
}

void Sha256::update(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::size_t held = bytes_ % block_bytes;
  bytes_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(block_bytes - held, bytes.size());
    std::memcpy(rest_.data() + held, bytes.data(), taken);
    if (held + taken < block_bytes) return;
    compress(rest_.data(), 1);
    bytes = bytes.subspan(taken);
  }
  const std::size_t whole = bytes.size() / block_bytes;
  compress(bytes.data(), whole);
  bytes = bytes.subspan(whole * block_bytes);
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
}

Digest Sha256::finish() {
  // Padding: a one bit, zeros, and the length in bits as a 64-bit number, to a multiple of 64 bytes.
  const std::uint64_t bits = bytes_ * 8;
  std::array<std::uint8_t, 2 * block_bytes> tail{0x80};
  const std::size_t held = bytes_ % block_bytes;
  const std::size_t zeros_end = (held < 56 ? 56 : 120) - held;
  store_big_endian(static_cast<std::uint32_t>(bits >> 32), tail.data() + zeros_end);
  store_big_endian(static_cast<std::uint32_t>(bits), tail.data() + zeros_end + 4);
  update(std::span(tail).first(zeros_end + 8));
  Digest digest;
  for (std::size_t i = 0; i < 8; ++i) store_big_endian(state_[i], digest.data() + 4 * i);
  return digest;
}

// RFC 2104: H(K ^ opad, H(K ^ ipad, text)), keys longer than a block being hashed first.
Hmac::Hmac(std::span<const std::uint8_t> key) {
  std::array<std::uint8_t, block_bytes> padded{};
  if (key.size() > block_bytes) {
    Sha256 hash;
    hash.update(key);
    const Digest digest = hash.finish();
    std::copy(digest.begin(), digest.end(), padded.begin());
  } else {
    std::copy(key.begin(), key.end(), padded.begin());
  }
  for (std::uint8_t& byte : padded) byte ^= 0x36;
  inner_.update(padded);
  for (std::uint8_t& byte : padded) byte ^= 0x36 ^ 0x5c;
  outer_.update(padded);
}

Hmac& Hmac::update(std::span<const std::uint8_t> bytes) {
  inner_.update(bytes);
  return *this;
}

Hmac& Hmac::update(std::string_view text) {
  return update(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

Digest Hmac::finish() {
  outer_.update(inner_.finish());
  return outer_.finish();
}

bool equal_constant_time(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  if (a.size() != b.size()) return false;
  volatile std::uint8_t difference = 0;  // volatile: the loop must not end at the first difference
  for (std::size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == 0;
}

void random_bytes(std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(concat("getrandom of ", bytes.size(), " bytes: ", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace tessera::launch
