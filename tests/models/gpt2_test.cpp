#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/models/gpt2.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/models/registry.h>

#include <tests/error_of.h>

#include <set>

using namespace tessera;

namespace {

using tessera::testing::error_of;

Value small(const std::string& overrides = "") {
  return models::with_overrides(
      models::preset("gpt2-tiny"),
      "n_layer=2,n_embd=16,n_head=2,vocab_size=31,n_positions=12" + (overrides.empty() ? "" : "," + overrides));
}

at::Tensor some_ids(std::int64_t b, std::int64_t t, std::int64_t v) {
  at::manual_seed(3);
  return at::randint(0, v, {b, t}, at::kLong);
}

TEST(Gpt2, NamesAndShapesAreHuggingFaces) {
  const auto model = models::make_model(small(), 1);
  std::vector<std::string> names;
  for (const auto& p : model->named_parameters()) names.push_back(p.key());
  const std::vector<std::string> expected{"transformer.wte.weight",
                                          "transformer.wpe.weight",
                                          "transformer.h.0.ln_1.weight",
                                          "transformer.h.0.ln_1.bias",
                                          "transformer.h.0.attn.c_attn.weight",
                                          "transformer.h.0.attn.c_attn.bias",
                                          "transformer.h.0.attn.c_proj.weight",
                                          "transformer.h.0.attn.c_proj.bias",
                                          "transformer.h.0.ln_2.weight",
                                          "transformer.h.0.ln_2.bias",
                                          "transformer.h.0.mlp.c_fc.weight",
                                          "transformer.h.0.mlp.c_fc.bias",
                                          "transformer.h.0.mlp.c_proj.weight",
                                          "transformer.h.0.mlp.c_proj.bias"};
  ASSERT_EQ(names.size(), 2 + 2 * 12 + 2u);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(names[i], expected[i]);
  EXPECT_EQ(names.back(), "transformer.ln_f.bias");
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["transformer.h.1.attn.c_attn.weight"].sizes(), (std::vector<std::int64_t>{16, 48}));
  EXPECT_EQ(parameters["transformer.h.1.mlp.c_proj.weight"].sizes(), (std::vector<std::int64_t>{64, 16}));
  for (const auto& p : model->named_parameters())
    EXPECT_EQ(model->is_norm_or_bias(p.key()), p.value().dim() == 1) << p.key();
}

TEST(Gpt2, AnUntiedHeadIsAParameterOfItsOwn) {
  const auto model = models::make_model(small("tie_word_embeddings=false"), 1);
  EXPECT_TRUE(model->named_parameters().contains("lm_head.weight"));
  EXPECT_FALSE(models::make_model(small(), 1)->named_parameters().contains("lm_head.weight"));
}

TEST(Gpt2, InitialisationFollowsTheRuleAndTheSeedOnly) {
  const Value config = models::with_overrides(models::preset("gpt2-tiny"), "n_layer=2,n_embd=64,vocab_size=2000");
  const int threads = at::get_num_threads();
  const auto a = models::make_model(config, 5);
  at::set_num_threads(1);
  const auto b = models::make_model(config, 5), c = models::make_model(config, 6);
  at::set_num_threads(threads);
  for (const auto& p : a->named_parameters()) {
    EXPECT_TRUE(at::equal(p.value(), b->named_parameters()[p.key()])) << p.key();
    const double std = p.value().std().item<double>(), mean = p.value().mean().item<double>();
    if (p.value().dim() == 1) {
      EXPECT_EQ(std, 0) << p.key();
      EXPECT_EQ(mean, p.key().ends_with("bias") ? 0 : 1) << p.key();
      continue;
    }
    EXPECT_FALSE(at::equal(p.value(), c->named_parameters()[p.key()])) << p.key();
    const double expected = p.key().ends_with("c_proj.weight") ? 0.02 / 2 : 0.02;  // sqrt(2 n_layer) = 2
    EXPECT_NEAR(std, expected, 0.06 * expected) << p.key();
    EXPECT_NEAR(mean, 0, 0.06 * expected) << p.key();
  }
  EXPECT_FALSE(at::equal(a->named_parameters()["transformer.h.0.mlp.c_fc.weight"],
                         a->named_parameters()["transformer.h.1.mlp.c_fc.weight"]));
}

