#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/bytes/byte_sink.h>
#include <tessera/data/labelled.h>
#include <tessera/data/objective_rows.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <functional>

namespace tessera::data {
namespace {

using tessera::testing::error_of;

constexpr std::int64_t vocabulary = 500, mask_id = 4;

Objective masking(std::uint64_t seed = 7, double probability = 0.15) {
  Objective objective;
  objective.kind = Objective::Kind::masked_token;
  objective.probability = probability;
  objective.mask_id = mask_id;
  objective.vocab_size = vocabulary;
  objective.special = {true, true, true, true, true};
  objective.seed = seed;
  return objective;
}

std::shared_ptr<const Dataset> blocks(std::int64_t count, std::int64_t length) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count * length; ++i)
    tokens.push_back(i % length == 0 ? 2 : static_cast<std::int32_t>(5 + i * 31 % (vocabulary - 5)));
  return token_blocks(tokens, length, vocabulary, "tokens");
}

TEST(Masking, HidesTheShareThatIsAskedFor) {
  const auto plain = blocks(200, 100);
  const auto rows = std::make_shared<ObjectiveRows>(plain, masking());
  const Sampler in_order(SamplingStrategy::sequential, plain->size(), 0);
  const Batch before = make_batch(*plain, in_order, 0, 200), batch = make_batch(*rows, in_order, 0, 200);
  const at::Tensor scored = batch.labels.ne(-100);
  EXPECT_TRUE(at::equal(batch.labels.masked_select(scored), before.ids.masked_select(scored)))
      << "labels are the true tokens";
  EXPECT_TRUE(at::equal(batch.ids.masked_select(scored.logical_not()), before.ids.masked_select(scored.logical_not())));
  EXPECT_EQ(scored.select(1, 0).sum().item<std::int64_t>(), 0) << "special tokens are never hidden";
  const double all = 200 * 99, hidden = scored.sum().item<double>();
  EXPECT_NEAR(hidden / all, 0.15, 0.01);
  EXPECT_EQ(batch.scored_tokens, static_cast<std::int64_t>(hidden));
  EXPECT_EQ(batch.labels_not_ignored, batch.scored_tokens);
  const double masked = batch.ids.eq(mask_id).sum().item<double>();
  const double kept = (scored.logical_and(batch.ids.eq(batch.labels))).sum().item<double>();
  EXPECT_NEAR(masked / hidden, 0.8, 0.03);
  EXPECT_NEAR(kept / hidden, 0.1, 0.02);
}

TEST(Masking, DependsOnSeedAndSampleOnly) {
  const auto plain = blocks(12, 40);
  const auto rows = std::make_shared<ObjectiveRows>(plain, masking());
  const Sampler in_order(SamplingStrategy::sequential, plain->size(), 0);
  const Batch whole = make_batch(*rows, in_order, 0, 12);
  for (std::int64_t first = 0; first < 12; first += 4) {
    const Batch part = make_batch(*rows, in_order, first, 4);
    EXPECT_TRUE(at::equal(part.ids, whole.ids.narrow(0, first, 4)));
    EXPECT_TRUE(at::equal(part.labels, whole.labels.narrow(0, first, 4)));
  }
  EXPECT_FALSE(at::equal(make_batch(*rows, in_order, 12, 12).labels, whole.labels))
      << "the next epoch hides other tokens";
  const auto others = std::make_shared<ObjectiveRows>(plain, masking(8));
  EXPECT_FALSE(at::equal(make_batch(*others, in_order, 0, 12).labels, whole.labels));
}

class LabelledTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "l.jsonl") {
    const std::string path = path_join(folder_.path(), name);
    write_file_atomically(path, text);
    return path;
  }
  DataConfig config(const std::string& text) {
    DataConfig config;
    config.train_file = write(text);
    return config;
  }
  static const text::WordPieceTokenizer& tokenizer() {
    static const auto loaded = std::dynamic_pointer_cast<const text::WordPieceTokenizer>(
        text::load_tokenizer(tessera::testing::source_path("tests/fixtures/text/wordpiece/uncased.json")));
    return *loaded;
  }
  TemporaryFolder folder_;
};

