// LLaVA against transformers' results, stored by tests/parity/make_llava_fixture.py, and its errors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/vision.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/kv_cache.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/models/vision/llava.h>
#include <tessera/nn/autocast.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <map>
#include <set>

namespace tessera::models {
namespace {

using tessera::testing::error_of;

const std::string folder = tessera::testing::source_path("tests/fixtures/llava_tiny");

std::map<std::string, at::Tensor> expected() {
  const format::SafetensorsFile file(path_join(folder, "expected.safetensors"));
  std::map<std::string, at::Tensor> all;
  for (const auto& info : file.tensors()) all.emplace(info.name, checkpoint::read_tensor(file, info));
  return all;
}

std::shared_ptr<Llava> load() { return std::dynamic_pointer_cast<Llava>(load_language_folder(folder)); }
Value config() { return read_json(path_join(folder, "config.json")); }
std::shared_ptr<Llava> fresh(const Value& json) {
  return std::dynamic_pointer_cast<Llava>(make_language_model(json, 1));
}

data::Batch batch_of(const std::map<std::string, at::Tensor>& from) {
  data::Batch batch;
  batch.ids = from.at("ids");
  batch.labels = from.at("labels");
  batch.images = from.at("pixels");
  batch.scored_tokens = batch.labels.slice(1, 1).ne(-100).sum().item<std::int64_t>();
  return batch;
}

/// Returns the mean loss; leaves the gradients.
double train_once(Llava& model, const data::Batch& batch) {
  model.train();
  const at::Tensor loss = model.loss(batch, 1.0 / static_cast<double>(batch.scored_tokens));
  loss.backward();
  return loss.item<double>();
}

double relative(const at::Tensor& got, const at::Tensor& wanted) {
  return (got - wanted).norm().item<double>() / wanted.norm().item<double>();
}

TEST(Llava, loss_and_gradients_are_transformers) {
  const auto wanted = expected();
  const auto model = load();
  ASSERT_TRUE(model);
  const double loss = wanted.at("loss").item<double>();
  EXPECT_NEAR(train_once(*model, batch_of(wanted)), loss, 1e-5 * loss);
  int compared = 0;
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    if (name.starts_with("vision_tower.")) {
      EXPECT_FALSE(item.value().requires_grad()) << name;
      EXPECT_FALSE(item.value().grad().defined()) << name;
      continue;
    }
    ASSERT_TRUE(wanted.contains("grad." + name)) << name;
    ASSERT_TRUE(item.value().grad().defined()) << name;
    EXPECT_LT(relative(item.value().grad(), wanted.at("grad." + name)), 1e-5) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 4 + 2 * 9 + 3);
}

TEST(Llava, features_depend_on_the_pixels_and_go_to_their_places) {
  const auto wanted = expected();
  const auto model = load();
  model->eval();
  const at::NoGradGuard no_grad;
  data::Batch batch = batch_of(wanted);
  const auto loss = [&] { return model->loss(batch, 1).item<double>(); };
  const double before = loss();
  batch.images = batch.images.flip({0});
  EXPECT_GT(std::abs(loss() - before), 1e-4) << "other images in the same places";
}

TEST(Llava, batches_without_images_give_the_projector_a_gradient_of_zero) {
  const auto wanted = expected();
  const auto model = load();
  data::Batch batch = batch_of(wanted);
  batch.ids = batch.ids.narrow(0, 2, 1);
  batch.labels = batch.labels.narrow(0, 2, 1);
  batch.images = at::Tensor();
  const double loss = train_once(*model, batch);
  for (const auto& item : model->multi_modal_projector->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0) << item.key();
  }
  // The decoder alone computes the same.
  const auto text = model->language_model->loss(batch.ids, batch.labels,
                                                1.0 / batch.labels.slice(1, 1).ne(-100).sum().item<double>());
  EXPECT_NEAR(loss * static_cast<double>(batch.scored_tokens),
              text.item<double>() * batch.labels.slice(1, 1).ne(-100).sum().item<double>(), 1e-4);
}

TEST(Llava, numbers_of_tokens_and_images_must_match) {
  const auto model = load();
  data::Batch batch = batch_of(expected());
  batch.images = batch.images.narrow(0, 0, 2);
  EXPECT_NE(error_of([&] { (void)model->loss(batch, 1); }).find("12 image tokens (id 66) and 2 images"),
            std::string::npos);
  batch.images = at::zeros({3, 3, 9, 9});
  EXPECT_NE(error_of([&] { (void)model->loss(batch, 1); }).find("[N, 3, 8, 8]"), std::string::npos);
  KvCache cache;
  EXPECT_NE(error_of([&] { (void)model->next_logits(batch.ids, cache); }).find("cannot be continued"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)model->tensor_plan(); }).find("--tp_size 1"), std::string::npos);
  EXPECT_NE(error_of([&] { model->keep_stages({}); }).find("--pp_size 1"), std::string::npos);
}

