#pragma once
/// \file
/// The components of a tokenizer.json around its model. Each function reads one, or throws InputError
/// "file:line:column: the normalizer 'Nmt' is not supported; supported: NFC, ...".

#include <tessera/base/value.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/pre_tokenizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::text {

/// NFC, NFD, Lowercase, BertNormalizer, Sequences of them; null.
Normalizer read_normalizer(const Value& value);

/// ByteLevel, or a Sequence of Splits and Digits (nested Sequences too) that ends with ByteLevel.
PreTokenizer read_pre_tokenizer(const Value& value);

/// One place of a template: a text, or special tokens.
struct TemplatePiece {
  char text = 0;                  ///< 'A', 'B' or, for special tokens, 0
  std::vector<std::int32_t> ids;  ///< ids of special tokens
  std::int32_t type = 0;          ///< token type id
};

/// What is put around one text, and around two.
struct PostProcessor {
  std::vector<std::int32_t> prefix, suffix;  ///< what stands around the tokens of one text
  std::vector<TemplatePiece> single{{'A', {}, 0}}, pair{{'A', {}, 0}, {'B', {}, 1}};
};

/// TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel (does nothing to ids),
/// Sequences with at most one of the first three; null. `vocab_size`: ids must be below.
PostProcessor read_post_processor(const Value& value, std::int64_t vocab_size);

/// ByteLevel, Fuse, Sequences of them; null. None of them changes what decode() does.
void check_decoder(const Value& value);

/// Refuses `value`, a component of a kind ("normalizer") that is not among `supported` ("NFC, NFD").
[[noreturn]] void refuse_component(const Value& value, const std::string& kind, const std::string& supported);

/// Boolean member with a default (missing or null).
bool read_flag(const Value& object, std::string_view key, bool by_default);

}  // namespace tessera::text
