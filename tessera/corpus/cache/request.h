#pragma once
/// \file
/// A request to the cache: the files, and how to tokenize them.

#include <tessera/base/value.h>
#include <tessera/corpus/records.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// The result of encoding a record.
struct EncodedRecord {
  std::vector<std::int32_t> ids;
  std::vector<bool> scored;                       ///< for examples: one flag per id
  std::uint64_t text_bytes = 0, text_tokens = 0;  ///< tokens in the record's texts before truncation
  bool cut = false;                               ///< it was truncated
  bool ill_formed = false;                        ///< the text was not valid UTF-8
  std::string kind;                               ///< e.g. "messages"; all records of a request must have the same kind
  std::vector<std::string> unused_fields;
  std::string left_out;  ///< reason why it has no tokens (LeftOut's text); empty: it has some
  std::string remark;    ///< a warning, with the same text for all records with the same problem
};

/// Throws InputError, with the record's position, for an unusable record. Called by several threads at once.
using EncodeRecord = std::function<void(const Value& record, EncodedRecord& out)>;
/// The same for a line of text with its '\n', which does not need a Value.
using EncodeLine = std::function<void(std::string_view line, EncodedRecord& out)>;

/// Called with the number of source bytes tokenized so far, from the calling thread, a few times a second.
using CacheProgress = std::function<void(std::uint64_t done, std::uint64_t of)>;

struct TokenRequest {
  std::vector<SourceFile> sources;   ///< in order; at least one
  bool examples = false;             ///< keeps records separate, with scored flags; otherwise creates one stream of ids
  int width = 4;                     ///< bytes per token: 2 if all ids are below 65536
  std::string settings;              ///< everything besides the contents that ids and marks depend on; part of the key
  std::vector<std::string> columns;  ///< columns that encode() reads; empty: all
  EncodeRecord encode;               ///< for text files: encode_line instead
  EncodeLine encode_line;
  int threads = 1;  ///< in this process
};

}  // namespace tessera::corpus
