#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/launch/store/hmac.h>
#include <tessera/launch/store/store_secret.h>

#include <fcntl.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>
#include <string>

namespace tessera::launch {
namespace {

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest) {
    text.push_back("0123456789abcdef"[byte >> 4]);
    text.push_back("0123456789abcdef"[byte & 15]);
  }
  return text;
}

std::string sha256(const std::string& text) {
  Sha256 hash;
  hash.update(bytes_of(text));
  return hex(hash.finish());
}

std::string hmac(const std::string& key, const std::string& text) {
  return hex(Hmac(bytes_of(key)).update(text).finish());
}

// FIPS 180-4 examples and NIST's "SHA-256 additional" vectors.
TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(sha256(std::string(1, '\xbd')), "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
  EXPECT_EQ(sha256(std::string(55, '\0')), "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  EXPECT_EQ(sha256(std::string(56, '\0')), "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  EXPECT_EQ(sha256(std::string(64, '\0')), "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
}

// RFC 4231, cases 1-4, 6, 7.
TEST(Hmac, PublishedVectors) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char i = 1; i <= 25; ++i) counting.push_back(i);
  EXPECT_EQ(hmac(counting, std::string(50, '\xcd')),
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(
      hmac(std::string(131, '\xaa'),
           "This is a test using a larger than block-size key and a larger than block-size data. The key needs to "
           "be hashed before being used by the HMAC algorithm."),
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

RC_GTEST_PROP(Sha256, PiecesDoNotMatter, (const std::string& text, const std::vector<std::uint8_t>& cuts)) {
  Sha256 hash;
  std::size_t begin = 0;
  for (const std::uint8_t cut : cuts) {
    const std::size_t count = std::min<std::size_t>(cut, text.size() - begin);
    hash.update(bytes_of(text.substr(begin, count)));
    begin += count;
  }
  hash.update(bytes_of(text.substr(begin)));
  RC_ASSERT(hex(hash.finish()) == sha256(text));
}

TEST(EqualConstantTime, IsEquality) {
  EXPECT_TRUE(equal_constant_time(bytes_of("abc"), bytes_of("abc")));
  EXPECT_TRUE(equal_constant_time(bytes_of(""), bytes_of("")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("abd")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("xbc")));
  EXPECT_FALSE(equal_constant_time(bytes_of("abc"), bytes_of("abcd")));
}

TEST(RandomBytes, DoNotRepeat) {
  std::set<Secret> secrets;
  for (int i = 0; i < 1000; ++i) secrets.insert(make_secret());
  EXPECT_EQ(secrets.size(), 1000u);
}

TEST(StoreSecret, ADescriptorServesManyReaders) {
  const Secret secret = make_secret();
  const UniqueFd fd = secret_to_fd(secret);
  EXPECT_EQ(secret_from_fd(fd.get()), secret);
  EXPECT_EQ(secret_from_fd(fd.get()), secret);
  EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_LT(pwrite(fd.get(), "x", 1, 0), 0) << "a rank must not be able to change it";
}

TEST(StoreSecret, WhatHoldsNoSecretIsRefused) {
  const auto message = [](int fd) {
    try {
      secret_from_fd(fd);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message(-1).find("TESSERA_SECRET_FD=-1"), std::string::npos) << message(-1);
  const UniqueFd empty(memfd_create("empty", MFD_CLOEXEC));
  EXPECT_NE(message(empty.get()).find("0 bytes"), std::string::npos) << message(empty.get());
  ASSERT_EQ(write(empty.get(), std::string(33, 'x').data(), 33), 33);
  EXPECT_NE(message(empty.get()).find("more than 32"), std::string::npos) << message(empty.get());
}

}  // namespace
}  // namespace tessera::launch
