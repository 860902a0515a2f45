// The Llama family against Python transformers: tests/fixtures/llama/*, made by tests/parity/make_llama_fixtures.py,
// which documents every number. Bound: 1e-5 relative (docs/strategies.md).
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>
#include <tessera/optim/optimizer.h>
#include <tests/paths.h>

#include <cstring>
#include <filesystem>

using namespace tessera;

namespace {

constexpr std::int64_t batch = 2, length = 20, long_length = 28, vocabulary = 97, ignored = -100;
constexpr double bound = 1e-5;

at::Tensor tokens(std::int64_t step, std::int64_t rows = batch, std::int64_t columns = length) {
  at::Tensor ids = at::empty({rows, columns}, at::kLong);
  std::uint32_t x = static_cast<std::uint32_t>(step + 1);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    x = (1103515245u * x + 12345u) & 0x7fffffffu;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % vocabulary;
  }
  return ids;
}

std::shared_ptr<models::CausalLm> load(const std::string& folder) {
  ModelConfig config;
  config.model_name_or_path = folder;
  return models::load_model(config, 0);
}

/// max |got - wanted| / max |wanted|; max |got| if `wanted` is all zeros (experts that saw no token).
double difference(const at::Tensor& got, const at::Tensor& wanted) {
  EXPECT_EQ(got.sizes(), wanted.sizes());
  const double largest = wanted.abs().max().item<double>();
  return (got - wanted).abs().max().item<double>() / (largest > 0 ? largest : 1);
}

void expect_close(double got, double wanted, const std::string& what) {
  EXPECT_NEAR(got / wanted, 1, bound) << what << ": " << got << " instead of " << wanted;
}

struct Training {
  explicit Training(const std::string& folder) : model(load(folder)) {
    model->train();
    for (auto& p : model->named_parameters())
      if (p.value().requires_grad())
        slots.push_back({p.key(), p.value(), model->is_norm_or_bias(p.key()) ? 0.0 : 0.1, 1.0});
  }
  double gradient_norm() const {
    std::vector<at::Tensor> gradients;
    for (const auto& slot : slots) gradients.push_back(slot.parameter.grad());
    return optim::gradient_norm(gradients);
  }
  /// Loss and gradient norm of one batch against `expected`.
  void expect(const data::Batch& data, const Value& expected, const std::string& what) const {
    const at::Tensor loss = model->loss(data, 1.0 / static_cast<double>(data.scored_tokens));
    loss.backward();
    expect_close(loss.item<double>(), expected.at("loss").as_real(), what + " loss");
    expect_close(gradient_norm(), expected.at("grad_norm").as_real(), what + " gradient norm");
  }
  std::shared_ptr<models::CausalLm> model;
  std::vector<optim::Slot> slots;
};

std::int64_t count_scored(const at::Tensor& labels) {
  return labels.slice(1, 1).ne(ignored).sum().item<std::int64_t>();
}

class LlamaParity : public ::testing::TestWithParam<const char*> {
 protected:
  std::string folder() const {
    return tessera::testing::source_path("tests/fixtures/llama/") + std::string(GetParam());
  }
  Value numbers() const { return read_json(folder() + "/expected.json"); }
  at::Tensor tensor(const std::string& name) const {
    const format::SafetensorsFile file(folder() + "/expected.safetensors");
    const auto* info = file.find(name);
    return info ? checkpoint::read_tensor(file, *info) : at::Tensor();
  }
  /// Rows with documents that start at the given positions; the first token of each is not scored.
  data::Batch packed() const {
    const Value all = numbers();
    const auto& rows = all.at("packed").at("starts").items();
    data::Batch data;
    data.ids = tokens(60, static_cast<std::int64_t>(rows.size()));
    data.labels = data.ids.clone();
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (const Value& start : rows[r].items()) {
        data.document_starts.push_back(static_cast<std::int64_t>(r) * length + start.as_int());
        data.labels.view(-1)[data.document_starts.back()] = ignored;
      }
    data.scored_tokens = count_scored(data.labels);
    return data;
  }
  /// Whether frequencies depend on the longest document.
  bool dynamic() const {
    const std::string name = GetParam();
    return name == "dynamic_rope" || name == "phi3_longrope";
  }
};

TEST_P(LlamaParity, LogitsOfTransformers) {
  const auto model = load(folder());
  EXPECT_LT(difference(model->logits(tokens(99)), tensor("logits")), bound);
  const at::Tensor wanted = tensor("long_logits");
  if (!wanted.defined()) return;
  EXPECT_LT(difference(model->logits(tokens(98, 1, long_length)), wanted), bound) << "beyond the original context";
}

