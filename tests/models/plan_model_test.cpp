// The planner's list of parameters against the models themselves: names, shapes, which ones are trained, and which part
// of each a tensor-parallel rank holds. Keeps plans consistent with runs.

#include <tessera/architectures/architecture.h>
#include <tessera/base/file.h>
#include <tessera/config/core/run_config.h>
#include <tessera/layout/stages.h>
#include <tessera/layout/tensor_plan.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/models/lora.h>
#include <tessera/models/registry.h>
#include <tessera/models/vision/compose.h>
#include <tessera/plan/adapters.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/memory.h>
#include <tessera/plan/model.h>

#include <gtest/gtest.h>
#include <tests/paths.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tessera::models {
namespace {

/// A small configuration of each family, including settings that affect its parameters.
const std::map<std::string, std::string>& configurations() {
  static const std::string sizes =
      R"("hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 21, "max_position_embeddings": 32)";
  static const std::map<std::string, std::string> all = {
      {"gpt2", R"("model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 8, "vocab_size": 21)"},
      {"gpt2 untied", R"("model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 8,
                         "vocab_size": 21, "n_inner": 20, "tie_word_embeddings": false)"},
      {"llama", R"("model_type": "llama", )" + sizes},
      {"llama tied with biases", R"("model_type": "llama", "tie_word_embeddings": true, "attention_bias": true,
                                    "mlp_bias": true, )" +
                                     sizes},
      {"mistral", R"("model_type": "mistral", "head_dim": 6, )" + sizes},
      {"qwen2", R"("model_type": "qwen2", )" + sizes},
      {"qwen3", R"("model_type": "qwen3", "head_dim": 8, )" + sizes},
      {"mixtral", R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, )" + sizes},
      {"qwen2_moe", R"("model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2,
                       "moe_intermediate_size": 6, "shared_expert_intermediate_size": 10, "decoder_sparse_step": 2, )" +
                        sizes},
      {"qwen3_moe", R"("model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
                       "moe_intermediate_size": 6, "mlp_only_layers": [1], )" +
                        sizes},
      {"olmoe", R"("model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, )" + sizes},
      {"deepseek_v3", R"("model_type": "deepseek_v3", "hidden_size": 16, "intermediate_size": 24,
                         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 21,
                         "max_position_embeddings": 32, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6,
                         "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8, "num_experts_per_tok": 2,
                         "n_group": 2, "topk_group": 1, "moe_intermediate_size": 6, "n_shared_experts": 2,
                         "first_k_dense_replace": 1)"},
      {"llama that predicts further tokens", R"("model_type": "llama", "mtp_num_layers": 2, )" + sizes},
      {"qwen3_moe that predicts further tokens", R"("model_type": "qwen3_moe", "mtp_num_layers": 1, "num_experts": 4,
                       "num_experts_per_tok": 2, "head_dim": 8, "moe_intermediate_size": 6, )" +
                                                     sizes},
      {"megatron_gpt", R"("model_type": "megatron_gpt", )" + sizes},
      {"megatron_gpt rotated with gates", R"("model_type": "megatron_gpt", "position_embedding_type": "rope",
                                             "normalization": "RMSNorm", "gated_linear_unit": true,
                                             "hidden_act": "silu", "qk_layernorm": true, "add_bias_linear": false,
                                             "add_qkv_bias": true, "tie_word_embeddings": false, )" +
                                              sizes},
      {"megatron_gpt latents with biases", R"("model_type": "megatron_gpt", "hidden_size": 16, "intermediate_size": 24,
                                              "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 21,
                                              "max_position_embeddings": 32, "q_lora_rank": 12, "kv_lora_rank": 8,
                                              "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6)"},
      {"megatron_gpt with linear attention", R"("model_type": "megatron_gpt", "normalization": "RMSNorm",
                                                "layer_types": ["linear_attention", "full_attention",
                                                "linear_attention"], "linear_num_key_heads": 2,
                                                "linear_num_value_heads": 4, "linear_key_head_dim": 6,
                                                "linear_value_head_dim": 8, "attn_output_gate": true, )" +
                                                 sizes},
      {"megatron_gpt experts without gates", R"("model_type": "megatron_gpt", "add_bias_linear": false,
                                                "num_experts": 4, "moe_intermediate_size": 6,
                                                "shared_expert_intermediate_size": 10, "shared_expert_gate": true,
                                                "router_selection_bias": true, "mlp_only_layers": [1], )" +
                                                 sizes},
      {"bert", R"("model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 24, "vocab_size": 21, "max_position_embeddings": 8, "type_vocab_size": 3)"},
      {"bert classifier", R"("model_type": "bert", "architectures": ["BertForSequenceClassification"],
                             "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 5,
                             "vocab_size": 21, "max_position_embeddings": 8)"},
  };
  return all;
}

