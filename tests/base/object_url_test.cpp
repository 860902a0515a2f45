#include <gtest/gtest.h>

#include <tessera/base/object_url.h>
#include <tests/error_of.h>

namespace tessera {
namespace {

TEST(ObjectUrl, BucketAndKey) {
  EXPECT_EQ(parse_object_url("s3://my-bucket/a/b.txt"), (ObjectUrl{"my-bucket", "a/b.txt"}));
  EXPECT_EQ(parse_object_url("s3://my.bucket/a/"), (ObjectUrl{"my.bucket", "a"}));
  EXPECT_EQ(parse_object_url("s3://bucket"), (ObjectUrl{"bucket", ""}));
  EXPECT_EQ(parse_object_url("s3://bucket/a").below("b").text(), "s3://bucket/a/b");
  EXPECT_EQ(parse_object_url("s3://bucket/").below("b").text(), "s3://bucket/b");
  EXPECT_TRUE(is_object_url("s3://x"));
  EXPECT_FALSE(is_object_url("S3://x"));
  EXPECT_FALSE(is_object_url("/s3://x"));
}

TEST(ObjectUrl, WhatIsNoneIsRefused) {
  for (const char* text : {"a", "s3:/bucket", "s3://", "s3://ab", "s3:///key", "s3://-bad/key", "s3://bad-/key",
                           "s3://a b c/key", "s3://a..b/key", "s3://bucket/a//b", "s3://bucket/../x",
                           "s3://bucket/a/./b", "s3://bucket/a\nb", "s3://bucket/\xff", "s3://user@host/key"})
    EXPECT_NE(testing::error_of([&] { parse_object_url(text); }), "") << text;
  EXPECT_NE(testing::error_of([&] { parse_object_url("s3://bucket/" + std::string(1025, 'a')); }), "");
}

}  // namespace
}  // namespace tessera
