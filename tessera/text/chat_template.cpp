#include <tessera/text/chat_template.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include <tessera/base/error.h>
#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/parted_tokens.h>

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
// the mark that transformers uses; it never appears in the result
constexpr std::string_view continued_mark = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::size_t most_messages = 100'000;
constexpr std::array<const char*, 4> object_writers = {"tojson", "items", "dictsort", "dict"};

/// Stands in for a turn's content; does not occur in any conversation.
constexpr std::string_view stand_in = "Tessera5tands1nF0rTh1sTurn";

[[noreturn]] void fail_message(std::size_t index, const std::string& why) {
  throw InputError(concat("message ", index + 1, ": ", why));
}

/// A message as seen by the template.
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

jinja::Value list_of(jinja::Values items) {
  return jinja::Value::of(jinja::Sequence{jinja::Sequence::Kind::list, std::move(items), 1, 0, ""});
}

std::unordered_set<std::string> words_of(const std::string& text) {
  std::unordered_set<std::string> words;
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const unsigned char c = i < text.size() ? static_cast<unsigned char>(text[i]) : ' ';
    if (std::isalnum(c) != 0 || c == '_')
      word += static_cast<char>(c);
    else if (!word.empty())
      words.insert(std::exchange(word, {}));
  }
  return words;
}

/// Whether the template writes a call's arguments as JSON without checking whether they are a string.
bool writes_arguments_as_json(const std::string& text) {
  if (text.find("tojson") == std::string::npos) return false;
  bool named = false, as_json = false;
  constexpr std::string_view name = "arguments";
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    named = true;
    const std::string_view rest = std::string_view(text).substr(at + name.size());
    const std::string_view behind = rest.substr(std::min(rest.find_first_not_of("'\"]) \t\n"), rest.size()));
    if (behind.starts_with("is ")) return false;  // it handles strings
    as_json |= behind.starts_with("|") && jinja::strip_left(behind.substr(1)).starts_with("tojson");
  }
  return as_json || !named;
}

