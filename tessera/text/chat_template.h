#pragma once
/// \file
/// Formats conversations as text with the model's own template: a Jinja program (text/jinja/template.h) in
/// chat_template.jinja or tokenizer_config.json. The text is the same as that of transformers' apply_chat_template.
///
/// If a tokenizer has no template but both markers of ChatML as tokens, ChatML is used
/// (https://github.com/openai/openai-python/blob/v0.28.1/chatml.md):
///
///   <|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tessera/base/value.h>
#include <tessera/text/chatml.h>
#include <tessera/text/jinja/template.h>
#include <tessera/text/tokenizer.h>

namespace tessera::text {

/// Inputs of a template besides the messages.
struct ChatOptions {
  bool add_generation_prompt = false;         ///< the text ends with the beginning of the assistant's answer
  bool continue_final_message = false;        ///< the text ends inside the last message, for the model to continue
  tessera::Value tools = {}, documents = {};  ///< lists in the template's format (JSON schemas of functions), or null
  std::vector<std::pair<std::string, tessera::Value>> variables = {};  ///< further variables, such as enable_thinking
  std::time_t now = std::time(nullptr);                                ///< the time used by strftime_now()
};

/// Immutable: any number of threads may use one object at the same time.
class ChatTemplate {
 public:
  struct Source {
    std::string text;
    std::string name;  ///< name used in errors: "DIR/chat_template.jinja"
  };
  struct Tokens {
    std::vector<std::pair<std::string, std::string>> named;  ///< variables of the template, such as "bos_token"
    std::vector<std::string> special;                        ///< special tokens, treated as text in messages
  };

  /// for_tools: used for conversations with tools. Throws InputError naming the place in the template.
  ChatTemplate(const Source& source, const std::optional<Source>& for_tools, Tokens tokens);

  /// ChatML, with the roles system, user and assistant. `special`: special tokens besides its own markers.
  static ChatTemplate chatml(std::vector<std::string> special = {});
  /// Whether this is chatml(), in which case the tokenizer's own prefix and suffix are put around the text.
  bool is_chatml() const { return is_chatml_; }
  /// Identifies everything besides the conversation that its text depends on: different templates have different
  /// identities. The identity of a template that uses the current date changes every day.
  std::string identity(std::time_t now = std::time(nullptr)) const;
  /// Whether the text depends on the current date.
  bool asks_for_the_day() const;

  /// Renders a conversation, and records the parts written by `{% generation %}` blocks. `messages`: a list of objects
  /// with "role" and any members that the template reads ("content": a text or a list of parts; "tool_calls"; ...).
  /// Null members count as missing, and the names of reasoning (reasoning_content, thinking, reasoning) are aliases, as
  /// in transformers. Special tokens that people wrote are marked (parted_tokens.h) so that ChatEncoder encodes them as
  /// text. Throws InputError naming the message, or the place in the template, for malformed input and for input that
  /// the template refuses.
  jinja::Rendered render(const tessera::Value& messages, const ChatOptions& options = {}) const;

  /// The same text in pieces; the assistant's messages and their end markers are scored, and adjacent pieces differ in
  /// `scored`. A template with `{% generation %}` marks them itself. For other templates, the text of a turn is the
  /// text added between rendering the messages before it, with the generation prompt, and rendering the messages up to
  /// it. Some templates write a turn differently when others follow (Qwen3 omits its thoughts); for these the
  /// conversation is rendered again with different content in place of the turn, which then extends from the end of the
  /// generation prompt to the common rest of both texts (or to a special token that follows). If that is ambiguous,
  /// throws InputError naming the message and the remedy: scores are never guessed. Blanks after the end marker, which
  /// the model never generates, are not scored.
  std::vector<Piece> scored_pieces(const tessera::Value& messages, const ChatOptions& options = {}) const;

  /// The scored part of a completion.
  enum class Completion { assistant, whole, without_last_blanks };
  /// The same if the first `prompt` messages are a prompt and the rest completes it. The prompt, including the
  /// template's beginning of the assistant's answer, is not scored. Of the rest, `scored` selects the parts scored by
  /// scored_pieces(), or all of it, as in TRL, or all except whitespace after its last special token.
  std::vector<Piece> completion_pieces(const tessera::Value& messages, std::size_t prompt, Completion scored,
                                       const ChatOptions& options = {}) const;

  /// Whether the template's text contains this word. A member with another name is not read, unless whole objects are
  /// written (writes_objects()).
  bool reads(const std::string& name) const { return words_.contains(name); }
  bool writes_objects() const;
  /// Whether a tool call's arguments given as text would be written as a JSON string instead of an object.
  bool quotes_arguments() const { return quotes_arguments_; }
  /// A special token in text written by people; nullptr: none.
  const std::string* special_token_in(const tessera::Value& value) const;

 private:
  struct Given;  // a conversation as the template sees it
  const jinja::Template& used(const ChatOptions& options) const;
  Given given(const tessera::Value& messages, const ChatOptions& options) const;
  std::vector<jinja::Span> spans_of_turns(const Given& given, const jinja::Rendered& whole, std::size_t first) const;
  std::size_t end_of_prompt(const Given& given, const std::string& whole, std::size_t prompt) const;
  jinja::Rendered render_unchecked(const jinja::Values& messages, const ChatOptions& options) const;
  jinja::Span span_of_turn(const jinja::Values& messages, std::size_t turn, const std::string& whole,
                           const ChatOptions& options) const;
  std::optional<std::size_t> size_of_mark(std::string_view behind, std::string_view behind_last) const;
  std::size_t without_blanks(const std::string& whole, jinja::Span span) const;

  std::shared_ptr<const jinja::Template> default_, for_tools_;
  std::string sources_;  // texts of both templates
  std::unordered_set<std::string> words_;
  bool quotes_arguments_ = false;
  Tokens tokens_;
  bool is_chatml_ = false;
};

/// `given`: the text of a template (it has "{{", "{%" or a line end), or a file name. Throws InputError for a file that
/// does not exist or is too large.
ChatTemplate::Source read_chat_template(const std::string& given);

/// The template of a tokenizer: `given` (read_chat_template) if it is not empty; otherwise, if `place`
/// (load_tokenizer's argument) is a folder or a tokenizer.json in one, the folder's template: chat_template.jinja (and
/// additional_chat_templates/tool_use.jinja), or `chat_template` in tokenizer_config.json (a text, or a list with
/// names, of which "default" and "tool_use" are used); otherwise ChatML if the tokenizer has its markers. Throws
/// InputError naming the file or, if no template is found, the remedy.
ChatTemplate load_chat_template(const Tokenizer& tokenizer, const std::string& place, const std::string& given = "");

/// Encodes the pieces of a conversation. A tokenizer that adds a blank before every text (SentencePiece) does so only
/// before the first piece, as in the whole text. Special tokens marked as written by people (parted_tokens.h) are
/// encoded as text.
class ChatEncoder {
 public:
  explicit ChatEncoder(const Tokenizer& tokenizer);
  std::vector<std::int32_t> encode(std::string_view piece, bool first) const;

 private:
  std::vector<std::int32_t> encode_part(std::string_view part, bool first) const;

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> line_feed_;
  bool puts_blank_ = false;
};

}  // namespace tessera::text
