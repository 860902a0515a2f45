#pragma once
/// \file
/// The parts of a config.json of a model that sees images (LlavaConfig in the spelling of transformers 4 or 5).

#include <tessera/base/value.h>

#include <cstdint>
#include <string_view>

namespace tessera::architectures {

/// text_config, with the defaults of its type in transformers where the file says nothing: files that transformers
/// saved hold differences only. Throws InputError "file:line:column: ..." for decoders other than llama, mistral, qwen2
/// and qwen3.
Value decoder_config(const Value& json);

/// How many linear maps a projector of LLaVA's word "linear" or "mlpNx_gelu" has. Throws InputError for other words.
std::int64_t projections_of(std::string_view mm_projector_type);

}  // namespace tessera::architectures
