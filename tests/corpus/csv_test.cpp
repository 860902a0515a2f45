#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include <tests/corpus/made_files.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using Records = std::vector<std::string>;

Records rows(std::string_view text, const std::string& name = "a.csv") {
  const MadeFiles made;
  Records records = records_of(made.add(name, text));
  for (std::string& record : records)
    if (const std::size_t at = record.find(made.path()); at != std::string::npos)
      record.erase(at, made.path().size() + 1);
  return records;
}

TEST(Csv, CellsAreStrings) {
  EXPECT_EQ(rows("a,b\n1,x y\n,\n"), (Records{R"({"a":"1","b":"x y"})", R"({"a":"","b":""})"}));
  EXPECT_EQ(rows("a\tb\n1\t2,3\n", "a.tsv"), (Records{R"({"a":"1","b":"2,3"})"}));
  EXPECT_EQ(rows("a,b\n1,2"), (Records{R"({"a":"1","b":"2"})"})) << "without a last line feed";
  EXPECT_EQ(rows("\xEF\xBB\xBF\"a\",b\r\n1,2\r\n"), (Records{R"({"a":"1","b":"2"})"})) << "mark and CRLF";
  EXPECT_EQ(rows("a\n\n1\n\r\n2\n\n"), (Records{R"({"a":"1"})", R"({"a":"2"})"})) << "empty lines";
  EXPECT_EQ(rows("a,b\n"), Records{});
  EXPECT_EQ(rows(""), Records{});
}

TEST(Csv, Quotes) {
  EXPECT_EQ(rows("a,b\n\"x,\"\"y\"\"\nz\",\"\"\n"), (Records{R"({"a":"x,\"y\"\nz","b":""})"}));
  EXPECT_EQ(rows("a,b\n5\" nail,it's \"so\"\n"), (Records{R"({"a":"5\" nail","b":"it's \"so\""})"}))
      << "inside an unquoted cell quotes are literal";
  EXPECT_EQ(rows("a\n\"x\r\ny\"\r\n"), (Records{R"({"a":"x\r\ny"})"})) << "line ends inside a cell are kept";
  EXPECT_EQ(rows("a\nx\ry\n"), (Records{R"({"a":"x\ry"})"}));
  EXPECT_EQ(rows("a,b\n1,\"2\"\r"), (Records{R"({"a":"1","b":"2"})"}));
}

TEST(Csv, Complaints) {
  EXPECT_EQ(rows("a,b\n1,2\n3\n"), (Records{R"({"a":"1","b":"2"})",
                                            "a.csv:3:1: has 1 cell, but the first row names 2: is a quote or a "
                                            "separator missing?"}));
  EXPECT_EQ(rows("a,b\n\"1\n2\",\"3\n"), (Records{"a.csv:3:4: a quoted cell that begins here never ends"}));
  EXPECT_EQ(rows("a,b\n\"1\"x,2\n"), (Records{"a.csv:2:4: expected ',' or the end of the line after a quoted cell (a "
                                              "quote inside is written \"\")"}));
  EXPECT_EQ(rows("a,b,a\n"), (Records{"a.csv:1:5: two columns are named \"a\""}));
}

TEST(Csv, PlacesOfCellsAndGoingOn) {
  const MadeFiles made;
  const SourceFile file = source_file(made.add("a.csv", "a,b\n\"x\ny\",1\n2\n3,\"4\"\n"));
  const auto reader = read_records(file, pieces_of(file, 1)[0]);
  EXPECT_EQ(reader->next()->at("b").where().str(), file.path + ":3:4");
  EXPECT_NE(testing::error_of([&] { reader->next(); }), "");
  const auto last = reader->next();
  EXPECT_EQ(last->where().str(), file.path + ":5:1");
  EXPECT_EQ(last->at("b").where().str(), file.path + ":5:3");
  EXPECT_FALSE(reader->next());
  EXPECT_EQ(reader->bytes_read(), file.bytes);
}

RC_GTEST_PROP(Csv, WhatIsQuotedComesBack, ()) {
  const auto cell = rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab,\"\n\r\t ")));
  const auto cells = *rc::gen::nonEmpty(rc::gen::container<Records>(cell));
  std::string text = "name\n";
  for (const std::string& value : cells) {
    text += '"';
    for (const char c : value) text += c == '"' ? std::string("\"\"") : std::string(1, c);
    text += "\"\n";
  }
  const MadeFiles made;
  const SourceFile file = source_file(made.add("a.csv", text));
  const auto reader = read_records(file, pieces_of(file, 1)[0]);
  for (const std::string& value : cells) {
    const auto record = reader->next();
    RC_ASSERT(record.has_value());
    RC_ASSERT(record->at("name").as_string() == value);
  }
  RC_ASSERT(!reader->next());
}

}  // namespace
}  // namespace tessera::corpus