TEST_P(LlamaParity, TheSpellingOfTransformers4) {
  const TemporaryFolder old;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    std::filesystem::copy(entry.path(), old.path() + "/" + entry.path().filename().string());
  std::filesystem::rename(old.path() + "/config_v4.json", old.path() + "/config.json");
  EXPECT_TRUE(at::equal(load(old.path())->logits(tokens(99)), load(folder())->logits(tokens(99))));
}

TEST_P(LlamaParity, LossesAndGradientNormsOfTwentySteps) {
  const Value all = numbers(), &expected = all.at("train");
  const auto &losses = expected.at("losses").items(), &norms = expected.at("grad_norms").items();
  ASSERT_EQ(losses.size(), 20u);
  Training run(folder());
  const auto optimizer = optim::make_adamw(run.slots, {0.9, 0.999, 1e-8});
  const optim::Schedule schedule{.type = ScheduleType::linear, .warmup_steps = 2, .total_steps = 20};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i);
    const at::Tensor ids = tokens(step), labels = ids.clone();
    labels[0][5] = ignored;
    const at::Tensor loss = run.model->loss(ids, labels, 1.0 / static_cast<double>(count_scored(labels)));
    loss.backward();
    const double norm = run.gradient_norm();
    expect_close(loss.item<double>(), losses[i].as_real(), concat("loss of step ", step));
    expect_close(norm, norms[i].as_real(), concat("gradient norm of step ", step));
    optimizer->step(1e-3 * optim::schedule_factor(schedule, step), optim::clip_coefficient(norm, 1.0));
    for (auto& slot : run.slots) slot.parameter.mutable_grad().reset();
  }
}

TEST_P(LlamaParity, PaddedRows) {
  const Value all = numbers(), &expected = all.at("padded");
  const auto& lengths = expected.at("lengths").items();
  data::Batch data;
  data.ids = tokens(50, static_cast<std::int64_t>(lengths.size()));
  data.labels = data.ids.clone();
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    const auto row = static_cast<std::int64_t>(r);
    data.ids[row].slice(0, lengths[r].as_int()).fill_(0);
    data.labels[row].slice(0, lengths[r].as_int()).fill_(ignored);
  }
  data.scored_tokens = count_scored(data.labels);
  Training(folder()).expect(data, expected, "padded");
}

TEST_P(LlamaParity, PackedRows) {
  const Value all = numbers();
  const data::Batch data = packed();
  const Training run(folder());
  EXPECT_LT(difference(run.model->logits(data.ids, data.document_starts), tensor("packed_logits")), bound);
  run.expect(data, all.at("packed"), "packed");
}

TEST_P(LlamaParity, PackedDocumentsAreSeparateDocuments) {
  // (Dynamic scaling uses the longest document of a batch, but all of these fit the original context.)
  const data::Batch data = packed();
  const Training together(folder()), apart(folder());
  const double scale = 1.0 / static_cast<double>(data.scored_tokens);
  together.model->loss(data, scale).backward();
  const at::Tensor logits = together.model->logits(data.ids, data.document_starts).view({-1, vocabulary});
  const at::Tensor ids = data.ids.view(-1), labels = data.labels.view(-1);
  double loss = 0;
  for (std::size_t d = 0; d < data.document_starts.size(); ++d) {
    const std::int64_t begin = data.document_starts[d];
    const std::int64_t end = d + 1 < data.document_starts.size() ? data.document_starts[d + 1] : ids.numel();
    const at::Tensor own = ids.slice(0, begin, end).view({1, -1});
    EXPECT_LT(difference(logits.slice(0, begin, end), apart.model->logits(own)[0]), bound) << "document " << d;
    if (end - begin < 2) continue;
    const at::Tensor part = apart.model->loss(own, labels.slice(0, begin, end).view({1, -1}), scale);
    part.backward();
    loss += part.item<double>();
  }
  expect_close(together.model->loss(data, scale).item<double>(), loss, "loss");
  for (std::size_t i = 0; i < together.slots.size(); ++i) {
    const std::string& name = together.slots[i].name;
    const at::Tensor ours = together.slots[i].parameter.grad(), theirs = apart.slots[i].parameter.grad();
    if (std::string_view(GetParam()) == "opt" && name.ends_with("k_proj.bias"))
      // Without rotation it shifts all scores of a query equally: its gradient is 0 except for rounding.
      EXPECT_LT(at::max(ours.abs().max(), theirs.abs().max()).item<double>(), 1e-6) << name;
    else
      EXPECT_LT(difference(ours, theirs), bound) << name;
  }
}

class MixtureParity : public LlamaParity {};

