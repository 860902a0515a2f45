#pragma once
/// \file
/// Formats conversations with the templates of LLaVA's --version (FastChat's conversation templates), without Jinja:
/// https://github.com/haotian-liu/LLaVA/blob/main/llava/conversation.py; scored as in its train.py.
///
///   v1 (vicuna_v1)   SYSTEM USER: question ASSISTANT: answer</s>USER: ...
///   llava_llama_2    [INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nquestion [/INST] answer </s><s>[INST] ...
///   plain            <image>caption\n

#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

struct Conversation {
  enum class Style { two_separators, llama_2, plain };
  std::string_view version;     ///< its name
  Style style;                  ///< format of the turns
  std::string_view system;      ///< text before the first question
  std::string_view begin, end;  ///< begin: before each question except the first (llama_2 only); end: after an answer
  bool marks_images = false;    ///< puts <Image> and </Image> around each image
};

/// One side's message.
struct Turn {
  bool assistant = false;
  std::string text;
};

/// A question and all other text before the answer, which are not scored, and the answer with its end, which is scored.
struct Round {
  std::string asked, answered;
};

/// Looks up a --version name. For v0 and v0.5 LLaVA's train.py keeps its default template, vicuna_v1. Throws
/// InputError, listing the supported names, for unknown and unsupported ones.
const Conversation& conversation_of(std::string_view version);

/// Splits alternating turns, the user's first (a first turn of the assistant is dropped, as in LLaVA), into rounds.
/// plain: exactly two turns; the question is reduced to its images, one "<image>" each. Throws InputError, naming
/// `where`, if turns do not alternate. Returns an empty list if the conversation cannot be scored: no answer, an empty
/// text, or a text that contains the turn separator, for which LLaVA ignores the whole conversation (its "tokenization
/// mismatch").
std::vector<Round> rounds_of(const Conversation& conversation, std::vector<Turn> turns, const std::string& where);

}  // namespace tessera::text
