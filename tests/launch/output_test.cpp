#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <tessera/launch/output.h>
#include <tessera/launch/unique_fd.h>

namespace tessera::launch {
namespace {

struct TestPipe {
  UniqueFd read, write;
  TestPipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  std::string drain() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(read.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }
};

/// What a prefixer makes of these pieces.
std::string prefixed(const std::vector<std::string>& pieces) {
  TestPipe pipe;
  OutputSink sink(pipe.write.get());
  LinePrefixer lines("> ", sink);
  std::string result;
  for (const std::string& piece : pieces) {
    lines.feed(piece);
    sink.write_some();
    result += pipe.drain();
  }
  lines.finish();
  sink.write_some();
  return result + pipe.drain();
}

TEST(LinePrefixer, WholeLinesOnly) {
  TestPipe pipe;
  OutputSink sink(pipe.write.get());
  LinePrefixer lines("[rank 1] ", sink);
  lines.feed("a");
  sink.write_some();
  EXPECT_EQ(pipe.drain(), "");
  lines.feed("b\nc");
  sink.write_some();
  EXPECT_EQ(pipe.drain(), "[rank 1] ab\n");
  lines.finish();
  lines.finish();
  sink.write_some();
  EXPECT_EQ(pipe.drain(), "[rank 1] c\n");
}

RC_GTEST_PROP(LinePrefixer, TheCutsBetweenReadsDoNotMatter, (const std::vector<std::string>& raw)) {
  std::vector<std::string> pieces;
  std::string whole;
  for (std::string piece : raw) {
    for (char& c : piece) c = c % 5 == 0 ? '\n' : 'x';
    pieces.push_back(piece);
    whole += piece;
  }
  std::string expected;
  std::size_t begin = 0;
  while (begin < whole.size()) {
    const auto end = std::min(whole.find('\n', begin), whole.size());
    expected += "> " + whole.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  RC_ASSERT(prefixed(pieces) == expected);
}

TEST(LinePrefixer, AnEndlessLineIsCut) {
  TestPipe pipe;
  OutputSink sink(pipe.write.get());
  LinePrefixer lines("", sink);
  for (int i = 0; i < 70; ++i) lines.feed(std::string(1000, 'x'));
  sink.write_some();
  EXPECT_FALSE(pipe.drain().empty());
}

TEST(OutputSink, ASlowReaderIsNotWaitedFor) {
  TestPipe pipe;  // holds 64 KiB
  OutputSink sink(pipe.write.get());
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + i % 26);
  sink.append(text);
  sink.write_some();
  EXPECT_FALSE(sink.empty());
  EXPECT_FALSE(sink.full());
  std::string seen;
  for (int i = 0; i < 100 && !sink.empty(); ++i) {
    seen += pipe.drain();
    sink.write_some();
  }
  EXPECT_EQ(seen + pipe.drain(), text);
  EXPECT_TRUE(sink.empty());
  sink.append(std::string(2 << 20, 'x'));
  EXPECT_TRUE(sink.full());
}

}  // namespace
}  // namespace tessera::launch
