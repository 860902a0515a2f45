#pragma once
/// \file
/// What the fields of a dataset's records mean. People name them in a few ways; training takes three:
///
///   {"text": "..."}    {"prompt": "...", "completion": "..."}    {"messages": [{"role": "...", "content": "..."}]}
///
/// | columns | become |
/// |---|---|
/// | text, or the one that is named | text |
/// | prompt and completion | the same; when both are lists of messages (as TRL writes them): messages, one list |
/// | messages | the same |
/// | conversations (ShareGPT: from and value; or role and content), system | messages |
/// | instruction, input, output (Alpaca) | prompt and completion, in Alpaca's published template |
///
/// Beside messages the columns tools, documents and chat_template_kwargs are kept.
///
/// What the columns mean is decided once for a dataset, from its first record.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::corpus {

struct ColumnOptions {
  std::string text_field;  ///< --dataset_text_field: this column is the text, whatever others there are; "": not said
  /// --column_map: (what it means, what it is called), such as {"prompt", "question"}. When given it alone decides.
  std::vector<std::pair<std::string, std::string>> map;
};

/// "prompt=question,completion=answer". Throws InputError for what is not of this form, and for meanings that there are
/// not.
std::vector<std::pair<std::string, std::string>> parse_column_map(const std::string& text);

enum class RecordForm { text, prompt_completion, messages, sharegpt, alpaca };

/// Immutable: any number of threads may use it.
class Columns {
 public:
  /// Throws InputError with the place of the record and its columns when they mean nothing known, mean several things,
  /// or contradict the options.
  Columns(const Value& first_record, const ColumnOptions& options);

  RecordForm form() const { return form_; }
  /// The columns to read; others are not needed (read_records).
  const std::vector<std::string>& needed() const { return needed_; }
  /// One of the three forms above, with the record's place. Throws InputError with the place for a record that lacks a
  /// column or holds something else in it.
  Value normal(const Value& record) const;
  /// For the log: "reads question as prompt, answer as completion; not used: id".
  const std::string& note() const { return note_; }

 private:
  const Value* find(const Value& record, std::string_view meaning) const;
  const Value& at(const Value& record, std::string_view meaning) const;
  const std::string& name_of(std::string_view meaning) const;
  bool has_messages(const Value& record) const;
  void write_note(const Value& first_record);

  RecordForm form_ = RecordForm::text;
  std::vector<std::pair<std::string, std::string>> names_;  ///< meaning, column
  std::vector<std::string> needed_;
  std::string note_;
};

/// Alpaca's prompts (https://github.com/tatsu-lab/stanford_alpaca, train.py, PROMPT_DICT): with an input, or without
/// (an empty one).
std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace tessera::corpus
