// Against Python transformers: tests/fixtures/gpt2_tiny, made by tests/parity/make_gpt2_fixture.py.
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/models/load.h>
#include <tessera/optim/optimizer.h>
#include <tests/paths.h>

#include <cstring>

using namespace tessera;

namespace {

const std::string folder = tessera::testing::source_path("tests/fixtures/gpt2_tiny");

ModelConfig from(const std::string& path) {
  ModelConfig config;
  config.model_name_or_path = path;
  return config;
}

at::Tensor tokens(std::int64_t step, std::int64_t b, std::int64_t t, std::int64_t v) {
  at::Tensor ids = at::empty({b, t}, at::kLong);
  std::uint32_t x = static_cast<std::uint32_t>(step + 1);
  for (std::int64_t i = 0; i < b * t; ++i) {
    x = (1103515245u * x + 12345u) & 0x7fffffffu;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % v;
  }
  return ids;
}

TEST(Parity, LogitsOfTransformers) {
  const Value expected = read_json(folder + "/expected.json");
  const auto model = models::load_model(from(folder), 0);
  const at::Tensor ids = tokens(99, 3, 16, 97);
  std::vector<double> flat;
  for (const Value& row : expected.at("logits").items())
    for (const Value& token : row.items())
      for (const Value& x : token.items()) flat.push_back(x.as_real());
  const at::Tensor wanted = at::tensor(flat, at::kDouble).view({3, 16, 97});
  const at::Tensor got = model->logits(ids).to(at::kDouble);
  EXPECT_LT(((got - wanted).norm() / wanted.norm()).item<double>(), 1e-6);
  EXPECT_LT(((got - wanted).abs().max() / wanted.abs().max()).item<double>(), 1e-5);
}

TEST(Parity, LossesAndGradientNormsOfTwentySteps) {
  const Value expected = read_json(folder + "/expected.json");
  const auto model = models::load_model(from(folder), 0);
  model->train();
  std::vector<optim::Slot> slots;
  for (auto& p : model->named_parameters())
    slots.push_back({p.key(), p.value(), model->is_norm_or_bias(p.key()) ? 0.0 : 0.1, 1.0});
  const auto optimizer = optim::make_adamw(slots, {0.9, 0.999, 1e-8});
  const auto& losses = expected.at("losses").items();
  const auto& norms = expected.at("grad_norms").items();
  ASSERT_EQ(losses.size(), 20u);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const at::Tensor ids = tokens(static_cast<std::int64_t>(step), 3, 16, 97);
    at::Tensor labels = ids.clone();
    labels[0][5] = -100;
    const at::Tensor loss = model->loss(ids, labels, 1.0 / (3 * 15 - 1));
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const auto& slot : slots) gradients.push_back(slot.parameter.grad());
    const double norm = optim::gradient_norm(gradients);
    EXPECT_NEAR(loss.item<double>(), losses[step].as_real(), 1e-5 * losses[step].as_real()) << step;
    EXPECT_NEAR(norm, norms[step].as_real(), 1e-5 * norms[step].as_real()) << step;
    optimizer->step(1e-3, optim::clip_coefficient(norm, 1.0));
    for (auto& slot : slots) slot.parameter.mutable_grad().reset();
  }
}

/// Loss and gradient norm of a batch against transformers (batches.json).
void expect_batch(data::Batch data, const Value& expected) {
  data.scored_tokens = data.labels.slice(1, 1).ne(-100).sum().item<std::int64_t>();
  const auto model = models::load_model(from(folder), 0);
  model->train();
  const at::Tensor loss = model->loss(data, 1.0 / static_cast<double>(data.scored_tokens));
  loss.backward();
  std::vector<at::Tensor> gradients;
  for (const auto& p : model->parameters()) gradients.push_back(p.grad());
  EXPECT_NEAR(loss.item<double>() / expected.at("loss").as_real(), 1, 1e-5);
  EXPECT_NEAR(optim::gradient_norm(gradients) / expected.at("grad_norm").as_real(), 1, 1e-5);
}

TEST(Parity, PaddedRows) {
  const Value all = read_json(folder + "/batches.json"), &expected = all.at("padded");
  data::Batch data;
  data.ids = tokens(50, 3, 16, 97);
  data.labels = data.ids.clone();
  for (std::int64_t row = 0; row < 3; ++row) {
    const std::int64_t length = expected.at("lengths").items()[static_cast<std::size_t>(row)].as_int();
    data.ids[row].slice(0, length).fill_(0);
    data.labels[row].slice(0, length).fill_(-100);
  }
  expect_batch(data, expected);
}

TEST(Parity, PackedRows) {
  const Value all = read_json(folder + "/batches.json"), &expected = all.at("packed");
  data::Batch data;
  data.ids = tokens(60, 3, 16, 97);
  data.labels = data.ids.clone();
  for (std::int64_t row = 0; row < 3; ++row)
    for (const Value& start : expected.at("starts").items()[static_cast<std::size_t>(row)].items()) {
      data.document_starts.push_back(row * 16 + start.as_int());
      data.labels[row][start.as_int()] = -100;
    }
  expect_batch(data, expected);
}