TEST(Gpt2, LossIsTheCrossEntropyOfTheLogits) {
  const auto model = models::make_model(small(), 1);
  const at::Tensor ids = some_ids(2, 12, 31);
  at::Tensor labels = ids.clone();
  labels[1][4] = -100;
  const at::Tensor logits = model->logits(ids);
  ASSERT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 12, 31}));
  const at::Tensor expected = at::cross_entropy_loss(logits.slice(1, 0, 11).reshape({-1, 31}),
                                                     labels.slice(1, 1).reshape({-1}), {}, at::Reduction::Sum, -100);
  EXPECT_NEAR(model->loss(ids, labels, 0.1).item<double>(), 0.1 * expected.item<double>(), 1e-4);
}

TEST(Gpt2, CachedLogitsEqualWholeOnes) {
  const at::NoGradGuard no_grad;
  for (const char* overrides :
       {"", "scale_attn_by_inverse_layer_idx=true", "scale_attn_weights=false,tie_word_embeddings=false"}) {
    const auto model = models::make_model(small(overrides), 2);
    const at::Tensor ids = some_ids(2, 12, 31), whole = model->logits(ids);
    models::KvCache cache;
    for (const auto& [begin, end] : std::vector<std::pair<int, int>>{{0, 5}, {5, 6}, {6, 10}, {10, 11}, {11, 12}}) {
      const at::Tensor next = model->next_logits(ids.slice(1, begin, end), cache);
      EXPECT_LT((next - whole.select(1, end - 1)).abs().max().item<double>(), 1e-5) << overrides << end;
      EXPECT_EQ(cache.tokens(), end);
    }
    EXPECT_THROW(model->next_logits(ids.slice(1, 0, 1), cache), InputError) << "position 13 of 12";
  }
}

TEST(Gpt2, ALaterTokenDoesNotChangeEarlierLogits) {
  const at::NoGradGuard no_grad;
  const auto model = models::make_model(small(), 2);
  at::Tensor ids = some_ids(1, 12, 31);
  const at::Tensor before = model->logits(ids).slice(1, 0, 9);
  ids[0][9] = (ids[0][9] + 1) % 31;
  EXPECT_LT((model->logits(ids).slice(1, 0, 9) - before).abs().max().item<double>(), 1e-6);
}

TEST(Gpt2, DropoutActsInTrainingOnly) {
  for (const char* one : {"resid_pdrop=0.5", "embd_pdrop=0.5", "attn_pdrop=0.5"}) {
    const auto model = models::make_model(small(one), 2);
    const at::Tensor ids = some_ids(2, 12, 31);
    model->eval();
    const double still = model->loss(ids, ids, 1).item<double>();
    EXPECT_EQ(model->loss(ids, ids, 1).item<double>(), still) << one;
    model->train();
    const at::Tensor loss = model->loss(ids, ids, 1);
    EXPECT_NE(loss.item<double>(), model->loss(ids, ids, 1).item<double>()) << one;
    loss.backward();
    for (const auto& p : model->named_parameters()) EXPECT_TRUE(p.value().grad().defined()) << p.key();
  }
}

TEST(Gpt2, EveryActivationRunsAndTrains) {
  std::set<double> losses;
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh", "gelu", "relu", "silu"}) {
    const auto model = models::make_model(small(concat("initializer_range=0.5,activation_function=", name)), 2);
    const at::Tensor ids = some_ids(2, 8, 31), loss = model->loss(ids, ids, 1);
    loss.backward();
    losses.insert(loss.item<double>());
    EXPECT_GT(model->named_parameters()["transformer.h.0.mlp.c_fc.bias"].grad().abs().sum().item<double>(), 0) << name;
  }
  EXPECT_EQ(losses.size(), 4u) << "gelu_new and gelu_pytorch_tanh are one function, the others differ";
}

TEST(Gpt2, TooLongASequenceIsRefusedWithItsNumbers) {
  const auto model = models::make_model(small(), 1);
  const std::string message = error_of([&] { model->loss(some_ids(1, 13, 31), some_ids(1, 13, 31), 1); });
  EXPECT_NE(message.find("13"), std::string::npos) << message;
  EXPECT_NE(message.find("12"), std::string::npos) << message;
}

TEST(Gpt2, FlopsPerToken) {
  const auto model = models::make_model(models::preset("gpt2-tiny"), 1);
  const double n = 4 * 12.0 * 256 * 256 + 8192.0 * 256;
  EXPECT_EQ(model->flops_per_token(256), 6 * n + 12.0 * 4 * 256 * 256);
}

