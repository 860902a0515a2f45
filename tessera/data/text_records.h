#pragma once
/// \file
/// Files to tokens through the cache: what a request for them says.

#include <tessera/corpus/cache/cache.h>
#include <tessera/corpus/records.h>
#include <tessera/data/dataset.h>
#include <tessera/data/examples.h>
#include <tessera/text/tokenizer.h>

#include <string>
#include <vector>

namespace tessera::data {

/// Lines of text as run_clm.py encodes them (dataset.h). The request refers to the tokenizer.
corpus::TokenRequest lines_request(std::vector<corpus::SourceFile> sources, const text::Tokenizer& tokenizer,
                                   int threads);

/// Records as examples or pairs (examples.h), whatever their columns are called (corpus/columns.h). The request refers
/// to the tokenizer. Throws InputError when the first record cannot be used.
corpus::TokenRequest examples_request(std::vector<corpus::SourceFile> sources, const text::Tokenizer& tokenizer,
                                      const ExampleOptions& options, int threads, std::vector<std::string>& notes);

/// What ids depend on beside the text: the bytes that the tokenizer was loaded from, and what it makes of a text that
/// has a little of everything, so that a corrected tokenizer is another one.
std::string identity_of(const text::Tokenizer& tokenizer);

/// Finds the tokens or makes them: in `cache_dir` ("": the usual folder; "none": privately, as what is small always
/// is). Adds what there is to say.
corpus::CachedTokens open_tokens(corpus::TokenRequest request, const text::Tokenizer& tokenizer,
                                 const std::string& cache_dir, const ReadProgress& progress,
                                 std::vector<std::string>& notes);

}  // namespace tessera::data
