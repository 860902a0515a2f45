// Rows that are produced while they are read.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/bytes/byte_sink.h>
#include <tessera/corpus/sources.h>
#include <tessera/corpus/stream/record_cursor.h>
#include <tessera/data/dataset.h>
#include <tessera/data/stream/row_stream.h>

#include "fake_tokenizer.h"

namespace tessera::data {
namespace {

using Rows = std::vector<std::vector<std::int64_t>>;

class StreamTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = path_join(folder_.path(), name);
    write_file_atomically(path, text);
    return path;
  }
  /// Lines of letters of all lengths, including empty ones.
  std::string text(std::size_t lines, char first = 'a') {
    std::string out;
    for (std::size_t i = 0; i < lines; ++i) {
      for (std::size_t k = 0; k < i * 7 % 23; ++k) out += static_cast<char>(first + (i + k) % 26);
      out += '\n';
    }
    return out;
  }
  std::string examples(std::size_t count, char first = 'a') {
    std::string out;
    for (std::size_t i = 0; i < count; ++i)
      out += concat("{\"text\": \"", std::string(2 + i * 5 % 11, static_cast<char>(first + i % 26)), i, "\"}\n");
    return out;
  }
  DataConfig config(const std::string& files) const {
    DataConfig config;
    config.train_file = files;
    config.streaming = true;
    config.streaming_buffer = 5;
    return config;
  }
  Datasets open(const DataConfig& config, std::uint64_t seed = 7) {
    return open_datasets(config, tokenizer_, 8, 256, false, {}, "", seed);
  }
  static Rows rows(const Dataset& dataset, std::int64_t first, std::int64_t end) {
    Rows rows;
    for (std::int64_t i = first; i < end; ++i) {
      const Row row = dataset.read(i);
      rows.push_back(row.ids);
      rows.back().insert(rows.back().end(), row.labels.begin(), row.labels.end());
      rows.back().insert(rows.back().end(), row.document_starts.begin(), row.document_starts.end());
    }
    return rows;
  }
  Rows streamed(const DataConfig& config, std::int64_t count, std::uint64_t seed = 7) {
    const Datasets data = open(config, seed);
    data.stream->start(0);
    return rows(*data.train, 0, count);
  }
  void expect_complaint(const DataConfig& config, const std::string& part) {
    try {
      streamed(config, 100);
      ADD_FAILURE() << "accepted; expected an error with '" << part << "'";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks " << part;
    }
  }
  std::vector<std::int64_t> open_and_read(const DataConfig& config, std::int64_t row) {
    const Datasets data = open(config);
    data.stream->start(0);
    return data.train->read(row).ids;
  }
  /// For every sample, a stream that starts there from the saved state of a stream that has read that far gives the
  /// same rows.
  void expect_resumable(const DataConfig& config, std::int64_t count) {
    const Rows all = streamed(config, count + 12);
    for (std::int64_t at = 0; at <= count; ++at) {
      const Datasets first = open(config);
      first.stream->start(0);
      if (at > 1) rows(*first.train, 0, at - 1);  // as if the last row were another rank's
      const Value state = parse_json(dump_json(first.stream->state_at(at), -1), "state");
      const Datasets second = open(config);
      second.stream->start(at, state);
      EXPECT_EQ(rows(*second.train, at, at + 12), Rows(all.begin() + at, all.begin() + at + 12)) << "from " << at;
      if (at + 12 > count) continue;
      const Datasets third = open(config);
      third.stream->start(at + 12, second.stream->state_at(at + 12));
      EXPECT_EQ(third.train->read(at + 12).ids, open_and_read(config, at + 12)) << "from " << at << ", then again";
    }
  }

  TemporaryFolder folder_;
  FakeTokenizer tokenizer_;
};

/// In file order a stream gives the same rows as an ordinary run, epoch after epoch.
TEST_F(StreamTest, SequentialRowsAreThoseOfTheOrdinaryReader) {
  const std::string a = write("a.txt", text(40)), b = write("b.txt", text(30, 'A')),
                    records = write("c.jsonl", examples(23));
  for (const std::string& files : {a, a + " " + b, records})
    for (const bool documents : {false, true}) {
      DataConfig streaming = config(files);
      streaming.train_sampling_strategy = SamplingStrategy::sequential;
      streaming.reset_position_ids = documents;
      DataConfig ordinary = streaming;
      ordinary.streaming = false;
      ordinary.data_cache_dir = "none";
      const Datasets expected = open_datasets(ordinary, tokenizer_, 8, 256, false);
      const std::int64_t size = expected.train->size();
      const Rows once = rows(*expected.train, 0, size);
      Rows twice = once;
      twice.insert(twice.end(), once.begin(), once.end());
      EXPECT_EQ(streamed(streaming, 2 * size), twice) << files;
    }
}

