// After each batch an evaluation reports progress to the rank's watchers, so that a long one does not count as hung,
// and checks whether to continue.
#include <gtest/gtest.h>

#include <tessera/comm/heartbeat.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/train/loop/evaluate.h>
#include <tests/train/one_rank.h>

#include <vector>

namespace {

using namespace tessera;

std::shared_ptr<models::LanguageModel> small_model() {
  return models::make_language_model(
      models::with_overrides(models::preset("llama-tiny"),
                             "num_hidden_layers=1,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                             "intermediate_size=48,vocab_size=61,max_position_embeddings=24"),
      1);
}

std::shared_ptr<const data::Dataset> ten_rows() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 10 * 8; ++i) tokens.push_back(i % 61);
  return data::token_blocks(tokens, 8, 61, "test");
}

TEST(EvaluateProgress, EveryBatchIsASignOfProgress) {
  const comm::Group& group = train::one_rank();
  const auto model = small_model();
  const auto rows = ten_rows();
  const auto count = [] { return comm::heartbeat().slot().progress.load(); };
  const std::uint64_t small = count();
  train::evaluate(*model, *data::slice(rows, 0, 2), group, {}, {});
  const std::uint64_t large = count();
  train::evaluate(*model, *rows, group, {}, {});
  EXPECT_EQ(count() - large, large - small + 8) << "10 batches against 2";
}

TEST(EvaluateProgress, IsGivenUpWhereItIsTold) {
  const auto model = small_model();
  model->train();
  std::vector<std::int64_t> asked;
  const auto until = [&](std::int64_t last) {
    return train::Evaluating{.goes_on = [&asked, last](std::int64_t done, std::int64_t batches) {
      EXPECT_EQ(batches, 5);
      asked.push_back(done);
      return done < last;
    }};
  };
  EXPECT_FALSE(train::evaluate(*model, *ten_rows(), train::one_rank(), {.batch_size = 2}, until(3)).has_value());
  EXPECT_EQ(asked, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(model->is_training());
  asked.clear();
  EXPECT_TRUE(train::evaluate(*model, *ten_rows(), train::one_rank(), {.batch_size = 2}, until(99)).has_value());
  EXPECT_EQ(asked.size(), 5u);
}

}  // namespace
