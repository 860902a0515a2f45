#pragma once
/// \file
/// Interprets the columns of a dataset's records. Names vary between datasets; training uses these forms:
///
///   {"text": "..."}    {"prompt": "...", "completion": "..."}    {"messages": [{"role": "...", "content": "..."}]}
///   {"input_ids": [...], "labels": [...]}    {"prompt": "...", "chosen": "...", "rejected": "..."}
///
/// | columns | become |
/// |---|---|
/// | input_ids; labels, attention_mask, completion_mask, assistant_masks | the same |
/// | prompt and completion | the same, both texts or both lists of messages |
/// | messages | the same |
/// | conversations (ShareGPT: from and value; or role and content) | messages |
/// | instruction, input, output (Alpaca) | prompt and completion, in Alpaca's published template |
/// | text, or the column that is named | text |
/// | chosen, rejected; prompt (or question, or conversations), with ColumnOptions::pairs | conversations.h, pair_of() |
///
/// input_ids take precedence over all other columns, and text is considered last, because it is usually derived from
/// the others. With lists of messages, `system` is prepended to them, and tools, documents and chat_template_kwargs are
/// kept.
///
/// The form is determined for each record; if options name columns, they apply to all records.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::corpus {

struct ColumnOptions {
  std::string text_field =
      {};  ///< --dataset_text_field: use this column as the text, regardless of the others; "": not set
  /// --column_map: pairs (meaning, column), such as {"prompt", "question"}. If given, only these pairs are used.
  std::vector<std::pair<std::string, std::string>> map = {};
  bool pairs = false;              ///< records are pairs of answers
  bool nulls_are_missing = false;  ///< null means missing inside messages and accompanying columns (tables)
};

/// Parses "prompt=question,completion=answer". Throws InputError for malformed text and unknown meanings.
std::vector<std::pair<std::string, std::string>> parse_column_map(const std::string& text);

enum class RecordForm { tokens, prompt_completion, messages, sharegpt, alpaca, text, pair };

/// Immutable: any number of threads may use it.
class Columns {
 public:
  /// Throws InputError if the options contradict each other.
  explicit Columns(const ColumnOptions& options);
  /// Examines the first record as well. Throws InputError with its place and columns if they match no known form, match
  /// several forms, or contradict the options.
  Columns(const Value& first_record, const ColumnOptions& options);

  /// The form of the first record.
  RecordForm form() const { return form_; }
  /// Whether the first record is converted to lists of messages.
  bool has_messages() const { return has_messages_; }
  /// Whether the first record's columns are renamed or converted.
  bool renames() const { return renames_; }
  /// The columns to read (read_records).
  const std::vector<std::string>& needed() const { return needed_; }
  /// Converts a record to one of the forms above, keeping its place. Unused columns, such as "id" or, inside turns,
  /// "conversations.weight", are added to `unused`. Throws InputError with the place if a column is missing or has the
  /// wrong type, and LeftOut if one is null or a conversation has no messages.
  Value normal(const Value& record, std::vector<std::string>* unused = nullptr) const;
  /// For the log, about the first record: "reads question as prompt, answer as completion", and "; not used: id".
  std::string note(bool with_unused = true) const { return with_unused ? note_ + unused_note_ : note_; }

 private:
  struct Form;
  static const std::vector<Form>& forms();
  friend std::vector<std::pair<std::string, std::string>> parse_column_map(const std::string& text);

  const Form& form_of(const Value& record) const;
  const Form& mapped_form() const;
  std::string column_of(std::string_view meaning) const;
  const Value* find(const Value& record, std::string_view meaning) const;
  const Value& at(const Value& record, std::string_view meaning) const;
  void add_beside(const Value& record, std::vector<Value::Member>& members) const;
  void add_tokens(const Value& record, std::vector<Value::Member>& members) const;
  Value pair(const Value& record) const;
  void write_note(const Value& first_record, const Form& form);

  ColumnOptions options_;
  std::vector<std::pair<std::string, std::string>> names_;  ///< (meaning, column) pairs from the options
  const Form* mapped_ = nullptr;                            ///< the form they select
  RecordForm form_ = RecordForm::text;
  bool has_messages_ = false, renames_ = false;
  std::vector<std::string> needed_;
  std::string note_, unused_note_;
};

/// Alpaca's prompts (https://github.com/tatsu-lab/stanford_alpaca, train.py, PROMPT_DICT), with or without an input
/// (empty: without).
std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace tessera::corpus
