// LoRA against peft: tests/fixtures/lora, made by tests/parity/lora_fixture.py from the tiny models next to it.
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/layers.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/optim/optimizer.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <cmath>
#include <set>

using namespace tessera;

namespace {

using tessera::testing::error_of;

const std::string fixtures = tessera::testing::source_path("tests/fixtures");

ModelConfig from(const std::string& path) {
  ModelConfig config;
  config.model_name_or_path = path;
  return config;
}

std::shared_ptr<models::CausalLm> gpt2() { return models::load_model(from(fixtures + "/gpt2_tiny"), 0); }

at::Tensor tokens(std::int64_t step) {  // as in lora_fixture.py
  at::Tensor ids = at::empty({2, 12}, at::kLong);
  std::uint32_t x = static_cast<std::uint32_t>(step + 1);
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    x = (1103515245u * x + 12345u) & 0x7fffffffu;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % 97;
  }
  return ids;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).abs().max() / y.abs().max()).item<double>();
}

std::set<std::string> adapted(const models::CausalLm& model) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : models::lora_state(model)) names.insert(name.substr(0, name.find(".lora_")));
  return names;
}

models::LoraConfig targets(std::vector<std::string> names, std::int64_t r = 4) {
  models::LoraConfig config;
  config.r = r;
  config.target_modules = std::move(names);
  return config;
}

class AgainstPeft : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder = fixtures + "/lora/" + GetParam();
  const Value expected = read_json(folder + "/expected.json");
  const std::shared_ptr<models::CausalLm> model = models::load_model(from(folder), 0);

  at::Tensor expected_logits() const {
    std::vector<double> flat;
    for (const Value& row : expected.at("logits").items())
      for (const Value& token : row.items())
        for (const Value& x : token.items()) flat.push_back(x.as_real());
    return at::tensor(flat, at::kDouble).view({2, 12, 97});
  }
};

TEST_P(AgainstPeft, Logits) { EXPECT_LT(difference(model->logits(tokens(99)), expected_logits()), 1e-5); }

TEST_P(AgainstPeft, MergedLogits) {
  models::merge_lora(*model);
  EXPECT_TRUE(models::lora_state(*model).empty());
  for (const auto& p : model->named_parameters()) EXPECT_EQ(p.key().find("lora"), std::string::npos) << p.key();
  EXPECT_LT(difference(model->logits(tokens(99)), expected_logits()), 1e-5);
}

TEST_P(AgainstPeft, TrainableParameters) {
  EXPECT_EQ(models::describe_trainable(*model), expected.at("trainable").as_string());
}

TEST_P(AgainstPeft, LossesAndGradientNormsOfTwentySteps) {
  model->train();
  std::vector<optim::Slot> slots;
  for (auto& p : model->named_parameters())
    if (p.value().requires_grad())
      slots.push_back({p.key(), p.value(), model->is_norm_or_bias(p.key()) ? 0.0 : 0.1, 1.0});
  ASSERT_EQ(slots.size(), models::adapter_state(*model).size());
  const auto optimizer = optim::make_adamw(slots, {0.9, 0.999, 1e-8});
  const auto& losses = expected.at("losses").items();
  const auto& norms = expected.at("grad_norms").items();
  ASSERT_EQ(losses.size(), 20u);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const at::Tensor ids = tokens(static_cast<std::int64_t>(step));
    at::Tensor labels = ids.clone();
    labels[0][5] = -100;
    const at::Tensor loss = model->loss(ids, labels, 1.0 / (2 * 11 - 1));
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const auto& slot : slots) gradients.push_back(slot.parameter.grad());
    const double norm = optim::gradient_norm(gradients);
    EXPECT_NEAR(loss.item<double>(), losses[step].as_real(), 1e-5 * losses[step].as_real()) << step;
    EXPECT_NEAR(norm, norms[step].as_real(), 1e-5 * norms[step].as_real()) << step;
    optimizer->step(1e-3, optim::clip_coefficient(norm, 1.0));
    for (auto& slot : slots) slot.parameter.mutable_grad().reset();
  }
  for (const auto& p : model->named_parameters())
    EXPECT_EQ(p.value().grad().defined(), false) << "frozen weights have no gradients: " << p.key();
}

