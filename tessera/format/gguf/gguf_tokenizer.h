#pragma once
/// \file
/// The tokenizer in a GGUF file (`tokenizer.ggml.*`, ggml/docs/gguf.md) as tokenizer.json and tokenizer_config.json.

#include <string>
#include <vector>

#include <tessera/format/gguf/gguf.h>
#include <tessera/format/gguf/gguf_model.h>

namespace tessera::format {

struct GgufTokenizer {
  std::string kind;                ///< "byte-level BPE, smollm"; empty: the file has none
  std::string json;                ///< tokenizer.json
  std::string config_json;         ///< tokenizer_config.json
  std::vector<std::string> notes;  ///< what was assumed
};

/// Byte-level BPE vocabularies (`tokenizer.ggml.model` gpt2) whose word splitting (`tokenizer.ggml.pre`) is one of the
/// known ones, each written as Hugging Face has it for that family. Throws InputError: another model (SentencePiece,
/// ...) or splitting (the known ones are listed), inconsistent tokens, types or merges.
GgufTokenizer read_gguf_tokenizer(const GgufFile& file, const GgufModel& model);

/// "byte-level BPE (smollm)", "SentencePiece", ...: for people; empty: the file has none.
std::string gguf_tokenizer_kind(const GgufFile& file);

}  // namespace tessera::format