TEST_F(LabelledTest, NamesTheClasses) {
  using Names = std::vector<std::string>;
  const auto names = [&](const std::string& text) { return label_names(write(text), "text"); };
  EXPECT_EQ(names("{\"text\":\"a\",\"label\":\"up\"}\n{\"text\":\"b\",\"label\":\"down\"}\n"), (Names{"down", "up"}));
  EXPECT_EQ(names("{\"text\":\"a\",\"label\":2}\n{\"text\":\"b\",\"label\":0}\n"),
            (Names{"LABEL_0", "LABEL_1", "LABEL_2"}));
  EXPECT_EQ(names("{\"text\":\"a\",\"label\":true}\n"), (Names{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(names("{\"text\":\"a\"}\n"), std::nullopt);
  EXPECT_EQ(label_names(write("x", "a.txt"), "text"), std::nullopt);
  EXPECT_NE(error_of([&] {
              names("{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":\"up\"}\n");
            }).find("l.jsonl:2:21: some labels are numbers"),
            std::string::npos);
  EXPECT_NE(error_of([&] { names("{\"text\":\"a\",\"label\":-1}\n"); }).find("label -1 is outside"), std::string::npos);
  EXPECT_NE(error_of([&] {
              names("{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\"}\n");
            }).find("l.jsonl:2:1: has no \"label\""),
            std::string::npos);
}

TEST_F(LabelledTest, RowsHoldClassAndPairs) {
  const Datasets datasets = open_labelled(config("{\"text\":\"the "
                                                 "earth\",\"label\":\"b\"}\n{\"text\":\"the\",\"text_pair\":\"earth\","
                                                 "\"label\":\"a\"}\n{\"text\":\"x\",\"label\":1}\n"),
                                          tokenizer(), 12, {{"a", 0}, {"b", 1}}, 2, /*want_validation=*/true);
  EXPECT_EQ(datasets.train->size(), 2);
  EXPECT_EQ(datasets.validation->size(), 1);
  const Row first = datasets.train->read(0);
  EXPECT_EQ(first.ids.front(), 2);
  EXPECT_EQ(first.ids.back(), 3);
  EXPECT_EQ(first.labels[0], 1);
  EXPECT_EQ(std::count(first.labels.begin(), first.labels.end(), -100), static_cast<long>(first.labels.size()) - 1);
  EXPECT_TRUE(first.types.empty());
  Objective objective;
  objective.kind = Objective::Kind::row_class;
  const ObjectiveRows rows(datasets.train, objective);
  const Batch batch = make_batch(rows, Sampler(SamplingStrategy::sequential, 2, 0), 0, 2);
  EXPECT_EQ(batch.scored_tokens, 2);
  EXPECT_EQ(batch.labels[1][0].item<std::int64_t>(), 0);
  ASSERT_TRUE(batch.types.defined());
  EXPECT_EQ(batch.types[0].sum().item<std::int64_t>(), 0);
  EXPECT_GT(batch.types[1].sum().item<std::int64_t>(), 0);
  EXPECT_EQ(batch.lengths.size(), 2u);
}

/// Every file type that other training data can be read from.
TEST_F(LabelledTest, ReadsFilesOfAnyKind) {
  const std::string numbers = write("text,label\n\"the, earth\",1\nthe,0\n", "a.csv");
  EXPECT_EQ(label_names(numbers, "text"), (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
  const std::string names = write("label\ttext\nup\tthe\n", "b.tsv");
  EXPECT_EQ(label_names(names, "text"), (std::vector<std::string>{"up"}));
  const std::string packed = path_join(folder_.path(), "c.json.gz");
  {
    const auto sink = corpus::create_file(packed, corpus::Compression::gzip);
    sink->write("[{\"text\": \"earth\", \"label\": 2}, {\"text\": \"x\", \"text_pair\": null, \"label\": 1}]");
    sink->finish();
  }
  DataConfig config;
  config.train_file = numbers + " " + packed;
  EXPECT_EQ(label_names(config.train_file, "text"), (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  const Datasets datasets = open_labelled(config, tokenizer(), 12, {}, 3, false);
  ASSERT_EQ(datasets.train->size(), 4);
  std::vector<std::int64_t> classes;
  for (std::int64_t row = 0; row < 4; ++row) classes.push_back(datasets.train->read(row).labels[0]);
  EXPECT_EQ(classes, (std::vector<std::int64_t>{1, 0, 2, 1}));
  config.train_file = "0.5 " + numbers + " 0.5 " + packed;
  EXPECT_NE(error_of([&] { open_labelled(config, tokenizer(), 12, {}, 3, false); }).find("remove the weights"),
            std::string::npos);
}

TEST_F(LabelledTest, EmptyCellsAreLeftOutAndCounted) {
  const std::string path = write("text,label\nthe,up\n,down\nearth,\n", "empty.csv");
  EXPECT_EQ(label_names(path, "text"), (std::vector<std::string>{"down", "up"}));
  DataConfig config;
  config.train_file = path;
  const Datasets datasets = open_labelled(config, tokenizer(), 12, {{"down", 0}, {"up", 1}}, 2, false);
  EXPECT_EQ(datasets.train->size(), 1);
  ASSERT_EQ(datasets.warnings.size(), 1u);
  EXPECT_NE(datasets.warnings[0].find("2 records were left out: the text or the label is empty (first at "),
            std::string::npos);
}

TEST_F(LabelledTest, UnknownClassesAreNamed) {
  const auto open = [&](const std::string& text) {
    return error_of([&] { open_labelled(config(text), tokenizer(), 12, {{"a", 0}, {"b", 1}}, 2, false); });
  };
  EXPECT_NE(open("{\"text\":\"x\",\"label\":\"c\"}\n").find("l.jsonl:1:21: the model has no class \"c\"; it has a, b"),
            std::string::npos);
  EXPECT_NE(open("{\"text\":\"x\",\"label\":2}\n").find("label 2, but the model has 2 classes (0 to 1)"),
            std::string::npos);
  EXPECT_NE(open("{\"label\":1}\n").find("\"text\""), std::string::npos);
  EXPECT_NE(open("").find("is empty"), std::string::npos);
}

}  // namespace
}  // namespace tessera::data