TEST_P(MixtureParity, TheRoutersBalancingLoss) {
  const Value all = numbers(), &expected = all.at("auxiliary");
  Training run(folder());
  EXPECT_EQ(run.model->balance().auxiliary, 0) << "config.json does not ask for it";
  models::BalanceOptions balance = run.model->balance();
  balance.auxiliary = run.model->hf_config().at("router_aux_loss_coef").as_real();
  run.model->set_balance(balance);
  const at::Tensor ids = tokens(70);
  const auto scored = static_cast<double>(count_scored(ids));
  const at::Tensor loss = run.model->loss(ids, ids, 1 / scored);
  loss.backward();
  const models::RouterStatistics routers = run.model->take_router_statistics();
  EXPECT_EQ(routers.passes, 1);
  expect_close(routers.auxiliary_loss, expected.at("balancing").as_real(), "balancing loss");
  expect_close(loss.item<double>() + balance.auxiliary * routers.auxiliary_loss, expected.at("loss").as_real(), "loss");
  expect_close(run.gradient_norm(), expected.at("grad_norm").as_real(), "gradient norm");
  for (const auto& [block, load] : routers.load)
    EXPECT_EQ(load.sum().item<std::int64_t>(), ids.numel() * balance.top_k) << "block " << block;
  EXPECT_TRUE(run.model->take_router_statistics().load.empty());
  // Two passes over the same tokens, each with half the weight, add up to one full pass.
  const at::Tensor whole = run.slots[0].parameter.grad().clone();
  for (const auto& slot : run.slots) slot.parameter.mutable_grad().reset();
  run.model->set_auxiliary_scale(0.5);
  for (int pass = 0; pass < 2; ++pass) run.model->loss(ids, ids, 0.5 / scored).backward();
  EXPECT_LT(difference(run.slots[0].parameter.grad(), whole), bound);
  // Tokens that are not trained on are not counted.
  EXPECT_EQ(run.model->take_router_statistics().passes, 2);
  run.model->eval();
  run.model->logits(ids);
  EXPECT_EQ(run.model->take_router_statistics().passes, 0);
}

TEST_P(LlamaParity, TheCacheChangesNothing) {
  const at::NoGradGuard no_grad;
  const auto model = load(folder());
  // Dynamic scaling rotates cached keys by the angles at the time of caching: equal only within the original context.
  const std::int64_t t = dynamic() ? 16 : length;
  const at::Tensor ids = tokens(99).slice(1, 0, t), wanted = model->logits(ids);
  models::KvCache cache;
  EXPECT_LT(difference(model->next_logits(ids.slice(1, 0, 7), cache), wanted.select(1, 6)), bound) << "prompt";
  EXPECT_LT(difference(model->next_logits(ids.slice(1, 7, 10), cache), wanted.select(1, 9)), bound) << "three more";
  for (std::int64_t i = 10; i < t; ++i)
    EXPECT_LT(difference(model->next_logits(ids.slice(1, i, i + 1), cache), wanted.select(1, i)), bound)
        << "token " << i;
  EXPECT_EQ(cache.tokens(), t);
}

TEST_P(LlamaParity, WrittenBackByteForByte) {
  const auto model = load(folder());
  checkpoint::NamedTensors weights;
  for (const auto& p : model->named_parameters()) weights.emplace_back(p.key(), p.value().detach());
  const TemporaryFolder out;
  checkpoint::write_hf_folder(out.path(), weights, model->hf_config(), nullptr);
  const auto before = checkpoint::read_hf_weights(folder()), after = checkpoint::read_hf_weights(out.path());
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    const auto other = std::find_if(after.begin(), after.end(), [&](const auto& w) { return w.first == name; });
    ASSERT_NE(other, after.end()) << name;
    EXPECT_TRUE(at::equal(tensor, other->second)) << name;
  }
  EXPECT_TRUE(at::equal(load(out.path())->logits(tokens(99)), model->logits(tokens(99))));
  const Value original = read_json(folder() + "/config.json"), config = read_json(out.path() + "/config.json");
  for (const auto& [key, value] : original.members())
    EXPECT_EQ(dump_json(config.at(key), -1), dump_json(value, -1)) << key;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, MixtureParity,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_moe_sparse_step", "olmoe"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Fixtures, LlamaParity,
                         ::testing::Values("llama", "llama_biases_tied", "llama3_rope", "linear_rope", "dynamic_rope",
                                           "yarn_rope", "mistral_window", "qwen2_windows", "qwen3", "mixtral",
                                           "qwen2_moe", "qwen3_moe", "qwen3_moe_sparse_step", "olmoe", "deepseek_v3",
                                           "deepseek_v3_yarn", "gemma", "gemma2", "gemma3_text", "phi3",
                                           "phi3_longrope", "granite", "smollm3", "arcee", "nemotron", "stablelm",
                                           "stablelm_parallel", "starcoder2", "olmo", "olmo2", "olmo3", "cohere",
                                           "cohere2", "gpt_neox", "gpt_neox_serial", "phi", "phi_norms", "opt",
                                           "helium", "ernie4_5"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
