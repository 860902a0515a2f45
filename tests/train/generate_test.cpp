#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include <tessera/base/error.h>
#include <tessera/models/load.h>
#include <tessera/text/tokenizer.h>
#include <tessera/train/inference/generate.h>

namespace tessera::train {
namespace {

std::shared_ptr<models::CausalLm> tiny_model() {
  Value config = models::preset("gpt2-tiny");
  for (const auto& [key, value] :
       {std::pair{"n_layer", 2}, {"n_embd", 16}, {"n_head", 2}, {"vocab_size", 257}, {"n_positions", 24}})
    config.set(key, Value::of(value));
  config.set("bos_token_id", Value::of(256));
  config.set("eos_token_id", Value::of(256));
  return models::make_model(config, 3);
}

TEST(SampleToken, GreedyTakesTheLikeliest) {
  const float logits[] = {0.1f, 2.0f, -1.0f, 1.9f};
  GenerateOptions options;
  options.do_sample = false;
  EXPECT_EQ(sample_token(logits, 4, options, 0.99), 1);
}

/// Frequency with which each id is drawn over an even grid of random numbers: its probability.
std::map<std::int32_t, double> frequencies(const std::vector<float>& logits, const GenerateOptions& options) {
  constexpr int draws = 10'000;
  std::map<std::int32_t, double> found;
  for (int i = 0; i < draws; ++i)
    found[sample_token(logits.data(), static_cast<std::int64_t>(logits.size()), options, (i + 0.5) / draws)] +=
        1.0 / draws;
  return found;
}

TEST(SampleToken, DrawsWithTheSoftmaxOfTheLogits) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f), std::log(2.0f)};
  auto found = frequencies(logits, {});
  EXPECT_NEAR(found[0], 0.1, 1e-3);
  EXPECT_NEAR(found[1], 0.2, 1e-3);
  EXPECT_NEAR(found[2], 0.5, 1e-3);
  EXPECT_NEAR(found[3], 0.2, 1e-3);
}

TEST(SampleToken, TemperatureSharpens) {
  const std::vector<float> logits = {0, std::log(2.0f)};
  GenerateOptions options;
  options.temperature = 0.5;  // weights 1 and 4
  EXPECT_NEAR(frequencies(logits, options)[1], 0.8, 1e-3);
}

TEST(SampleToken, TopKKeepsTheKLikeliest) {
  const std::vector<float> logits = {std::log(1.0f), std::log(3.0f), std::log(6.0f), std::log(2.0f)};
  GenerateOptions options;
  options.top_k = 2;
  auto found = frequencies(logits, options);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[2], 6.0 / 9.0, 1e-3);
}

TEST(SampleToken, TopPKeepsTheFewestThatReachP) {
  const std::vector<float> logits = {std::log(5.0f), std::log(3.0f), std::log(2.0f)};
  GenerateOptions options;
  options.top_p = 0.6;
  auto found = frequencies(logits, options);
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0], 5.0 / 8.0, 1e-3);
}

TEST(Generate, TheCacheDoesNotChangeTheText) {
  const auto model = tiny_model();
  const std::vector<std::int32_t> prompt = {10, 20, 30};
  GenerateOptions options;
  options.do_sample = false;
  options.max_new_tokens = 8;
  const auto with_cache = generate(*model, prompt, options);
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> all = prompt;
  for (int i = 0; i < 8; ++i) {
    const at::Tensor ids = at::tensor(at::ArrayRef<std::int32_t>(all), at::kInt).to(at::kLong).unsqueeze(0);
    all.push_back(model->logits(ids).select(1, -1)[0].argmax().item<std::int32_t>());
  }
  EXPECT_EQ(with_cache, (std::vector<std::int32_t>(all.begin() + 3, all.end())));
}

TEST(Generate, AStopIdEndsTheText) {
  const auto model = tiny_model();
  GenerateOptions options;
  options.do_sample = false;
  options.max_new_tokens = 8;
  const auto whole = generate(*model, {10, 20, 30}, options);
  ASSERT_EQ(whole.size(), 8u);
  options.stop_ids = {999, whole[3]};
  const auto first = std::find(whole.begin(), whole.end(), whole[3]);
  EXPECT_EQ(generate(*model, {10, 20, 30}, options), std::vector<std::int32_t>(whole.begin(), first));
}