TEST(Llava, an_image_token_beyond_the_vocabulary_is_never_looked_up) {
  Value json = config();
  json.set("image_token_index", Value::of(1000));
  const auto model = std::dynamic_pointer_cast<Llava>(make_language_model(json, 1));
  load_weights(*model, folder);
  const auto wanted = expected();
  data::Batch batch = batch_of(wanted);
  batch.ids = batch.ids.masked_fill(batch.ids.eq(66), 1000);
  const double loss = wanted.at("loss").item<double>();
  EXPECT_NEAR(train_once(*model, batch), loss, 1e-5 * loss);
}

TEST(Llava, all_spellings_of_names_are_read) {
  const Value json = config();
  const auto name = [&](const char* in_file) {
    return architectures::architecture_of(json).tensor_name(in_file, json);
  };
  EXPECT_EQ(name("language_model.model.layers.0.mlp.up_proj.weight"),
            "language_model.model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(name("model.language_model.layers.0.mlp.up_proj.weight"),
            "language_model.model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(name("lm_head.weight"), "language_model.lm_head.weight");
  EXPECT_EQ(name("language_model.lm_head.weight"), "language_model.lm_head.weight");
  EXPECT_EQ(name("model.multi_modal_projector.linear_1.bias"), "multi_modal_projector.linear_1.bias");
  for (const char* tower : {"vision_tower.vision_model.pre_layrnorm.bias", "vision_tower.pre_layrnorm.bias",
                            "model.vision_tower.vision_model.pre_layrnorm.bias"})
    EXPECT_EQ(name(tower), "vision_tower.vision_model.pre_layrnorm.bias");
  EXPECT_EQ(name("vision_tower.vision_model.embeddings.position_ids"), "");
  EXPECT_EQ(name("language_model.model.layers.0.self_attn.rotary_emb.inv_freq"), "");
}

TEST(Llava, what_images_are_wanted_is_said) {
  const auto model = load();
  const auto input = model->image_input();
  ASSERT_TRUE(input);
  EXPECT_EQ(input->token, 66);
  EXPECT_EQ(input->tokens, 4);
  EXPECT_EQ(input->side, 8);
  EXPECT_FLOAT_EQ(input->mean[0], 0.48145466F);
  model->read_preprocessor(parse_json(R"({"image_mean": [0.5, 0.25, 0], "image_std": [1, 2, 3]})", "p.json"));
  EXPECT_FLOAT_EQ(model->image_input()->mean[1], 0.25F);
  EXPECT_FLOAT_EQ(model->image_input()->deviation[2], 3);
  const auto other = load();
  other->read_preprocessor(model->preprocessor());
  EXPECT_EQ(other->image_input()->mean, model->image_input()->mean);
  EXPECT_EQ(other->image_input()->deviation, model->image_input()->deviation);
  for (const char* wrong : {R"({"image_mean": [0.5]})", R"({"image_std": [1, 0, 1]})",
                            R"({"crop_size": {"height": 9, "width": 8}})", R"({"crop_size": 9})"})
    EXPECT_NE(error_of([&] { model->read_preprocessor(parse_json(wrong, "p.json")); }), "") << wrong;
  EXPECT_FALSE(make_language_model(preset("llama-tiny"), 1)->image_input());
}

TEST(Llava, settings_of_the_features_act) {
  const auto with = [](const char* key, Value value) {
    Value json = config();
    json.set(key, std::move(value));
    return json;
  };
  EXPECT_EQ(fresh(with("vision_feature_select_strategy", Value::of("full")))->image_input()->tokens, 5);
  const Value layers[] = {with("vision_feature_layer", Value::of(-1)), with("vision_feature_layer", Value::of(3)),
                          with("vision_feature_layer", Value::of(0))};
  EXPECT_EQ(architectures::read_model(layers[0]).vision->blocks, 3);
  EXPECT_EQ(architectures::read_model(layers[1]).vision->blocks, 3);
  EXPECT_EQ(architectures::read_model(layers[2]).vision->blocks, 0);
  EXPECT_EQ(architectures::read_model(config()).vision->blocks, 2);
  EXPECT_EQ(fresh(with("multimodal_projector_bias", Value::of(false)))->multi_modal_projector->parameters().size(), 2u);
  data::Batch batch = batch_of(expected());
  std::set<double> losses;
  const at::NoGradGuard no_grad;
  for (const Value& json : {config(), layers[0], layers[2], with("projector_hidden_act", Value::of("relu"))}) {
    const auto model = fresh(json);
    load_weights(*model, folder);
    losses.insert(model->loss(batch, 1).item<double>());
  }
  EXPECT_EQ(losses.size(), 4u);
}

TEST(Llava, what_is_left_out_is_as_in_transformers) {
  const Value json = parse_json(
      R"({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064},
          "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
          "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14, "model_type": "clip_vision_model"}})",
      "config.json");
  const architectures::ModelSpec c = architectures::read_model(json);
  EXPECT_EQ(architectures::decoder_config(json).at("hidden_size").as_int(), 4096);
  EXPECT_EQ(c.vocabulary, 32064);
  EXPECT_EQ(c.vision->tokens(), 576);
  EXPECT_EQ(c.vision->image_token, 32000);
  EXPECT_TRUE(c.vision->quick_gelu);
  EXPECT_EQ(architectures::read_model(parse_json(R"({"model_type": "llava"})", "c")).vision->tokens(), 576);
}

TEST(Llava, what_is_not_supported_is_refused_by_name) {
  const auto refused = [](const std::string& members) {
    return error_of([&] {
      (void)architectures::read_model(parse_json(R"({"model_type": "llava", )" + members + "}", "config.json"));
    });
  };
  for (const auto& [members, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("vision_feature_layer": [-2, -5])", "several layers"},
           {R"("vision_feature_layer": 26)", "-25 to 24"},
           {R"("vision_feature_layer": -26)", "-25 to 24"},
           {R"("vision_feature_select_strategy": "patch")", "vision_feature_select_strategy"},
           {R"("image_token_index": -1)", "image_token_index"},
           {R"("text_config": {"model_type": "gpt2"})", "gpt2"},
           {R"("text_config": {"mtp_num_layers": 1})", "multi-token"},
           {R"("vision_config": {"model_type": "siglip_vision_model"})", "siglip_vision_model"},
           {R"("vision_config": {"hidden_act": "relu"})", "relu"},
           {R"("vision_config": {"attention_dropout": 0.1})", "attention_dropout"},
           {R"("vision_config": {"num_channels": 1})", "num_channels"},
           {R"("vision_config": {"hidden_size": 10, "num_attention_heads": 4})", "not a multiple"},
           {R"("vision_config": {"image_size": 8, "patch_size": 16})", "must fit"}})
    EXPECT_NE(refused(members).find(said), std::string::npos) << members << "\n" << refused(members);
}

TEST(Llava, recomputed_blocks_give_the_same_gradients) {
  const data::Batch batch = batch_of(expected());
  const auto plain = load(), again = load();
  int runs = 0;
  again->set_part_runner([&](const ModelPart& part, const PartFunction& function, const at::Tensor& x) {
    EXPECT_TRUE(again->named_modules().contains(part.name)) << part.name;
    ++runs;
    return function(x);
  });
  (void)train_once(*again, batch);
  EXPECT_EQ(runs, 2 * 3);
  again->zero_grad();
  const auto kept = checkpoint_blocks(*again, {});
  (void)train_once(*plain, batch);
  (void)train_once(*again, batch);
  const auto parameters = again->named_parameters();
  for (const auto& item : plain->named_parameters()) {
    if (item.value().requires_grad()) {
      EXPECT_TRUE(at::equal(item.value().grad(), parameters[item.key()].grad())) << item.key();
    }
  }
}

TEST(Llava, trains_in_bf16) {
  const auto wanted = expected();
  const auto model = load();
  const nn::Autocast autocast(true, c10::DeviceType::CPU);
  const double loss = wanted.at("loss").item<double>(), got = train_once(*model, batch_of(wanted));
  EXPECT_NEAR(got, loss, 0.02 * loss);
  EXPECT_NE(got, loss);
  for (const auto& item : model->multi_modal_projector->named_parameters())
    EXPECT_LT(relative(item.value().grad(), wanted.at("grad.multi_modal_projector." + item.key())), 0.1) << item.key();
}

TEST(Llava, adapters_are_the_decoders) {
  const auto model = load();
  LoraConfig lora;
  lora.r = 2;
  lora.target_modules = {"all-linear"};
  (void)apply_lora(*model, lora, 1);
  std::set<std::string> trained;
  for (const auto& item : model->named_parameters())
    if (item.value().requires_grad()) {
      trained.insert(item.key());
      EXPECT_TRUE(item.key().starts_with("language_model.model.layers.")) << item.key();
    }
  EXPECT_EQ(trained.size(), 2u * 2 * 7);
}

TEST(Llava, from_scratch_by_the_rule_of_transformers) {
  Value json = config();
  const auto model = fresh(json), same = fresh(json);
  const auto other = same->named_parameters();
  for (const auto& item : model->named_parameters()) {
    const std::string& name = item.key();
    EXPECT_TRUE(at::equal(item.value(), other[name])) << name;
    if (item.value().dim() > 1) {
      EXPECT_NEAR(item.value().std().item<double>(), 0.02, 0.006) << name;
    } else if (!name.ends_with("class_embedding")) {
      EXPECT_TRUE(item.value().eq(name.ends_with("bias") ? 0 : 1).all().item<bool>()) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::models
