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

/// Supports every normalizer of Hugging Face `tokenizers` (docs/tokenizers.md), and null.
Normalizer read_normalizer(const Value& value);

/// Reads the members of a Replace, for normalizers and decoders.
ReplaceStep read_replace(const Value& value);

/// Reads the behavior of a Split, Digits, Punctuation, ...
SplitBehavior read_behavior(const Value& value);
SplitStep read_split(const Value& value);
SplitStep read_digits(const Value& value);

/// Returns a text that must be exactly one character.
const std::string& read_character(const Value& value);

/// Whether a pre_tokenizer is ByteLevel, or a Sequence of Splits and Digits (nested Sequences too) that ends with
/// ByteLevel, i.e. read_pre_tokenizer() supports it. (For all others see pipeline/pipeline_json.h.)
bool is_byte_level_pre_tokenizer(const Value& value);
PreTokenizer read_pre_tokenizer(const Value& value);

/// Supports TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel (which does not change ids), Sequences
/// with at most one of the first three, and null. `vocab_size`: ids must be below it.
PostProcessor read_post_processor(const Value& value, std::int64_t vocab_size);

/// Whether a decoder is ByteLevel, Fuse, a Sequence of them, or null, i.e. what byte-level BPE's decode() implements.
bool is_byte_level_decoder(const Value& value);

/// Throws for `value`, a component of a kind ("normalizer") that is not among `supported` ("NFC, NFD").
[[noreturn]] void refuse_component(const Value& value, const std::string& kind, const std::string& supported);

/// Reads a boolean member with a default (if missing or null).
bool read_flag(const Value& object, std::string_view key, bool by_default);

}  // namespace tessera::text
