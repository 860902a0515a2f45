#pragma once
/// \file
/// Rows of tokens stored in the cache (corpus/cache/cache.h) or in a private folder with the same layout.

#include <tessera/corpus/cache/token_store.h>
#include <tessera/data/dataset.h>
#include <tessera/data/examples.h>

#include <memory>
#include <string>

namespace tessera::data {

/// Blocks of a stream of text. `documents`: source files that share a block do not attend to each other. Throws
/// InputError, naming `source`, for fewer tokens than one block.
std::shared_ptr<const Dataset> stored_blocks(std::shared_ptr<const corpus::TokenStore> store, std::int64_t block_size,
                                             bool documents, const std::string& source);

/// The store's records as examples; `longest`: tokens of the longest record.
std::shared_ptr<const ExampleSource> stored_examples(std::shared_ptr<const corpus::TokenStore> store,
                                                     std::int64_t longest);

}  // namespace tessera::data
