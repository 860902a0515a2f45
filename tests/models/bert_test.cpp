// BERT against transformers' results, stored by tests/parity/make_bert_fixture.py.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/models/bert/bert.h>
#include <tessera/models/bert/sentence_encoder.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/load.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <cmath>
#include <functional>
#include <set>

namespace tessera::models {
namespace {

using tessera::testing::error_of;

const std::string fixtures = tessera::testing::source_path("tests/fixtures");
const std::string masked_folder = fixtures + "/bert_tiny", classifier_folder = fixtures + "/bert_classifier";

void append(const Value& value, std::vector<double>& out) {
  if (!value.is_array()) return out.push_back(value.as_real());
  for (const Value& item : value.items()) append(item, out);
}

/// Nested lists as an fp64 tensor.
at::Tensor tensor(const Value& value) {
  std::vector<std::int64_t> shape;
  for (const Value* at = &value; at->is_array(); at = &at->items()[0])
    shape.push_back(static_cast<std::int64_t>(at->items().size()));
  std::vector<double> numbers;
  append(value, numbers);
  return at::tensor(numbers, at::kDouble).view(shape);
}
at::Tensor integers(const Value& value) { return tensor(value).to(at::kLong); }

std::vector<std::int64_t> lengths_of(const Value& expected) {
  std::vector<std::int64_t> lengths;
  for (const Value& n : expected.at("lengths").items()) lengths.push_back(n.as_int());
  return lengths;
}

data::Batch batch_of(const Value& from, const std::vector<std::int64_t>& lengths) {
  data::Batch batch;
  batch.ids = integers(from.at("ids"));
  batch.types = integers(from.at("types"));
  batch.labels = integers(from.at("labels"));
  batch.lengths = lengths;
  batch.scored_tokens = batch.labels.ne(-100).sum().item<std::int64_t>();
  return batch;
}

double grad_norm(const torch::nn::Module& module) {
  double sum = 0;
  for (const at::Tensor& p : module.parameters())
    if (p.grad().defined()) sum += p.grad().to(at::kDouble).square().sum().item<double>();
  return std::sqrt(sum);
}

double farthest(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

template <class Model>
std::shared_ptr<Model> load(const std::string& folder, const ConfigEdit& edit = {}) {
  return std::dynamic_pointer_cast<Model>(load_language_folder(folder, /*seed=*/1, edit));
}

Value expected_of(const std::string& folder) { return read_json(path_join(folder, "expected.json")); }

at::Tensor seen_of(const Value& expected) {
  return seen_tokens(lengths_of(expected), integers(expected.at("ids")).size(1), at::kCPU);
}

TEST(Bert, HiddenStatesAndLogitsAreTransformers) {
  const Value expected = expected_of(masked_folder);
  const auto model = load<BertForMaskedLM>(masked_folder);
  ASSERT_TRUE(model);
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor ids = integers(expected.at("ids")), types = integers(expected.at("types")), seen = seen_of(expected);
  const at::Tensor shown = seen.unsqueeze(2);
  EXPECT_LE(farthest(model->bert->forward(ids, types, seen) * shown, tensor(expected.at("hidden")) * shown), 1e-5);
  const at::Tensor logits = model->forward(ids, seen, types), theirs = tensor(expected.at("logits"));
  EXPECT_LE(farthest(logits.narrow(2, 0, theirs.size(2)) * shown, theirs * shown), 1e-5);
}

TEST(Bert, PaddingChangesNothing) {
  const Value expected = expected_of(masked_folder);
  const auto model = load<BertForMaskedLM>(masked_folder);
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor ids = integers(expected.at("ids")), types = integers(expected.at("types"));
  const at::Tensor all = model->bert->forward(ids, types, seen_of(expected));
  const auto lengths = lengths_of(expected);
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    const auto part = [&](const at::Tensor& x) {
      return x.narrow(0, static_cast<std::int64_t>(row), 1).narrow(1, 0, lengths[row]);
    };
    EXPECT_LE(farthest(model->bert->forward(part(ids), part(types), {}), part(all)), 1e-5) << row;
  }
}

TEST(Bert, LossAndGradientAreTransformers) {
  const Value expected = expected_of(masked_folder);
  const auto model = load<BertForMaskedLM>(masked_folder);
  const data::Batch batch = batch_of(expected, lengths_of(expected));
  const at::Tensor loss = model->loss(batch, 1.0 / static_cast<double>(batch.scored_tokens));
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), expected.at("loss").as_real(), 1e-5 * expected.at("loss").as_real());
  EXPECT_NEAR(grad_norm(*model), expected.at("grad_norm").as_real(), 1e-5 * expected.at("grad_norm").as_real());
}

