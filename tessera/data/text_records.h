#pragma once
/// \file
/// Cache requests that turn files into tokens.

#include <tessera/corpus/cache/cache.h>
#include <tessera/corpus/records.h>
#include <tessera/data/dataset.h>
#include <tessera/data/examples.h>
#include <tessera/text/tokenizer.h>

#include <string>
#include <vector>

namespace tessera::data {

/// Lines of text, encoded as in run_clm.py (dataset.h). The request refers to the tokenizer.
corpus::TokenRequest lines_request(std::vector<corpus::SourceFile> sources, const text::Tokenizer& tokenizer,
                                   int threads);

/// Records as examples or pairs (examples.h), with any column names (corpus/columns.h). The request refers to the
/// tokenizer. Throws InputError when the first record cannot be used.
corpus::TokenRequest examples_request(std::vector<corpus::SourceFile> sources, const text::Tokenizer& tokenizer,
                                      const ExampleOptions& options, int threads, std::vector<std::string>& notes);

/// Identifies the tokenizer in cache keys: the bytes it was loaded from and its output for a varied probe text, so that
/// a tokenizer with a bug fixed counts as a different one.
std::string identity_of(const text::Tokenizer& tokenizer);

/// Finds or makes the tokens in `cache_dir` ("": the default folder; "none": kept private to this process, as small
/// data always is). Appends messages to `notes`.
corpus::CachedTokens open_tokens(corpus::TokenRequest request, const text::Tokenizer& tokenizer,
                                 const std::string& cache_dir, const ReadProgress& progress,
                                 std::vector<std::string>& notes);

}  // namespace tessera::data
