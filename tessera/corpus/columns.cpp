#include <tessera/corpus/columns.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::corpus {
namespace {

/// A way to name columns: those that must be there tell it, others may be there.
struct Form {
  RecordForm form;
  const char* title;
  std::string_view first, second, optional;  // "": none
};

constexpr std::array<Form, 5> forms = {{
    {RecordForm::text, "text", "text", "", ""},
    {RecordForm::prompt_completion, "prompt and completion", "prompt", "completion", ""},
    {RecordForm::messages, "messages", "messages", "", ""},
    {RecordForm::sharegpt, "conversations (ShareGPT)", "conversations", "", "system"},
    {RecordForm::alpaca, "instruction and output (Alpaca)", "instruction", "output", "input"},
}};

/// What conversations may have with them, by these names only: it goes to the chat template (data/examples.h).
constexpr std::array<std::string_view, 3> beside_messages = {"tools", "documents", "chat_template_kwargs"};

constexpr const char* known_columns =
    "text; prompt and completion; messages; conversations (ShareGPT); instruction, input and output (Alpaca)";

std::vector<std::string> meanings() {
  std::vector<std::string> all;
  for (const Form& form : forms)
    for (const std::string_view name : {form.first, form.second, form.optional})
      if (!name.empty()) all.emplace_back(name);
  return all;
}

std::vector<std::string> names_of(const Value& record) {
  std::vector<std::string> names;
  for (const auto& [name, value] : record.members()) names.push_back(name);
  return names;
}

/// "; say which is which, such as --column_map prompt=question,completion=answer", of names that are likely meant so.
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
  if (ask && answer) return concat("; say which is which: --column_map prompt=", *ask, ",completion=", *answer);
  std::vector<std::string> strings;
  for (const auto& [name, value] : record.members())
    if (value.is_string()) strings.push_back(name);
  if (strings.size() == 1) return concat("; if this is the text: --dataset_text_field ", strings[0]);
  return "; say what they mean: --dataset_text_field NAME, or --column_map prompt=NAME,completion=NAME";
}

/// The role of a speaker of ShareGPT.
std::string_view role_of(const Value& speaker) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 13> roles = {
      {{"human", "user"},
       {"user", "user"},
       {"gpt", "assistant"},
       {"assistant", "assistant"},
       {"chatgpt", "assistant"},
       {"bing", "assistant"},
       {"bard", "assistant"},
       {"model", "assistant"},
       {"system", "system"},
       {"function_call", "assistant"},
       {"observation", "tool"},
       {"function_response", "tool"},
       {"tool", "tool"}}};
  for (const auto& [name, role] : roles)
    if (speaker.as_string() == name) return role;
  throw InputError(concat(speaker.where().str(), ": unknown speaker \"", speaker.as_string(),
                          "\"; expected human, gpt, system, function_call, observation, or user, assistant, tool"));
}

Value message(std::string_view role, const Value& content) {
  Value made = Value::make_object();
  Value name = Value::of(std::string(role));
  name.set_where(content.where());
  made.set("role", std::move(name));
  made.set("content", content);
  made.set_where(content.where());
  return made;
}

Value messages_of(const Value& conversation, const Value* system) {
  std::vector<Value> messages;
  const bool has_system = system != nullptr && !system->is_null() && !system->as_string().empty();
  if (has_system) messages.push_back(message("system", *system));
  for (const Value& turn : conversation.items()) {
    const bool plain = turn.find("role") != nullptr;  // already as training takes it
    messages.push_back(plain ? turn : message(role_of(turn.at("from")), turn.at("value")));
  }
  Value list = Value::make_array(std::move(messages));
  list.set_where(conversation.where());
  return list;
}

