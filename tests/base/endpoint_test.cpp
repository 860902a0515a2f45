#include <tessera/base/system/endpoint.h>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Endpoint, BracketsAreForThePortOnly) {
  EXPECT_EQ(bare_host("[fd00::1]"), "fd00::1");
  EXPECT_EQ(bare_host("fd00::1"), "fd00::1");
  EXPECT_EQ(bare_host("node7"), "node7");
  EXPECT_EQ(bare_host("[]"), "[]");
  EXPECT_EQ(bare_host(""), "");
}

void expect_endpoint(const char* text, const char* host, std::optional<int> port) {
  const auto read = parse_endpoint(text);
  ASSERT_TRUE(read) << text;
  EXPECT_EQ(read->host, host) << text;
  EXPECT_EQ(read->port, port) << text;
}

TEST(Endpoint, HostsAddressesAndPorts) {
  expect_endpoint("node7", "node7", std::nullopt);
  expect_endpoint("node7.example:29500", "node7.example", 29500);
  expect_endpoint("10.0.0.1:0", "10.0.0.1", 0);
  expect_endpoint("[fd00::1]:23456", "fd00::1", 23456);
  expect_endpoint("[fd00::1]", "fd00::1", std::nullopt);
  expect_endpoint("fd00::1", "fd00::1", std::nullopt);
  expect_endpoint("::1", "::1", std::nullopt);
  expect_endpoint("[fe80::1%eth0]:1", "fe80::1%eth0", 1);
  expect_endpoint("fe80::1%eth0", "fe80::1%eth0", std::nullopt);
  expect_endpoint("[::ffff:10.0.0.1]:2", "::ffff:10.0.0.1", 2);
}

TEST(Endpoint, WithoutBracketsTheLongestAddressCounts) {
  expect_endpoint("fd00::1:8080", "fd00::1:8080", std::nullopt);
  expect_endpoint("fd00::1:29500", "fd00::1", 29500);  // five digits cannot be part of an address
}

TEST(Endpoint, WhatIsNoneIsRefused) {
  for (const char* text : {"", ":", ":1", "host:", "host:x", "host:65536", "host:-1", "[fd00::1", "fd00::1]", "[]:1",
                           "[node7]:1", "[fd00::1]x", "[fd00::1]1", "a:b:1", "[[::1]]:1", "[::1]:"}) {
    EXPECT_FALSE(parse_endpoint(text)) << text;
  }
}

TEST(Endpoint, WrittenSoThatItCanBeRead) {
  EXPECT_EQ(endpoint_text("node7", 29500), "node7:29500");
  EXPECT_EQ(endpoint_text("fd00::1", 29500), "[fd00::1]:29500");
  EXPECT_EQ(endpoint_text("[fd00::1]", 1), "[fd00::1]:1");
}

}  // namespace
}  // namespace tessera
