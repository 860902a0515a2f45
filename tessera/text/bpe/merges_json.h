#pragma once
/// \file
/// The `merges` of a tokenizer.json: pairs of tokens by rank, as ["a", "b"] or, in older files, as "a b".

#include <tessera/base/error.h>
#include <tessera/base/value.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

namespace tessera::text {

/// Calls merge(left, right, value) for each pair. Throws InputError for an entry that is not a pair.
void for_each_merge(const Value& list, const std::function<void(std::string, std::string, const Value&)>& merge);

/// The id of a token that a merge needs. Throws InputError if it is not in the vocabulary.
inline std::int32_t merge_token(const std::string& spelling, const std::unordered_map<std::string, std::int32_t>& ids,
                                const Value& at) {
  const auto found = ids.find(spelling);
  if (found == ids.end())
    throw InputError(
        concat(at.where().str(), ": the merge needs the token \"", spelling, "\", which is not in the vocabulary"));
  return found->second;
}

}  // namespace tessera::text