TEST_F(StreamTest, AShuffledEpochHasEveryRowOnceInAnotherOrderEachTime) {
  DataConfig shuffled = config(write("a.jsonl", examples(23)));
  DataConfig sequential = shuffled;
  sequential.train_sampling_strategy = SamplingStrategy::sequential;
  const Rows file = streamed(sequential, 23), rows = streamed(shuffled, 46);
  Rows first(rows.begin(), rows.begin() + 23), second(rows.begin() + 23, rows.end());
  EXPECT_NE(first, file);
  EXPECT_NE(first, second);
  EXPECT_EQ(std::multiset(first.begin(), first.end()), std::multiset(file.begin(), file.end()));
  EXPECT_EQ(std::multiset(second.begin(), second.end()), std::multiset(file.begin(), file.end()));
  EXPECT_EQ(streamed(shuffled, 46), rows);
  EXPECT_NE(streamed(shuffled, 46, 8), rows);
}

TEST_F(StreamTest, GoesOnFromAnySampleWithTheVerySameRows) {
  const std::string a = write("a.txt", text(40)), b = write("b.txt", text(30, 'A')), c = write("c.jsonl", examples(23)),
                    d = write("d.jsonl", examples(9, 'A'));
  expect_resumable(config(a + " " + b), 60);
  expect_resumable(config(c + " " + d), 70);
  DataConfig packed = config(c);
  packed.packing = true;
  packed.max_seq_length = 20;
  expect_resumable(packed, 30);
  DataConfig sequential = config(a + " " + b);
  sequential.train_sampling_strategy = SamplingStrategy::sequential;
  sequential.reset_position_ids = true;
  expect_resumable(sequential, 60);
  expect_resumable(config(concat("0.7 ", a, " 0.2 ", b, " 0.1 ", c)), 60);
  const std::string packed_file = path_join(folder_.path(), "e.txt.gz");
  {
    const auto sink = corpus::create_file(packed_file, corpus::Compression::gzip);
    sink->write(text(50));
    sink->finish();
  }
  expect_resumable(config(packed_file), 30);
}

/// One record that is longer than several windows, and lines that are longer than blocks.
TEST_F(StreamTest, ARecordMayBeLongerThanAWindow) {
  const std::string file = write("a.txt", std::string(333, 'x') + "\n" + text(20) + std::string(50, 'y'));
  DataConfig sequential = config(file);
  sequential.train_sampling_strategy = SamplingStrategy::sequential;
  sequential.streaming_buffer = 2;
  expect_resumable(sequential, 70);
}

TEST_F(StreamTest, ABlendKeepsItsProportionsAndItsPartsTheirOrder) {
  const std::string a = write("a.txt", std::string(400, 'a')), b = write("b.txt", std::string(160, 'b'));
  std::int64_t of_b = 0;
  for (const auto& row : streamed(config(concat("0.75 ", a, " 0.25 ", b)), 1000)) of_b += row[0] == 'b';
  EXPECT_NEAR(static_cast<double>(of_b), 250, 1);
}

TEST_F(StreamTest, PackedRowsAreFullAndHaveEveryExampleOnce) {
  DataConfig packed = config(write("a.jsonl", examples(200)));
  packed.packing = true;
  packed.max_seq_length = 40;
  packed.streaming_buffer = 10;
  DataConfig single = packed;
  single.packing = false;
  std::int64_t tokens = 0, packed_tokens = 0, rows = 0;
  std::multiset<std::vector<std::int64_t>> whole, parts;
  const Datasets one = open(single), many = open(packed);
  one.stream->start(0);
  many.stream->start(0);
  for (std::int64_t i = 0; i < 200; ++i) {
    whole.insert(one.train->read(i).ids);
    tokens += one.train->length(i);
  }
  for (; packed_tokens < tokens; ++rows) {
    const Row row = many.train->read(rows);
    packed_tokens += static_cast<std::int64_t>(row.ids.size());
    for (std::size_t d = 0; d < row.document_starts.size(); ++d) {
      const auto end =
          d + 1 < row.document_starts.size() ? row.document_starts[d + 1] : static_cast<std::int64_t>(row.ids.size());
      parts.insert({row.ids.begin() + row.document_starts[d], row.ids.begin() + end});
      EXPECT_EQ(row.labels[static_cast<std::size_t>(row.document_starts[d])], not_scored);
    }
  }
  EXPECT_EQ(parts, whole);
  EXPECT_LE(rows, tokens / 40 + 8);
}