/// A small vision-language model, with projectors other than the fixture's.
std::map<std::string, Value> seeing() {
  Value json = read_json(tessera::testing::source_path("tests/fixtures/llava_tiny/config.json"));
  std::map<std::string, Value> all = {{"llava", json}};
  json.set("mm_projector_type", Value::of("mlp3x_gelu"));
  json.set("multimodal_projector_bias", Value::of(false));
  json.set("vision_feature_select_strategy", Value::of("full"));
  all.emplace("llava with three maps", json);
  json.set("mm_projector_type", Value::of("linear"));
  Value text = json.at("text_config");
  text.set("model_type", Value::of("qwen3"));
  text.set("tie_word_embeddings", Value::of(true));
  json.set("text_config", text);
  all.emplace("llava with one map before a tied qwen3", json);
  return all;
}

/// The above, and transformers' configuration of each family of decoders.
std::map<std::string, Value> all_configurations() {
  std::map<std::string, Value> all;
  for (const auto& [what, members] : configurations()) all.emplace(what, parse_json("{" + members + "}", what));
  const std::string folder = tessera::testing::source_path("tests/fixtures/llama");
  for (const std::string& name : list_folder(folder))
    all.emplace("fixture " + name, read_json(path_join(path_join(folder, name), "config.json")));
  EXPECT_GT(all.size(), configurations().size() + 30);
  all.merge(seeing());
  return all;
}

TEST(PlanModel, ListsTheParametersThatTheModelsHave) {
  for (const auto& [what, config] : all_configurations()) {
    SCOPED_TRACE(what);
    const auto model = build(config, std::nullopt);
    std::map<std::string, at::Tensor> real;
    for (const auto& item : model->named_parameters()) real.emplace(item.key(), item.value());
    const plan::Model planned = plan::read_model(config);
    double count = 0;
    std::size_t listed = 0;
    for (const plan::Tensor& tensor : plan::tensors(planned)) {
      const auto found = real.find(tensor.name);
      ASSERT_TRUE(found != real.end()) << "the model has no " << tensor.name;
      EXPECT_EQ(found->second.sizes().vec(), tensor.shape) << tensor.name;
      EXPECT_EQ(found->second.requires_grad(), tensor.trained) << tensor.name;
      count += tensor.numel();
      ++listed;
    }
    EXPECT_EQ(listed, real.size());
    EXPECT_EQ(plan::parameter_count(planned), count);
  }
}

TEST(PlanModel, KnowsWhichPartsAModelThatSeesImagesTrains) {
  for (const auto& [what, config] : seeing())
    for (bool ModelConfig::* const flag :
         {&ModelConfig::tune_mm_mlp_adapter, &ModelConfig::freeze_backbone, &ModelConfig::freeze_mm_mlp_adapter}) {
      SCOPED_TRACE(what);
      RunConfig run;
      ModelConfig& settings = run.model;
      settings.*flag = true;
      const auto model = build(config, std::nullopt);
      choose_trained_parts(*model, settings);
      plan::Model planned = plan::read_model(config);
      plan::choose_trained_parts(planned, run);
      const auto real = model->named_parameters();
      double frozen = 0, trained = 0;
      for (const plan::Tensor& tensor : plan::tensors(planned)) {
        ASSERT_TRUE(real.contains(tensor.name)) << tensor.name;
        EXPECT_EQ(real[tensor.name].requires_grad(), tensor.trained) << tensor.name;
        (tensor.trained ? trained : frozen) += tensor.numel();
      }
      const plan::Elements elements = plan::elements_of(planned, 1, 1);
      const plan::Elements::Piece all = plan::stage_elements(
          planned, elements, {.embeddings = true, .end = true, .first_block = 0, .blocks = planned.layers});
      EXPECT_EQ(all.frozen, frozen);
      EXPECT_EQ(all.trained(), trained);
    }
}

