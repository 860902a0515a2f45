#pragma once
/// \file
/// What the fields of a dataset's records mean. People name them in a few ways; training takes these:
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
/// | text, or the one that is named | text |
/// | chosen, rejected; prompt (or question, or conversations), with ColumnOptions::pairs | conversations.h, pair_of() |
///
/// input_ids go before all others, and text behind them: it is what somebody has made of the others. Beside lists of
/// messages `system` goes before them, and tools, documents and chat_template_kwargs are kept.
///
/// What the columns mean is asked of each record; where options name columns, they say it for all.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::corpus {

struct ColumnOptions {
  std::string text_field =
      {};  ///< --dataset_text_field: this column is the text, whatever others there are; "": not said
  /// --column_map: (what it means, what it is called), such as {"prompt", "question"}. When given it alone decides.
  std::vector<std::pair<std::string, std::string>> map = {};
  bool pairs = false;              ///< records are pairs of answers
  bool nulls_are_missing = false;  ///< inside of messages and what is beside them: records are rows of tables
};

/// "prompt=question,completion=answer". Throws InputError for what is not of this form, and for meanings that there are
/// not.
std::vector<std::pair<std::string, std::string>> parse_column_map(const std::string& text);

enum class RecordForm { tokens, prompt_completion, messages, sharegpt, alpaca, text, pair };

/// Immutable: any number of threads may use it.
class Columns {
 public:
  /// Throws InputError where the options contradict one another.
  explicit Columns(const ColumnOptions& options);
  /// Looks at the first record, too. Throws InputError with its place and its columns when they mean nothing known,
  /// mean several things, or contradict the options.
  Columns(const Value& first_record, const ColumnOptions& options);

  /// What the first record is.
  RecordForm form() const { return form_; }
  /// Whether the first record becomes one with lists of messages.
  bool has_messages() const { return has_messages_; }
  /// Whether it is read under other names than those above, or as something else.
  bool renames() const { return renames_; }
  /// The columns to read; others are not needed (read_records).
  const std::vector<std::string>& needed() const { return needed_; }
  /// One of the forms above, with the record's place; columns that it does not take, as "id" and, of turns,
  /// "conversations.weight", are added to `unused`. Throws InputError with the place for a record that lacks a column
  /// or holds something else in it, and LeftOut where one is null or a conversation has no messages.
  Value normal(const Value& record, std::vector<std::string>* unused = nullptr) const;
  /// For the log, of the first record: "reads question as prompt, answer as completion", and "; not used: id".
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
  std::vector<std::pair<std::string, std::string>> names_;  ///< meaning, column: those of the options
  const Form* mapped_ = nullptr;                            ///< what they say
  RecordForm form_ = RecordForm::text;
  bool has_messages_ = false, renames_ = false;
  std::vector<std::string> needed_;
  std::string note_, unused_note_;
};

/// Alpaca's prompts (https://github.com/tatsu-lab/stanford_alpaca, train.py, PROMPT_DICT): with an input, or without
/// (an empty one).
std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace tessera::corpus
