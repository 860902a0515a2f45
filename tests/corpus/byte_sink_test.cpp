#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include <tessera/corpus/bytes/byte_sink.h>
#include <tessera/corpus/bytes/byte_stream.h>
#include <tessera/corpus/find.h>
#include <tests/corpus/made_files.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

RC_GTEST_PROP(ByteSink, WhatIsWrittenComesBack, (std::vector<std::string> parts, std::uint32_t many)) {
  const MadeFiles made;
  parts.push_back(std::string(many % 100000, 'x'));  // sometimes longer than every buffer
  for (const char* name : {"a.txt", "a.txt.gz", "a.txt.zst", "a.txt.xz"}) {
    const std::string path = made.path(name);
    std::string whole;
    const auto sink = create_file(path, recognise(path).compression);
    for (const std::string& part : parts) {
      sink->write(part);
      whole += part;
    }
    sink->finish();
    const auto stream = open_bytes(source_file(path));
    std::string back;
    std::vector<char> buffer(5000);
    while (const std::size_t got = stream->read(buffer)) back.append(buffer.data(), got);
    RC_ASSERT(back == whole);
  }
}

TEST(ByteSink, LeavesNothingBehindUnlessFinished) {
  const MadeFiles made;
  const std::string path = made.add("a.txt", "old");
  {
    create_file(path, Compression::none)->write("new");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(list_folder(made.path()), std::vector<std::string>{"a.txt"});
}

TEST(ByteSink, SaysWhereItCannotWrite) {
  const MadeFiles made;
  EXPECT_TRUE(testing::error_of<Error>([&] {
                create_file(made.path("no/a.txt"), Compression::none);
              }).starts_with("cannot create '" + made.path("no/a.txt.tmp.")));
}

}  // namespace
}  // namespace tessera::corpus
