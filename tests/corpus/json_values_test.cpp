#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include <tests/corpus/made_files.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using Records = std::vector<std::string>;

Records values(std::string_view text) {
  const MadeFiles made;
  Records records = records_of(made.add("a.json", text));
  for (std::string& record : records)
    if (const std::size_t at = record.find(made.path()); at != std::string::npos)
      record.erase(at, made.path().size() + 1);
  return records;
}

const Records two = {R"({"a":1})", R"({"b":[2,"]"]})"};

TEST(JsonFile, AnArrayOfObjects) {
  EXPECT_EQ(values(R"([{"a": 1}, {"b": [2, "]"]}])"), two);
  EXPECT_EQ(values("\xEF\xBB\xBF [\n  {\"a\": 1}\n ,\n {\"b\":\n[2, \"]\"]}\n]\n"), two);
  EXPECT_EQ(values("[]"), Records{});
  EXPECT_EQ(values(R"([{"a": "\\\"}]"}])"), (Records{R"({"a":"\\\"}]"})"}));
}

TEST(JsonFile, ObjectsOneAfterAnother) {
  EXPECT_EQ(values("{\"a\": 1}\n{\"b\": [2, \"]\"]}\n"), two);
  EXPECT_EQ(values("{\n  \"a\": 1\n}{\"b\":\n[2, \"]\"]\n}"), two);
  EXPECT_EQ(values(""), Records{});
  EXPECT_EQ(values(R"({"data": "x", "rows": [1]})"), (Records{R"({"data":"x","rows":[1]})"})) << "an ordinary record";
}

TEST(JsonFile, AnArrayInAMember) {
  EXPECT_EQ(values(R"({"data": [{"a": 1}, {"b": [2, "]"]}]})"), two);
  EXPECT_EQ(values(R"({"version": "1", "x": {"data": [{}]}, "rows": [{"a": 1}, {"b": [2, "]"]}], "n": [3], "m": 4})"),
            two);
}

TEST(JsonFile, Complaints) {
  EXPECT_EQ(values("[{\"a\": 1}\n {\"b\": 2}]"),
            (Records{R"({"a":1})", "a.json:2:2: expected ',' or ']' after an item of the array, found '{'"}));
  EXPECT_EQ(values("[{\"a\": 1}"),
            (Records{R"({"a":1})",
                     "a.json:1:10: expected ',' or ']' after an item of the array, found the end of the file"}));
  EXPECT_EQ(values("[{},]"), (Records{"{}", "a.json:1:5: expected another item after ',', found ']'"}));
  EXPECT_EQ(values("[{}] x"), (Records{"{}", "a.json:1:6: expected the end of the file after the array, found 'x'"}));
  EXPECT_EQ(values("[\n 1]"), (Records{"a.json:2:2: expected an object, found an integer"}));
  EXPECT_EQ(values("[\n {\"a\":\n  tru}]"), (Records{"a.json:3:3: expected a value, found 't'"}));
  EXPECT_EQ(values("hello"), (Records{"a.json:1:1: expected a value, found 'h'"}));
  EXPECT_EQ(values(std::string_view("{}\n\0\0", 5)),
            (Records{"{}", "a.json:2:1: expected a value, found control character 0"}))
      << "zeros left by a machine crash do not end the file";
  EXPECT_EQ(values("}"), (Records{"a.json:1:1: expected a value, found '}'"}));
  EXPECT_EQ(values(R"({"data": [{"a": 1}], "x": })"),
            (Records{R"({"a":1})", "a.json:1:27: expected a value, found '}'"}));
}

TEST(JsonFile, GoesOnBehindABadItem) {
  const MadeFiles made;
  const SourceFile file = source_file(made.add("a.json", "[{\"a\" 1},\n{\"b\": 2}]"));
  const auto reader = read_records(file, pieces_of(file, 1)[0]);
  EXPECT_EQ(testing::error_of([&] { reader->next(); }),
            file.path + ":1:7: expected ':' after the key \"a\", found '1'");
  EXPECT_EQ(reader->next()->at("b").where().str(), file.path + ":2:7");
  EXPECT_FALSE(reader->next());
}

RC_GTEST_PROP(JsonFile, HowItIsWrittenDoesNotMatter, (std::vector<std::string> texts)) {
  Value list = Value::make_array();
  std::string lines;
  for (const std::string& text : texts) {
    std::string clean;
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x80) clean += c;
    Value record = Value::make_object();
    record.set(clean, Value::of(clean));
    lines += dump_json(record, 1) + " ";
    list.push_back(std::move(record));
  }
  RC_ASSERT(values(dump_json(list)) == values(lines));
  RC_ASSERT(values(lines).size() == texts.size());
}

}  // namespace
}  // namespace tessera::corpus