Value with_place(Value value, const SourcePos& where) {
  value.set_where(where);
  return value;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_column_map(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> map;
  const std::vector<std::string> known = meanings();
  for (const std::string& part : split(text, ',')) {
    const std::size_t sign = part.find('=');
    const std::string meaning = trim(part.substr(0, sign));
    const std::string column = sign == std::string::npos ? "" : trim(part.substr(sign + 1));
    if (meaning.empty() || column.empty())
      throw InputError(concat("--column_map: '", part, "' is not MEANING=COLUMN, such as prompt=question"));
    if (std::find(known.begin(), known.end(), meaning) == known.end()) {
      const bool turned = std::find(known.begin(), known.end(), column) != known.end();
      throw InputError(concat("--column_map: '", meaning, "' is no meaning of a column; there are ", join(known),
                              turned ? concat("; did you mean ", column, "=", meaning, "?") : ""));
    }
    const auto again = std::find_if(map.begin(), map.end(), [&](const auto& row) { return row.first == meaning; });
    if (again != map.end())
      throw InputError(concat("--column_map: ", meaning, " is both ", again->second, " and ", column));
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

Columns::Columns(const Value& first, const ColumnOptions& options) {
  const std::string where = first.where().str();
  const std::vector<std::string> columns = names_of(first);
  if (!options.text_field.empty() && !options.map.empty())
    throw InputError("--dataset_text_field and --column_map both say what the columns mean: keep one of them");
  names_ = options.map;
  if (!options.text_field.empty()) names_ = {{"text", options.text_field}};
  for (const auto& [meaning, column] : names_)
    if (first.find(column) == nullptr)
      throw InputError(concat(where, ": has no column \"", column, "\" (for ", meaning, "); it has ", join(columns)));

  // A meaning is there when the options name it; without options, when a column is called so.
  const auto is_there = [&](std::string_view meaning) {
    if (names_.empty()) return first.find(meaning) != nullptr;
    return std::any_of(names_.begin(), names_.end(), [&](const auto& row) { return row.first == meaning; });
  };
  std::vector<std::string> found, halves;
  const Form* chosen = nullptr;
  for (const Form& form : forms) {
    const bool one = is_there(form.first), two = form.second.empty() || is_there(form.second);
    if (one && two) {
      found.emplace_back(form.title);
      chosen = &form;
    } else if (!form.second.empty() && (one || two)) {
      halves.push_back(concat((one ? form.first : form.second), " without ", (one ? form.second : form.first)));
    }
  }
  if (found.size() > 1)
    throw InputError(concat(where, ": its columns say several things: ", join(found, " and also "),
                            "; choose with --dataset_text_field NAME or --column_map, such as ", chosen->first, "=",
                            chosen->first));
  if (chosen == nullptr)
    throw InputError(concat(where, ": the columns are ", join(columns), ": ",
                            halves.empty() ? "none is known by its name" : join(halves), "; known are ", known_columns,
                            advice(first)));
  form_ = chosen->form;
  if (names_.empty())
    for (const std::string_view meaning : {chosen->first, chosen->second, chosen->optional})
      if (!meaning.empty() && first.find(meaning) != nullptr) names_.emplace_back(meaning, meaning);
  for (const std::string_view name : beside_messages)
    if (has_messages(first) && first.find(name) != nullptr) needed_.emplace_back(name);
  for (const auto& [meaning, column] : names_) {
    const auto names = {chosen->first, chosen->second, chosen->optional};
    if (std::find(names.begin(), names.end(), meaning) == names.end())
      throw InputError(concat("--column_map: ", meaning, " does not belong to ", chosen->title));
    needed_.push_back(column);
  }
  if (form_ == RecordForm::messages || form_ == RecordForm::sharegpt)
    for (const char* beside : {"tools", "documents"})
      if (first.find(beside) != nullptr) needed_.push_back(beside);
  write_note(first);
}

void Columns::write_note(const Value& first) {
  std::vector<std::string> read, unused;
  for (const auto& [meaning, column] : names_)
    read.push_back(meaning == column ? column : concat(column, " as ", meaning));
  for (const std::string& name : names_of(first))
    if (std::find(needed_.begin(), needed_.end(), name) == needed_.end()) unused.push_back(name);
  const char* kind = form_ == RecordForm::sharegpt ? " (ShareGPT)" : form_ == RecordForm::alpaca ? " (Alpaca)" : "";
  note_ = concat("reads ", join(read), kind, unused.empty() ? "" : concat("; not used: ", join(unused)));
}

bool Columns::has_messages(const Value& record) const {
  if (form_ == RecordForm::messages || form_ == RecordForm::sharegpt) return true;
  return form_ == RecordForm::prompt_completion && at(record, "prompt").is_array() &&
         at(record, "completion").is_array();
}

const std::string& Columns::name_of(std::string_view meaning) const {
  static const std::string none;
  for (const auto& [known, column] : names_)
    if (known == meaning) return column;
  return none;
}

const Value* Columns::find(const Value& record, std::string_view meaning) const {
  const std::string& column = name_of(meaning);
  return column.empty() ? nullptr : record.find(column);
}

const Value& Columns::at(const Value& record, std::string_view meaning) const { return record.at(name_of(meaning)); }

Value Columns::normal(const Value& record) const {
  std::vector<Value::Member> members;
  const SourcePos& where = record.where();
  switch (form_) {
    case RecordForm::text:
      members.emplace_back("text", at(record, "text"));
      break;
    case RecordForm::prompt_completion: {
      const Value &prompt = at(record, "prompt"), &completion = at(record, "completion");
      if (prompt.is_array() && completion.is_array()) {
        Value list = prompt;
        for (const Value& message : completion.items()) list.push_back(message);
        members.emplace_back("messages", std::move(list));
        break;
      }
      members.emplace_back("prompt", prompt);
      members.emplace_back("completion", completion);
      break;
    }
    case RecordForm::messages:
      members.emplace_back("messages", at(record, "messages"));
      break;
    case RecordForm::sharegpt:
      members.emplace_back("messages", messages_of(at(record, "conversations"), find(record, "system")));
      break;
    case RecordForm::alpaca: {
      const Value& instruction = at(record, "instruction");
      const Value* input = find(record, "input");
      const bool has_input = input != nullptr && !input->is_null();
      Value prompt = Value::of(alpaca_prompt(instruction.as_string(), has_input ? input->as_string() : ""));
      members.emplace_back("prompt", with_place(std::move(prompt), instruction.where()));
      members.emplace_back("completion", at(record, "output"));
      break;
    }
  }
  if (form_ == RecordForm::messages || form_ == RecordForm::sharegpt)
    for (const char* beside : {"tools", "documents"})
      if (const Value* list = record.find(beside)) members.emplace_back(beside, *list);
  if (members.front().first == "messages")
    for (const std::string_view name : beside_messages)
      if (const Value* value = record.find(name)) members.emplace_back(name, *value);
  return with_place(Value::make_object(std::move(members)), where);
}

}  // namespace tessera::corpus
