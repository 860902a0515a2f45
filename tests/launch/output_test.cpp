#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>
#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/output.h>
#include <tessera/launch/agent/unique_fd.h>

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

/// The output of a prefixer for these pieces.
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
  TestPipe pipe;  // its capacity is 64 KiB
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

TEST(OutputSink, NobodyReadsSoLinesAreLeftOutAndCounted) {
  TestPipe pipe;
  OutputSink sink(pipe.write.get(), 0);  // no waiting for a slow reader
  const std::string line(1000, 'x');
  for (int i = 0; i < 3000; ++i) {
    sink.append_line("[rank 1] ", line);
    sink.write_some();
    EXPECT_FALSE(sink.full());
  }
  std::string seen;
  for (int i = 0; i < 1000 && !sink.empty(); ++i) {
    seen += pipe.drain();
    sink.write_some();
  }
  seen += pipe.drain();
  const auto note = seen.find("[agent] nobody read this output for ");
  ASSERT_NE(note, std::string::npos);
  const auto lines = static_cast<std::size_t>(std::count(seen.begin(), seen.end(), '\n')) - 1;
  EXPECT_GT(lines, 1000u) << "a MiB is kept";
  EXPECT_NE(seen.find(concat(3000 - lines, " lines of the ranks were dropped"), note), std::string::npos);
  sink.append_line("[rank 1] ", "again");
  sink.write_some();
  EXPECT_EQ(pipe.drain(), "[rank 1] again\n");
}

TEST(OutputSink, AFullDiskIsToldOnce) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full);
  OutputSink sink(full.get());
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    sink.append_line("", "a line");
    sink.write_some();
    EXPECT_TRUE(sink.empty()) << "it does not pile up";
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::size_t first = said.find("No space left on device");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("No space", first + 1), std::string::npos) << said;
}

TEST(OutputSink, ATerminalThatNobodyReadsIsNotWaitedFor) {
  int master = -1, slave = -1;
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
  const UniqueFd screen(master), terminal(slave);
  OutputSink sink(slave, 0);
  for (int i = 0; i < 300; ++i) {
    sink.append_raw(std::string(9999, 'x') + "\n");
    sink.write_some();  // returns instead of blocking
  }
  EXPECT_FALSE(sink.empty());
  EXPECT_FALSE(sink.full());
}

/// One rank's lines on the agent's two streams and in its log file.
struct Outlets {
  TestPipe out_pipe, err_pipe;
  OutputSink out{out_pipe.write.get()}, err{err_pipe.write.get()};
  std::pair<std::string, std::string> drain() {
    out.write_some();
    err.write_some();
    return {out_pipe.drain(), err_pipe.drain()};
  }
};
using Both = std::pair<std::string, std::string>;

TEST(RankOutput, PrefixAndHost) {
  Outlets outlets;
  LaunchOptions options;
  RankOutput rank(options, 5, 1, 0, outlets.out, outlets.err);
  EXPECT_TRUE(rank.captured());
  rank.feed_out("a\nb");
  rank.feed_err("c\n");
  EXPECT_EQ(outlets.drain(), (Both{"[rank 5] a\n", "[rank 5] c\n"}));
  rank.finish();
  EXPECT_EQ(outlets.drain().first, "[rank 5] b\n");
  EXPECT_EQ(rank.last_lines(), (std::vector<std::string>{"a", "c", "b"}));
  EXPECT_EQ(rank.last_lines(1), (std::vector<std::string>{"b"}));
  options.host_label = "node7";
  RankOutput other(options, 5, 1, 0, outlets.out, outlets.err);
  other.feed_out("x\n");
  EXPECT_EQ(outlets.drain().first, "[node7 rank 5] x\n");
  options.prefix_output = false;
  EXPECT_FALSE(RankOutput(options, 5, 1, 0, outlets.out, outlets.err).captured());
}

TEST(RankOutput, FilesTeeAndRedirects) {
  const TemporaryFolder folder;
  LaunchOptions options;
  options.log_dir = folder.path() + "/new/logs";
  options.tee = 2;
  options.tee_of_rank[1] = 0;
  Outlets outlets;
  {
    RankOutput rank(options, 4, 0, 0, outlets.out, outlets.err);
    rank.feed_out("out\n");
    rank.feed_err("err\n");
    rank.feed_out("no end");
    rank.finish();
    EXPECT_EQ(outlets.drain(), (Both{"", "[rank 4] err\n"}));
    EXPECT_EQ(rank.log_path(), options.log_dir + "/rank-4.log");
    EXPECT_EQ(read_file(rank.log_path()), "out\nerr\nno end");
    RankOutput quiet(options, 5, 1, 0, outlets.out, outlets.err);
    quiet.feed_err("err\n");
    EXPECT_EQ(outlets.drain(), (Both{"", ""}));
  }
  // A new run truncates its files; each generation has its own folder.
  RankOutput again(options, 4, 0, 0, outlets.out, outlets.err);
  EXPECT_EQ(read_file(again.log_path()), "");
  options.max_restarts = 1;
  EXPECT_EQ(RankOutput(options, 4, 0, 1, outlets.out, outlets.err).log_path(),
            options.log_dir + "/generation-1/rank-4.log");
  options.log_dir = "/proc/nowhere";
  EXPECT_THROW(RankOutput(options, 4, 0, 1, outlets.out, outlets.err), Error);
}

TEST(RankOutput, OnlySomeRanksAreShown) {
  LaunchOptions options;
  options.shown_ranks = {1};
  Outlets outlets;
  RankOutput hidden(options, 8, 0, 0, outlets.out, outlets.err), shown(options, 9, 1, 0, outlets.out, outlets.err);
  hidden.feed_out("a\n");
  shown.feed_out("b\n");
  EXPECT_EQ(outlets.drain().first, "[rank 9] b\n");
  options.prefix_output = false;
  EXPECT_TRUE(RankOutput(options, 8, 0, 0, outlets.out, outlets.err).captured());
}

TEST(RankOutput, AFullDiskDoesNotEndTheJob) {
  LaunchOptions options;
  const TemporaryFolder folder;
  options.log_dir = folder.path();
  options.tee = 0;
  ASSERT_EQ(::symlink("/dev/full", (folder.path() + "/rank-0.log").c_str()), 0);
  Outlets outlets;
  RankOutput rank(options, 0, 0, 0, outlets.out, outlets.err);
  rank.feed_out("a\n");
  rank.feed_out("b\n");
  const Both got = outlets.drain();
  EXPECT_EQ(got.first, "[rank 0] a\n[rank 0] b\n");
  EXPECT_NE(got.second.find("No space left on device"), std::string::npos) << got.second;
}

TEST(RankOutput, LastLinesAreBounded) {
  Outlets outlets;
  RankOutput rank(LaunchOptions{}, 0, 0, 0, outlets.out, outlets.err);
  for (int i = 0; i < 200; ++i) rank.feed_out(std::string(3000, 'x') + "\n");
  outlets.drain();
  const auto lines = rank.last_lines(1000);
  EXPECT_EQ(lines.size(), 50u);
  EXPECT_EQ(lines[0].size(), 1000u);
}

}  // namespace
}  // namespace tessera::launch
