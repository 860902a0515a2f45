// Files written by pyarrow (tests/parity/make_corpus_fixtures.py) read as the rows that pyarrow shows.

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <tessera/corpus/tables/table_plugin.h>
#include <tests/corpus/made_files.h>
#include <tests/error_of.h>
#include <tests/paths.h>

namespace tessera::corpus {
namespace {

using testing::error_of;
using Rows = std::vector<std::string>;

std::string fixture(const std::string& name) { return testing::source_path("tests/fixtures/corpus/" + name); }

class Tables : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_table_plugin()) GTEST_SKIP() << "libtessera_arrow.so was not built: make deps";
  }
};

/// Rows of a .jsonl file without one field.
Rows expected(const std::string& name, std::string_view without = "") {
  Rows rows;
  const SourceFile file = source_file(fixture(name));
  const auto reader = read_records(file, pieces_of(file, file.bytes)[0]);
  while (const auto row = reader->next()) {
    std::vector<Value::Member> members;
    for (const Value::Member& member : row->members())
      if (member.first != without) members.push_back(member);
    rows.push_back(dump_json(Value::make_object(std::move(members)), -1));
  }
  return rows;
}

TEST_F(Tables, EveryTypeInEveryCodecEncodingAndPageVersion) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture(""))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("all_types.") || name.ends_with(".jsonl")) continue;
    const Rows rows = expected("all_types.jsonl", name.ends_with(".parquet") ? "float16" : "");
    EXPECT_EQ(records_of(fixture(name)), rows) << name;
    EXPECT_EQ(records_of(source_file(fixture(name)), 1), rows) << name << ", piece by piece";
    ++files;
  }
  EXPECT_EQ(files, 15);
}

TEST_F(Tables, PiecesAreRowGroupsAndBatches) {
  const SourceFile parquet = source_file(fixture("all_types.v1.none.parquet"));
  EXPECT_EQ(pieces_of(parquet, 1).size(), 3u);
  EXPECT_EQ(pieces_of(parquet, 1 << 30).size(), 1u);
  EXPECT_EQ(pieces_of(source_file(fixture("all_types.file.arrow")), 1).size(), 3u);
  EXPECT_EQ(pieces_of(source_file(fixture("all_types.stream.arrow")), 1).size(), 1u) << "it has a dictionary";
  const SourceFile chat = source_file(fixture("chat.arrow"));
  EXPECT_EQ(pieces_of(chat, 1).size(), 4u);
  EXPECT_EQ(records_of(chat, 1), expected("chat.jsonl"));
  EXPECT_EQ(records_of(chat, 1 << 30), expected("chat.jsonl"));
}

TEST_F(Tables, PlacesAndColumns) {
  const SourceFile file = source_file(fixture("all_types.v2.zstd.parquet"));
  const auto reader = read_records(file, pieces_of(file, 1).at(1), {"messages", "int8", "none"});
  reader->next();
  const auto row = reader->next();
  EXPECT_EQ(row->where().str(), file.path + ": row group 1, row 1");
  EXPECT_EQ(row->members().size(), 2u);
  EXPECT_EQ(row->at("int8").as_int(), 0);
  EXPECT_EQ(error_of([&] { row->at("int8").as_string(); }),
            file.path + ": row group 1, row 1: expected a string, found an integer");
  for (const char* name : {"chat.arrow", "all_types.file.arrow"}) {
    const SourceFile arrow = source_file(fixture(name));
    const auto some = read_records(arrow, pieces_of(arrow, 1).at(1), {"string"});
    EXPECT_EQ(some->next()->members().size(), 1u) << name;
    EXPECT_EQ(some->next()->where().str(), arrow.path + ": batch 1, row 1") << name;
  }
}

TEST_F(Tables, WhatIsNoTable) {
  const MadeFiles made;
  for (const char* name : {"a.parquet", "a.arrow"}) {
    for (const char* text : {"", "x", "{\"a\": 1}\n{\"a\": 2}\n"}) {
      const Rows rows = records_of(made.add(name, text));
      ASSERT_EQ(rows.size(), 1u);
      EXPECT_TRUE(rows[0].starts_with(made.path(name) + ": ")) << rows[0];
    }
  }
  EXPECT_NE(records_of(made.add("a.feather", "FEA1xxxxxxxx"))[0].find("Feather version 1"), std::string::npos);
}

/// Reads everything readable; returns the error messages.
Rows complaints_of(const std::string& path) {
  Rows complaints;
  const auto complain = [&](auto act) {
    const std::string complaint = error_of(act);
    if (!complaint.empty()) complaints.push_back(complaint);
    return complaint.empty();
  };
  complain([&] {
    const SourceFile file = source_file(path);
    const auto reader = read_records(file, pieces_of(file, std::uint64_t{1} << 40).at(0));
    for (bool more = true; more && complaints.size() < 10;) complain([&] { more = reader->next().has_value(); });
  });
  return complaints;
}

class Damaged : public Tables, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Files, Damaged,
                         ::testing::Values("all_types.v1.snappy.parquet", "all_types.v2.zstd.parquet",
                                           "all_types.delta.parquet", "all_types.stream.arrow", "all_types.file.arrow",
                                           "chat.arrow"),
                         [](const auto& row) {
                           std::string name = row.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST_P(Damaged, GivesRowsOrAComplaintWithThePlace) {
  const MadeFiles made;
  const std::string bytes = read_file(fixture(GetParam()));
  const bool parquet = std::string_view(GetParam()).ends_with(".parquet");
  const std::string part = parquet ? ": row group " : ": batch ";
  std::mt19937 random(7);
  int noticed = 0, placed = 0;
  for (int i = 0; i < mutations(); ++i) {
    std::string mutated = bytes;
    if (i % 8 == 0) {
      mutated.resize(random() % bytes.size());
    } else {
      for (int flips = 1 + i % 3; flips > 0; --flips)
        mutated[random() % mutated.size()] ^= static_cast<char>(1 << random() % 8);
    }
    const std::string path = made.add(std::string("d") + GetParam(), mutated);
    const Rows complaints = complaints_of(path);
    EXPECT_LT(complaints.size(), 10u);
    for (const std::string& complaint : complaints) {
      EXPECT_TRUE(complaint.starts_with(path + ": ")) << complaint;
      placed += complaint.starts_with(path + part);
    }
    noticed += !complaints.empty();
  }
  EXPECT_GT(noticed, mutations() / 8 - 2) << "truncations at least";
  EXPECT_GT(placed, 0);
}

}  // namespace
}  // namespace tessera::corpus
