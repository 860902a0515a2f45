#pragma once
/// \file
/// The components of a tokenizer.json around its model. Each function reads one, or throws InputError
/// "file:line:column: the normalizer 'Odd' is not supported; supported: NFC, ...".

#include <tessera/base/value.h>
#include <tessera/text/normalizer.h>
#include <tessera/text/post_processor.h>
#include <tessera/text/pre_tokenizer.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::text {

/// Every normalizer of Hugging Face `tokenizers` (docs/tokenizers.md); null.
Normalizer read_normalizer(const Value& value);

/// The members of a Replace, of normalizers and of decoders.
ReplaceStep read_replace(const Value& value);

/// A Split, Digits or Punctuation, ... behavior.
SplitBehavior read_behavior(const Value& value);
SplitStep read_split(const Value& value);
SplitStep read_digits(const Value& value);

/// The one character that a text must hold.
const std::string& read_character(const Value& value);

/// Whether a pre_tokenizer is ByteLevel, or a Sequence of Splits and Digits (nested Sequences too) that ends with
/// ByteLevel: what read_pre_tokenizer() takes. (All of them: pipeline/pipeline_json.h.)
bool is_byte_level_pre_tokenizer(const Value& value);
PreTokenizer read_pre_tokenizer(const Value& value);

/// TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel (does nothing to ids),
/// Sequences with at most one of the first three; null. `vocab_size`: ids must be below.
PostProcessor read_post_processor(const Value& value, std::int64_t vocab_size);

/// Whether a decoder is ByteLevel, Fuse, a Sequence of them, or null: what byte-level BPE's decode() does.
bool is_byte_level_decoder(const Value& value);

/// Refuses `value`, a component of a kind ("normalizer") that is not among `supported` ("NFC, NFD").
[[noreturn]] void refuse_component(const Value& value, const std::string& kind, const std::string& supported);

/// Boolean member with a default (missing or null).
bool read_flag(const Value& object, std::string_view key, bool by_default);

}  // namespace tessera::text
