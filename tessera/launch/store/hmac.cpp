#include <tessera/launch/store/hmac.h>

#include <tessera/base/error.h>

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tessera::launch {

namespace {

constexpr std::size_t block_bytes = SHA256_CBLOCK;

}  // namespace

Sha256::Sha256() { SHA256_Init(&state_); }

void Sha256::update(std::span<const std::uint8_t> bytes) { SHA256_Update(&state_, bytes.data(), bytes.size()); }

Digest Sha256::finish() {
  Digest digest;
  SHA256_Final(digest.data(), &state_);
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
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
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
