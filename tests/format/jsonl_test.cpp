#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/jsonl.h>

namespace tessera::format {
namespace {

std::vector<std::string> values(std::string_view text) {
  JsonlReader reader(text, "x.jsonl");
  std::vector<std::string> out;
  while (const auto value = reader.next()) out.push_back(concat(value->where().line, ":", dump_json(*value, -1)));
  EXPECT_EQ(reader.bytes_read(), text.size());
  return out;
}

std::string complaint(std::string_view text) {
  JsonlReader reader(text, "x.jsonl");
  try {
    while (reader.next()) {
    }
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

using Lines = std::vector<std::string>;

TEST(Jsonl, OneValuePerLine) {
  EXPECT_EQ(values("{\"a\":1}\n[2]\n\"x\"\n"), (Lines{"1:{\"a\":1}", "2:[2]", "3:\"x\""}));
  EXPECT_EQ(values("1\n2"), (Lines{"1:1", "2:2"})) << "the last line feed may be missing";
  EXPECT_EQ(values("1\r\n2\r\n"), (Lines{"1:1", "2:2"}));
  EXPECT_EQ(values("\n \t\n1\n\r\n\n2\n\n"), (Lines{"3:1", "6:2"})) << "blank lines are skipped but counted";
  EXPECT_EQ(values("\xEF\xBB\xBF{}\n"), (Lines{"1:{}"})) << "a byte order mark";
  EXPECT_EQ(values(""), Lines{});
  EXPECT_EQ(values("\n\r\n  \n"), Lines{});
}

TEST(Jsonl, ComplaintsNameFileLineAndColumn) {
  EXPECT_EQ(complaint("{}\n\n{\"a\" 1}\n"), "x.jsonl:3:6: expected ':' after the key \"a\", found '1'");
  EXPECT_EQ(complaint("1\n2 3\n"), "x.jsonl:2:3: expected the end of the line after the value, found '3'");
  EXPECT_EQ(complaint("[1,\n2]\n"), "x.jsonl:1:4: expected a value, found the end of the line")
      << "a value must end on its line";
  EXPECT_EQ(complaint("\"a\"\n\"b\xC3\x28\"\n"), "x.jsonl:2:3: not valid UTF-8");
  EXPECT_EQ(complaint("\"b\xED\xA0\x80\"\n"), "x.jsonl:1:3: not valid UTF-8") << "a surrogate";
  EXPECT_EQ(complaint("\"\xC3"), "x.jsonl:1:2: not valid UTF-8") << "cut short";
  EXPECT_EQ(complaint("1\n\xEF\xBB\xBF{}\n"), "x.jsonl:2:1: expected a value, found '\xEF\xBB\xBF'");
  EXPECT_EQ(complaint("{\"a\":1,\"a\":2}\n"),
            "x.jsonl:1:12: the key \"a\" appears twice (first at x.jsonl:1:6); keep one of them");
  EXPECT_EQ(complaint(std::string("\0\n", 2)), "x.jsonl:1:1: expected a value, found control character 0");
}

TEST(Jsonl, ReadingGoesOnAfterAComplaint) {
  JsonlReader reader("1\n{\n3\n", "x.jsonl");
  EXPECT_EQ(reader.next()->as_int(), 1);
  EXPECT_THROW(reader.next(), InputError);
  EXPECT_EQ(reader.next()->as_int(), 3);
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.next());
}

TEST(Jsonl, WrongKindsCarryThePositionToo) {
  JsonlReader reader("{}\n{\"text\": 5}\n", "x.jsonl");
  reader.next();
  const auto value = reader.next();
  try {
    value->at("text").as_string();
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "x.jsonl:2:10: expected a string, found an integer");
  }
}

TEST(Jsonl, AMappedFileWithALineOfTenMegabytes) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "long.jsonl");
  const std::string text(10'000'000, 'x');
  write_file_atomically(path, concat("{\"text\":\"", text, "\"}\n{\"text\":\"y\"}\n{\"text\":\"", text, "\n"));
  JsonlReader reader(path);
  EXPECT_EQ(reader.next()->at("text").as_string(), text);
  EXPECT_EQ(reader.next()->at("text").as_string(), "y");
  EXPECT_THROW(reader.next(), InputError);
  EXPECT_EQ(reader.bytes_read(), reader.bytes());
  EXPECT_THROW(JsonlReader("absent.jsonl"), InputError);
}

}  // namespace
}  // namespace tessera::format
