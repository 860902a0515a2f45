#pragma once
/// \file
/// Examples for fine-tuning, from files whose records are all of one kind (fields in any order):
///
///   {"text": "..."}                                   everything is scored
///   {"prompt": "...", "completion": "..."}            the completion and the end of the text are scored
///   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
///                                                     by the chat template (text/chat_template.h); what the assistant
///                                                     says is scored
///
/// Beside "messages", "tools" and "documents" (lists, or JSON texts of lists) go to the template.
///
/// An example is one document: the tokenizer's prefix (a beginning-of-text token, say), the text, the tokenizer's
/// suffix and an end, where it has them: its end of text after a text, its end of turn after a completion. A
/// conversation that a model's own template writes has its beginning and its ends from there. Prompt and completion are
/// tokenized apart, so that the border between them is the one at which generation will begin. Longer examples are cut
/// at their end; those of which no scored token remains are dropped. Other fields of a line are not used and named
/// once.
///
/// (run_clm.py joins the texts of all lines and cuts blocks. To train on such blocks, make them with
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

/// Tokens of many examples, and which of them are scored. Immutable: any number of threads may read.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int64_t length(std::int64_t example) const = 0;
  virtual std::int64_t longest() const = 0;  ///< tokens of the longest
  /// Lengths of examples [first, first + count), in order.
  virtual void lengths(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& take) const = 0;
  /// Appends its ids and labels: ids, or -100 where not scored. The first token, which nothing predicts, is treated
  /// like the others.
  virtual void append(std::int64_t example, std::vector<std::int64_t>& ids,
                      std::vector<std::int64_t>& labels) const = 0;
  /// Appends the files of its images, in the order of their tokens.
  virtual void append_images(std::int64_t /*example*/, std::vector<std::string>& /*files*/) const {}
};

struct ExampleOptions {
  std::string column_map = {};         ///< what the file calls the fields (corpus/columns.h)
  std::string text_field = "text";     ///< another name than "text" decides by itself what kind the lines are
  std::int64_t max_length = 0;         ///< tokens; longer examples are cut
  std::int64_t max_prompt_length = 0;  ///< pairs: tokens of the prompt, its last ones; 0: no bound of its own
  std::int64_t vocab_size = 0;         ///< every id must be below
  bool pairs = false;                  ///< records are pairs of answers (pairs.h)
  bool assistant_only = true;          ///< messages: score only what the assistant says; else all of the text
  bool completion_only = true;         ///< prompt and completion: score nothing of the prompt
  std::shared_ptr<const text::ChatTemplate> chat = nullptr;  ///< how messages become text, or
  std::string why_no_chat = "";                              ///< why that is not known
};

/// What the configuration says of examples. The chat template is --chat_template's, else that of `tokenizer_place`
/// (what the tokenizer was loaded from); only conversations need one. Throws InputError where what --chat_template
/// names cannot be used.
ExampleOptions example_options(const DataConfig& config, const text::Tokenizer& tokenizer,
                               const std::string& tokenizer_place, std::int64_t block_size, std::int64_t vocab_size);

/// Examples [first, first + count) as rows, one in each.
std::shared_ptr<const Dataset> example_rows(std::shared_ptr<const ExampleSource> examples, std::int64_t first,
                                            std::int64_t count);

/// Examples [first, first + count) packed into rows of at most `capacity` tokens (which no example exceeds). The first
/// token of every document is not scored. Rows are in the order of their first examples; which examples share one is
/// decided by pack(), a pure function of their lengths.
std::shared_ptr<const Dataset> packed_rows(std::shared_ptr<const ExampleSource> examples, std::int64_t first,
                                           std::int64_t count, std::int64_t capacity);

/// Best-fit decreasing: the longest first, each into the fullest row that has room. Returns rows of indices into
/// `lengths`, ascending within a row; rows by their first index. O(n log n). At most 11/9 of the least possible number
/// of rows, plus 4 (Johnson et al., "Worst-Case Performance Bounds for Simple One-Dimensional Packing Algorithms",
/// 1974).
std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths, std::int64_t capacity);

}  // namespace tessera::data
