#pragma once
/// \file
/// The cache of tokens: asked for the tokens of files, it finds them or makes them, once for all processes and runs.
///
/// What is found was made of the same bytes with the same settings: contents count, not names or times (source_state.h
/// says when a file is trusted without reading it). What a run does not finish is not there (build.h).

#include <tessera/corpus/cache/request.h>
#include <tessera/corpus/cache/tally.h>
#include <tessera/corpus/cache/token_store.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::corpus {

/// ~/.cache/tessera/tokens (or below XDG_CACHE_HOME). Throws InputError without a home.
std::string default_cache_folder();

struct CachedTokens {
  std::shared_ptr<const TokenStore> store;  ///< holds the entry in use until it is dropped
  Tally tally;
  std::string entry;   ///< folder of the entry; empty: private
  bool found = false;  ///< nothing was made
};

/// Finds or makes. Any number of processes may call it at once, of any number of jobs: they share the work. Throws what
/// build_entry() throws, and InputError where a file cannot be read.
CachedTokens cached_tokens(const std::string& root, const TokenRequest& request, const CacheProgress& progress = {});

/// Makes them for this process alone, in files below TMPDIR whose names are removed before it returns.
CachedTokens private_tokens(const TokenRequest& request, const CacheProgress& progress = {});

/// Whether entries can be made in a folder, which is created if need be.
bool is_writable_cache(const std::string& root);

}  // namespace tessera::corpus
