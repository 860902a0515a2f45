#include <tessera/corpus/conversations.h>

#include <algorithm>
#include <array>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/corpus/left_out.h>

namespace tessera::corpus {
namespace {

/// Returns the role of a ShareGPT speaker.
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

bool is_of_sharegpt(const Value& turn) {
  return turn.is_object() && turn.find("role") == nullptr && turn.find("from") != nullptr;
}

Value message_of(const Value& turn) {
  const bool plain = !turn.is_object() || turn.find("role") != nullptr;  // already a message or text
  return plain ? turn : message(role_of(turn.at("from")), turn.at("value"));
}

bool has_role(const Value& message, std::string_view name) {
  const Value* role = message.is_object() ? message.find("role") : nullptr;
  return role != nullptr && role->is_string() && role->as_string() == name;
}

/// Number of leading messages that both lists share.
std::size_t common_messages(const Value& a, const Value& b) {
  std::size_t n = 0;
  while (n < a.items().size() && n < b.items().size() && dump_json(a.items()[n], -1) == dump_json(b.items()[n], -1))
    ++n;
  return n;
}

Value rest_of(const Value& list, std::size_t begin) {
  Value rest = Value::make_array({list.items().begin() + static_cast<std::ptrdiff_t>(begin), list.items().end()});
  rest.set_where(list.where());
  return rest;
}

/// Whether an answer may begin after text[0, at): at a blank, or after the end of a line or a word. Each character of
/// three or more bytes counts as a word (Chinese, Japanese).
bool may_begin(std::string_view text, std::size_t at, bool is_common) {
  if (at == 0) return false;
  if (is_common && text[at] == ' ') return true;
  const auto before = static_cast<unsigned char>(text[at - 1]);
  if (before < 0x80) return std::string_view("\n\t\r:;!?)]}>|\"").find(text[at - 1]) != std::string_view::npos;
  const bool inside = at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  std::size_t lead = at - 1;
  while (lead > 0 && (static_cast<unsigned char>(text[lead]) & 0xC0) == 0x80) --lead;
  return !inside && static_cast<unsigned char>(text[lead]) >= 0xE0;
}

/// Length in bytes of the prompt with which both texts begin; 0: none.
std::size_t common_prompt(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto common = static_cast<std::size_t>(differ.first - a.begin());
  std::size_t at = common;
  while (at > 0 && !(may_begin(a, at, at < common) && may_begin(b, at, at < common))) --at;
  return at;
}

[[noreturn]] void has_no_prompt(const Value& record, const char* what) {
  throw InputError(concat(record.where().str(), ": \"chosen\" and \"rejected\" do not begin with the same ", what,
                          ", and there is no \"prompt\""));
}

Value text_from(const Value& text, std::size_t begin, std::size_t count = std::string::npos) {
  Value part = Value::of(text.as_string().substr(begin, count));
  part.set_where(text.where());
  return part;
}

void check_not_empty(const Value& answer, const char* name) {
  const bool empty = answer.is_null() || (answer.is_string() && answer.as_string().empty()) ||
                     (answer.is_array() && answer.items().empty());
  if (empty) throw LeftOut(concat("\"", name, "\" is ", answer.is_null() ? "null" : "empty"));
}

Value texts_of(const Value& record, const PairParts& parts) {
  const std::string &chosen = parts.chosen->as_string(), &rejected = parts.rejected->as_string();
  if (parts.prompt != nullptr)
    return Value::make_object({{"prompt", *parts.prompt}, {"chosen", *parts.chosen}, {"rejected", *parts.rejected}});
  if (chosen == rejected) throw LeftOut("\"chosen\" and \"rejected\" are the same");
  const std::size_t prompt = common_prompt(chosen, rejected);
  if (prompt == 0) has_no_prompt(record, "words");
  Value made = Value::make_object({{"prompt", text_from(*parts.chosen, 0, prompt)},
                                   {"chosen", text_from(*parts.chosen, prompt)},
                                   {"rejected", text_from(*parts.rejected, prompt)}});
  for (const char* name : {"chosen", "rejected"}) check_not_empty(made.at(name), name);
  return made;
}

void check_answer(const Value& record, const Value& answer, const char* name) {
  check_not_empty(answer, name);
  if (has_role(answer.items().front(), "assistant")) return;
  throw InputError(concat(record.where().str(), ": \"", name,
                          "\" must be a message of the assistant after the beginning that both answers share"));
}

Value lists_of(const Value& record, const PairParts& parts) {
  Value chosen = messages_of(*parts.chosen, "assistant"), rejected = messages_of(*parts.rejected, "assistant");
  const bool is_list = parts.prompt != nullptr && holds_messages(*parts.prompt);
  Value prompt = is_list ? messages_of(*parts.prompt, "user") : Value::make_array();
  const std::size_t length = prompt.items().size();
  std::size_t repeated = is_list ? std::min(common_messages(prompt, chosen), common_messages(prompt, rejected))
                                 : common_messages(chosen, rejected);
  if (is_list && repeated < length) repeated = 0;  // the lists contain only answers
  if (!is_list && repeated > 0)
    prompt =
        Value::make_array({chosen.items().begin(), chosen.items().begin() + static_cast<std::ptrdiff_t>(repeated)});
  else if (!is_list && parts.prompt == nullptr)
    has_no_prompt(record, "message");
  else if (!is_list)
    prompt = messages_of(*parts.prompt, "user");
  chosen = rest_of(chosen, repeated);
  rejected = rest_of(rejected, repeated);
  check_answer(record, chosen, "chosen");
  check_answer(record, rejected, "rejected");
  prompt = messages_of(prompt, "user", parts.system);
  prompt.set_where(record.where());
  return Value::make_object(
      {{"prompt", std::move(prompt)}, {"chosen", std::move(chosen)}, {"rejected", std::move(rejected)}});
}

}  // namespace

Value messages_of(const Value& conversation, std::string_view role, const Value* system) {
  std::vector<Value> messages;
  if (conversation.is_array())
    for (const Value& turn : conversation.items()) messages.push_back(message_of(turn));
  else if (conversation.is_object())
    messages.push_back(message_of(conversation));
  else if (!conversation.as_string().empty())
    messages.push_back(message(role, conversation));
  const bool has_system = system != nullptr && system->is_string() && !system->as_string().empty();
  if (has_system && (messages.empty() || !has_role(messages.front(), "system")))
    messages.insert(messages.begin(), message("system", *system));
  Value list = Value::make_array(std::move(messages));
  list.set_where(conversation.where());
  return list;
}

std::vector<std::string> unread_in_turns(const Value& conversation, const std::string& column) {
  std::vector<std::string> unread;
  const auto look = [&](const Value& turn) {
    if (!is_of_sharegpt(turn)) return;
    for (const auto& [name, value] : turn.members())
      if (name != "from" && name != "value" && !value.is_null()) unread.push_back(concat(column, ".", name));
  };
  if (conversation.is_object()) look(conversation);
  if (conversation.is_array())
    for (const Value& turn : conversation.items()) look(turn);
  return unread;
}

Value pair_of(const Value& record, const PairParts& parts) {
  check_not_empty(*parts.chosen, "chosen");
  check_not_empty(*parts.rejected, "rejected");
  PairParts given = parts;
  if (given.prompt != nullptr && given.prompt->is_null()) given.prompt = nullptr;  // an empty cell in a table
  const bool lists = holds_messages(*given.chosen) || holds_messages(*given.rejected) ||
                     (given.prompt != nullptr && holds_messages(*given.prompt));
  return lists ? lists_of(record, given) : texts_of(record, given);
}

Value without_nulls(const Value& value) {
  Value made;
  if (value.is_array()) {
    std::vector<Value> items;
    for (const Value& item : value.items()) items.push_back(without_nulls(item));
    made = Value::make_array(std::move(items));
  } else if (value.is_object()) {
    std::vector<Value::Member> members;
    for (const auto& [name, member] : value.members())
      if (!member.is_null()) members.emplace_back(name, without_nulls(member));
    made = Value::make_object(std::move(members));
  } else {
    return value;
  }
  made.set_where(value.where());
  return made;
}

}  // namespace tessera::corpus
