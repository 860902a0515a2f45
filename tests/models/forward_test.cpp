// Every family can be called like any torch::nn module: model->forward(ids).
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/models/bert/bert.h>
#include <tessera/models/gpt2.h>
#include <tessera/models/llama.h>
#include <tessera/models/load.h>

#include <tests/error_of.h>
#include <tests/paths.h>

namespace {

using namespace tessera;
using tessera::testing::error_of;

const std::string fixtures = tessera::testing::source_path("tests/fixtures");

at::Tensor some_ids(std::int64_t rows, std::int64_t length) { return at::arange(rows * length).view({rows, length}); }

double farthest(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Forward, gives_logits_of_every_family) {
  std::vector<std::string> folders = {fixtures + "/gpt2_tiny", fixtures + "/bert_tiny", fixtures + "/bert_classifier"};
  for (const std::string& name : list_folder(fixtures + "/llama"))
    if (path_exists(concat(fixtures, "/llama/", name, "/model.safetensors")))
      folders.push_back(concat(fixtures, "/llama/", name));
  EXPECT_GE(folders.size(), 7u);
  for (const std::string& folder : folders) {
    const std::shared_ptr<models::LanguageModel> model = models::load_language_folder(folder);
    model->eval();
    const at::Tensor ids = some_ids(2, 6), logits = model->forward(ids);
    EXPECT_EQ(logits.scalar_type(), at::kFloat);
    EXPECT_TRUE(logits.requires_grad()) << folder;
    if (model->num_labels() > 0)
      EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, model->num_labels()})) << folder;
    else
      EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{2, 6, model->vocab_size()})) << folder;
    torch::nn::Sequential sequence;
    sequence->push_back(torch::nn::AnyModule(model));
    EXPECT_TRUE(at::equal(sequence->forward(ids), logits)) << folder << ": inside torch::nn modules";

    // two texts of 6 and 4 tokens in one batch give the same results as alone, whatever the mask's type
    at::Tensor mask = at::ones({2, 6}, at::kLong);
    mask[1].slice(0, 4).zero_();
    for (const at::ScalarType type : {at::kLong, at::kBool, at::kFloat}) {
      const at::Tensor padded = model->forward(ids, mask.to(type)),
                       alone = model->forward(ids[1].slice(0, 0, 4).unsqueeze(0));
      EXPECT_LT(farthest(padded[0], logits[0]), 1e-5) << folder;
      EXPECT_LT(farthest(model->num_labels() > 0 ? padded[1] : padded[1].slice(0, 0, 4), alone[0]), 1e-5) << folder;
    }
    EXPECT_NE(error_of([&] { model->forward(ids, mask.slice(1, 0, 5)); }).find("both must be [B, T]"),
              std::string::npos);
  }
}

TEST(Forward, what_a_causal_model_has_no_use_for_is_refused) {
  const auto model = models::make_language_model(models::preset("llama-tiny"), 1);
  const at::Tensor ids = some_ids(2, 6);
  at::Tensor mask = at::ones({2, 6}, at::kLong);
  mask[0][0] = 0;
  EXPECT_NE(error_of([&] { model->forward(ids, mask); }).find("pad rows at their end"), std::string::npos);
  EXPECT_NE(error_of([&] { model->forward(ids, {}, ids); }).find("no token types"), std::string::npos);
}

TEST(Forward, token_types_matter_to_bert) {
  const auto model = models::load_language_folder(fixtures + "/bert_tiny");
  model->eval();
  const at::Tensor ids = some_ids(1, 6), types = at::ones({1, 6}, at::kLong);
  EXPECT_TRUE(at::equal(model->forward(ids), model->forward(ids, {}, 0 * types)));
  EXPECT_GT(farthest(model->forward(ids), model->forward(ids, {}, types)), 1e-3);
}

TEST(Forward, bodies_give_hidden_states) {
  const at::NoGradGuard no_grad;
  const at::Tensor ids = some_ids(2, 5);
  models::Gpt2 gpt2(models::preset("gpt2-tiny"), 1);
  gpt2.eval();
  EXPECT_LT(farthest(gpt2.transformer->forward(ids).matmul(gpt2.transformer->wte->weight.t()), gpt2.forward(ids)),
            1e-4);
  models::Llama llama(models::preset("llama-tiny"), 1);
  const at::Tensor head = llama.lm_head ? llama.lm_head->weight : llama.model->embed_tokens->weight;
  EXPECT_LT(farthest(llama.model->forward(ids).matmul(head.t()), llama.forward(ids)), 1e-4);
  const auto bert = std::dynamic_pointer_cast<models::BertForSequenceClassification>(
      models::load_language_folder(fixtures + "/bert_classifier"));
  bert->eval();
  const at::Tensor hidden = bert->bert->forward(ids);
  EXPECT_EQ(hidden.dim(), 3);
  EXPECT_LT(farthest(bert->classifier->forward(bert->bert->pooled(hidden), {}), bert->forward(ids)), 1e-5);
}

}  // namespace
