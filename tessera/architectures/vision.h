#pragma once
/// \file
/// The parts of a vision-language model's config.json (LlavaConfig in the form of transformers 4 or 5).

#include <tessera/base/value.h>

#include <cstdint>
#include <string_view>

namespace tessera::architectures {

/// text_config, completed with its type's defaults in transformers, since files saved by transformers contain only
/// differences. Throws InputError "file:line:column: ..." for decoders other than llama, mistral, qwen2 and qwen3.
Value decoder_config(const Value& json);

/// Number of linear maps of LLaVA's projector type "linear" or "mlpNx_gelu". Throws InputError for other words.
std::int64_t projections_of(std::string_view mm_projector_type);

}  // namespace tessera::architectures
