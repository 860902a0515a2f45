#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include <tessera/corpus/bytes/line_stream.h>
#include <tests/corpus/made_files.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using testing::error_of;
using Lines = std::vector<std::string>;

TEST(TextLines, EachIsARecordWithItsEnd) {
  const MadeFiles made;
  const std::string path = made.add("a.txt", "one\n\ntwo\r\nthree");
  EXPECT_EQ(records_of(path),
            (Lines{R"({"text":"one\n"})", R"({"text":"\n"})", R"({"text":"two\r\n"})", R"({"text":"three"})"}));
  EXPECT_EQ(records_of(made.add("empty.txt", "")), Lines{});
}

TEST(JsonLines, BlankLinesMarksAndEnds) {
  const MadeFiles made;
  EXPECT_EQ(records_of(made.add("a.jsonl", "\xEF\xBB\xBF{\"a\":1}\r\n \n\n{\"a\":2}")),
            (Lines{R"({"a":1})", R"({"a":2})"}));
}

TEST(JsonLines, ComplaintsNamePlaceAndReadingGoesOn) {
  const MadeFiles made;
  const SourceFile file = source_file(made.add("a.jsonl", "{}\n[1]\n\n{\"a\" 1}\n{\"b\":2}\n"));
  const auto reader = read_records(file, pieces_of(file, 1 << 20)[0]);
  EXPECT_TRUE(reader->next());
  EXPECT_EQ(error_of([&] { reader->next(); }), file.path + ":2:1: expected an object, found an array");
  EXPECT_EQ(error_of([&] { reader->next(); }), file.path + ":4:6: expected ':' after the key \"a\", found '1'");
  EXPECT_EQ(reader->next()->at("b").where().str(), file.path + ":5:6");
  EXPECT_FALSE(reader->next());
  EXPECT_EQ(reader->bytes_read(), file.bytes);
}

TEST(Pieces, PlacesAreThoseInTheFile) {
  const MadeFiles made;
  std::string text;
  for (int i = 1; i <= 100; ++i) text += i == 57 ? "{oops\n" : "{\"line\": " + std::to_string(i) + "}\n";
  const SourceFile file = source_file(made.add("a.jsonl", text));
  const auto pieces = pieces_of(file, 64);
  ASSERT_GT(pieces.size(), 10u);
  std::vector<std::int64_t> seen;
  for (const Piece& piece : pieces) {
    const auto reader = read_records(file, piece);
    for (;;) {
      const std::string complaint = error_of([&] {
        while (const auto record = reader->next()) {
          seen.push_back(record->at("line").as_int());
          ASSERT_EQ(record->where().str(), file.path + ":" + std::to_string(seen.back()) + ":1");
        }
      });
      if (complaint.empty()) break;
      EXPECT_TRUE(complaint.starts_with(file.path + ":57:2: ")) << complaint;
    }
  }
  EXPECT_EQ(seen.size(), 99u);
}

TEST(Pieces, AVanishedFileIsStillNamed) {
  const MadeFiles made;
  const SourceFile file = source_file(made.add("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n"));
  const auto reader = read_records(file, pieces_of(file, 5).at(2));
  const auto record = reader->next();
  std::filesystem::remove(file.path);
  EXPECT_EQ(record->where().str(), file.path + ": line 1 after byte 18");
}

RC_GTEST_PROP(Pieces, HoldEveryRecordOnceInOrder, ()) {
  const MadeFiles made;
  const auto lines =
      *rc::gen::container<Lines>(rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab\n"))));
  std::string text;
  for (const std::string& line : lines) text += line;
  const SourceFile file = source_file(made.add("a.txt", text));
  const auto each = *rc::gen::inRange<std::uint64_t>(1, 30);
  const auto pieces = pieces_of(file, each);
  RC_ASSERT(pieces.front().begin == 0u);
  RC_ASSERT(pieces.back().end == text.size());
  for (std::size_t i = 1; i < pieces.size(); ++i) RC_ASSERT(pieces[i].begin == pieces[i - 1].end);
  RC_ASSERT(records_of(file, each) == records_of(file));
}

TEST(Lines, LongerThanTheBufferAndThanTheLimit) {
  const MadeFiles made;
  const std::string longer(std::size_t{3} << 20, 'a');
  const SourceFile file = source_file(made.add("a.txt", "b\n" + longer + "\nc"));
  LineStream lines(Window(open_bytes(file), file.path));
  EXPECT_EQ(lines.next(), "b\n");
  EXPECT_EQ(lines.next(), longer + "\n");
  EXPECT_EQ(lines.next(), "c");
  EXPECT_FALSE(lines.next());
  EXPECT_EQ(lines.used(), file.bytes);

  LineStream limited(Window(open_bytes(file), file.path, 1 << 20));
  limited.next();
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(error_of([&] { limited.next(); }),
              file.path + ": a record is longer than 1.0 MiB: do its contents match its extension?");
}

TEST(Lines, AFileThatIsShortenedMeanwhile) {
  const MadeFiles made;
  SourceFile file = source_file(made.add("a.txt", "one\ntwo\n"));
  file.bytes = 100;
  EXPECT_EQ(records_of(file),
            (Lines{R"({"text":"one\n"})", R"({"text":"two\n"})",
                   file.path + ": ends at byte 8, but had 100 bytes when it was opened: it was truncated"}));
}

}  // namespace
}  // namespace tessera::corpus