TEST(RoundTrip, EveryTensorKeepsItsBytes) {
  const auto model = models::load_model(from(folder), 0);
  checkpoint::NamedTensors weights;
  for (const auto& p : model->named_parameters()) weights.emplace_back(p.key(), p.value().detach());
  const TemporaryFolder out;
  checkpoint::write_hf_folder(out.path(), weights, model->hf_config(), nullptr);
  const format::SafetensorsFile before(folder + "/model.safetensors"), after(out.path() + "/model.safetensors");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& tensor : before.tensors()) {
    const auto* other = after.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(tensor.shape, other->shape) << tensor.name;
    const auto a = before.bytes(tensor), b = after.bytes(*other);
    EXPECT_TRUE(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0) << tensor.name;
  }
  const Value config = read_json(out.path() + "/config.json"), original = read_json(folder + "/config.json");
  for (const auto& [key, value] : original.members())
    EXPECT_EQ(dump_json(config.at(key), -1), dump_json(value, -1)) << key;
}

/// A folder with the fixture's tensors, changed by `edit`.
struct EditedFolder {
  explicit EditedFolder(const std::function<void(checkpoint::NamedTensors&)>& edit) {
    auto weights = checkpoint::read_hf_weights(folder);
    edit(weights);
    checkpoint::write_hf_folder(out.path(), weights, read_json(folder + "/config.json"), nullptr);
  }
  TemporaryFolder out;
};

TEST(LoadWeights, AcceptsFoldersWithoutThePrefixAndWithOldBuffers) {
  const EditedFolder edited([](checkpoint::NamedTensors& weights) {
    at::Tensor wte;
    for (auto& [name, tensor] : weights) {
      name = name.substr(std::string("transformer.").size());
      if (name == "wte.weight") wte = tensor;
    }
    weights.emplace_back("lm_head.weight", wte.clone());
    weights.emplace_back("h.0.attn.bias", at::ones({1, 1, 16, 16}));
    weights.emplace_back("h.1.attn.masked_bias", at::full({1}, -1e4));
  });
  const auto a = models::load_model(from(edited.out.path()), 0), b = models::load_model(from(folder), 0);
  for (const auto& p : a->named_parameters())
    EXPECT_TRUE(at::equal(p.value(), b->named_parameters()[p.key()])) << p.key();
}

TEST(LoadWeights, HalfPrecisionFilesBecomeFp32) {
  const EditedFolder edited([](checkpoint::NamedTensors& weights) {
    for (auto& [name, tensor] : weights) tensor = tensor.to(at::kBFloat16);
  });
  const auto a = models::load_model(from(edited.out.path()), 0), b = models::load_model(from(folder), 0);
  for (const auto& p : a->named_parameters())
    EXPECT_TRUE(at::equal(p.value(), b->named_parameters()[p.key()].to(at::kBFloat16).to(at::kFloat))) << p.key();
}

TEST(LoadWeights, ListsEveryProblemAtOnce) {
  const EditedFolder edited([](checkpoint::NamedTensors& weights) {
    std::erase_if(weights, [](const auto& w) { return w.first == "transformer.ln_f.bias"; });
    weights.emplace_back("transformer.h.7.extra.weight", at::ones({2}));
    for (auto& [name, tensor] : weights)
      if (name == "transformer.wpe.weight") tensor = at::ones({5, 32});
  });
  try {
    models::load_model(from(edited.out.path()), 0);
    FAIL() << "no error";
  } catch (const InputError& e) {
    const std::string message = e.what();
    for (const char* part :
         {"missing tensor transformer.ln_f.bias [32]", "unexpected tensor transformer.h.7.extra.weight",
          "transformer.wpe.weight has shape [5, 32]", "[16, 32]"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " not in: " << message;
  }
}

TEST(LoadModel, NamesThatMeanNothingAreInputErrors) {
  EXPECT_THROW(models::load_model(from("/no/such/folder"), 0), InputError);
  EXPECT_THROW(models::load_model(ModelConfig{}, 0), InputError);
  ModelConfig config;
  config.config_name = "gpt5";
  EXPECT_THROW(models::load_model(config, 0), InputError);
  config = from(folder);
  config.config_overrides = "n_layer=1";
  EXPECT_THROW(models::load_model(config, 0), InputError);
}

TEST(LoadModel, FromAConfigFileWithOverrides) {
  ModelConfig config;
  config.config_name = folder + "/config.json";
  config.config_overrides = "n_layer=1,vocab_size=50";
  const auto model = models::load_model(config, 3);
  EXPECT_EQ(model->vocab_size(), 50);
  EXPECT_EQ(model->hf_config().at("n_layer").as_int(), 1);
  EXPECT_TRUE(model->hf_config().find("summary_type")) << "members that the model does not use are kept";
  EXPECT_FALSE(model->named_parameters().contains("transformer.h.1.ln_1.weight"));
}

}  // namespace