TEST_P(AgainstPeft, TheFolderSavedAgainIsTheSame) {
  const TemporaryFolder out;
  const auto config = models::loaded_lora_config(*model, folder);
  checkpoint::write_adapter_folder(out.path(), models::adapter_state(*model), config, nullptr);
  EXPECT_EQ(read_file(out.path() + "/adapter_model.safetensors"), read_file(folder + "/adapter_model.safetensors"));
  const Value ours = read_json(out.path() + "/adapter_config.json"),
              theirs = read_json(folder + "/adapter_config.json");
  for (const char* member :
       {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias", "fan_in_fan_out", "modules_to_save"})
    EXPECT_EQ(dump_json(ours.at(member)), dump_json(theirs.at(member))) << member;
  const auto again = models::load_model(from(out.path()), 0);
  EXPECT_EQ(adapted(*again), adapted(*model));
  EXPECT_TRUE(at::equal(again->logits(tokens(3)), model->logits(tokens(3))));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, AgainstPeft, ::testing::Values("gpt2", "llama", "whole"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ApplyLora, ComputesTheSameAtFirstAndTrainsAdaptersOnly) {
  const auto model = gpt2(), plain = gpt2();
  const auto config = models::apply_lora(*model, targets({}, 3), 5);
  EXPECT_EQ(config.target_modules, std::vector<std::string>{"c_attn"});
  EXPECT_TRUE(config.fan_in_fan_out);
  EXPECT_TRUE(at::equal(model->logits(tokens(1)), plain->logits(tokens(1))));
  for (const auto& p : model->named_parameters())
    EXPECT_EQ(p.value().requires_grad(), p.key().find(".lora_") != std::string::npos) << p.key();
  const auto state = models::lora_state(*model);
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state[0].first, "transformer.h.0.attn.c_attn.lora_A.weight");
  EXPECT_EQ(state[0].second.sizes(), (std::vector<std::int64_t>{3, 32}));
  EXPECT_EQ(state[1].second.sizes(), (std::vector<std::int64_t>{96, 3}));
}

TEST(ApplyLora, InitialValuesFollowSeedAndNameAndHaveThePeftRange) {
  const auto a = gpt2(), b = gpt2(), other = gpt2();
  models::apply_lora(*a, targets({"c_attn"}, 16), 5);
  models::apply_lora(*b, targets({"all-linear"}, 16), 5);
  models::apply_lora(*other, targets({"c_attn"}, 16), 6);
  const auto name = "transformer.h.1.attn.c_attn.lora_A.weight";
  const at::Tensor values = a->named_parameters()[name];
  EXPECT_TRUE(at::equal(values, b->named_parameters()[name])) << "regardless of other adapters";
  EXPECT_FALSE(at::equal(values, other->named_parameters()[name]));
  EXPECT_FALSE(at::equal(values, a->named_parameters()["transformer.h.0.attn.c_attn.lora_A.weight"]));
  const double bound = 1 / std::sqrt(32.0);  // kaiming_uniform_(a = sqrt(5)): sqrt(6 / (6 in))
  EXPECT_LE(values.abs().max().item<double>(), bound);
  EXPECT_NEAR(values.std().item<double>(), bound / std::sqrt(3.0), 0.1 * bound);
}

TEST(ApplyLora, FrozenWeightsCostNoGraphAndKeepNoActivations) {
  models::Linear linear(16, 8, /*with_bias=*/true), trained(16, 8, /*with_bias=*/true);
  for (at::Tensor& p : linear.parameters()) p.set_requires_grad(false);
  const at::Tensor embedded = at::randn({3, 16});
  EXPECT_FALSE(linear.forward(embedded, {}).requires_grad()) << "outputs of frozen embeddings need no gradient";
  const auto users = [&](models::Linear& module) {  // users of the input's memory, after forward
    const at::Tensor x = embedded.clone().requires_grad_(true) + 1;
    const at::Tensor y = module.forward(x, {});
    EXPECT_TRUE(y.requires_grad());
    return x.storage().use_count();
  };
  EXPECT_EQ(users(linear), 1u);
  EXPECT_GT(users(trained), 1u);
}

TEST(ApplyLora, FlopsCountWhatIsComputed) {
  const auto model = gpt2();
  const double own = model->flops_per_token(16), matrices = model->flops_per_token(0) / 6;
  EXPECT_EQ(matrices, 2 * 12 * 32 * 32 + 97 * 32);
  models::apply_lora(*model, targets({"c_attn"}), 0);
  EXPECT_EQ(models::lora_flops_per_token(*model, 16), own - 2 * matrices + 6 * 2 * 4 * (32 + 96));
}

TEST(ApplyLora, TargetsAreNamesOrTheirEnds) {
  const auto chosen = [](std::vector<std::string> names) {
    const auto model = gpt2();
    models::apply_lora(*model, targets(std::move(names)), 0);
    return adapted(*model);
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(chosen({"transformer.h.1.mlp.c_fc"}), Names{"transformer.h.1.mlp.c_fc"});
  EXPECT_EQ(chosen({"mlp.c_proj"}), (Names{"transformer.h.0.mlp.c_proj", "transformer.h.1.mlp.c_proj"}));
  EXPECT_EQ(chosen({"c_proj", "0.mlp.c_proj"}).size(), 4u) << "each module once";
  EXPECT_EQ(chosen({"all-linear"}).size(), 8u);
}

TEST(ApplyLora, APatternIsMatchedWithWholeNames) {
  const auto model = gpt2();
  const auto config = models::apply_lora(*model, targets({R"(.*\.h\.[1-9]\..*c_(attn|fc))"}), 0);
  EXPECT_EQ(adapted(*model), (std::set<std::string>{"transformer.h.1.attn.c_attn", "transformer.h.1.mlp.c_fc"}));
  const TemporaryFolder out;
  checkpoint::write_adapter_folder(out.path(), models::adapter_state(*model), config, nullptr);
  EXPECT_EQ(read_json(out.path() + "/adapter_config.json").at("target_modules").as_string(),
            R"(.*\.h\.[1-9]\..*c_(attn|fc))");
  const auto other = gpt2();  // names of other modules also match, so the selected ones are listed in full
  const auto more = models::apply_lora(*other, targets({R"(.*attn.*)"}), 0).target_modules;
  EXPECT_EQ(more, (std::vector<std::string>{"c_attn", "transformer.h.0.attn.c_proj", "transformer.h.1.attn.c_proj"}));
  EXPECT_NE(error_of([&] { models::apply_lora(*gpt2(), targets({"h.(1"}), 0); }).find("not a regular expression"),
            std::string::npos);
  EXPECT_NE(error_of([&] { models::apply_lora(*gpt2(), targets({"c_attn$"}), 0); }).find("matches no module"),
            std::string::npos)
      << "PEFT also accepts the whole name";
}

TEST(ApplyLora, AllLinearLeavesTheHeadAloneAndIsSpelledOut) {
  const auto model = models::load_model(from(fixtures + "/llama/llama"), 0);
  const auto config = models::apply_lora(*model, targets({"all-linear"}), 0);
  EXPECT_EQ(config.target_modules,
            (std::vector<std::string>{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  EXPECT_FALSE(config.fan_in_fan_out);
  EXPECT_EQ(adapted(*model).size(), 14u);
  const auto neox = models::load_model(from(fixtures + "/llama/gpt_neox"), 0);
  models::apply_lora(*neox, targets({"all-linear"}), 0);
  for (const std::string& name : adapted(*neox)) EXPECT_EQ(name.rfind("gpt_neox.layers.", 0), 0u) << name;
}

TEST(ApplyLora, WholeModulesAreTrainedInPlace) {
  const auto model = models::load_model(from(fixtures + "/llama/llama"), 0);
  auto config = targets({"q_proj"});
  config.modules_to_save = {"lm_head", "model.norm"};
  const double adapters_alone = [&] {
    const auto other = models::load_model(from(fixtures + "/llama/llama"), 0);
    models::apply_lora(*other, targets({"q_proj"}), 0);
    return models::lora_flops_per_token(*other, 0);
  }();
  models::apply_lora(*model, config, 0);
  std::set<std::string> whole;
  for (const auto& [name, tensor] : models::adapter_state(*model))
    if (name.find(".lora_") == std::string::npos) whole.insert(name);
  EXPECT_EQ(whole, (std::set<std::string>{"lm_head.weight", "model.norm.weight"}));
  const at::Tensor head = model->named_parameters()["lm_head.weight"];
  EXPECT_EQ(models::lora_flops_per_token(*model, 0), adapters_alone + 2.0 * static_cast<double>(head.numel()));
}

TEST(ApplyLora, TiedEmbeddingsAreTrainedAsOne) {
  for (const auto& names : {std::vector<std::string>{"wte"}, {"lm_head", "wte"}}) {
    const auto model = gpt2();
    auto config = targets({"c_attn"});
    config.modules_to_save = names;
    config = models::apply_lora(*model, config, 0);
    EXPECT_TRUE(config.ties_embeddings);
    EXPECT_EQ((std::set<std::string>(config.modules_to_save.begin(), config.modules_to_save.end())),
              (std::set<std::string>{"lm_head", "wte"}));
    const at::Tensor table = model->named_parameters()["transformer.wte.weight"];
    EXPECT_TRUE(table.requires_grad());
    const double matrix = static_cast<double>(table.numel());
    const auto other = gpt2();
    models::apply_lora(*other, targets({"c_attn"}), 0);
    EXPECT_EQ(models::lora_flops_per_token(*model, 0), models::lora_flops_per_token(*other, 0) + 2 * matrix);
    // PEFT's file has both keys.
    config.base_model = absolute_path(fixtures + "/gpt2_tiny");
    const TemporaryFolder out;
    const auto write = [&](const at::Tensor& head, bool as_one) {
      auto state = models::adapter_state(*model);
      state.emplace_back("lm_head.weight", head);
      auto written = config;
      written.ties_embeddings = as_one;
      checkpoint::write_adapter_folder(out.path(), state, written, nullptr);
    };
    write(table.detach(), true);
    EXPECT_TRUE(read_json(out.path() + "/adapter_config.json").at("ensure_weight_tying").as_bool());
    EXPECT_TRUE(models::load_model(from(out.path()), 0)->named_parameters()["transformer.wte.weight"].requires_grad());
    write(table.detach() + 1, false);
    EXPECT_NE(error_of([&] { models::load_model(from(out.path()), 0); }).find("differ, but are one matrix"),
              std::string::npos);
    config.modules_to_save = {"wte"};
    checkpoint::write_adapter_folder(
        out.path(), models::adapter_state(*model),
        [&] {
          auto c = config;
          c.ties_embeddings = false;
          return c;
        }(),
        nullptr);
    EXPECT_NE(error_of([&] { models::load_model(from(out.path()), 0); }).find("ensure_weight_tying"),
              std::string::npos);
  }
}

TEST(ApplyLora, WholeModulesThatCannotBe) {
  const auto refused = [&](const char* base, std::vector<std::string> adapted, std::vector<std::string> whole) {
    const auto model = models::load_model(from(fixtures + base), 0);
    auto config = targets(std::move(adapted));
    config.modules_to_save = std::move(whole);
    return error_of([&] { models::apply_lora(*model, config, 0); });
  };
  EXPECT_NE(refused("/llama/llama", {"q_proj"}, {"lm_heads"}).find("did you mean 'lm_head'"), std::string::npos);
  EXPECT_NE(refused("/llama/llama", {"q_proj"}, {"self_attn"}).find("gets adapters and would also be trained whole"),
            std::string::npos);
  EXPECT_NE(refused("/gpt2_tiny", {}, {"lm_head"}).find("list both, which are trained as one"), std::string::npos)
      << refused("/gpt2_tiny", {}, {"lm_head"});
}

TEST(ApplyLora, TargetsThatMatchNothing) {
  const auto model = gpt2();
  const auto error = [&](std::vector<std::string> names) {
    return error_of([&] { models::apply_lora(*model, targets(std::move(names)), 0); });
  };
  EXPECT_EQ(
      error({"c_atn"}),
      "LoRA target 'c_atn' matches no module of the model; did you mean 'c_attn'? Its linear maps are c_attn, c_fc, "
      "c_proj (for example transformer.h.0.attn.c_attn), or all of them: all-linear");
  EXPECT_EQ(error({"c_attn", "ttn"}).rfind("LoRA target 'ttn' matches no module of the model", 0), 0u)
      << "a name's suffix starts after a dot";
  EXPECT_EQ(error({"wte"}),
            "LoRA target 'wte' names transformer.wte, which is not a linear map; only linear maps can have adapters");
  EXPECT_TRUE(models::lora_state(*model).empty()) << "nothing has changed";
  for (const auto& p : model->parameters()) EXPECT_TRUE(p.requires_grad());
  models::apply_lora(*model, targets({"c_attn"}), 0);
  EXPECT_NE(error({"c_proj"}).find("already has LoRA adapters"), std::string::npos);
}

TEST(ApplyLora, DropoutActsOnTheAdaptersOfATrainingModelOnly) {
  models::Linear linear(16, 8, /*with_bias=*/true);
  linear.add_lora("linear", 4, 8, 0.5);
  const at::NoGradGuard no_grad;
  for (at::Tensor& p : linear.parameters()) p.normal_();
  const at::Tensor x = at::randn({3, 16}), own = at::linear(x, linear.weight, linear.bias);
  linear.eval();
  const auto forward = [&](std::uint64_t key) { return linear.forward(x, {.key = key}); };
  const at::Tensor whole = forward(0);
  EXPECT_TRUE(at::allclose(whole, own + 2 * at::mm(at::mm(x, linear.lora_A->weight.t()), linear.lora_B->weight.t()),
                           1e-5, 1e-4));
  EXPECT_TRUE(at::equal(forward(1), whole));
  linear.train();
  EXPECT_FALSE(at::equal(forward(0), forward(1)));
  EXPECT_TRUE(at::equal(forward(1), forward(1)));
  at::Tensor mean = at::zeros_like(whole);
  constexpr int draws = 4000;
  for (int i = 0; i < draws; ++i) mean += forward(static_cast<std::uint64_t>(i)) / draws;
  EXPECT_LT(((mean - whole).norm() / (whole - own).norm()).item<double>(), 0.1) << "dropout preserves the mean";
}

TEST(ApplyLora, TheCommandLinesWords) {
  ModelConfig words;
  words.lora_r = 8;
  words.lora_alpha = 32;
  words.lora_target_modules = "q_proj, v_proj";
  const auto config = models::lora_config(words);
  EXPECT_EQ(config.target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(config.scale_of("q_proj"), 4);
  words.use_rslora = true;
  EXPECT_EQ(models::lora_config(words).scale_of("q_proj"), config.alpha / std::sqrt(static_cast<double>(config.r)));
  words.lora_modules_to_save = "lm_head, embed_tokens";
  EXPECT_EQ(models::lora_config(words).modules_to_save, (std::vector<std::string>{"lm_head", "embed_tokens"}));
  words.vision_tower = "clip";  // adds the projector to the modules that are saved whole, once
  for (const char* named : {"lm_head", "lm_head, multi_modal_projector"}) {
    words.lora_modules_to_save = named;
    EXPECT_EQ(models::lora_config(words).modules_to_save,
              (std::vector<std::string>{"lm_head", "multi_modal_projector"}));
  }
  words.lora_target_modules = "q_proj,,v_proj";
  EXPECT_NE(error_of([&] { models::lora_config(words); }).find("empty name"), std::string::npos);
}

/// A copy of the GPT-2 adapter folder whose files a test may damage; its base is an absolute path.
TEST(LoraConfig, AllMeansEveryLinearMap) {
  ModelConfig config;
  config.lora_target_modules = "all";
  EXPECT_EQ(models::lora_config(config).target_modules, std::vector<std::string>{"all-linear"});
}

class DamagedAdapters : public ::testing::Test {
 protected:
  DamagedAdapters() { write(checkpoint::read_adapter_weights(fixtures + "/lora/gpt2")); }

  void write(const checkpoint::NamedTensors& tensors,
             std::vector<std::string> names = {"c_attn", "c_proj", "mlp.c_fc"}) {
    auto config = targets(std::move(names));
    config.base_model = base;
    checkpoint::write_adapter_folder(folder_.path(), tensors, config, nullptr);
  }
  void edit(const std::function<void(checkpoint::NamedTensors&)>& change) {
    auto tensors = checkpoint::read_adapter_weights(fixtures + "/lora/gpt2");
    change(tensors);
    write(tensors);
  }
  std::string load_error() {
    return error_of([&] { models::load_model(from(folder_.path()), 0); });
  }

  const std::string base = absolute_path(fixtures + "/gpt2_tiny");
  TemporaryFolder folder_;
};

TEST_F(DamagedAdapters, MissingUnexpectedAndMisshapenTensorsAreAllListed) {
  EXPECT_EQ(load_error(), "");
  edit([](auto& tensors) {
    tensors[0].second = at::zeros({4, 31});
    tensors[1].second = at::zeros({3});
    tensors[2].first = "transformer.h.7.attn.c_proj.lora_A.weight";
  });
  const std::string error = load_error();
  for (const char* part : {"lora_A.weight has shape [4, 31], but the model needs [4, 32]", "has shape [3]",
                           "unexpected tensor transformer.h.7.attn.c_proj.lora_A.weight", "missing tensor"})
    EXPECT_NE(error.find(part), std::string::npos) << part << " in " << error;
}

TEST_F(DamagedAdapters, CutFile) {
  const std::string path = folder_.path() + "/adapter_model.safetensors";
  write_file_atomically(path, read_file(path).substr(0, 9000));
  EXPECT_NE(load_error().find(path), std::string::npos) << load_error();
}

TEST_F(DamagedAdapters, AnotherRankInTheConfiguration) {
  auto config = targets({"c_attn", "c_proj", "mlp.c_fc"}, 8);
  config.base_model = base;
  checkpoint::write_adapter_folder(folder_.path(), checkpoint::read_adapter_weights(fixtures + "/lora/gpt2"), config,
                                   nullptr);
  EXPECT_NE(load_error().find("has shape [4, 32], but the model needs [8, 32]"), std::string::npos) << load_error();
}

TEST_F(DamagedAdapters, AnotherScaleWhenARunContinues) {
  const auto model = gpt2();
  auto config = models::apply_lora(*model, targets({"c_attn", "c_proj", "mlp.c_fc"}), 0);
  models::load_adapters(*model, config, folder_.path());
  config.alpha = 3;
  EXPECT_NE(error_of([&] { models::load_adapters(*model, config, folder_.path()); }).find("--lora_alpha"),
            std::string::npos);
}

TEST_F(DamagedAdapters, NoBaseModel) {
  auto config = targets({"c_attn"});
  const auto tensors = checkpoint::read_adapter_weights(fixtures + "/lora/gpt2");
  config.base_model = "no/such/model";
  checkpoint::write_adapter_folder(folder_.path(), tensors, config, nullptr);
  EXPECT_NE(load_error().find("base_model_name_or_path is \"no/such/model\", but that folder does not exist"),
            std::string::npos)
      << load_error();
  config.base_model = folder_.path();
  checkpoint::write_adapter_folder(folder_.path(), tensors, config, nullptr);
  EXPECT_NE(load_error().find("contains adapters itself"), std::string::npos) << load_error();
}

TEST_F(DamagedAdapters, RanksAndAlphasByPatternAreReadComputedAndWritten) {
  const std::string path = folder_.path() + "/adapter_config.json";
  Value json = read_json(path);
  json.set("lora_alpha", Value::of(8));
  json.set("rank_pattern", parse_json(R"({"h.0.attn.c_attn": 2, "^c_fc": 7, "transformer.*c_attn": 4})", "rank"));
  json.set("alpha_pattern", parse_json(R"({"c_fc": 3, "mlp.c_proj": 16})", "alpha"));
  write_file_atomically(path, dump_json(json));
  auto tensors = checkpoint::read_adapter_weights(fixtures + "/lora/gpt2");
  for (auto& [name, tensor] : tensors) {
    if (name.find("h.0.attn.c_attn") == std::string::npos) continue;
    tensor = tensor.narrow(name.find("lora_A") != std::string::npos ? 0 : 1, 0, 2).contiguous();
  }
  const auto config = checkpoint::read_adapter_config(folder_.path());
  EXPECT_EQ(config.rank_of("transformer.h.0.attn.c_attn"), 2) << "the first match decides";
  EXPECT_EQ(config.rank_of("transformer.h.1.mlp.c_fc"), 4) << "^ matches the start of the name";
  EXPECT_EQ(config.scale_of("transformer.h.0.attn.c_attn"), 4.0);
  EXPECT_EQ(config.scale_of("transformer.h.1.mlp.c_fc"), 0.75);
  checkpoint::write_adapter_folder(folder_.path(), tensors, config, nullptr);
  const Value written = read_json(path);
  EXPECT_EQ(dump_json(written.at("rank_pattern"), -1), dump_json(json.at("rank_pattern"), -1));
  EXPECT_EQ(written.at("alpha_pattern").at("c_fc").as_real(), 3.0);
  const auto model = models::load_model(from(folder_.path()), 0);
  for (const auto& item : model->named_modules())
    if (auto* linear = dynamic_cast<models::Linear*>(item.value().get()); linear && linear->lora_A) {
      EXPECT_EQ(linear->lora_A->weight.size(0), config.rank_of(item.key())) << item.key();
      EXPECT_EQ(linear->lora_scale, config.scale_of(item.key())) << item.key();
    }
  auto changed = models::loaded_lora_config(*model, folder_.path());
  models::load_adapters(*model, changed, folder_.path());
  changed.alphas.clear();
  EXPECT_NE(error_of([&] { models::load_adapters(*model, changed, folder_.path()); }).find("r 4), but this run's by"),
            std::string::npos);
}

TEST_F(DamagedAdapters, NamesMayBeginOtherwise) {
  const auto whole = models::load_model(from(folder_.path()), 0);
  for (const char* before : {"", "_orig_mod.transformer.", "model.transformer."}) {
    edit([&](auto& tensors) {
      for (auto& [name, tensor] : tensors) name = before + name.substr(std::string("transformer.").size());
    });
    EXPECT_EQ(load_error(), "") << before;
    const auto model = models::load_model(from(folder_.path()), 0);
    EXPECT_TRUE(at::equal(model->logits(tokens(3)), whole->logits(tokens(3)))) << before;
  }
}

TEST_F(DamagedAdapters, EmbeddingsBesideAdaptersGiveTheBaseTheirRows) {
  const at::Tensor table = at::rand({103, 32});
  for (const bool and_head : {false, true}) {  // PEFT saves a tied head, too
    edit([&](auto& tensors) {
      tensors.emplace_back("transformer.wte.weight", table);
      if (and_head) tensors.emplace_back("lm_head.weight", table);
    });
    ASSERT_EQ(load_error(), "");
    const auto model = models::load_model(from(folder_.path()), 0);
    EXPECT_EQ(model->vocab_size(), 103);
    const at::Tensor own = model->named_parameters()["transformer.wte.weight"];
    EXPECT_TRUE(at::equal(own, table));
    EXPECT_FALSE(own.requires_grad());
    EXPECT_EQ(models::loaded_lora_config(*model, folder_.path()).kept_embeddings,
              std::vector<std::string>{"transformer.wte.weight"});
  }
}

TEST_F(DamagedAdapters, ARegularExpressionMeansTheModulesInTheFile) {
  const std::string path = folder_.path() + "/adapter_config.json";
  Value config = read_json(path);
  config.set("target_modules", Value::of(".*\\.(c_attn|c_proj|c_fc)"));
  write_file_atomically(path, dump_json(config));
  const auto model = models::load_model(from(folder_.path()), 0);
  EXPECT_EQ(adapted(*model).size(), 8u);
  EXPECT_EQ(models::loaded_lora_config(*model, folder_.path()).target_modules,
            (std::vector<std::string>{"c_attn", "c_fc", "c_proj"}));
}

}  // namespace
