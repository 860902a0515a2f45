#pragma once
/// \file
/// Section "model" of a run's settings.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>

namespace tessera {

/// The model, its tokenizer, LoRA, and the storage format of frozen weights.
struct ModelConfig {
  std::string model_name_or_path;      ///< Hugging Face folder to start from; empty: train from scratch
  std::string config_name;             ///< config.json or a preset (gpt2, gpt2-tiny) to train from scratch
  std::string config_overrides;        ///< "n_layer=4,n_embd=256", only with config_name
  std::string ref_model_name_or_path;  ///< reference model of preference losses; empty: the initial model
  std::string tokenizer_name;          ///< folder or tokenizer.json; "byte": no file; empty: the model's, else byte
  std::int64_t lora_r = 0;             ///< rank of the LoRA adapters (Hu et al. 2021); 0: train all weights
  double lora_alpha = 16;              ///< scale of the adapters: lora_alpha / lora_r
  bool use_rslora = false;             ///< scale by lora_alpha / sqrt(lora_r) instead (Kalajdzievski 2023)
  double lora_dropout = 0;             ///< dropout rate of the adapters' inputs
  std::string
      lora_target_modules;  ///< "q_proj,v_proj" (name suffixes), a pattern or "all-linear"; empty: PEFT's default
  std::string lora_modules_to_save;                ///< "lm_head": name suffixes of modules that are trained in full
  bool lora_merge = false;                         ///< also write the merged model to OUT/merged at the end
  bool load_in_4bit = false;                       ///< store the frozen weights of the blocks' linear layers in 4 bits
  bool load_in_8bit = false;                       ///< ... in 8 bits
  QuantType bnb_4bit_quant_type = QuantType::nf4;  ///< 4-bit data type
  bool bnb_4bit_use_double_quant = false;          ///< quantize the 4-bit scales to 8 bits as well
  ComputeType bnb_4bit_compute_dtype = ComputeType::automatic;  ///< compute type of products with quantized weights
  // Images (docs/vision.md); the names are LLaVA's.
  std::string vision_tower;                        ///< folder of a CLIP model whose vision encoder is used
  std::string pretrain_mm_mlp_adapter;             ///< initial weights of the projector
  std::string mm_projector_type = "linear";        ///< linear, or mlpNx_gelu
  std::int64_t mm_vision_select_layer = -1;        ///< index of the tower's hidden states to use
  std::string mm_vision_select_feature = "patch";  ///< patch: patch states only; cls_patch: with the class token
  bool tune_mm_mlp_adapter = false;                ///< train only the projector
  bool freeze_backbone = false;                    ///< freeze the language model
  bool freeze_mm_mlp_adapter = false;              ///< freeze the projector
  // Maximal update parameterization (docs/large_batches.md), for models trained from scratch; stored in their
  // config.json.
  bool use_mup = false;                   ///< transfer learning rates from a narrow model to wider ones
  std::int64_t mup_base_hidden_size = 0;  ///< width of the narrow model; 0: this model's own
  double mup_embedding_mult = 1;          ///< factor of the embeddings
  double mup_output_mult = 1;             ///< factor of the logits; 1: base width / width
  double mup_base_head_dim = 0;           ///< scores are multiplied by its square root; 0: by 1
  double mup_attn_scale_power = 1;        ///< scores are divided by the head size to this power
};

}  // namespace tessera
