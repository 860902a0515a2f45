#pragma once
/// \file
/// The table of families: each file in families/ defines its entries; messages list the families in this order.

#include <tessera/architectures/architecture.h>

namespace tessera::architectures {

extern const Architecture gpt2, llama, mistral, qwen2, qwen3, qwen2_moe, qwen3_moe, mixtral, olmoe, deepseek_v3;
extern const Architecture gemma, gemma2, gemma3_text, phi, phi3, olmo, olmo2, olmo3, granite, smollm3, arcee, nemotron;
extern const Architecture stablelm, starcoder2, cohere, cohere2, gpt_neox, opt, megatron_gpt, llava, bert;
extern const Architecture bert_classifier, helium, ernie4_5;

inline constexpr const Architecture* families[] = {
    &gpt2,        &llama,  &mistral,  &qwen2,        &qwen3,      &mixtral, &qwen2_moe,      &qwen3_moe, &olmoe,
    &deepseek_v3, &gemma,  &gemma2,   &gemma3_text,  &phi3,       &olmo,    &olmo2,          &olmo3,     &granite,
    &smollm3,     &arcee,  &nemotron, &stablelm,     &starcoder2, &cohere,  &cohere2,        &gpt_neox,  &phi,
    &opt,         &helium, &ernie4_5, &megatron_gpt, &llava,      &bert,    &bert_classifier};

}  // namespace tessera::architectures
