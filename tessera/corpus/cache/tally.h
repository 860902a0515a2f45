#pragma once
/// \file
/// Statistics of tokenized records, for the log and for checks that do not need the tokens.

#include <tessera/base/value.h>
#include <tessera/corpus/cache/request.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tessera::corpus {

/// The number of records with the same finding, and the place of the first one.
struct Finding {
  std::int64_t count = 0;
  std::string place;
};
using Findings = std::map<std::string, Finding>;  ///< keyed by the finding's text

struct Tally {
  std::int64_t tokens = 0, records = 0;  ///< in the kept records only
  std::int64_t scored = 0;               ///< in examples: scored tokens at positions >= 1
  std::int64_t cut = 0, dropped = 0;     ///< examples: number of truncated ones, and of those without a scored token
  std::int64_t longest = 0;              ///< tokens of the longest example
  std::int64_t largest_id = -1;
  std::uint64_t text_bytes = 0, text_tokens = 0;
  bool ill_formed = false;       ///< at least one text is not valid UTF-8
  std::string kind, kind_place;  ///< kind and place of the first record
  std::set<std::string> unused_fields;
  Findings left_out, remarks;

  void add(const EncodedRecord& record);
  /// Adds the statistics of the subsequent records.
  void add(const Tally& next);
  std::int64_t all_left_out() const;
};

Value to_json(const Tally& tally);
Tally tally_from_json(const Value& value);

/// "FILE:5:1: contains messages, but FILE:1:1 contains text: all examples of a file must be of one kind".
std::string mixed_kinds(const std::string& place, const std::string& kind, const Tally& before);

}  // namespace tessera::corpus
