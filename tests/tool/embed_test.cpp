#include "program.h"

#include <tests/paths.h>
#include <cmath>
#include <cstring>

namespace tessera::testing {
namespace {

const std::string model = source_path("tests/fixtures/bert_tiny");

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
};

/// Reads NumPy's format 1.0, as numpy.load does.
Matrix read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  EXPECT_TRUE(bytes.starts_with(std::string("\x93NUMPY\x01\x00\x76\x00", 10)));
  const std::string header = bytes.substr(10, 118);
  EXPECT_EQ(header.back(), '\n');
  Matrix m;
  EXPECT_EQ(std::sscanf(header.c_str(), "{'descr': '<f4', 'fortran_order': False, 'shape': (%ld, %ld), }", &m.rows,
                        &m.columns),
            2)
      << header;
  m.values.resize((bytes.size() - 128) / sizeof(float));
  std::memcpy(m.values.data(), bytes.data() + 128, m.values.size() * sizeof(float));
  EXPECT_EQ(static_cast<std::int64_t>(m.values.size()), m.rows * m.columns);
  return m;
}

class EmbedTest : public ToolTest {
 protected:
  EmbedTest() : expected_(read_json(path_join(model, "expected.json")).at("embeddings")) {
    std::string lines;
    for (const Value& text : expected_.at("texts").items())
      lines += dump_json(Value::make_object({{"id", Value::of("x")}, {"text", text}}), -1) + "\n";
    write_file_atomically(at("texts.jsonl"), lines);
  }

  launch::Captured embed(const Strings& more) const { return tessera(Strings{"embed", "--model", model} + more); }

  void expect_vectors(const Matrix& m, const char* pooling) const {
    const auto& rows = expected_.at(pooling).items();
    ASSERT_EQ(m.rows, static_cast<std::int64_t>(rows.size()));
    ASSERT_EQ(m.columns, 16);
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < 16; ++k)
        EXPECT_NEAR(m.values[i * 16 + k], rows[i].items()[k].as_real(), 1e-5) << pooling << " " << i << " " << k;
  }

  Value expected_;
};

TEST_F(EmbedTest, WritesWhatTransformersComputes) {
  for (const Strings& options :
       {Strings{}, Strings{"--batch_size", "1"}, Strings{"--replicas", "2", "--batch_size", "2"}}) {
    const auto run = embed(Strings{"--overwrite", "--input", at("texts.jsonl"), "--output", at("out.npy")} + options);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    expect_vectors(read_npy(at("out.npy")), "mean");
    EXPECT_TRUE(contains(run.err, "5 texts, ")) << run.err;
    EXPECT_TRUE(contains(run.err, "texts/s")) << run.err;
    EXPECT_TRUE(contains(run.err, "1 of 5 texts are longer than 32 tokens and were cut")) << run.err;
  }
  const auto cls = embed({"--input", at("texts.jsonl"), "--output", at("cls.npy"), "--pooling", "cls"});
  ASSERT_EQ(cls.exit_code, 0) << cls.err;
  expect_vectors(read_npy(at("cls.npy")), "cls");
}

TEST_F(EmbedTest, LinesOfTextAndJson) {
  write_file_atomically(at("lines.txt"), "Don't panic!\n\nthe earth\r\n");
  ASSERT_EQ(embed({"--input", at("lines.txt"), "--output", at("lines.jsonl")}).exit_code, 0);
  const auto lines = split(trim(read_file(at("lines.jsonl"))), '\n');
  ASSERT_EQ(lines.size(), 3u);  // the blank line is an empty text
  const auto& panic = expected_.at("mean").items()[1].items();
  const auto& empty = expected_.at("mean").items()[2].items();
  for (std::size_t k = 0; k < 16; ++k) {
    EXPECT_NEAR(parse_json(lines[0], "l").at("embedding").items()[k].as_real(), panic[k].as_real(), 1e-5);
    EXPECT_NEAR(parse_json(lines[1], "l").at("embedding").items()[k].as_real(), empty[k].as_real(), 1e-5);
  }
  EXPECT_EQ(parse_json(lines[2], "l").at("index").as_int(), 2);
}

TEST_F(EmbedTest, MaxLengthAndNormalisation) {
  ASSERT_EQ(embed({"--input", at("texts.jsonl"), "--output", at("a.npy"), "--normalize", "no", "--max_length", "4"})
                .exit_code,
            0);
  const Matrix m = read_npy(at("a.npy"));
  bool all_one = true;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    double sum = 0;
    for (std::int64_t k = 0; k < m.columns; ++k)
      sum += std::pow(m.values[static_cast<std::size_t>(row * m.columns + k)], 2);
    all_one = all_one && std::abs(sum - 1) < 1e-3;
  }
  EXPECT_FALSE(all_one);
}

TEST_F(EmbedTest, RefusesBadInput) {
  const Strings good = {"--input", at("texts.jsonl"), "--output", at("no.npy")};
  const auto refused = [&](const Strings& arguments, const std::string& part) {
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, part)) << run.err;
  };
  refused(Strings{"embed", "--model", at("nowhere")} + good, "does not exist");
  refused(Strings{"embed", "--model", source_path("tests/fixtures/gpt2_tiny")} + good, "supported: bert");
  refused(Strings{"embed", "--model", model, "--pooling", "sum"} + good,
          "--pooling is sum; it must be auto, mean, cls or max");
  refused(Strings{"embed", "--model", model, "--replicas", "0"} + good, "--replicas is 0");
  refused(Strings{"embed", "--model", model, "--batch_size", "0"} + good, "--batch_size is 0");
  refused(Strings{"embed", "--model", model, "--max_length", "49"} + good,
          "--max_length 49 is longer than the model's 48 positions");
  refused(Strings{"embed", "--model", model, "--text_column_name", "body"} + good, "texts.jsonl:1:1: has no \"body\"");
  refused({"embed", "--model", model, "--input", at("texts.jsonl"), "--output", at("out.csv")},
          "ends with .npy or .jsonl");
  refused({"embed", "--model", model, "--input", at("nothing.txt"), "--output", at("out.npy")}, "no such file");
  refused({"embed", "--model", model, "--input", at("texts.jsonl")}, "--output is missing");
  EXPECT_EQ(tessera({"embed", "--help"}).exit_code, 0);
  EXPECT_TRUE(contains(tessera({"--help"}).out, "embed"));
  for (const std::string& name : files()) EXPECT_FALSE(name.ends_with(".npy")) << name;
}

}  // namespace
}  // namespace tessera::testing
