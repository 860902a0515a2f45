#pragma once
/// \file
/// The parts of reading a config.json: what families have in common. All throw
/// InputError "file:line:column: ...".

#include <tessera/plan/model.h>

#include <cstdint>
#include <vector>

namespace tessera::plan {

/// `by` must divide `whole`; n and d are their values.
void check_divides(const Value& json, const char* whole, std::int64_t n, const char* by, std::int64_t d);

/// What a config.json may leave out, by family.
struct SizeDefaults {
  std::int64_t key_heads = 0;  ///< 0: as many as heads
  std::int64_t head_size = 0;  ///< 0: hidden / heads
  bool tied = false;
};
/// The sizes that decoders have under the same names.
void read_sizes(const Value& json, Model& model, const SizeDefaults& defaults);

/// decoder_config.cpp: the families of tessera/models/decoders, as their sources there read them.
void read_gemma(const Value& json, Model& model);  ///< gemma, gemma2, gemma3_text
void read_phi3(const Value& json, Model& model);
void read_olmo(const Value& json, Model& model);  ///< olmo, olmo2, olmo3
void read_granite(const Value& json, Model& model);
void read_smollm3(const Value& json, Model& model);
void read_squared(const Value& json, Model& model);  ///< arcee, nemotron
void read_stablelm(const Value& json, Model& model);
void read_starcoder2(const Value& json, Model& model);
void read_cohere(const Value& json, Model& model);  ///< cohere, cohere2
void read_gpt_neox(const Value& json, Model& model);
void read_phi(const Value& json, Model& model);
void read_opt(const Value& json, Model& model);
void read_megatron_gpt(const Value& json, Model& model);

/// Sizes of multi-head latent attention, as DeepSeek's config.json has them.
Latent read_latent(const Value& json);

}  // namespace tessera::plan