TEST_F(StreamTest, WhatTheThreadComesAcrossIsToldToTheReader) {
  const std::string bad = write("bad.jsonl", examples(20) + "{\"text\": 3}\n");
  DataConfig sequential = config(bad);
  sequential.train_sampling_strategy = SamplingStrategy::sequential;
  expect_complaint(sequential, "bad.jsonl:21");
  expect_complaint(config(write("b.txt", "abc\n")), "fewer tokens than one block of 8");
  expect_complaint(config(concat(write("c.txt", text(5)), " ", write("d.jsonl", examples(3)))), "give each a weight");
  EXPECT_EQ(rows(
                *[&] {
                  const Datasets data = open(sequential);
                  data.stream->start(0);
                  return data.train;
                }(),
                0, 15)
                .size(),
            15u);  // rows before the change can be read
}

TEST_F(StreamTest, AStateOfOtherDataOrSettingsIsRefused) {
  const std::string a = write("a.txt", text(40)), b = write("b.txt", text(41));
  const Datasets data = open(config(a));
  data.stream->start(0);
  const Value state = data.stream->state_at(9);
  const auto refused = [&](const DataConfig& other, std::uint64_t seed, std::int64_t at = 9) {
    EXPECT_THROW(open(other, seed).stream->start(at, state), InputError);
  };
  DataConfig buffer = config(a);
  buffer.streaming_buffer = 6;
  refused(buffer, 7);
  refused(config(a), 8);
  refused(config(b), 7);
  refused(config(a), 7, 10);
  open(config(a)).stream->start(9, state);
}

TEST_F(StreamTest, EmptyRowsAreLeftOutAndCounted) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += i % 3 == 1 ? "{\"text\": null}\n" : concat("{\"text\": \"ab", i, "\", \"id\": 1}\n");
  const std::string path = write("some.jsonl", text);
  std::vector<std::string> notes, warnings;
  DataConfig some = config(path);
  some.train_sampling_strategy = SamplingStrategy::sequential;
  const auto stream = open_stream(
      some, tokenizer_, "", 8, 256, 7, [&](const std::string& text) { warnings.push_back(text.substr(path.size())); },
      notes);
  stream->start(0);
  EXPECT_EQ(stream->read(26).ids, (std::vector<std::int64_t>{'a', 'b', '3', '9'}));
  EXPECT_EQ(warnings, (std::vector<std::string>{":1:1: unused field: id", ":2:1: left out: \"text\" is null",
                                                ":29:1: left out: \"text\" is null (10 records so far)"}));
}

/// If a file is replaced while it is read, the stream ends with an error that names it; new contents are never taken
/// for the old ones.
TEST_F(StreamTest, AChangedFileIsAnError) {
  DataConfig sequential = config(concat(write("a.txt", text(400)), " ", write("b.txt", text(400))));
  sequential.train_sampling_strategy = SamplingStrategy::sequential;
  const Datasets data = open(sequential);
  data.stream->start(0);
  data.train->read(0);
  write("b.txt", text(401));
  try {
    rows(*data.train, 0, 2000);
    ADD_FAILURE() << "read on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("b.txt' was changed"), std::string::npos) << error.what();
  }
}

/// The pieces of a file can be visited in any order, and a position in that order can be restored.
TEST(RecordCursorTest, GoesThroughPiecesInAnyOrderAndComesBack) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "a.txt");
  std::string text;
  for (int i = 0; i < 300; ++i) text += concat("line ", i, "\n");
  write_file_atomically(path, text);
  const corpus::CursorOptions options{{}, std::uint64_t{5}, 100};
  corpus::RecordCursor cursor({corpus::source_file(path)}, options);
  std::vector<std::string> lines;
  std::vector<corpus::CursorPosition> places;
  std::int64_t begins = 0;
  for (;;) {
    places.push_back(cursor.position());
    const auto item = cursor.next();
    if (!item) break;
    lines.emplace_back(item->line);
    begins += item->begins;
  }
  EXPECT_EQ(lines.size(), 300u);
  EXPECT_FALSE(std::is_sorted(begin(lines), end(lines)));
  EXPECT_GT(begins, 20);
  EXPECT_EQ(std::set(lines.begin(), lines.end()).size(), 300u);
  for (std::size_t at = 0; at < lines.size(); at += 17) {
    corpus::RecordCursor other({corpus::source_file(path)}, options);
    other.seek(places[at]);
    EXPECT_EQ(other.next()->line, lines[at]);
  }
}

}  // namespace
}  // namespace tessera::data
