// An evaluation tells whoever watches the rank of each batch: a long one is no hang.
#include <gtest/gtest.h>

#include <tessera/comm/heartbeat.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/train/loop/evaluate.h>
#include <tests/train/one_rank.h>

#include <vector>

namespace {

using namespace tessera;

TEST(EvaluateProgress, EveryBatchIsASignOfProgress) {
  const comm::Group& group = train::one_rank();
  const auto model = models::make_language_model(
      models::with_overrides(models::preset("llama-tiny"),
                             "num_hidden_layers=1,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                             "intermediate_size=48,vocab_size=61,max_position_embeddings=24"),
      1);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 10 * 8; ++i) tokens.push_back(i % 61);
  const auto rows = data::token_blocks(tokens, 8, 61, "test");
  const auto count = [] { return comm::heartbeat().slot().progress.load(); };
  const std::uint64_t small = count();
  train::evaluate(*model, *data::slice(rows, 0, 2), 1, group);
  const std::uint64_t large = count();
  train::evaluate(*model, *rows, 1, group);
  EXPECT_EQ(count() - large, large - small + 8) << "10 batches against 2";
}

}  // namespace
