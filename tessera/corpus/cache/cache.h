#pragma once
/// \file
/// The token cache: finds the tokens of files, or creates them once for all processes and runs.
///
/// An entry matches if it was made from the same bytes with the same settings: contents matter, not names or times (see
/// source_state.h for when a file is trusted without reading it). An unfinished entry is not visible (build.h).

#include <tessera/corpus/cache/request.h>
#include <tessera/corpus/cache/tally.h>
#include <tessera/corpus/cache/token_store.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::corpus {

/// ~/.cache/tessera/tokens (or below XDG_CACHE_HOME). Throws InputError if no home folder is set.
std::string default_cache_folder();

struct CachedTokens {
  std::shared_ptr<const TokenStore> store;  ///< marks the entry as in use while it exists
  Tally tally;
  std::string entry;   ///< folder of the entry; empty: private to this process
  bool found = false;  ///< the entry existed already
};

/// Finds or creates the tokens. Any number of processes of any number of jobs may call it concurrently and share the
/// work. Throws what build_entry() throws, and InputError when a file cannot be read.
CachedTokens cached_tokens(const std::string& root, const TokenRequest& request, const CacheProgress& progress = {});

/// Creates the tokens for this process alone, in unnamed files below TMPDIR.
CachedTokens private_tokens(const TokenRequest& request, const CacheProgress& progress = {});

/// Whether entries can be created in a folder. Creates the folder if needed.
bool is_writable_cache(const std::string& root);

}  // namespace tessera::corpus
