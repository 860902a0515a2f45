#pragma once
/// \file
/// The model described by a GGUF file, parsed and checked, and the mapping of its tensors to Hugging Face tensors.
/// Metadata keys: ggml/docs/gguf.md; tensor names: gguf-py/gguf/tensor_mapping.py of llama.cpp. Hugging Face's names
/// and settings: transformers,
/// models/{llama,mistral,qwen2,qwen3,gpt2,mixtral,qwen2_moe,qwen3_moe,olmoe,gemma,gemma2,gemma3,phi3}.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/format/gguf/gguf.h>

namespace tessera::format {

/// `general.architecture`. Files of Mistral models use llama, and so do files of Mixtral models, which have experts.
enum class GgufArchitecture { llama, qwen2, qwen3, gpt2, qwen2moe, qwen3moe, olmoe, gemma, gemma2, gemma3, phi3 };

/// A mixture of experts in every layer, stored in tensors of three dimensions, [experts, out, in].
struct GgufExperts {
  std::int64_t count = 0, used = 0, intermediate = 0;
  std::int64_t shared_intermediate = 0;  ///< width of the expert that processes every token; 0: none
};

struct GgufModel {
  GgufArchitecture architecture = GgufArchitecture::llama;
  std::string prefix;  ///< prefix of the architecture's metadata keys, such as "llama."
  std::int64_t layers = 0, hidden = 0, intermediate = 0, context = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t vocab = 0;  ///< rows of the token embedding
  double norm_eps = 0;
  double rope_theta = 0;                ///< 0: the architecture has no rotary embedding
  Value rope_scaling;                   ///< as in a Hugging Face config.json (v4); null: none
  std::int64_t rotated = 0;             ///< rotated dimensions of each head
  std::int64_t sliding_window = 0;      ///< 0: none
  double score_cap = 0, logit_cap = 0;  ///< 0: none (gemma2)
  std::optional<GgufExperts> experts;
  bool tied = false;  ///< whether the output head is the token embedding
  bool attention_bias = false, mlp_bias = false;
  bool gemma() const {
    return architecture == GgufArchitecture::gemma || architecture == GgufArchitecture::gemma2 ||
           architecture == GgufArchitecture::gemma3;
  }
  /// Whether there are norms both before and after attention and MLP.
  bool norms_after() const { return gemma() && architecture != GgufArchitecture::gemma; }
  std::optional<std::int64_t> bos, eos, eot, eom, pad, unk;  ///< token ids
};

/// Throws InputError for an unknown architecture (the supported ones are listed), a missing or invalid number, a
/// setting that changes the computation but is not supported by Hugging Face's class of the architecture, and a part of
/// a split file.
GgufModel read_gguf_model(const GgufFile& file);

/// The rotary embedding's scaling as config.json's rope_scaling, from `PREFIX.rope.scaling.*` and, for Llama-3, from
/// the factors in the tensor rope_freqs.weight, for Phi-3 from rope_factors_{short,long}.weight. Null: none. Throws
/// InputError for unsupported types.
Value read_rope_scaling(const GgufFile& file, const GgufModel& model);

/// config.json; `dtype` is transformers' name of the weights' type ("float32").
Value hf_config(const GgufModel& model, const std::string& dtype);
Value hf_generation_config(const GgufModel& model);

/// How to reorder the rows of a tensor.
enum class GgufRearrange {
  none,
  transpose,          ///< GPT-2: Hugging Face's Conv1D stores [in, out], GGUF [out, in]
  undo_interleaving,  ///< llama's q and k: GGUF rotates rows 2i and 2i + 1 of a head, Hugging Face i and i + D/2
};

struct HfTensor {
  std::string name;                 ///< in Hugging Face's naming
  std::vector<std::int64_t> shape;  ///< in Hugging Face's layout
  const GgufTensor* source = nullptr;
  GgufRearrange rearrange = GgufRearrange::none;
  std::int64_t heads = 0;            ///< for undo_interleaving
  std::int64_t part = 0, parts = 1;  ///< index and number of equal slices of the source along its first dimension
  float offset = 0;                  ///< added to every value: GGUF stores Gemma's norms with 1 added

  std::int64_t elements() const { return source->elements() / parts; }
};

/// Every tensor of the model. Missing, unexpected, wrongly shaped and unsupported tensors are all listed in one
/// InputError. The results point into `file`.
std::vector<HfTensor> hf_tensors(const GgufFile& file, const GgufModel& model);

}  // namespace tessera::format
