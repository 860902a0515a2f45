#include <tessera/text/chat_template.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include <tessera/base/error.h>
#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/operators.h>

namespace tessera::text {
namespace {

constexpr const char* chatml_source =
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}{{ raise_exception(\"the role 'tool' is not supported (roles are system, user and "
    "assistant): put the tool's result into a message of the user\") }}"
    "{%- elif message.role not in ['system', 'user', 'assistant'] %}{{ raise_exception(\"unknown role '\" ~ "
    "message.role ~ \"' (roles are system, user and assistant)\") }}"
    "{%- elif message.content is not string %}{{ raise_exception('the content of a message must be a text') }}"
    "{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
    "{%- else %}{{ message.content + '<|im_end|>' }}{% endif %}"
    "{{- '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr std::array<const char*, 3> reasoning_names = {"reasoning_content", "thinking", "reasoning"};
constexpr std::string_view continued_mark = "CONTINUE_FINAL_MESSAGE_TAG ";  // transformers' own: never in the result
constexpr std::size_t most_messages = 100'000;

/// What stands in for a turn's content, and in no conversation.
constexpr std::string_view stand_in = "Tessera5tands1nF0rTh1sTurn";

[[noreturn]] void fail_message(std::size_t index, const std::string& why) {
  throw InputError(concat("message ", index + 1, ": ", why));
}

/// A message as the template sees it.
jinja::Value plain_message(const tessera::Value& message) {
  const tessera::Value* reasoning = nullptr;
  for (const char* name : reasoning_names)
    if (const tessera::Value* found = message.find(name); reasoning == nullptr && found != nullptr && !found->is_null())
      reasoning = found;
  jinja::Members members;
  const auto put = [&](const std::string& name, const tessera::Value& value) {
    members.emplace_back(jinja::Value::of(name), jinja::from_json(value));
  };
  if (reasoning != nullptr && (message.find("thinking") == nullptr || message.find("thinking")->is_null()))
    put("thinking", *reasoning);
  for (const auto& [name, value] : message.members())
    if (!value.is_null()) put(name, reasoning != nullptr && name == reasoning_names[0] ? *reasoning : value);
  const bool named = std::any_of(members.begin(), members.end(),
                                 [](const auto& member) { return member.first.string() == reasoning_names[0]; });
  if (reasoning != nullptr && !named) put(reasoning_names[0], *reasoning);
  return jinja::Value::of(jinja::Dict{std::move(members)});
}

jinja::Values plain_messages(const tessera::Value& messages) {
  jinja::Values plain;
  for (const tessera::Value& message : messages.items()) plain.push_back(plain_message(message));
  return plain;
}

jinja::Value list_of(jinja::Values items) {
  return jinja::Value::of(jinja::Sequence{jinja::Sequence::Kind::list, std::move(items), 1, 0, ""});
}

/// The first of `tokens` in `text`, and where it stands.
std::optional<std::pair<std::size_t, const std::string*>> find_token(std::string_view text,
                                                                     const std::vector<std::string>& tokens) {
  std::array<bool, 256> begins{};
  for (const std::string& token : tokens) begins[static_cast<unsigned char>(token.front())] = true;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!begins[static_cast<unsigned char>(text[at])]) continue;
    for (const std::string& token : tokens)
      if (text.substr(at).starts_with(token)) return std::pair(at, &token);
  }
  return std::nullopt;
}

void check_tokens(const tessera::Value& value, const std::string& name, const std::vector<std::string>& tokens) {
  if (value.is_string()) {
    if (const auto found = find_token(value.as_string(), tokens))
      throw InputError(concat("the ", name, " has ", *found->second, " at byte ", found->first,
                              ", a special token that would begin or end a turn: take it out"));
  } else if (value.is_array()) {
    for (const tessera::Value& item : value.items()) check_tokens(item, name, tokens);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.members()) {
      check_tokens(tessera::Value::of(key), name, tokens);
      check_tokens(member, concat(name, ".", key), tokens);
    }
  }
}

/// The last message with the mark behind its text. Returns that text.
std::string add_mark(jinja::Values& messages) {
  jinja::Members members = messages.back().dict().members;
  const auto content = std::find_if(members.begin(), members.end(),
                                    [](const auto& member) { return member.first.string() == "content"; });
  if (content == members.end()) throw InputError("the last message, which is to be continued, has no \"content\"");
  std::string text;
  if (content->second.is_string()) {
    text = content->second.string();
    content->second = jinja::Value::of(text + std::string(continued_mark));
  } else {
    jinja::Values parts;
    if (content->second.is_sequence()) parts = content->second.sequence().items;
    const auto part = std::find_if(parts.rbegin(), parts.rend(), [](const jinja::Value& one) {
      return one.is_dict() && one.member("text") != nullptr && one.member("text")->is_string();
    });
    if (part == parts.rend()) throw InputError("the last message, which is to be continued, has no text");
    jinja::Members inner = part->dict().members;
    for (auto& [name, value] : inner) {
      if (name.string() != "text") continue;
      text = value.string();
      value = jinja::Value::of(text + std::string(continued_mark));
    }
    *part = jinja::Value::of(jinja::Dict{std::move(inner)});
    content->second = list_of(std::move(parts));
  }
  messages.back() = jinja::Value::of(jinja::Dict{std::move(members)});
  return text;
}

/// The text up to where the mark stands.
void cut_at_mark(jinja::Rendered& rendered, const std::string& continued) {
  const std::string_view bare = jinja::strip_right(continued_mark);
  const std::string said(jinja::strip_left(jinja::strip_right(continued)));
  const std::size_t at = rendered.text.rfind(bare);
  if (at == std::string::npos || rendered.text.find(said) == std::string::npos)
    throw InputError("the template does not write the last message as it is, so that it cannot be continued");
  const bool keeps_blanks = std::string_view(rendered.text).substr(at).starts_with(continued_mark);
  rendered.text.resize(at);
  if (!keeps_blanks) rendered.text.resize(jinja::strip_right(rendered.text).size());
  rendered.generated.clear();
}

}  // namespace

