#include <tessera/text/conversation.h>

#include <algorithm>
#include <array>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::text {
namespace {

using Style = Conversation::Style;

constexpr std::string_view kUser =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and "
    "polite answers to the user's questions.";
constexpr std::string_view kHuman =
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the human's questions.";
constexpr std::string_view kMarked =
    "A chat between a curious user and an artificial intelligence assistant. The assistant is able to understand the "
    "visual content that the user provides, and assist the user with a variety of tasks using natural language.The "
    "visual content will be provided with the following format: <Image>visual content</Image>.";
constexpr std::string_view kSees =
    "You are a helpful language and vision assistant. You are able to understand the visual content that the user "
    "provides, and assist the user with a variety of tasks using natural language.";

constexpr std::array<Conversation, 10> conversations = {{
    {"v1", Style::two_separators, kUser, "", "</s>"},
    {"vicuna_v1", Style::two_separators, kUser, "", "</s>"},
    {"v0", Style::two_separators, kUser, "", "</s>"},
    {"v0.5", Style::two_separators, kUser, "", "</s>"},
    {"llava_v1", Style::two_separators, kHuman, "", "</s>"},
    {"v1_mmtag", Style::two_separators, kMarked, "", "</s>", true},
    {"llava_llama_2", Style::llama_2, kSees, "<s>", "</s>"},
    {"mistral_instruct", Style::llama_2, "", "", "</s>"},
    {"plain", Style::plain, "", "", "\n"},
    {"v0_plain", Style::plain, "", "", "\n"},
}};

/// LLaVA's other templates.
constexpr std::array<std::string_view, 7> not_built = {"default",       "llama_2",        "mpt",     "llava_v0",
                                                       "chatml_direct", "mistral_direct", "v0_mmtag"};

constexpr std::string_view kAssistant = "ASSISTANT", kUserName = "USER", kInstruction = "[/INST]", kImage = "<image>";

std::string names() {
  std::vector<std::string> all;
  for (const Conversation& conversation : conversations) all.emplace_back(conversation.version);
  return join(all);
}

/// The text that LLaVA searches for to separate the question from the answer.
std::string separator_of(const Conversation& conversation) {
  return conversation.style == Style::llama_2 ? concat(kInstruction, " ") : concat(" ", kAssistant, ": ");
}

bool says_nothing_clear(const Conversation& conversation, const std::vector<Turn>& turns) {
  const std::string separator = separator_of(conversation);
  return std::any_of(turns.begin(), turns.end(), [&](const Turn& turn) {
    return turn.text.empty() || turn.text.find(conversation.end) != std::string::npos ||
           turn.text.find(separator) != std::string::npos;
  });
}

std::vector<Round> plain_rounds(const Conversation& conversation, const std::vector<Turn>& turns,
                                const std::string& where) {
  if (turns.size() != 2)
    throw InputError(concat(where, ": --version ", conversation.version,
                            " is for an image and its caption, i.e. two turns; ", "this conversation has ",
                            turns.size()));
  std::string images;
  const std::string& said = turns[0].text;
  for (std::size_t at = said.find(kImage); at != std::string::npos; at = said.find(kImage, at + kImage.size()))
    images += kImage;
  if (images.empty())
    throw InputError(concat(where, ": --version ", conversation.version,
                            " is for an image and its caption, but the first turn has no <image>"));
  return {{images, concat(turns[1].text, conversation.end)}};
}

}  // namespace

const Conversation& conversation_of(std::string_view version) {
  const auto* found = std::find_if(conversations.begin(), conversations.end(),
                                   [&](const Conversation& known) { return known.version == version; });
  if (found != conversations.end()) return *found;
  const bool theirs = std::find(not_built.begin(), not_built.end(), version) != not_built.end();
  throw InputError(concat("--version ", version,
                          theirs ? ": this template of LLaVA is not supported" : ": unknown template",
                          "; supported are ", names(), "; for others use --chat_template and `messages`"));
}

std::vector<Round> rounds_of(const Conversation& conversation, std::vector<Turn> turns, const std::string& where) {
  if (conversation.style == Style::plain) return plain_rounds(conversation, turns, where);
  if (!turns.empty() && turns.front().assistant) turns.erase(turns.begin());
  for (std::size_t i = 0; i < turns.size(); ++i)
    if (turns[i].assistant != (i % 2 == 1))
      throw InputError(concat(where, ": turn ", i + 1, " is the ", turns[i].assistant ? "assistant" : "user",
                              "'s again: human and gpt must alternate"));
  if (turns.empty() || turns.size() % 2 == 1 || says_nothing_clear(conversation, turns)) return {};
  std::vector<Round> rounds;
  for (std::size_t i = 0; i < turns.size(); i += 2) {
    const std::string &question = turns[i].text, &answer = turns[i + 1].text;
    if (conversation.style == Style::two_separators) {
      rounds.push_back({concat(i == 0 ? concat(conversation.system, " ") : std::string(), kUserName, ": ", question,
                               " ", kAssistant, ":"),
                        concat(" ", answer, conversation.end)});
      continue;
    }
    const std::string system = i == 0 && !conversation.system.empty()
                                   ? concat("<<SYS>>\n", conversation.system, "\n<</SYS>>\n\n")
                                   : std::string();
    rounds.push_back({concat(i == 0 ? "" : conversation.begin, "[INST] ", system, question, " ", kInstruction),
                      concat(" ", answer, " ", conversation.end)});
  }
  return rounds;
}

}  // namespace tessera::text
