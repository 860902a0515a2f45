#include <tessera/corpus/columns.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/corpus/conversations.h>
#include <tessera/corpus/left_out.h>

namespace tessera::corpus {

/// A known form of records: required columns identify it, optional ones may be present.
struct Columns::Form {
  RecordForm form;
  const char* title;
  std::vector<std::string_view> required, optional;
};

/// In order of precedence. Of the forms between the first and the last, only one may match.
const std::vector<Columns::Form>& Columns::forms() {
  static const std::vector<Form> all = {
      {RecordForm::tokens,
       "input_ids",
       {"input_ids"},
       {"labels", "attention_mask", "completion_mask", "assistant_masks"}},
      {RecordForm::prompt_completion, "prompt and completion", {"prompt", "completion"}, {"system"}},
      {RecordForm::messages, "messages", {"messages"}, {"system"}},
      {RecordForm::sharegpt, "conversations (ShareGPT)", {"conversations"}, {"system"}},
      {RecordForm::alpaca, "instruction and output (Alpaca)", {"instruction", "output"}, {"input"}},
      {RecordForm::text, "text", {"text"}, {}},
      {RecordForm::pair,
       "chosen and rejected",
       {"chosen", "rejected"},
       {"prompt", "question", "conversations", "system"}},
  };
  return all;
}

namespace {

/// Columns that may accompany conversations, under exactly these names; they are passed to the chat template
/// (data/examples.h).
constexpr std::array<std::string_view, 3> beside_messages = {"tools", "documents", "chat_template_kwargs"};

constexpr const char* known_columns =
    "text; prompt and completion; messages; conversations (ShareGPT); instruction, input and output (Alpaca); "
    "input_ids and labels";

bool contains(std::span<const std::string> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> names_of(const Value& record) {
  std::vector<std::string> names;
  for (const auto& [name, value] : record.members()) names.push_back(name);
  return names;
}

/// Advice for the error message, such as "; say which is which: --column_map prompt=question,completion=answer", based
/// on likely column names.
std::string advice(const Value& record) {
  static constexpr std::array<std::string_view, 5> asks = {"question", "query", "prompt", "problem", "input"};
  static constexpr std::array<std::string_view, 6> answers = {"answer",   "response", "completion",
                                                              "solution", "output",   "target"};
  const auto first_of = [&](std::span<const std::string_view> likely) -> std::optional<std::string> {
    for (const std::string_view name : likely)
      if (record.find(name) != nullptr) return std::string(name);
    return std::nullopt;
  };
  const auto ask = first_of(asks), answer = first_of(answers);
  if (record.contains("chosen") && record.contains("rejected"))
    return "; for pairs of answers set the loss: --preference_loss sigmoid";
  if (ask && answer) return concat("; specify which is which: --column_map prompt=", *ask, ",completion=", *answer);
  std::vector<std::string> strings;
  for (const auto& [name, value] : record.members())
    if (value.is_string()) strings.push_back(name);
  for (const auto& [name, value] : record.members())
    if (value.is_array() && !value.items().empty() && value.items().front().kind() == Value::Kind::integer)
      return concat("; if these are token ids: --column_map input_ids=", name);
  if (strings.size() == 1) return concat("; if this is the text: --dataset_text_field ", strings[0]);
  return "; specify what they mean: --dataset_text_field NAME, or --column_map prompt=NAME,completion=NAME";
}

Value with_place(Value value, const SourcePos& where) {
  value.set_where(where);
  return value;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_column_map(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> map;
  std::vector<std::string> known;
  for (const Columns::Form& form : Columns::forms())
    for (const auto& names : {form.required, form.optional})
      for (const std::string_view name : names)
        if (name != "question" && !contains(known, name))
          known.emplace_back(name);  // "question" has the meaning
                                     // prompt
  for (const std::string& part : split(text, ',')) {
    const std::size_t sign = part.find('=');
    const std::string meaning = trim(part.substr(0, sign));
    const std::string column = sign == std::string::npos ? "" : trim(part.substr(sign + 1));
    if (meaning.empty() || column.empty())
      throw InputError(concat("--column_map: '", part, "' is not MEANING=COLUMN, such as prompt=question"));
    if (std::find(known.begin(), known.end(), meaning) == known.end()) {
      const bool turned = std::find(known.begin(), known.end(), column) != known.end();
      throw InputError(concat("--column_map: '", meaning, "' is not a known meaning of a column; known are ",
                              join(known), turned ? concat("; did you mean ", column, "=", meaning, "?") : ""));
    }
    const auto again = std::find_if(map.begin(), map.end(), [&](const auto& row) { return row.first == meaning; });
    if (again != map.end())
      throw InputError(concat("--column_map: ", meaning, " is mapped to both ", again->second, " and ", column));
    map.emplace_back(meaning, column);
  }
  return map;
}

std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
  if (input.empty())
    return concat("Below is an instruction that describes a task. Write a response that appropriately completes the ",
                  "request.\n\n### Instruction:\n", instruction, "\n\n### Response:");
  return concat("Below is an instruction that describes a task, paired with an input that provides further context. ",
                "Write a response that appropriately completes the request.\n\n### Instruction:\n", instruction,
                "\n\n### Input:\n", input, "\n\n### Response:");
}

Columns::Columns(const ColumnOptions& options) : options_(options), names_(options.map) {
  if (!options.text_field.empty() && !options.map.empty())
    throw InputError("--dataset_text_field and --column_map both specify what the columns mean: keep one of them");
  if (!options.text_field.empty()) names_ = {{"text", options.text_field}};
  if (!names_.empty()) mapped_ = &mapped_form();
  for (const Form& form : forms())
    if (mapped_ == nullptr || mapped_ == &form)
      for (const auto& names : {form.required, form.optional})
        for (const std::string_view name : names) needed_.push_back(column_of(name));
  needed_.insert(needed_.end(), beside_messages.begin(), beside_messages.end());
  std::erase(needed_, "");
}

Columns::Columns(const Value& first, const ColumnOptions& options) : Columns(options) {
  for (const auto& [meaning, column] : names_)
    if (first.find(column) == nullptr)
      throw InputError(concat(first.where().str(), ": has no column \"", column, "\" (for ", meaning, "); it has ",
                              join(names_of(first))));
  const Form& form = form_of(first);
  form_ = form.form;
  write_note(first, form);
}

/// The form that the options' names select.
const Columns::Form& Columns::mapped_form() const {
  const auto is_named = [&](std::string_view meaning) {
    return std::any_of(names_.begin(), names_.end(), [&](const auto& row) { return row.first == meaning; });
  };
  const Form* chosen = nullptr;
  std::vector<std::string> found, halves;
  for (const Form& form : forms()) {
    if ((form.form == RecordForm::pair) != options_.pairs) continue;
    const auto count = std::count_if(form.required.begin(), form.required.end(), is_named);
    if (count == std::ssize(form.required) || options_.pairs) {  // pairs may combine mapped and standard names
      found.emplace_back(form.title);
      chosen = &form;
    } else if (count > 0) {
      halves.emplace_back(form.title);
    }
  }
  if (found.size() > 1) throw InputError(concat("--column_map: matches several forms: ", join(found, " and ")));
  if (chosen == nullptr)
    throw InputError(concat("--column_map: ", names_.front().first, "=", names_.front().second,
                            " does not determine the form of the records: ",
                            halves.empty() ? concat("known are ", known_columns)
                                           : concat("name all columns of ", join(halves, " or of "))));
  for (const auto& [meaning, column] : names_)
    if (std::find(chosen->required.begin(), chosen->required.end(), meaning) == chosen->required.end() &&
        std::find(chosen->optional.begin(), chosen->optional.end(), meaning) == chosen->optional.end())
      throw InputError(concat("--column_map: ", meaning, " does not belong to ", chosen->title));
  return *chosen;
}

const Columns::Form& Columns::form_of(const Value& record) const {
  if (mapped_ != nullptr) return *mapped_;
  record.members();  // throws unless it is an object
  if (options_.pairs) return forms().back();
  // In tables every row has all columns: a form whose columns are null counts only if no other form matches.
  for (const bool null_counts : {false, true}) {
    const auto is_there = [&](std::string_view name) { return record.contains(name); };
    const auto is_filled = [&](std::string_view name) { return !record.at(name).is_null(); };
    std::vector<const Form*> found;
    for (const Form& form : forms()) {
      const auto& names = form.required;
      if (form.form != RecordForm::pair && std::all_of(names.begin(), names.end(), is_there) &&
          (null_counts || std::any_of(names.begin(), names.end(), is_filled)))
        found.push_back(&form);
    }
    if (found.empty()) continue;
    if (found.front()->form == RecordForm::tokens || found.size() == 1) return *found.front();
    if (found.back()->form == RecordForm::text) found.pop_back();
    if (found.size() == 1) return *found.front();
    std::vector<std::string> titles;
    for (const Form* form : found) titles.emplace_back(form->title);
    throw InputError(concat(record.where().str(), ": its columns match several forms: ", join(titles, " and "),
                            "; choose with --dataset_text_field NAME or --column_map, such as ",
                            found.back()->required[0], "=", found.back()->required[0]));
  }
  std::vector<std::string> halves;
  for (const Form& form : forms()) {
    if (form.form == RecordForm::pair || form.required.size() < 2) continue;
    const bool one = record.contains(form.required[0]), two = record.contains(form.required[1]);
    if (one || two) halves.push_back(concat(form.required[one ? 0 : 1], " without ", form.required[one ? 1 : 0]));
  }
  throw InputError(concat(record.where().str(), ": the columns are ", join(names_of(record)), ": ",
                          halves.empty() ? "none of them is a known column" : join(halves), "; known are ",
                          known_columns, advice(record)));
}

void Columns::write_note(const Value& first, const Form& form) {
  std::vector<std::string> read, unused;
  for (const auto& names : {form.required, form.optional})
    for (const std::string_view meaning : names) {
      const std::string column = column_of(meaning);
      if (first.find(column) == nullptr) continue;
      if (form.form == RecordForm::pair && meaning == "question" && find(first, "prompt") != nullptr) continue;
      const bool is_prompt = form.form == RecordForm::pair && (meaning == "question" || meaning == "conversations");
      const std::string_view as = is_prompt ? "prompt" : meaning;
      renames_ |= as != column;
      read.push_back(as == column ? column : concat(column, " as ", as));
    }
  renames_ |= form.form == RecordForm::sharegpt || form.form == RecordForm::alpaca;
  try {
    const Value made = normal(first, &unused);
    for (const char* name : {"messages", "prompt"})
      if (const Value* list = made.find(name)) has_messages_ |= list->is_array();
  } catch (const Error&) {  // the record is read again later, when the problem is counted or reported
    has_messages_ = form.form == RecordForm::messages || form.form == RecordForm::sharegpt;
  }
  const char* kind = form.form == RecordForm::sharegpt ? " (ShareGPT)"
                     : form.form == RecordForm::alpaca ? " (Alpaca)"
                                                       : "";
  note_ = concat("reads ", join(read), kind);
  unused_note_ = unused.empty() ? "" : concat("; not used: ", join(unused));
}

/// "" if the options exclude the column; columns that accompany tokens keep their own names.
std::string Columns::column_of(std::string_view meaning) const {
  for (const auto& [known, column] : names_)
    if (known == meaning) return column;
  const bool is_free =
      mapped_ == nullptr || options_.pairs || (mapped_->form == RecordForm::tokens && meaning != "input_ids");
  return is_free ? std::string(meaning) : "";
}

const Value* Columns::find(const Value& record, std::string_view meaning) const {
  if (names_.empty()) return record.find(meaning);
  const std::string column = column_of(meaning);
  return column.empty() ? nullptr : record.find(column);
}

const Value& Columns::at(const Value& record, std::string_view meaning) const {
  const Value& value = names_.empty() ? record.at(meaning) : record.at(column_of(meaning));
  if (value.is_null()) throw LeftOut(concat("\"", column_of(meaning), "\" is null"));
  return value;
}

void Columns::add_beside(const Value& record, std::vector<Value::Member>& members) const {
  for (const std::string_view name : beside_messages)
    if (const Value* value = record.find(name); value != nullptr && !value->is_null())
      members.emplace_back(name, *value);
  if (options_.nulls_are_missing)
    for (auto& [name, value] : members) value = without_nulls(value);
}

void Columns::add_tokens(const Value& record, std::vector<Value::Member>& members) const {
  members.emplace_back("input_ids", at(record, "input_ids"));
  for (const std::string_view mask : {"labels", "attention_mask", "completion_mask", "assistant_masks"})
    if (find(record, mask) != nullptr) members.emplace_back(mask, at(record, mask));
}

Value Columns::pair(const Value& record) const {
  PairParts parts;
  for (const char* name : {"prompt", "question", "conversations"})
    if (parts.prompt == nullptr || parts.prompt->is_null()) parts.prompt = find(record, name);
  parts.system = find(record, "system");
  for (const auto& [part, name] : {std::pair(&parts.chosen, "chosen"), std::pair(&parts.rejected, "rejected")}) {
    *part = find(record, name);
    if (*part == nullptr)
      throw InputError(
          concat(record.where().str(), ": has no \"", name,
                 "\": a pair needs \"prompt\", \"chosen\" and \"rejected\" (--preference_loss); if they have other "
                 "names, use --column_map prompt=NAME,chosen=NAME,rejected=NAME"));
  }
  return pair_of(record, parts);
}

Value Columns::normal(const Value& record, std::vector<std::string>* unused) const {
  std::vector<Value::Member> members;
  const Form& form = form_of(record);
  const Value* system = find(record, "system");
  switch (form.form) {
    case RecordForm::text:
      members.emplace_back("text", at(record, "text"));
      break;
    case RecordForm::tokens:
      add_tokens(record, members);
      break;
    case RecordForm::prompt_completion: {
      const Value &prompt = at(record, "prompt"), &completion = at(record, "completion");
      const bool lists = holds_messages(prompt) || holds_messages(completion);
      members.emplace_back("prompt", lists ? messages_of(prompt, "user", system) : prompt);
      members.emplace_back("completion", lists ? messages_of(completion, "assistant") : completion);
      break;
    }
    case RecordForm::messages:
    case RecordForm::sharegpt: {
      const Value& conversation = at(record, form.required[0]);
      if (conversation.items().empty()) throw LeftOut(concat("\"", column_of(form.required[0]), "\" is empty"));
      members.emplace_back("messages", messages_of(conversation, "user", system));
      break;
    }
    case RecordForm::alpaca: {
      const Value& instruction = at(record, "instruction");
      const Value* input = find(record, "input");
      const bool has_input = input != nullptr && !input->is_null();
      Value prompt = Value::of(alpaca_prompt(instruction.as_string(), has_input ? input->as_string() : ""));
      members.emplace_back("prompt", with_place(std::move(prompt), instruction.where()));
      members.emplace_back("completion", at(record, "output"));
      break;
    }
    case RecordForm::pair:
      members = pair(record).members();
      break;
  }
  const bool conversation = members.front().second.is_array() && form.form != RecordForm::tokens;
  if (conversation) add_beside(record, members);
  if (unused != nullptr) {
    bool prompted = false;  // only the first of a pair's prompt columns is used
    std::vector<std::string> used;
    for (const auto& names : {form.required, form.optional})
      for (const std::string_view meaning : names) {
        const bool is_prompt = meaning == "prompt" || meaning == "question" || meaning == "conversations";
        if (form.form == RecordForm::pair && is_prompt && prompted) continue;
        if (meaning == "system" && !(conversation && (system == nullptr || system->is_null() || system->is_string())))
          continue;
        const Value* value = find(record, meaning);
        if (value == nullptr) continue;
        prompted |= is_prompt && !value->is_null();
        used.push_back(column_of(meaning));
        if (form.form == RecordForm::tokens) continue;
        for (std::string& name : unread_in_turns(*value, used.back())) unused->push_back(std::move(name));
      }
    if (conversation) used.insert(used.end(), beside_messages.begin(), beside_messages.end());
    for (const auto& [name, value] : record.members())
      if (!contains(used, name)) unused->push_back(name);
  }
  return with_place(Value::make_object(std::move(members)), record.where());
}

}  // namespace tessera::corpus
