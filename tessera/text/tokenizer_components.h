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

/// NFC, NFD, Sequences of them; null.
Normalizer read_normalizer(const Value& value);

/// ByteLevel, or a Sequence of Splits and Digits (nested Sequences too) that ends with ByteLevel.
PreTokenizer read_pre_tokenizer(const Value& value);

/// What is put before and after one text.
struct PostProcessor {
  std::vector<std::int32_t> prefix, suffix;
};

/// TemplateProcessing (its template for one text), RobertaProcessing, BertProcessing, ByteLevel (does nothing to ids),
/// Sequences with at most one of the first three; null. `vocab_size`: ids must be below.
PostProcessor read_post_processor(const Value& value, std::int64_t vocab_size);

/// ByteLevel, Fuse, Sequences of them; null. None of them changes what decode() does.
void check_decoder(const Value& value);

/// Refuses `value`, a component of a kind ("normalizer") that is not among `supported` ("NFC, NFD").
[[noreturn]] void refuse_component(const Value& value, const std::string& kind, const std::string& supported);

/// Boolean member with a default (missing or null).
bool read_flag(const Value& object, std::string_view key, bool by_default);

}  // namespace tessera::text
