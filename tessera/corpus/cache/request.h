#pragma once
/// \file
/// What a cache is asked for: which files, and how they become tokens.

#include <tessera/base/value.h>
#include <tessera/corpus/records.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// What a record became.
struct EncodedRecord {
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;                       ///< for examples: one for each id
  std::uint64_t text_bytes = 0, text_tokens = 0;  ///< counted in its texts, before it was cut
  bool cut = false;                               ///< it was longer
  bool ill_formed = false;                        ///< it was no valid UTF-8
  std::string kind;                               ///< all records of one request must have the same: "messages"
  std::vector<std::string> unused_fields;
  std::string left_out;  ///< why there are no tokens, as LeftOut says it; empty: there are
  std::string remark;    ///< what there is to say, the same words for all records of a kind
};

/// Throws InputError, with the record's position, for one that cannot be used. Called by several threads at once.
using EncodeRecord = std::function<void(const Value& record, EncodedRecord& out)>;
/// The same for a line of text with its '\n', which needs no Value.
using EncodeLine = std::function<void(std::string_view line, EncodedRecord& out)>;

/// Told how many of the sources' bytes have become tokens, from the calling thread, a few times a second.
using CacheProgress = std::function<void(std::uint64_t done, std::uint64_t of)>;

struct TokenRequest {
  std::vector<SourceFile> sources;   ///< in order; at least one
  bool examples = false;             ///< records are kept apart, with marks; else the ids of all are one stream
  int width = 4;                     ///< bytes of a token: 2 where all ids are below 65536
  std::string settings;              ///< all that ids and marks depend on beside the contents: a part of the key
  std::vector<std::string> columns;  ///< that encode() looks at; empty: all
  EncodeRecord encode;               ///< for files of text: encode_line
  EncodeLine encode_line;
  int threads = 1;  ///< in this process
};

}  // namespace tessera::corpus