// With adapters: which maps get one, which parameters stay trained, and which are kept in few bits.
TEST(PlanModel, PutsAdaptersWhereTheModelsHaveThem) {
  for (const auto& [what, config] : all_configurations())
    for (const auto& [targets, whole, bits] :
         {std::tuple{"", false, 0}, {"all-linear", false, 0}, {"all-linear", true, 4}, {"all-linear", false, 8}}) {
      SCOPED_TRACE(concat(what, " ", targets, " ", whole, " ", bits));
      if (architectures::sees_images(config)) continue;  // refused (tests/plan/from_config_test.cpp)
      plan::Model planned = plan::read_model(config);
      RunConfig run;
      ModelConfig& settings = run.model;
      settings.lora_r = 3;
      settings.lora_target_modules = targets;
      if (whole && planned.norms.weight)
        settings.lora_modules_to_save = planned.family == plan::Family::gpt2   ? "ln_f"
                                        : planned.family == plan::Family::bert ? "LayerNorm"
                                                                               : planned.names.norm;
      settings.load_in_4bit = bits == 4;
      settings.load_in_8bit = bits == 8;
      settings.bnb_4bit_use_double_quant = what.size() % 2 == 0;
      const auto model = build(config, 1);
      apply_lora(*model, lora_config(settings), 1);
      if (bits > 0) quantize(*model, *quantized_form(settings), nullptr);
      plan::choose_trained_parts(planned, run);
      const auto real = model->named_parameters();
      double trained = 0, packed = 0;
      std::size_t listed = 0;
      for (const plan::Tensor& tensor : plan::tensors(planned)) {
        if (tensor.packed_bytes > 0) {
          EXPECT_FALSE(real.contains(tensor.name)) << tensor.name;
          packed += tensor.packed_bytes;
          continue;
        }
        ASSERT_TRUE(real.contains(tensor.name)) << tensor.name;
        EXPECT_EQ(real[tensor.name].sizes().vec(), tensor.shape) << tensor.name;
        EXPECT_EQ(real[tensor.name].requires_grad(), tensor.trained) << tensor.name;
        if (tensor.trained) trained += tensor.numel();
        ++listed;
      }
      EXPECT_EQ(listed, real.size());
      EXPECT_EQ(packed, static_cast<double>(quantized_sizes(*model).bytes));
      EXPECT_EQ(plan::adapters_problem(planned).empty(), planned.depths == 0);
      if (planned.depths > 0) continue;  // refused
      const double flops = lora_flops_per_token(*model, 8);
      EXPECT_NEAR(plan::model_flops_per_token(planned, 8), flops, 1e-9 * flops);
      const plan::Elements elements = plan::elements_of(planned, 1, 1);
      const plan::Elements::Piece all = plan::stage_elements(
          planned, elements, {.embeddings = true, .end = true, .first_block = 0, .blocks = planned.layers});
      EXPECT_NEAR(all.trained(), trained, 1e-9 * trained);
      EXPECT_NEAR(all.packed_bytes, packed, 1e-9 * packed);
    }
}

TEST(PlanModel, CutsParametersAsTensorParallelismDoes) {
  for (const auto& [what, config] : all_configurations()) {
    SCOPED_TRACE(what);
    if (architectures::sees_images(config)) continue;  // such a model is not cut
    const layout::TensorPlan rules = build(config, std::nullopt)->tensor_plan();
    for (const plan::Tensor& tensor : plan::tensors(plan::read_model(config))) {
      const auto rule = std::find_if(rules.begin(), rules.end(), [&](const layout::TensorRule& candidate) {
        return layout::matches(candidate.pattern, tensor.name);
      });
      double most = tensor.numel();
      if (rule != rules.end()) {
        most = 0;
        for (int rank = 0; rank < 2; ++rank) {
          double numel = 1;
          for (const std::int64_t size : layout::tensor_part(tensor.name, tensor.shape, *rule, rank, 2).shape())
            numel *= static_cast<double>(size);
          most = std::max(most, numel);
        }
      }
      EXPECT_EQ(plan::elements_on_rank(tensor, 2), most) << tensor.name;
    }
  }
}

// The elements by which stages are balanced equal the parameters', on one process and over two stages.
TEST(PlanModel, StagesHoldAllParameters) {
  for (const auto& [what, config] : all_configurations()) {
    SCOPED_TRACE(what);
    const plan::Model model = plan::read_model(config);
    const plan::Elements elements = plan::elements_of(model, 1, 1);
    const double count = plan::parameter_count(model);
    for (const int stages : {1, 2}) {
      double held = 0;
      for (const layout::StagePart& part : layout::cut_evenly(model.layers, stages))
        held += plan::stage_elements(model, elements, part).all();
      const double copied = stages > 1 && model.table_at_end() ? elements.head : 0;  // the last stage has a copy
      EXPECT_NEAR(held, count + copied, 1e-9 * count) << stages << " stages";
    }
  }
}

// Also compares the FLOP count from which a run's MFU is computed.
TEST(PlanModel, CountsTheFlopThatTheModelsSay) {
  for (const auto& [what, config] : all_configurations()) {
    SCOPED_TRACE(what);
    const double said = build(config, std::nullopt)->flops_per_token(8);
    EXPECT_NEAR(plan::model_flops_per_token(plan::read_model(config), 8), said, 1e-9 * said);
  }
}

}  // namespace
}  // namespace tessera::models
