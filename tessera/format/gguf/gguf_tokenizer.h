#pragma once
/// \file
/// Converts the tokenizer in a GGUF file (`tokenizer.ggml.*`, ggml/docs/gguf.md) to tokenizer.json and
/// tokenizer_config.json.

#include <string>
#include <vector>

#include <tessera/format/gguf/gguf.h>
#include <tessera/format/gguf/gguf_model.h>

namespace tessera::format {

struct GgufTokenizer {
  std::string kind;                ///< "byte-level BPE, smollm"; empty: the file has no tokenizer
  std::string json;                ///< tokenizer.json
  std::string config_json;         ///< tokenizer_config.json
  std::vector<std::string> notes;  ///< assumptions made
};

/// Supports byte-level BPE vocabularies (`tokenizer.ggml.model` gpt2) whose word splitting (`tokenizer.ggml.pre`) is
/// known; each is written as Hugging Face writes it for that family. Throws InputError for a different model
/// (SentencePiece,
/// ...) or an unknown splitting (the message lists the known ones), and for inconsistent tokens, types or merges.
GgufTokenizer read_gguf_tokenizer(const GgufFile& file, const GgufModel& model);

/// For display: "byte-level BPE (smollm)", "SentencePiece", ...; empty: the file has no tokenizer.
std::string gguf_tokenizer_kind(const GgufFile& file);

}  // namespace tessera::format
