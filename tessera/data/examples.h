#pragma once
/// \file
/// Examples for fine-tuning, from files whose records all have the same form (fields in any order):
///
///   {"text": "..."}                                   everything is scored
///   {"prompt": "...", "completion": "..."}            the completion and the end of the text are scored
///   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
///                                                     formatted by the chat template (text/chat_template.h);
///                                                     the assistant's messages are scored
///
/// Besides "messages", "tools" and "documents" (lists, or JSON texts of lists) are passed to the template.
///
/// An example is one document: the tokenizer's prefix (e.g. a beginning-of-text token), the text, the tokenizer's
/// suffix, and an end token if it has one: end of text after a text, end of turn after a completion. A conversation
/// formatted by a model's own template gets its beginning and ends from the template. Prompt and completion are
/// tokenized separately, so that they are separated at the point where generation will begin. Longer examples are
/// truncated at the end; those left without a scored token are dropped. Other fields of a record are ignored and
/// reported once.
///
/// (run_clm.py concatenates the texts of all lines and cuts blocks. To train on such blocks, make them with
/// `tessera tokenize --append_eod` and train on the .bin.)

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/dataset.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/tokenizer.h>

namespace tessera::data {

/// Tokens of many examples, with a flag for each token that specifies whether it is scored. Immutable: any number of
/// threads may read.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t length(std::int64_t example) const = 0;
  virtual std::int64_t longest() const = 0;  ///< tokens of the longest example
  /// Lengths of examples [first, first + count), in order.
  virtual void lengths(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& take) const = 0;
  /// Appends an example's ids and its labels, which are the ids, or -100 where not scored. The first token, which
  /// nothing predicts, is not treated specially.
  virtual void append(std::int64_t example, std::vector<std::int64_t>& ids,
                      std::vector<std::int64_t>& labels) const = 0;
  /// Appends the files of an example's images, in the order of their tokens.
  virtual void append_images(std::int64_t /*example*/, std::vector<std::string>& /*files*/) const {}
};

struct ExampleOptions {
  std::string column_map = {};         ///< maps the file's field names to ours (corpus/columns.h)
  std::string text_field = "text";     ///< any other name makes every record a text, regardless of its other fields
  std::int64_t max_length = 0;         ///< tokens; longer examples are truncated
  std::int64_t max_prompt_length = 0;  ///< pairs: keep only this many last tokens of the prompt; 0: no separate limit
  std::int64_t vocab_size = 0;         ///< every id must be below this
  bool pairs = false;                  ///< records are pairs of answers (pairs.h)
  bool assistant_only = true;          ///< messages: score only the assistant's messages; otherwise all of the text
  bool completion_only = true;         ///< prompt and completion: do not score the prompt
  std::shared_ptr<const text::ChatTemplate> chat = nullptr;  ///< formats messages, or null
  std::string why_no_chat = "";                              ///< why `chat` is null
};

/// The configuration's settings for examples. The chat template is that of --chat_template, otherwise that of
/// `tokenizer_place` (where the tokenizer was loaded from); only conversations need one. Throws InputError if the value
/// of --chat_template cannot be used.
ExampleOptions example_options(const DataConfig& config, const text::Tokenizer& tokenizer,
                               const std::string& tokenizer_place, std::int64_t block_size, std::int64_t vocab_size);

/// Examples [first, first + count) as rows, one example per row.
std::shared_ptr<const Dataset> example_rows(std::shared_ptr<const ExampleSource> examples, std::int64_t first,
                                            std::int64_t count);

/// Examples [first, first + count) packed into rows of at most `capacity` tokens (no example may exceed it). The
/// first token of every document is not scored. Rows are ordered by their first example; pack() assigns examples to
/// rows as a pure function of their lengths.
std::shared_ptr<const Dataset> packed_rows(std::shared_ptr<const ExampleSource> examples, std::int64_t first,
                                           std::int64_t count, std::int64_t capacity);

/// Best-fit decreasing: each example, longest first, goes into the fullest row that has room for it. Returns rows of
/// indices into `lengths`, ascending within a row, rows ordered by their first index. O(n log n). Uses at most 11/9 of
/// the minimum number of rows, plus 4 (Johnson et al., "Worst-Case Performance Bounds for Simple One-Dimensional
/// Packing Algorithms", 1974).
std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths, std::int64_t capacity);

}  // namespace tessera::data