ChatTemplate::ChatTemplate(const Source& source, const std::optional<Source>& for_tools, Tokens tokens)
    : default_(std::make_shared<const jinja::Template>(source.text, source.name)),
      sources_(source.text),
      tokens_(std::move(tokens)) {
  if (for_tools) sources_ += for_tools->text;
  if (for_tools) for_tools_ = std::make_shared<const jinja::Template>(for_tools->text, for_tools->name);
  std::erase_if(tokens_.special, [](const std::string& token) { return token.empty(); });
}

ChatTemplate ChatTemplate::chatml() {
  ChatTemplate made({chatml_source, "ChatML"}, std::nullopt, {{}, {std::string(chat_begin), std::string(chat_end)}});
  made.is_chatml_ = true;
  return made;
}

bool ChatTemplate::asks_for_the_day() const { return sources_.find("strftime_now") != std::string::npos; }

std::string ChatTemplate::identity(std::time_t now) const {
  std::string all = concat(sources_, is_chatml_ ? "\nChatML" : "");
  for (const auto& [name, token] : tokens_.named) all += concat("\n", name, "=", token);
  if (!asks_for_the_day()) return all;
  std::tm day{};
  localtime_r(&now, &day);
  return concat(all, "\n", day.tm_year, " ", day.tm_yday);
}

const jinja::Template& ChatTemplate::used(const ChatOptions& options) const {
  return !options.tools.is_null() && for_tools_ != nullptr ? *for_tools_ : *default_;
}

void ChatTemplate::check(const tessera::Value& messages, const ChatOptions& options) const {
  if (messages.items().empty()) throw InputError("a conversation without messages");
  if (messages.items().size() > most_messages)
    throw InputError(concat("a conversation of more than ", most_messages, " messages"));
  for (std::size_t i = 0; i < messages.items().size(); ++i) {
    const tessera::Value& message = messages.items()[i];
    if (!message.is_object()) fail_message(i, "must be an object with \"role\" and \"content\"");
    const tessera::Value* role = message.find("role");
    if (role == nullptr || !role->is_string()) fail_message(i, "has no \"role\", which must be a text");
    try {
      for (const auto& [name, value] : message.members()) check_tokens(value, name, tokens_.special);
    } catch (const InputError& error) {
      fail_message(i, error.what());
    }
  }
  for (const auto& [name, value] : {std::pair("tools", &options.tools), std::pair("documents", &options.documents)}) {
    if (value->is_null()) continue;
    if (!value->is_array()) throw InputError(concat("\"", name, "\" must be a list"));
    check_tokens(*value, name, tokens_.special);
  }
  if (options.continue_final_message && options.add_generation_prompt)
    throw InputError("a last message is to be continued and another one to be begun: ask for one of the two");
}