/// Appends the mark to the text of the last message. Returns that text.
std::string add_mark(jinja::Values& messages) {
  jinja::Members members = messages.back().dict().members;
  const auto content = std::find_if(members.begin(), members.end(),
                                    [](const auto& member) { return member.first.string() == "content"; });
  if (content == members.end()) throw InputError("the last message, which should be continued, has no \"content\"");
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
    if (part == parts.rend()) throw InputError("the last message, which should be continued, has no text");
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

/// Truncates the text at the mark.
void cut_at_mark(jinja::Rendered& rendered, const std::string& continued) {
  const std::string_view bare = jinja::strip_right(continued_mark);
  const std::string said(jinja::strip_left(jinja::strip_right(continued)));
  const std::size_t at = rendered.text.rfind(bare);
  if (at == std::string::npos || rendered.text.find(said) == std::string::npos)
    throw InputError("the template does not write the last message verbatim, so it cannot be continued");
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
  words_ = words_of(sources_);
  quotes_arguments_ = writes_arguments_as_json(sources_);
  std::erase_if(tokens_.special, [](const std::string& token) { return token.empty(); });
}

ChatTemplate ChatTemplate::chatml(std::vector<std::string> special) {
  for (const std::string_view mark : {chat_begin, chat_end}) special.emplace_back(mark);
  ChatTemplate made({chatml_source, "ChatML"}, std::nullopt, {{}, std::move(special)});
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

bool ChatTemplate::writes_objects() const {
  return std::any_of(std::begin(object_writers), std::end(object_writers),
                     [&](const char* word) { return words_.contains(word); });
}

const std::string* ChatTemplate::special_token_in(const tessera::Value& value) const {
  return find_token(value, tokens_.special);
}

struct ChatTemplate::Given {
  jinja::Values messages;
  ChatOptions options;
};

ChatTemplate::Given ChatTemplate::given(const tessera::Value& messages, const ChatOptions& options) const {
  if (messages.items().empty()) throw InputError("the conversation has no messages");
  if (messages.items().size() > most_messages)
    throw InputError(concat("the conversation has more than ", most_messages, " messages"));
  Given given{{}, options};
  for (std::size_t i = 0; i < messages.items().size(); ++i) {
    const tessera::Value& message = messages.items()[i];
    if (!message.is_object()) fail_message(i, "must be an object with \"role\" and \"content\"");
    const tessera::Value* role = message.find("role");
    if (role == nullptr || !role->is_string()) fail_message(i, "has no \"role\", which must be a text");
    given.messages.push_back(plain_message(parted(message, tokens_.special)));
  }
  for (const auto& [name, value] :
       {std::pair("tools", &given.options.tools), std::pair("documents", &given.options.documents)}) {
    if (value->is_null()) continue;
    if (!value->is_array()) throw InputError(concat("\"", name, "\" must be a list"));
    *value = parted(*value, tokens_.special);
  }
  for (auto& [name, value] : given.options.variables) value = parted(value, tokens_.special);
  if (options.continue_final_message && options.add_generation_prompt)
    throw InputError("continue_final_message and add_generation_prompt exclude each other: set only one of them");
  return given;
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
  Given given = this->given(messages, options);
  if (!options.continue_final_message) return render_unchecked(given.messages, given.options);
  const std::string continued = add_mark(given.messages);
  jinja::Rendered rendered = render_unchecked(given.messages, given.options);
  cut_at_mark(rendered, continued);
  return rendered;
}

// The assistant's output.

namespace {

bool is_assistant(const jinja::Value& message) {
  const jinja::Value* role = message.member("role");
  return role != nullptr && role->is_string() && role->string() == "assistant";
}

jinja::Values first_of(const jinja::Values& messages, std::size_t count) {
  return {messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Text before and after the stand-in.
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

/// The end of a span, excluding blanks after its last special token.
std::size_t ChatTemplate::without_blanks(const std::string& whole, jinja::Span span) const {
  const std::string_view said = std::string_view(whole).substr(span.begin, span.end - span.begin);
  const std::string_view bare = jinja::strip_right(said);
  const bool ends_with_token = std::any_of(tokens_.special.begin(), tokens_.special.end(),
                                           [&](const std::string& token) { return bare.ends_with(token); });
  return ends_with_token ? span.begin + bare.size() : span.end;
}

/// The size of the end marker at the start of the text that follows a turn's content: either everything that also
/// follows the content when the turn is the last one, or (some templates write another marker at the very end) a
/// special token.
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
    } catch (const InputError& error) {  // a template may refuse an incomplete conversation
      fail_message(turn,
                   concat("rendering parts of the conversation to locate the assistant's text failed: ", error.what()));
    }
  };
  // A conversation may begin with the assistant, but few templates can render an empty list of messages.
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
                 "the template writes this turn of the assistant differently when others follow it, so its "
                 "limits are unknown: put {% generation %} and {% endgeneration %} around the "
                 "assistant's text in a copy of the template (--chat_template FILE), or end the conversation with this "
                 "turn, or score everything (--assistant_only_loss false)");
  const bool from_prompt = begins && in_whole->before.starts_with(prompt);
  return {from_prompt ? prompt.size() : in_whole->before.size(), whole.size() - in_whole->behind.size() + *mark};
}

/// The assistant's text in the turns from `first` on.
std::vector<jinja::Span> ChatTemplate::spans_of_turns(const Given& given, const jinja::Rendered& whole,
                                                      std::size_t first) const {
  std::vector<jinja::Span> spans;
  for (std::size_t turn = first; turn < given.messages.size(); ++turn) {
    if (!is_assistant(given.messages[turn])) continue;
    jinja::Span span = span_of_turn(given.messages, turn, whole.text, given.options);
    span.end = without_blanks(whole.text, span);
    if (!spans.empty() && span.begin < spans.back().end)
      fail_message(turn, "the template writes this turn of the assistant inside the previous one");
    spans.push_back(span);
  }
  return spans;
}

/// The end of the text of the first `prompt` messages, including the beginning of the assistant's answer.
std::size_t ChatTemplate::end_of_prompt(const Given& given, const std::string& whole, std::size_t prompt) const {
  for (const bool prompting : {true, false}) {
    ChatOptions options = given.options;
    options.add_generation_prompt = prompting;
    if (prompt == 0) break;
    const std::string text = render_unchecked(first_of(given.messages, prompt), options).text;
    if (whole.starts_with(text)) return text.size();
  }
  return is_assistant(given.messages[prompt]) ? span_of_turn(given.messages, prompt, whole, given.options).begin
         : prompt == 0                        ? 0
                                              : whole.size() + 1;
}

std::vector<Piece> ChatTemplate::scored_pieces(const tessera::Value& messages, const ChatOptions& options) const {
  return completion_pieces(messages, 0, Completion::assistant, options);
}

std::vector<Piece> ChatTemplate::completion_pieces(const tessera::Value& messages, std::size_t prompt,
                                                   Completion scored, const ChatOptions& options) const {
  const Given given = this->given(messages, options);
  const jinja::Rendered whole = render_unchecked(given.messages, given.options);
  const bool marked = used(options).has_generation();
  if (scored == Completion::assistant && !marked) return pieces_of(whole.text, spans_of_turns(given, whole, prompt));
  if (scored == Completion::assistant && whole.generation_lost)
    throw InputError(
        "the template marks the assistant's text inside a macro or a captured block, so its "
        "position in the text is unknown: move {% generation %} out of it");
  if (scored == Completion::assistant && prompt == 0) return pieces_of(whole.text, whole.generated);
  if (prompt >= given.messages.size()) throw InputError("no message completes the prompt");
  const std::size_t begin = end_of_prompt(given, whole.text, prompt);
  if (begin > whole.text.size())
    fail_message(prompt,
                 "the template writes the prompt differently when messages follow it, so the start of the completion "
                 "is unknown: begin it with a message of the assistant");
  std::vector<jinja::Span> spans = {{begin, whole.text.size()}};
  if (scored == Completion::without_last_blanks) spans[0].end = without_blanks(whole.text, spans[0]);
  if (scored == Completion::assistant) {
    spans = whole.generated;
    std::erase_if(spans, [&](const jinja::Span& span) { return span.end <= begin; });
    if (!spans.empty()) spans.front().begin = std::max(spans.front().begin, begin);
  }
  return pieces_of(whole.text, spans);
}

// Tokens.

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), line_feed_(tokenizer.encode("\n")) {
  // Text after a line feed has the same tokens as anywhere else, except at the start of a text.
  const std::vector<std::int32_t> alone = tokenizer.encode("x"), behind = tokenizer.encode("\nx");
  puts_blank_ = behind.size() > line_feed_.size() && std::equal(line_feed_.begin(), line_feed_.end(), behind.begin()) &&
                !std::equal(alone.begin(), alone.end(), behind.begin() + static_cast<std::ptrdiff_t>(line_feed_.size()),
                            behind.end());
}

std::vector<std::int32_t> ChatEncoder::encode(std::string_view piece, bool first) const {
  if (piece.find(parting) == std::string_view::npos) return encode_part(piece, first);
  std::vector<std::int32_t> ids;
  for (const std::string& part : between_partings(piece)) {
    const std::vector<std::int32_t> more = encode_part(part, std::exchange(first, false));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

std::vector<std::int32_t> ChatEncoder::encode_part(std::string_view piece, bool first) const {
  if (first || !puts_blank_) return tokenizer_.encode(piece);
  const std::vector<std::int32_t> ids = tokenizer_.encode(concat("\n", piece));
  if (ids.size() < line_feed_.size() || !std::equal(line_feed_.begin(), line_feed_.end(), ids.begin()))
    return tokenizer_.encode(piece);
  return {ids.begin() + static_cast<std::ptrdiff_t>(line_feed_.size()), ids.end()};
}

}  // namespace tessera::text
