#pragma once
/// \file
/// Pairs of answers for preference losses, from files with records
///
///   {"prompt": "...", "chosen": "...", "rejected": "..."}
///   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
///
/// (corpus/columns.h lists the other forms that are converted to these.)
///
/// A pair is one sample: a dataset of pairs has one row per pair, containing both examples (prompt and answer) as two
/// consecutive documents; as_pairs() gives each example a row of its own, chosen and rejected adjacent. All tokens of
/// an answer are scored. Answers end like a completion or an assistant's turn (examples.h).

#include <tessera/corpus/cache/request.h>
#include <tessera/data/examples.h>

#include <cstdint>
#include <memory>

namespace tessera::data {

/// Encodes a record's two examples one after the other: each has at most options.max_length tokens and keeps at most
/// the last options.max_prompt_length tokens of its prompt. The first token of each is not scored, since nothing
/// predicts it. If either answer has no scored token left, no token of the pair is scored (and the pair is left out).
/// Throws InputError with file:line:column, and corpus::LeftOut for an empty answer. Any number of threads may call it.
void encode_pair(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                 corpus::EncodedRecord& out);

/// Records [first, first + count) of pairs as rows of two documents. max_length() is that of one example.
std::shared_ptr<const Dataset> pair_rows(std::shared_ptr<const ExampleSource> pairs, std::int64_t first,
                                         std::int64_t count, std::int64_t max_length);

/// Splits a batch of such rows [n, T] into one of 2 n rows with one example each: 2 i is the chosen answer of pair i, 2
/// i + 1 the rejected one. Its counts are those of pairs: scored_tokens and labels_not_ignored are n, so that a mean
/// over them is a mean over pairs.
Batch as_pairs(const Batch& batch);

}  // namespace tessera::data