jinja::Rendered ChatTemplate::render_unchecked(const jinja::Values& messages, const ChatOptions& options) const {
  jinja::Variables variables;
  for (const auto& [name, token] : tokens_.named) variables.emplace_back(name, jinja::Value::of(token));
  for (const auto& [name, value] : options.variables) {
    std::erase_if(variables, [&, &key = name](const auto& known) { return known.first == key; });
    variables.emplace_back(name, jinja::from_json(value));
  }
  variables.emplace_back("messages", list_of(messages));
  variables.emplace_back("tools", jinja::from_json(options.tools));
  variables.emplace_back("documents", jinja::from_json(options.documents));
  variables.emplace_back("add_generation_prompt", jinja::Value::of(options.add_generation_prompt));
  return used(options).render(variables, {}, options.now);
}

jinja::Rendered ChatTemplate::render(const tessera::Value& messages, const ChatOptions& options) const {
  check(messages, options);
  jinja::Values plain = plain_messages(messages);
  if (!options.continue_final_message) return render_unchecked(plain, options);
  const std::string continued = add_mark(plain);
  jinja::Rendered rendered = render_unchecked(plain, options);
  cut_at_mark(rendered, continued);
  return rendered;
}

// What the assistant says.

namespace {

bool is_assistant(const jinja::Value& message) {
  const jinja::Value* role = message.member("role");
  return role != nullptr && role->is_string() && role->string() == "assistant";
}

jinja::Values first_of(const jinja::Values& messages, std::size_t count) {
  return {messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Text before and behind the stand-in.
struct Around {
  std::string before, behind;
};

std::optional<Around> around_stand_in(const std::string& text) {
  const std::size_t at = text.find(stand_in);
  if (at == std::string::npos || text.find(stand_in, at + 1) != std::string::npos) return std::nullopt;
  return Around{text.substr(0, at), text.substr(at + stand_in.size())};
}

std::vector<Piece> pieces_of(const std::string& text, const std::vector<jinja::Span>& scored) {
  std::vector<Piece> pieces;
  const auto add = [&](std::size_t begin, std::size_t end, bool is_scored) {
    if (begin == end) return;
    const std::string piece = text.substr(begin, end - begin);
    if (!pieces.empty() && pieces.back().scored == is_scored)
      pieces.back().text += piece;
    else
      pieces.push_back({piece, is_scored});
  };
  std::size_t at = 0;
  for (const jinja::Span& span : scored) {
    add(at, span.begin, false);
    add(span.begin, span.end, true);
    at = span.end;
  }
  add(at, text.size(), false);
  return pieces;
}

}  // namespace

/// Where a span ends when blanks behind its last special token are left out.
std::size_t ChatTemplate::without_blanks(const std::string& whole, jinja::Span span) const {
  const std::string_view said = std::string_view(whole).substr(span.begin, span.end - span.begin);
  const std::string_view bare = jinja::strip_right(said);
  const bool ends_with_token = std::any_of(tokens_.special.begin(), tokens_.special.end(),
                                           [&](const std::string& token) { return bare.ends_with(token); });
  return ends_with_token ? span.begin + bare.size() : span.end;
}

/// How much of what follows a turn's content is the mark of its end: what also follows it where it is the last turn;
/// else (some write another mark at the very end) a special token that stands there.
std::optional<std::size_t> ChatTemplate::size_of_mark(std::string_view behind, std::string_view behind_last) const {
  if (behind.starts_with(behind_last)) return behind_last.size();
  std::size_t longest = 0;
  for (const std::string& token : tokens_.special)
    if (behind.starts_with(token)) longest = std::max(longest, token.size());
  return longest == 0 ? std::nullopt : std::optional(longest);
}

jinja::Span ChatTemplate::span_of_turn(const jinja::Values& messages, std::size_t turn, const std::string& whole,
                                       const ChatOptions& options) const {
  ChatOptions plain = options, prompting = options;
  plain.add_generation_prompt = false;
  prompting.add_generation_prompt = true;
  const auto text_of = [&](const jinja::Values& some, const ChatOptions& how) {
    try {
      return render_unchecked(some, how).text;
    } catch (const InputError& error) {  // a template may refuse a conversation that ends in the middle
      fail_message(
          turn, concat("to find what the assistant says here, parts of the conversation are rendered: ", error.what()));
    }
  };
  // A conversation may begin with the assistant; few templates write one that has no messages at all.
  const std::string prompt = turn == 0 ? "" : text_of(first_of(messages, turn), prompting);
  const std::string until = text_of(first_of(messages, turn + 1), plain);
  const bool begins = turn > 0 && whole.starts_with(prompt);
  if (begins && whole.starts_with(until) && until.size() > prompt.size()) return {prompt.size(), until.size()};

  jinja::Values other = messages;
  other[turn] = jinja::Value::of(jinja::Dict{{{jinja::Value::of("role"), jinja::Value::of("assistant")},
                                              {jinja::Value::of("content"), jinja::Value::of(std::string(stand_in))}}});
  const auto in_whole = around_stand_in(text_of(other, plain));
  const auto as_last = around_stand_in(text_of(first_of(other, turn + 1), plain));
  const bool found = whole.find(stand_in) == std::string::npos && in_whole && as_last &&
                     whole.starts_with(in_whole->before) && whole.ends_with(in_whole->behind) &&
                     whole.size() > in_whole->before.size() + in_whole->behind.size();
  const auto mark = found ? size_of_mark(in_whole->behind, as_last->behind) : std::nullopt;
  if (!mark)
    fail_message(turn,
                 "the template writes this turn of the assistant otherwise once others follow it, so that where it "
                 "begins and ends is not known: put {% generation %} and {% endgeneration %} around what the "
                 "assistant says in a copy of the template (--chat_template FILE), or end the conversation with this "
                 "turn, or score everything (--assistant_only_loss false)");
  const bool from_prompt = begins && in_whole->before.starts_with(prompt);
  return {from_prompt ? prompt.size() : in_whole->before.size(), whole.size() - in_whole->behind.size() + *mark};
}

std::vector<Piece> ChatTemplate::scored_pieces(const tessera::Value& messages, const ChatOptions& options) const {
  check(messages, options);
  const jinja::Values plain = plain_messages(messages);
  const jinja::Rendered rendered = render_unchecked(plain, options);
  if (used(options).has_generation()) {
    if (rendered.generation_lost)
      throw InputError(
          "the template marks what the assistant says within a macro or a captured block, so that its "
          "place in the text is not known: move {% generation %} out of it");
    return pieces_of(rendered.text, rendered.generated);
  }
  std::vector<jinja::Span> spans;
  for (std::size_t turn = 0; turn < plain.size(); ++turn) {
    if (!is_assistant(plain[turn])) continue;
    jinja::Span span = span_of_turn(plain, turn, rendered.text, options);
    span.end = without_blanks(rendered.text, span);
    if (!spans.empty() && span.begin < spans.back().end)
      fail_message(turn, "the template writes this turn of the assistant into the one before it");
    spans.push_back(span);
  }
  return pieces_of(rendered.text, spans);
}

// Tokens.

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), line_feed_(tokenizer.encode("\n")) {
  // Text behind a line feed has the tokens that it has anywhere but at the beginning.
  const std::vector<std::int32_t> alone = tokenizer.encode("x"), behind = tokenizer.encode("\nx");
  puts_blank_ = behind.size() > line_feed_.size() && std::equal(line_feed_.begin(), line_feed_.end(), behind.begin()) &&
                !std::equal(alone.begin(), alone.end(), behind.begin() + static_cast<std::ptrdiff_t>(line_feed_.size()),
                            behind.end());
}

std::vector<std::int32_t> ChatEncoder::encode(std::string_view piece, bool first) const {
  if (first || !puts_blank_) return tokenizer_.encode(piece);
  const std::vector<std::int32_t> ids = tokenizer_.encode(concat("\n", piece));
  if (ids.size() < line_feed_.size() || !std::equal(line_feed_.begin(), line_feed_.end(), ids.begin()))
    return tokenizer_.encode(piece);
  return {ids.begin() + static_cast<std::ptrdiff_t>(line_feed_.size()), ids.end()};
}

}  // namespace tessera::text
