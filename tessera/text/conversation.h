#pragma once
/// \file
/// Conversations as text by the templates that LLaVA's --version names (FastChat's conversation templates), without a
/// program in Jinja: https://github.com/haotian-liu/LLaVA/blob/main/llava/conversation.py, and what train.py beside it
/// scores of them.
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
  Style style;                  ///< what surrounds the turns
  std::string_view system;      ///< what stands before the first question
  std::string_view begin, end;  ///< llama_2: before each question but the first; all: behind an answer
  bool marks_images = false;    ///< <Image> and </Image> around each image
};

/// What one side says.
struct Turn {
  bool assistant = false;
  std::string text;
};

/// A question with all that stands before the answer, which is not scored, and the answer with its end, which is.
struct Round {
  std::string asked, answered;
};

/// By the name of --version. LLaVA's train.py leaves its template, vicuna_v1, where the version is v0 or v0.5. Throws
/// InputError, with the names that there are, for others, and for those of LLaVA's whose scores are not built.
const Conversation& conversation_of(std::string_view version);

/// Turns that alternate, the user's first (a first one of the assistant is left out, as by LLaVA); plain: two turns.
/// Throws InputError, naming `where`, for others. An empty list: nothing can be scored - no answer, an empty text, or a
/// text that has what separates turns, of which LLaVA ignores the whole conversation (its "tokenization mismatch").
/// plain: what the question says is left out but for its images, "<image>" each.
std::vector<Round> rounds_of(const Conversation& conversation, std::vector<Turn> turns, const std::string& where);

}  // namespace tessera::text