TEST(Bert, TrainsAsTransformersDoes) {
  const Value expected = expected_of(masked_folder);
  const auto model = load<BertForMaskedLM>(masked_folder);
  model->train();
  std::vector<at::Tensor> first, second;  // AdamW's moments
  for (const at::Tensor& p : model->parameters())
    first.push_back(at::zeros_like(p)), second.push_back(at::zeros_like(p));
  int step = 0;
  for (const Value& given : expected.at("steps").items()) {
    ++step;
    const data::Batch batch = batch_of(given, lengths_of(expected));
    model->zero_grad();
    const at::Tensor loss = model->loss(batch, 1.0 / static_cast<double>(batch.scored_tokens));
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), given.at("loss").as_real(), 1e-5 * given.at("loss").as_real()) << step;
    EXPECT_NEAR(grad_norm(*model), given.at("grad_norm").as_real(), 1e-4 * given.at("grad_norm").as_real()) << step;
    const at::NoGradGuard no_grad;
    const auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& g = parameters[i].grad();
      first[i].mul_(0.9).add_(g, 0.1);
      second[i].mul_(0.999).addcmul_(g, g, 0.001);
      const at::Tensor denominator = (second[i] / (1 - std::pow(0.999, step))).sqrt_().add_(1e-8);
      at::Tensor p = parameters[i];
      p.addcdiv_(first[i] / (1 - std::pow(0.9, step)), denominator, -1e-3);
    }
  }
  EXPECT_EQ(step, 6);
}

TEST(Bert, ARowWithoutScoredTokensCostsNothing) {
  const Value expected = expected_of(masked_folder);
  const auto model = load<BertForMaskedLM>(masked_folder);
  data::Batch batch = batch_of(expected, lengths_of(expected));
  batch.labels.fill_(-100);
  const at::Tensor loss = model->loss(batch, 1);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(grad_norm(*model), 0);
}

TEST(Bert, ClassifierIsTransformers) {
  const Value expected = expected_of(classifier_folder);
  const auto model = load<BertForSequenceClassification>(classifier_folder);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->num_labels(), 3);
  const at::Tensor ids = integers(expected.at("ids"));
  EXPECT_LE(farthest(model->forward(ids, seen_of(expected).to(at::kLong), integers(expected.at("types"))),
                     tensor(expected.at("logits"))),
            1e-5);
  data::Batch batch;
  batch.ids = ids;
  batch.types = integers(expected.at("types"));
  batch.lengths = lengths_of(expected);
  batch.labels = at::full_like(ids, -100);
  batch.labels.select(1, 0).copy_(integers(expected.at("labels")));
  const at::Tensor loss = model->loss(batch, 1.0 / 3);
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), expected.at("loss").as_real(), 1e-5);
  EXPECT_NEAR(grad_norm(*model), expected.at("grad_norm").as_real(), 1e-5 * expected.at("grad_norm").as_real());
}

TEST(Bert, SentenceEmbeddingsAreTransformers) {
  const Value expected = expected_of(masked_folder).at("embeddings");
  const auto tokenizer = std::dynamic_pointer_cast<const text::WordPieceTokenizer>(text::load_tokenizer(masked_folder));
  ASSERT_TRUE(tokenizer);
  for (const auto& [name, pooling] : {std::pair("mean", Pooling::mean), std::pair("cls", Pooling::cls)}) {
    const auto encoder = load_sentence_encoder(masked_folder, pooling);
    EXPECT_EQ(encoder->options().max_length, 32);
    EXPECT_TRUE(encoder->options().normalize);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < expected.at("texts").items().size(); ++i) {
      const auto ids = tokenizer->encode_text(expected.at("texts").items()[i].as_string(), 32).ids;
      const at::Tensor row = at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0);
      const at::Tensor embedding = encoder->forward(row, {row.size(1)});
      EXPECT_LE(farthest(embedding[0], tensor(expected.at(name).items()[i])), 1e-5) << name << " " << i;
    }
  }
}

TEST(Bert, NamesAreHuggingFaces) {
  const auto model = load<BertForMaskedLM>(masked_folder);
  const format::SafetensorsFolder folder = checkpoint::open_hf_weights(masked_folder);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters.size(), folder.tensors().size());
  for (const auto& stored : folder.tensors()) EXPECT_TRUE(parameters.contains(stored.info.name)) << stored.info.name;
  std::set<std::string> classes;
  for (const auto& m : model->modules()) classes.insert(m->name());
  EXPECT_TRUE(classes.contains("tessera::models::BertLayer"));
  const Value config = read_json(path_join(masked_folder, "config.json"));
  const auto tensor_name = architectures::architecture_of(config).tensor_name;
  EXPECT_EQ(tensor_name("encoder.layer.0.output.LayerNorm.gamma", config),
            "bert.encoder.layer.0.output.LayerNorm.weight");
  EXPECT_EQ(tensor_name("bert.embeddings.LayerNorm.beta", config), "bert.embeddings.LayerNorm.bias");
  for (const char* aside : {"embeddings.position_ids", "cls.seq_relationship.weight", "cls.predictions.decoder.weight",
                            "pooler.dense.bias"})
    EXPECT_EQ(tensor_name(aside, config), "") << aside;
}

