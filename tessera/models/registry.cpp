#include <tessera/models/registry.h>

#include <tessera/base/error.h>
#include <tessera/models/bert/bert.h>
#include <tessera/models/decoders/cohere.h>
#include <tessera/models/decoders/dense_decoders.h>
#include <tessera/models/decoders/gemma.h>
#include <tessera/models/decoders/gpt_neox.h>
#include <tessera/models/decoders/megatron_gpt.h>
#include <tessera/models/decoders/olmo.h>
#include <tessera/models/decoders/opt.h>
#include <tessera/models/decoders/phi.h>
#include <tessera/models/decoders/phi3.h>
#include <tessera/models/gpt2.h>
#include <tessera/models/llama.h>
#include <tessera/models/vision/llava.h>

#include <algorithm>
#include <iterator>

namespace tessera::models {
namespace {

template <class Model>
std::shared_ptr<LanguageModel> make(const Value& hf_config, std::optional<std::uint64_t> seed) {
  return std::make_shared<Model>(hf_config, seed);
}

/// A family that is Llama's modules by other values.
template <LlamaConfig (*read)(const Value& json)>
std::shared_ptr<LanguageModel> make_decoder(const Value& hf_config, std::optional<std::uint64_t> seed) {
  return std::make_shared<Llama>(hf_config, read, seed);
}

using Kind = data::Objective::Kind;

constexpr Architecture architectures[] = {
    {"gpt2", "GPT2LMHeadModel", make<Gpt2>, gpt2_tensor_name, "transformer.wte.weight", "GPT2Block", "Gpt2Block"},
    {"llama", "LlamaForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight", "LlamaDecoderLayer",
     "LlamaDecoderLayer"},
    {"mistral", "MistralForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight",
     "MistralDecoderLayer", "LlamaDecoderLayer"},
    {"qwen2", "Qwen2ForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight", "Qwen2DecoderLayer",
     "LlamaDecoderLayer"},
    {"qwen3", "Qwen3ForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight", "Qwen3DecoderLayer",
     "LlamaDecoderLayer"},
    {"mixtral", "MixtralForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight",
     "MixtralDecoderLayer", "LlamaDecoderLayer"},
    {"qwen2_moe", "Qwen2MoeForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight",
     "Qwen2MoeDecoderLayer", "LlamaDecoderLayer"},
    {"qwen3_moe", "Qwen3MoeForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight",
     "Qwen3MoeDecoderLayer", "LlamaDecoderLayer"},
    {"olmoe", "OlmoeForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight", "OlmoeDecoderLayer",
     "LlamaDecoderLayer"},
    {"deepseek_v3", "DeepseekV3ForCausalLM", make<Llama>, llama_tensor_name, "model.embed_tokens.weight",
     "DeepseekV3DecoderLayer", "LlamaDecoderLayer"},
    {"gemma", "GemmaForCausalLM", make_decoder<parse_gemma_config>, tied_tensor_name, "model.embed_tokens.weight",
     "GemmaDecoderLayer", "LlamaDecoderLayer"},
    {"gemma2", "Gemma2ForCausalLM", make_decoder<parse_gemma2_config>, tied_tensor_name, "model.embed_tokens.weight",
     "Gemma2DecoderLayer", "LlamaDecoderLayer"},
    {"gemma3_text", "Gemma3ForCausalLM", make_decoder<parse_gemma3_config>, tied_tensor_name,
     "model.embed_tokens.weight", "Gemma3DecoderLayer", "LlamaDecoderLayer"},
    {"phi3", "Phi3ForCausalLM", make_decoder<parse_phi3_config>, llama_tensor_name, "model.embed_tokens.weight",
     "Phi3DecoderLayer", "LlamaDecoderLayer"},
    {"olmo", "OlmoForCausalLM", make_decoder<parse_olmo_config>, llama_tensor_name, "model.embed_tokens.weight",
     "OlmoDecoderLayer", "LlamaDecoderLayer"},
    {"olmo2", "Olmo2ForCausalLM", make_decoder<parse_olmo2_config>, llama_tensor_name, "model.embed_tokens.weight",
     "Olmo2DecoderLayer", "LlamaDecoderLayer"},
    {"olmo3", "Olmo3ForCausalLM", make_decoder<parse_olmo3_config>, llama_tensor_name, "model.embed_tokens.weight",
     "Olmo3DecoderLayer", "LlamaDecoderLayer"},
    {"granite", "GraniteForCausalLM", make_decoder<parse_granite_config>, llama_tensor_name,
     "model.embed_tokens.weight", "GraniteDecoderLayer", "LlamaDecoderLayer"},
    {"smollm3", "SmolLM3ForCausalLM", make_decoder<parse_smollm3_config>, tied_tensor_name, "model.embed_tokens.weight",
     "SmolLM3DecoderLayer", "LlamaDecoderLayer"},
    {"arcee", "ArceeForCausalLM", make_decoder<parse_arcee_config>, llama_tensor_name, "model.embed_tokens.weight",
     "ArceeDecoderLayer", "LlamaDecoderLayer"},
    {"nemotron", "NemotronForCausalLM", make_decoder<parse_nemotron_config>, llama_tensor_name,
     "model.embed_tokens.weight", "NemotronDecoderLayer", "LlamaDecoderLayer"},
    {"stablelm", "StableLmForCausalLM", make_decoder<parse_stablelm_config>, llama_tensor_name,
     "model.embed_tokens.weight", "StableLmDecoderLayer", "LlamaDecoderLayer"},
    {"starcoder2", "Starcoder2ForCausalLM", make_decoder<parse_starcoder2_config>, tied_tensor_name,
     "model.embed_tokens.weight", "Starcoder2DecoderLayer", "LlamaDecoderLayer"},
    {"cohere", "CohereForCausalLM", make_decoder<parse_cohere_config>, tied_tensor_name, "model.embed_tokens.weight",
     "CohereDecoderLayer", "LlamaDecoderLayer"},
    {"cohere2", "Cohere2ForCausalLM", make_decoder<parse_cohere2_config>, tied_tensor_name, "model.embed_tokens.weight",
     "Cohere2DecoderLayer", "LlamaDecoderLayer"},
    {"gpt_neox", "GPTNeoXForCausalLM", make_decoder<parse_gpt_neox_config>, gpt_neox_tensor_name,
     "gpt_neox.embed_in.weight", "GPTNeoXLayer", "LlamaDecoderLayer"},
    {"phi", "PhiForCausalLM", make_decoder<parse_phi_config>, llama_tensor_name, "model.embed_tokens.weight",
     "PhiDecoderLayer", "LlamaDecoderLayer"},
    {"opt", "OPTForCausalLM", make_decoder<parse_opt_config>, opt_tensor_name, "model.decoder.embed_tokens.weight",
     "OPTDecoderLayer", "LlamaDecoderLayer"},
    {"megatron_gpt", "MegatronGptForCausalLM", make_decoder<parse_megatron_gpt_config>, tied_tensor_name,
     "model.embed_tokens.weight", "MegatronGptDecoderLayer", "LlamaDecoderLayer"},
    {"llava", "LlavaForConditionalGeneration", make<Llava>, llava_tensor_name,
     "language_model.model.embed_tokens.weight", "LlamaDecoderLayer", "LlamaDecoderLayer"},
    {"bert", "BertForMaskedLM", make<BertForMaskedLM>, bert_tensor_name, "bert.embeddings.word_embeddings.weight",
     "BertLayer", "BertLayer", Kind::masked_token, is_bert_head},
    {"bert", "BertForSequenceClassification", make<BertForSequenceClassification>, bert_tensor_name,
     "bert.embeddings.word_embeddings.weight", "BertLayer", "BertLayer", Kind::row_class, is_bert_head},
};

}  // namespace

const Architecture& architecture_of(const Value& hf_config) {
  if (!hf_config.is_object())
    throw InputError(concat(hf_config.where().str(), ": a model configuration must be a JSON object"));
  const Value* type = hf_config.find("model_type");
  const Value* classes = hf_config.find("architectures");
  const Value* first = classes && classes->is_array() && !classes->items().empty() ? &classes->items()[0] : nullptr;
  const Value* found = type ? type : first;
  const Architecture* of_type = nullptr;
  std::string known;
  for (const Architecture& a : architectures) {
    const bool same_class = first && first->is_string() && first->as_string() == a.architecture;
    const bool same_type = type && type->as_string() == a.model_type;
    if (same_class && (same_type || !type)) return a;
    if (same_type && !of_type) of_type = &a;
    if (!known.ends_with(a.model_type)) known += concat(known.empty() ? "" : ", ", a.model_type);
  }
  if (of_type) return *of_type;
  if (!found)
    throw InputError(
        concat(hf_config.where().str(), ": neither model_type nor architectures is given; known model types: ", known));
  throw InputError(
      concat(found->where().str(), ": model type \"", found->as_string(), "\" is not supported; known: ", known));
}

const Architecture* architecture_for(std::string_view model_type, data::Objective::Kind objective) {
  const auto found = std::find_if(std::begin(architectures), std::end(architectures), [&](const Architecture& a) {
    return model_type == a.model_type && objective == a.objective;
  });
  return found == std::end(architectures) ? nullptr : found;
}

std::vector<std::pair<std::string, std::string>> block_class_aliases() {
  std::vector<std::pair<std::string, std::string>> aliases;
  for (const Architecture& a : architectures)
    if (std::string_view(a.hf_block) != a.block) aliases.emplace_back(a.hf_block, a.block);
  return aliases;
}

}  // namespace tessera::models
