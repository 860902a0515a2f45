#pragma once
/// \file
/// What is known of records that became tokens: for the log, and for checks that need not read the tokens.

#include <tessera/base/value.h>
#include <tessera/corpus/cache/request.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tessera::corpus {

/// So many records, and the place of the first.
struct Finding {
  std::int64_t count = 0;
  std::string place;
};
using Findings = std::map<std::string, Finding>;  ///< by what is said of them

struct Tally {
  std::int64_t tokens = 0, records = 0;  ///< that were kept
  std::int64_t scored = 0;               ///< in examples: scored tokens at positions >= 1
  std::int64_t cut = 0, dropped = 0;     ///< examples: longer than they may be; without a scored token
  std::int64_t longest = 0;              ///< tokens of the longest example
  std::int64_t largest_id = -1;
  std::uint64_t text_bytes = 0, text_tokens = 0;
  bool ill_formed = false;       ///< some text is no valid UTF-8
  std::string kind, kind_place;  ///< what the first record is, and where that stands
  std::set<std::string> unused_fields;
  Findings left_out, remarks;

  void add(const EncodedRecord& record);
  /// Takes in what stands behind.
  void add(const Tally& next);
  std::int64_t all_left_out() const;
};

Value to_json(const Tally& tally);
Tally tally_from_json(const Value& value);

/// "FILE:5:1: holds messages, but FILE:1:1 holds text: a file has examples of one kind".
std::string mixed_kinds(const std::string& place, const std::string& kind, const Tally& before);

}  // namespace tessera::corpus