TEST(StopIds, OfTheConfigurationAndTheTokenizer) {
  const auto tokenizer = text::load_tokenizer("byte");  // <|endoftext|> is 256
  const auto ids = [&](Value eos) {
    return stop_ids(Value::make_object({{"eos_token_id", std::move(eos)}}), *tokenizer);
  };
  EXPECT_EQ(ids(Value::of(7)), (std::vector<std::int32_t>{7, 256}));
  EXPECT_EQ(ids(Value::make_array({Value::of(3), Value::of(256), Value::of(5000), Value::of(-1)})),
            (std::vector<std::int32_t>{3, 256}))
      << "ids without a token are skipped, each is listed once";
  EXPECT_EQ(ids(Value()), std::vector<std::int32_t>{256});
}

TEST(Generate, TheSeedDecides) {
  const auto model = tiny_model();
  GenerateOptions options;
  options.max_new_tokens = 12;
  const auto first = generate(*model, {1}, options);
  EXPECT_EQ(first, generate(*model, {1}, options));
  options.seed = 43;
  EXPECT_NE(first, generate(*model, {1}, options));
}

TEST(Generate, StopsAtThePositionsAndTellsEveryToken) {
  const auto model = tiny_model();
  model->train();
  GenerateOptions options;
  options.max_new_tokens = 1000;
  std::vector<std::int32_t> told;
  const auto ids =
      generate(*model, std::vector<std::int32_t>(20, 1), options, [&](std::int32_t id) { told.push_back(id); });
  EXPECT_EQ(ids.size(), 5u);  // 24 positions; the last id needs none
  EXPECT_EQ(told, ids);
  EXPECT_TRUE(model->is_training());
}

TEST(Generate, AConversationGoesOnFromWhatWasSeen) {
  const auto model = tiny_model();
  GenerateOptions options;
  options.max_new_tokens = 4;
  SeenTokens seen;
  std::vector<std::int32_t> prompt = {1, 2, 3};
  for (int turn = 0; turn < 3; ++turn) {
    const auto answer = generate(*model, prompt, options, {}, &seen);
    EXPECT_EQ(answer, generate(*model, prompt, options)) << turn;
    EXPECT_GE(seen.cache.tokens(), static_cast<std::int64_t>(prompt.size() + answer.size()) - 1);
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    prompt.push_back(7);
  }
  const std::vector<std::int32_t> other = {1, 2, 9, 4};  // two tokens are the same
  EXPECT_EQ(generate(*model, other, options, {}, &seen), generate(*model, other, options));
  EXPECT_EQ(generate(*model, other, options, {}, &seen), generate(*model, other, options)) << "all tokens are";
  int asked = 0;
  options.stop = [&] { return ++asked > 2; };
  EXPECT_EQ(generate(*model, other, options, {}, &seen).size(), 2u);
}

TEST(Generate, RefusesWhatItCannotContinue) {
  const auto model = tiny_model();
  EXPECT_THROW(generate(*model, {}, {}), InputError);
  EXPECT_THROW(generate(*model, std::vector<std::int32_t>(25, 1), {}), InputError);
  EXPECT_THROW(generate(*model, {257}, {}), InputError);
  GenerateOptions options;
  options.temperature = 0;
  EXPECT_THROW(generate(*model, {1}, options), InputError);
  options = {};
  options.top_p = 1.5;
  EXPECT_THROW(generate(*model, {1}, options), InputError);
}

TEST(CompleteUtf8Prefix, KeepsUnfinishedCharactersBack) {
  EXPECT_EQ(complete_utf8_prefix(""), 0u);
  EXPECT_EQ(complete_utf8_prefix("abc"), 3u);
  EXPECT_EQ(complete_utf8_prefix("a\xC3"), 1u);
  EXPECT_EQ(complete_utf8_prefix("a\xC3\xA9"), 3u);
  EXPECT_EQ(complete_utf8_prefix("\xE2\x82"), 0u);
  EXPECT_EQ(complete_utf8_prefix("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(complete_utf8_prefix("\xF0\x9F\x98\x80"), 4u);
  EXPECT_EQ(complete_utf8_prefix("\x80\x80\x80\x80"), 4u) << "ill-formed: not held back forever";
  EXPECT_EQ(complete_utf8_prefix("\xFF"), 1u);
}

RC_GTEST_PROP(TextStream, GivesTheSameBytesInPieces, ()) {
  const auto tokenizer = text::load_tokenizer("byte");
  const auto words = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("a", "\u00e9", "\u20ac", "\U0001F600", " "));
  std::string text;
  for (const std::string& word : words) text += word;
  TextStream stream(*tokenizer);
  std::string shown;
  for (const std::int32_t id : tokenizer->encode(text)) {
    shown += stream.add(id);
    RC_ASSERT(is_utf8(shown));
  }
  RC_ASSERT(shown + stream.finish() == text);
}

}  // namespace
}  // namespace tessera::train