TEST(Gpt2Config, ComplaintsNamePlaceAndKey) {
  const auto parse = [](const std::string& text) {
    Value json = parse_json(text, "config.json");
    json.set("model_type", Value::of("gpt2"));
    return error_of([&] { architectures::read_model(json); });
  };
  const std::string rest = R"("n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 8, "vocab_size": 10)";
  EXPECT_EQ(parse("{" + rest + "}"), "");
  struct Case {
    const char *text, *part1, *part2;
  };
  for (const Case& c :
       {Case{R"({"n_embd": 16, "n_head": 4, "n_positions": 8, "vocab_size": 10})", "config.json:1", "n_layer"},
        Case{R"({"n_layer": 2, "n_embd": 16, "n_head": 3, "n_positions": 8, "vocab_size": 10})", "config.json:1:26",
             "n_head 3"},
        Case{R"({"n_layer": 0, "n_embd": 16, "n_head": 3, "n_positions": 8, "vocab_size": 10})", "config.json:1:13",
             "n_layer"},
        Case{R"({"n_layer": "2", "n_embd": 16, "n_head": 4, "n_positions": 8, "vocab_size": 10})", "config.json:1:13",
             "integer"}}) {
    const std::string message = parse(c.text);
    EXPECT_NE(message.find(c.part1), std::string::npos) << message;
    EXPECT_NE(message.find(c.part2), std::string::npos) << message;
  }
  for (const char* bad :
       {R"("activation_function": "tanh")", R"("resid_pdrop": 1.0)", R"("attn_pdrop": -0.1)",
        R"("layer_norm_epsilon": 0)", R"("add_cross_attention": true)", R"("tie_word_embeddings": 1)"}) {
    const std::string message = parse("{" + rest + ", " + bad + "}");
    EXPECT_NE(message.find("config.json:1"), std::string::npos) << bad << ": " << message;
  }
}

TEST(Registry, UnknownArchitecturesAreRefusedWithTheKnownOnes) {
  for (const char* text : {R"({"model_type": "t5"})", R"({"architectures": ["T5Model"]})", R"({})"}) {
    const std::string message = error_of([&] { models::make_model(parse_json(text, "c.json"), 0); });
    EXPECT_NE(message.find("c.json:1"), std::string::npos) << message;
    EXPECT_NE(message.find("gpt2"), std::string::npos) << message;
  }
  EXPECT_STREQ(
      architectures::architecture_of(parse_json(R"({"architectures": ["GPT2LMHeadModel"]})", "c.json")).model_type,
      "gpt2");
  const auto class_of = [](const char* text) {
    return architectures::architecture_of(parse_json(text, "c.json")).architecture;
  };
  EXPECT_STREQ(class_of(R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"]})"),
               "BertForSequenceClassification");
  EXPECT_STREQ(class_of(R"({"model_type": "bert", "architectures": ["BertModel"]})"), "BertForMaskedLM");
}

TEST(Presets, AreValidAndHaveTheirPublishedSizes) {
  std::int64_t count = 0;
  const auto c = architectures::read_model(models::preset("gpt2"));
  count = c.vocabulary * c.hidden + c.positions * c.hidden + c.layers * (12 * c.hidden * c.hidden + 13 * c.hidden) +
          2 * c.hidden;
  EXPECT_EQ(count, 124439808);
  EXPECT_EQ(architectures::read_model(models::preset("gpt2-tiny")).drops.mlp, 0);
  EXPECT_THROW(models::preset("gpt3"), InputError);
}

TEST(Overrides, KeepTheKindAndSuggestTheName) {
  const Value config = models::with_overrides(models::preset("gpt2-tiny"), "n_inner=100,resid_pdrop=0,use_cache=false");
  EXPECT_EQ(config.at("n_inner").as_int(), 100);
  EXPECT_FALSE(config.at("use_cache").as_bool());
  EXPECT_NE(error_of([] { models::with_overrides(models::preset("gpt2-tiny"), "n_layers=3"); }).find("n_layer\""),
            std::string::npos);
  for (const char* bad : {"n_layer=x", "n_layer=1.5", "use_cache=3", "resid_pdrop=no", "architectures=GPT", "n_layer"})
    EXPECT_NE(error_of([&] { models::with_overrides(models::preset("gpt2-tiny"), bad); }), "") << bad;
}

}  // namespace
