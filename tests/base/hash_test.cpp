#include <gtest/gtest.h>

#include <tessera/base/hash.h>

namespace tessera {
namespace {

// Test vectors of the FNV authors.
TEST(Fnv1a, has_the_published_values) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(fnv1a("\xff"), (0xcbf29ce484222325u ^ 0xffu) * 0x100000001b3u);
}

TEST(Fnv1a, pieces_are_as_the_whole) {
  EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar"));
  static_assert(fnv1a("foo") != fnv1a("oof"));
}

}  // namespace
}  // namespace tessera