TEST(Bert, OldNamesAndAMissingPrefixAreAccepted) {
  const TemporaryFolder folder;
  const auto model = load<BertForMaskedLM>(masked_folder);
  checkpoint::NamedTensors renamed;
  for (const auto& item : model->named_parameters()) {
    std::string name = item.key();
    if (name.starts_with("cls.")) continue;  // a BertModel
    name = name.substr(5);
    if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
    renamed.emplace_back(name, item.value().detach());
  }
  Value config = read_json(path_join(masked_folder, "config.json"));
  config.set("architectures", Value::make_array({Value::of("BertModel")}));
  checkpoint::write_hf_folder(folder.path(), renamed, config, nullptr);
  const auto again = load<BertForMaskedLM>(folder.path()), other = load<BertForMaskedLM>(folder.path());
  ASSERT_TRUE(again);
  const auto theirs = model->named_parameters();
  for (const auto& item : again->named_parameters()) {
    const bool head = architectures::architecture_of(config).may_be_new(item.key());
    EXPECT_EQ(at::equal(item.value(), theirs[item.key()]), !head) << item.key();
    if (!head) continue;
    EXPECT_TRUE(at::equal(item.value(), other->named_parameters()[item.key()])) << "of the seed: " << item.key();
  }
  EXPECT_EQ(again->hf_config().at("architectures").items()[0].as_string(), "BertForMaskedLM");
  EXPECT_LE(farthest(load_sentence_encoder(folder.path())->bert->embeddings->norm->weight,
                     model->bert->embeddings->norm->weight),
            0);
}

TEST(Bert, AnotherTasksHeadIsReplaced) {
  const auto model = load<BertForSequenceClassification>(masked_folder, [](Value config) {
    config.set("architectures", Value::make_array({Value::of("BertForSequenceClassification")}));
    config.set("num_labels", Value::of(5));
    return config;
  });
  ASSERT_TRUE(model);
  EXPECT_EQ(model->classifier->weight.size(0), 5);
  EXPECT_TRUE(model->named_parameters().contains("bert.pooler.dense.weight"));
  EXPECT_GT(model->classifier->weight.abs().max().item<double>(), 0);
}

TEST(Bert, CheckpointedBlocksGiveTheSame) {
  const Value expected = expected_of(masked_folder);
  const auto model = load<BertForMaskedLM>(masked_folder);
  const data::Batch batch = batch_of(expected, lengths_of(expected));
  model->loss(batch, 1).backward();
  std::vector<at::Tensor> plain;
  for (const at::Tensor& p : model->parameters()) plain.push_back(p.grad().clone());
  for (const auto part :
       {parallel::CheckpointPart::block, parallel::CheckpointPart::attention, parallel::CheckpointPart::mlp}) {
    model->zero_grad();
    checkpoint_blocks(*model, {.part = part});
    model->loss(batch, 1).backward();
    const auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(at::equal(parameters[i].grad(), plain[i])) << i;
  }
}

TEST(Bert, InitialisationFollowsTheRule) {
  Value config = read_json(path_join(masked_folder, "config.json"));
  config.set("initializer_range", Value::of(0.02));
  const auto a = make_language_model(config, 3), b = make_language_model(config, 3);
  const auto other = b->named_parameters();
  for (const auto& item : a->named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), other[item.key()])) << item.key();
    EXPECT_EQ(a->is_norm_or_bias(item.key()), item.value().dim() == 1);
    if (item.value().dim() == 1) {
      EXPECT_EQ(item.value().std().item<double>(), 0) << item.key();
    }
  }
  const at::Tensor words = a->named_parameters()["bert.embeddings.word_embeddings.weight"];
  EXPECT_EQ(words[0].abs().max().item<double>(), 0) << "the padding token";
  EXPECT_NEAR(words.narrow(0, 1, 599).std().item<double>(), 0.02, 0.001);
}

TEST(Bert, WrongConfigurationsAreNamed) {
  const auto with = [](const char* key, Value value) {
    Value config = read_json(path_join(masked_folder, "config.json"));
    config.set(key, std::move(value));
    return error_of([&] { make_language_model(config, 1); });
  };
  EXPECT_NE(with("num_attention_heads", Value::of(3)).find("hidden_size 16 is not a multiple of num_attention_heads 3"),
            std::string::npos);
  EXPECT_NE(with("is_decoder", Value::of(true)).find("is_decoder is not supported"), std::string::npos);
  EXPECT_NE(with("position_embedding_type", Value::of("relative_key")).find("supported: absolute"), std::string::npos);
  EXPECT_NE(with("hidden_act", Value::of("mish")).find("hidden_act \"mish\""), std::string::npos);
  EXPECT_NE(error_of([] { load_folder(masked_folder); }).find("\"bert\" is not a causal language model"),
            std::string::npos);
  const auto model = load<BertForMaskedLM>(masked_folder);
  EXPECT_NE(error_of([&] {
              model->forward(at::zeros({1, 49}, at::kLong));
            }).find("49 tokens does not fit the model's 48 positions"),
            std::string::npos);
  EXPECT_NE(error_of([] { load_sentence_encoder(masked_folder, {}, {}, 64); }).find("--max_length 64"),
            std::string::npos);
  EXPECT_NE(error_of([] { load_sentence_encoder(fixtures + "/gpt2_tiny"); }).find("supported: bert"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::models
