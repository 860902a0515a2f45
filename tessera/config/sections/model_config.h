#pragma once
/// \file
/// Section "model" of a run's settings.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>

namespace tessera {

/// The model, its tokenizer, LoRA and what frozen weights are kept as.
struct ModelConfig {
  std::string model_name_or_path;      ///< Hugging Face folder to start from; empty: from scratch
  std::string config_name;             ///< config.json, or a preset (gpt2, gpt2-tiny): from scratch
  std::string config_overrides;        ///< "n_layer=4,n_embd=256", only with config_name
  std::string ref_model_name_or_path;  ///< reference of preference losses; empty: the model as it is at the start
  std::string tokenizer_name;  ///< folder or tokenizer.json; "byte" needs no file; empty: model folder's, else byte
  std::int64_t lora_r = 0;     ///< rank of the LoRA adapters (Hu et al. 2021); 0: train all weights
  double lora_alpha = 16;      ///< adapters are scaled by lora_alpha / lora_r
  bool use_rslora = false;     ///< or by lora_alpha / sqrt(lora_r) (Kalajdzievski 2023)
  double lora_dropout = 0;     ///< share of the adapters' inputs that is dropped in training
  std::string
      lora_target_modules;  ///< "q_proj,v_proj" (ends of names), a pattern or "all-linear"; empty: PEFT's for the model
  std::string lora_modules_to_save;  ///< "lm_head": ends of names of modules that are trained whole beside them
  bool lora_merge = false;           ///< at the end, also the merged model in OUT/merged
  bool load_in_4bit = false;         ///< the frozen weights of the blocks' linear maps take four bits each
  bool load_in_8bit = false;         ///< or eight
  QuantType bnb_4bit_quant_type = QuantType::nf4;  ///< four bits: which numbers they stand for
  bool bnb_4bit_use_double_quant = false;          ///< four bits: the scales of their blocks take eight bits each
  ComputeType bnb_4bit_compute_dtype = ComputeType::automatic;  ///< what products with them compute in
  // Images (docs/vision.md); the names are LLaVA's.
  std::string vision_tower;                  ///< folder of CLIP, whose vision part the language model gets
  std::string pretrain_mm_mlp_adapter;       ///< weights that the projector begins with
  std::string mm_projector_type = "linear";  ///< linear, or mlpNx_gelu
  std::int64_t mm_vision_select_layer = -1;  ///< hidden states of the tower that are taken
  std::string mm_vision_select_feature =
      "patch";                         ///< patch: states of patches alone; cls_patch: the class token's, too
  bool tune_mm_mlp_adapter = false;    ///< the projector alone is trained
  bool freeze_backbone = false;        ///< the language model is not trained
  bool freeze_mm_mlp_adapter = false;  ///< the projector is not trained
  // Maximal update parameterization (docs/large_batches.md); of models from scratch, whose config.json gets them.
  bool use_mup = false;                   ///< learning rates found for a narrow model hold for wider ones
  std::int64_t mup_base_hidden_size = 0;  ///< width of the narrow one; 0: this model's own
  double mup_embedding_mult = 1;          ///< factor of the embeddings
  double mup_output_mult = 1;             ///< factor of the logits; 1: base width / width
  double mup_base_head_dim = 0;           ///< scores are multiplied by the root of this; 0: by 1
  double mup_attn_scale_power = 1;        ///< and divided by the size of a head to this power
};

}  // namespace tessera
