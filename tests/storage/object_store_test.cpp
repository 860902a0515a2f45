/// \file
/// Requests and answers: retries, refusals and error messages.

#include "fake_store.h"

#include <chrono>
#include <thread>

#include <tessera/format/manifest/crc32c.h>
#include <tessera/storage/answers.h>
#include <tests/error_of.h>
#include <tests/stopwatch.h>

namespace tessera::testing {
namespace {

using storage::ObjectStore;
using storage::StorageError;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void put(const ObjectStore& store, const std::string& url, const std::string& text) {
  store.put(parse_object_url(url), bytes_of(text), format::crc32c(bytes_of(text)));
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

using Requests = StoreTest;

TEST_F(Requests, NamesThatMustBeEncoded) {
  const FakeStore fake;
  const ObjectStore store(fake.access());
  for (const char* key : {"plain", "with blank", "a+b=c&d", "s%20lash/x~y", "ünï/ç", "a;b,c:d@e!f'g(h)*"}) {
    const std::string url = concat("s3://bucket/", key);
    put(store, url, "text");
    EXPECT_EQ(store.get(parse_object_url(url), 100), "text") << key;
    EXPECT_EQ(store.list({"bucket", ""}, false).objects.size(), 1u) << key;
    store.erase(parse_object_url(url));
    EXPECT_FALSE(store.find(parse_object_url(url))) << key;
  }
}

TEST_F(Requests, ListsAllPages) {
  const FakeStore fake;
  const ObjectStore store(fake.access());
  for (int i = 0; i < 8; ++i) put(store, concat("s3://bucket/a/", i, "/x"), "x");
  put(store, "s3://bucket/a b", "x");
  EXPECT_EQ(store.list({"bucket", "a"}, false).objects.size(), 8u);
  const storage::Listing level = store.list({"bucket", "a"}, true);
  EXPECT_TRUE(level.objects.empty());
  EXPECT_EQ(level.prefixes.size(), 8u);
  EXPECT_EQ(level.prefixes[1], "a/1/");
}

TEST_F(Requests, WhatPassesIsRepeatedAndWhatDoesNotIsNot) {
  const FakeStore fake;
  const ObjectStore store(fake.access(3));
  put(store, "s3://bucket/a", "text");
  fake.control("503 GET a 2");
  EXPECT_EQ(store.get(parse_object_url("s3://bucket/a"), 10), "text");
  fake.control("clear");
  fake.control("503 GET a 3");
  const std::string error = error_of<StorageError>([&] { store.get(parse_object_url("s3://bucket/a"), 10); });
  EXPECT_TRUE(says(error, "GET s3://bucket/a at http://127.0.0.1:")) << error;
  EXPECT_TRUE(says(error, "503 SlowDown (as the test wanted) (3 attempts)")) << error;
  fake.control("clear");
  fake.control("403 GET a 1");
  EXPECT_TRUE(says(error_of<StorageError>([&] { store.get(parse_object_url("s3://bucket/a"), 10); }), "AccessDenied"));
  EXPECT_EQ(fake.requests("GET /bucket/a").size(), 1u) << "retried although it was refused";
}

TEST_F(Requests, ErrorsSayWhatToDoAndNoSecret) {
  const FakeStore fake;
  storage::Access wrong = fake.access(1);
  wrong.secret = "hush-hush";
  const std::string signature = error_of<StorageError>([&] { put(ObjectStore(wrong), "s3://bucket/a", "x"); });
  EXPECT_TRUE(says(signature, "403 SignatureDoesNotMatch")) << signature;
  EXPECT_TRUE(says(signature, "check AWS_SECRET_ACCESS_KEY and the region (AWS_REGION)")) << signature;
  EXPECT_FALSE(says(signature, "hush")) << signature;
  const ObjectStore store(fake.access(1));
  const std::string bucket = error_of<StorageError>([&] { put(store, "s3://other/a", "x"); });
  EXPECT_TRUE(says(bucket, "404 NoSuchBucket")) << bucket;
  EXPECT_TRUE(says(bucket, "the bucket does not exist")) << bucket;
  storage::Access nobody = fake.access(1);
  nobody.endpoint = "http://127.0.0.1:1";
  const std::string gone = error_of<StorageError>([&] { put(ObjectStore(nobody), "s3://bucket/a", "x"); });
  EXPECT_TRUE(says(gone, "(1 attempt)")) << gone;
}

TEST_F(Requests, AnswersThatAreNoneAreRefused) {
  const FakeStore fake;
  const ObjectStore store(fake.access(2));
  put(store, "s3://bucket/a", std::string(1000, 'x'));
  fake.control("garbage GET list-type 5");
  EXPECT_THROW(store.list({"bucket", ""}, false), Error);
  for (const char* kind : {"long", "short", "cut", "other_range"}) {
    fake.control("clear");
    fake.control(concat(kind, " GET a 9"));
    EXPECT_THROW(store.get(parse_object_url("s3://bucket/a"), 2000), StorageError) << kind;
  }
  fake.control("clear");
  EXPECT_THROW(store.get(parse_object_url("s3://bucket/a"), 999), StorageError) << "larger than the caller accepts";
  std::vector<std::byte> beyond(10);
  EXPECT_THROW(store.get_range(parse_object_url("s3://bucket/a"), 995, beyond), StorageError);
  EXPECT_THROW(store.get_range(parse_object_url("s3://bucket/a"), 0, beyond, "0123"), StorageError) << "another ETag";
}

TEST_F(Requests, EndsSoonAfterItIsCancelled) {
  const FakeStore fake;
  std::atomic<bool> cancelled = false;
  const ObjectStore store(fake.access(100), &cancelled);
  fake.control("503 * * 1000");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    cancelled = true;
  });
  const Stopwatch watch;
  EXPECT_THROW(store.find(parse_object_url("s3://bucket/a")), StorageError);
  EXPECT_LT(watch.seconds(), watch.limit(3)) << "a hundred attempts take minutes";
  later.join();
}

TEST(Answers, ChecksumsInHeaders) {
  EXPECT_EQ(storage::crc_header(format::crc32c(bytes_of("123456789"))), "4waSgw==");
  for (const std::uint32_t crc : {0u, 1u, 0x80000000u, 0xE3069283u, 0xFFFFFFFFu})
    EXPECT_EQ(storage::parse_crc_header(storage::crc_header(crc)), crc);
  for (const char* text : {"", "4waSgw=", "4waSgw==x", "4waS*w==", "AAAAAAAA"})
    EXPECT_FALSE(storage::parse_crc_header(text)) << text;
  EXPECT_EQ(storage::parse_hexadecimal("e3069283"), 0xE3069283u);
  EXPECT_FALSE(storage::parse_hexadecimal("E3069283"));
  EXPECT_EQ(storage::unquoted("\"abc\""), "abc");
  EXPECT_EQ(storage::unquoted("a b"), "");
  EXPECT_EQ(storage::printable("a\x1b[31m\n"), "a?[31m?");
}

TEST(Answers, NamesThatCouldLeaveAFolderArePassedOver) {
  storage::Listing listing;
  const auto page = storage::parse_xml(
      "<ListBucketResult><Contents><Key>a/../../etc/passwd</Key><Size>1</Size></Contents>"
      "<Contents><Key>a//b</Key><Size>1</Size></Contents><Contents><Key>folder/</Key><Size>0</Size></Contents>"
      "<Contents><Key>a/b</Key><Size>-1</Size></Contents><Contents><Key>a/good</Key><Size>5</Size></Contents>"
      "<CommonPrefixes><Prefix>../</Prefix></CommonPrefixes></ListBucketResult>");
  EXPECT_EQ(storage::read_listing(page, listing), "");
  ASSERT_EQ(listing.objects.size(), 1u);
  EXPECT_EQ(listing.objects[0].key, "a/good");
  EXPECT_TRUE(listing.prefixes.empty());
  EXPECT_THROW(storage::read_listing(storage::parse_xml("<Other/>"), listing), StorageError);
  EXPECT_THROW(storage::read_listing(storage::parse_xml("<ListBucketResult><IsTruncated>true</IsTruncated>"
                                                        "</ListBucketResult>"),
                                     listing),
               StorageError);
}

}  // namespace
}  // namespace tessera::testing
