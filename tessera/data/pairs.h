#pragma once
/// \file
/// Pairs of answers for preference losses, from files whose records are
///
///   {"prompt": "...", "chosen": "...", "rejected": "..."}
///   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
///
/// (corpus/columns.h says what else becomes these.)
///
/// A pair is one sample: a dataset of pairs has one row for each, in which both examples, prompt and answer, follow one
/// another as two documents; as_pairs() gives each a row of its own, chosen and rejected side by side. The answer's
/// tokens are scored, all of them. They end as those of a completion or of the assistant's turn do (examples.h).

#include <tessera/corpus/cache/request.h>
#include <tessera/data/examples.h>

#include <cstdint>
#include <memory>

namespace tessera::data {

/// The ids of a record's two examples one after the other, each at most options.max_length tokens, its prompt at most
/// the last options.max_prompt_length. The first token of each is not scored, since nothing predicts it. A pair of
/// which an answer has no scored token left has none at all (and is left out). Throws InputError with file:line:column,
/// and corpus::LeftOut where an answer is empty. Any number of threads may call it.
void encode_pair(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                 corpus::EncodedRecord& out);

/// Such records [first, first + count) as rows of two documents. max_length() is that of one example.
std::shared_ptr<const Dataset> pair_rows(std::shared_ptr<const ExampleSource> pairs, std::int64_t first,
                                         std::int64_t count, std::int64_t max_length);

/// A batch of such rows [n, T] as one of 2 n rows, one example in each: 2 i the chosen answer of pair i, 2 i + 1 the
/// rejected one. It counts pairs: scored_tokens and labels_not_ignored are n, so that a mean over them is one over
/// pairs.
Batch as_pairs(const Batch& batch);

}  // namespace tessera::data
