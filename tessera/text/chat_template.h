#pragma once
/// \file
/// Conversations as text, by the template that comes with a model: a program in Jinja (text/jinja/template.h) in
/// chat_template.jinja or tokenizer_config.json. The text is what transformers' apply_chat_template makes.
///
/// A tokenizer without a template that has both markers of ChatML as tokens gets ChatML
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

/// What a conversation may have beside its messages.
struct ChatOptions {
  bool add_generation_prompt = false;   ///< end with what the assistant's answer begins with
  bool continue_final_message = false;  ///< end within the last message, whose text the model is to go on with
  tessera::Value tools = {},
                 documents = {};  ///< lists as the template expects them (JSON schemas of functions), or null
  std::vector<std::pair<std::string, tessera::Value>> variables = {};  ///< others, as enable_thinking
  std::time_t now = std::time(nullptr);                                ///< what strftime_now() tells
};

/// Immutable: any number of threads may use one object at the same time.
class ChatTemplate {
 public:
  struct Source {
    std::string text;
    std::string name;  ///< what errors call it: "DIR/chat_template.jinja"
  };
  struct Tokens {
    std::vector<std::pair<std::string, std::string>> named;  ///< "bos_token" and the like: variables of the template
    std::vector<std::string> special;                        ///< text, where a message has them
  };

  /// for_tools: used where a conversation has tools. Throws InputError naming the place in the template.
  ChatTemplate(const Source& source, const std::optional<Source>& for_tools, Tokens tokens);

  /// ChatML: roles system, user and assistant. `special`: tokens beside its own marks.
  static ChatTemplate chatml(std::vector<std::string> special = {});
  /// Whether this is chatml(): the tokenizer's own beginning and end of a text are then put around it.
  bool is_chatml() const { return is_chatml_; }
  /// What a conversation's text depends on beside the conversation: another template has another identity. One that
  /// asks what day it is has another one every day.
  std::string identity(std::time_t now = std::time(nullptr)) const;
  /// Whether the text depends on the day.
  bool asks_for_the_day() const;

  /// The text of a conversation and what `{% generation %}` blocks wrote of it. `messages`: a list of objects with
  /// "role" and whatever the template reads ("content": a text or a list of parts; "tool_calls"; ...); members that
  /// are null count as missing, and the names of reasoning (reasoning_content, thinking, reasoning) as one, as in
  /// transformers. Special tokens that people wrote are marked (parted_tokens.h): ChatEncoder makes text of them.
  /// Throws InputError naming the message, or the place in the template: not of this form, or refused by the template.
  jinja::Rendered render(const tessera::Value& messages, const ChatOptions& options = {}) const;

  /// The same text in pieces; scored is what the assistant says and the mark of its end, neighbours differ in
  /// `scored`. A template with `{% generation %}` says so itself. For others, a turn is what the text grows by from
  /// the messages before it, with the generation prompt, to the messages up to it. Templates that write a turn
  /// otherwise once others follow (Qwen3 leaves out its thoughts) are asked once more with another content in its
  /// place: a turn then reaches from the end of the generation prompt to what follows in both (or to a special token
  /// that follows). Where that does not give one answer InputError names the message and the remedy: no score is
  /// guessed. Blanks behind the mark of the end, which the model never has to say, are not scored.
  std::vector<Piece> scored_pieces(const tessera::Value& messages, const ChatOptions& options = {}) const;

  /// Which part of what completes a prompt is scored.
  enum class Completion { assistant, whole, without_last_blanks };
  /// The same where the first `prompt` messages are a prompt and the rest completes it: nothing of the prompt, which
  /// ends with what the template begins the assistant's answer with, is scored. Of the rest what scored_pieces() says;
  /// all of it, as TRL does; or all but blanks behind its last special token.
  std::vector<Piece> completion_pieces(const tessera::Value& messages, std::size_t prompt, Completion scored,
                                       const ChatOptions& options = {}) const;

  /// Whether the template's text has this word: a member of another name is not read, but where objects are written
  /// whole (writes_objects()).
  bool reads(const std::string& name) const { return words_.contains(name); }
  bool writes_objects() const;
  /// Whether a call's arguments that are a text come out as a text within JSON, where an object is meant.
  bool quotes_arguments() const { return quotes_arguments_; }
  /// A special token that people wrote; nullptr: none.
  const std::string* special_token_in(const tessera::Value& value) const;

 private:
  struct Given;  // a conversation as the template is given it
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
  std::string sources_;  // texts of both
  std::unordered_set<std::string> words_;
  bool quotes_arguments_ = false;
  Tokens tokens_;
  bool is_chatml_ = false;
};

/// `given` is the text of a template (it has "{{", "{%" or a line end), or names a file of one. Throws InputError for a
/// file that is not there or too large.
ChatTemplate::Source read_chat_template(const std::string& given);

/// The template of a tokenizer: `given` (read_chat_template) if that is not empty; else, where `place` (what
/// load_tokenizer was given) is a folder or a tokenizer.json in one, what lies there: chat_template.jinja (and
/// additional_chat_templates/tool_use.jinja), or `chat_template` in tokenizer_config.json (a text, or a list with
/// names: "default" and "tool_use" are used); else ChatML where the tokenizer knows its markers. Throws InputError
/// naming the file, or saying what to do where there is no template.
ChatTemplate load_chat_template(const Tokenizer& tokenizer, const std::string& place, const std::string& given = "");

/// The ids of a conversation's pieces. A tokenizer that puts a blank before every text (SentencePiece) does so before
/// the first piece only, as in the whole text. Special tokens that are marked as people's (parted_tokens.h) are text.
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
