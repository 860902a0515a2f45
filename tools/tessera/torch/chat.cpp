/// \file
/// tessera chat: a conversation with a model in the terminal. Answers are printed token by token; Ctrl-C ends one.
/// Without a terminal every line of standard input is a question, so that a conversation can be scripted.

#include <unistd.h>

#include <iostream>
#include <optional>
#include <utility>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/train/loop/signals.h>

#include "answerer.h"

namespace tessera::tool {
namespace {

const std::string chat_help = concat(
    "tessera chat --model_name_or_path DIR [options]\n\n"
    "Talks with a model trained to answer, using its chat template. Each line is a\n"
    "question, even when standard input is a pipe.\n\n"
    "  --model_name_or_path DIR  folder with config.json, model.safetensors,\n"
    "                            tokenizer.json; or a LoRA adapter's folder (PEFT)\n"
    "  --tokenizer_name NAME     another tokenizer: a folder, a tokenizer.json, byte\n"
    "  --chat_template FILE      another template (Jinja), or its text\n"
    "  --system TEXT             system message\n"
    "  --max_new_tokens N        maximum tokens of an answer [1000]\n",
    answer_help, "\nIn the conversation:\n");

constexpr const char* chat_words =
    "  /reset        starts a new conversation\n"
    "  /undo         removes the last question and its answer\n"
    "  /system TEXT  sets the system message and starts a new conversation\n"
    "  /help         shows these commands\n"
    "  /quit         quits, as does the end of the input (Ctrl-D)\n"
    "Ctrl-C ends an answer, or, between answers, the program.\n";

/// The turns of a conversation, and the tokens of it that the model has cached.
class Conversation {
 public:
  Conversation(const Answerer& answerer, const text::ChatTemplate& chat, std::string system)
      : answerer_(answerer), chat_(chat), system_(std::move(system)) {}

  void reset() { turns_.clear(); }
  void reset(const std::string& system) {
    system_ = system;
    reset();
  }
  bool undo() {
    if (turns_.empty()) return false;
    turns_.pop_back();
    return true;
  }

  /// Prints the answer as it is generated. A question that the template refuses throws InputError and is not kept.
  /// Returns whether the conversation continues: SIGTERM ends the program, not just the answer.
  bool ask(const std::string& question) {
    turns_.push_back({question, ""});
    try {
      return answer();
    } catch (const InputError&) {
      turns_.pop_back();
      throw;
    }
  }

 private:
  struct Turn {
    std::string question, answer;
  };

  Value messages() const {
    Value list = Value::make_array();
    if (!system_.empty()) list.push_back(chat_message("system", system_));
    for (const Turn& turn : turns_) {
      list.push_back(chat_message("user", turn.question));
      if (&turn != &turns_.back()) list.push_back(chat_message("assistant", turn.answer));
    }
    return list;
  }

  /// Drops the oldest turns when the model's positions do not suffice for all turns and an answer.
  std::vector<std::int32_t> prompt() {
    const std::int64_t positions = answerer_.model->max_positions();
    const std::int64_t wanted = std::min(answerer_.options.max_new_tokens, positions / 2);
    for (std::size_t forgotten = 0;; ++forgotten) {
      std::vector<std::int32_t> ids = chat_prompt(answerer_, chat_, messages());
      const bool fits = static_cast<std::int64_t>(ids.size()) + wanted <= positions;
      if (fits || turns_.size() == 1) {
        if (forgotten > 0)
          log::info("the model's ", positions, " positions are full: the first ", forgotten,
                    forgotten == 1 ? " question was" : " questions were", " forgotten");
        return ids;
      }
      turns_.erase(turns_.begin());
    }
  }

  bool answer() {
    const std::vector<std::int32_t> ids = prompt();
    train::TextStream stream(*answerer_.tokenizer, ids);
    std::string said;
    const auto show = [&](const std::string& text) {
      said += text;
      print_said(text);
    };
    const train::StopSignals signals;
    train::GenerateOptions options = answerer_.options;
    options.seed += turns_.size();  // each question gets different random numbers
    options.stop = [&] { return signals.requested() != train::StopRequest::none; };
    const std::int64_t begin_ns = monotonic_ns();
    const auto made =
        train::generate(*answerer_.model, ids, options, [&](std::int32_t id) { show(stream.add(id)); }, &seen_);
    show(stream.finish());
    print("\n");
    const double seconds = seconds_since(begin_ns);
    if (isatty(STDERR_FILENO) != 0 && !made.empty())
      log::info(made.size(), " tokens, ", format_real(static_cast<double>(made.size()) / seconds, 3), " tok/s");
    turns_.back().answer = said;
    return signals.requested() != train::StopRequest::terminate;
  }

  const Answerer& answerer_;
  const text::ChatTemplate& chat_;
  std::string system_;
  std::vector<Turn> turns_;
  train::SeenTokens seen_;
};

/// The rest of a line after `word` and a blank, if the line begins with the word.
std::optional<std::string> after(const std::string& line, const std::string& word) {
  if (line == word) return "";
  if (line.starts_with(word + " ")) return std::string(trim(std::string_view(line).substr(word.size())));
  return std::nullopt;
}

/// Executes a command line. Returns whether the conversation continues.
bool obey(const std::string& line, Conversation& conversation) {
  if (line == "/quit" || line == "/exit") return false;
  if (line == "/help") {
    print(chat_words);
  } else if (line == "/reset") {
    conversation.reset();
  } else if (line == "/undo") {
    if (!conversation.undo()) log::info("the conversation is empty");
  } else if (const auto system = after(line, "/system")) {
    conversation.reset(*system);
  } else {
    log::info("unknown command: ", line, "; /help lists the commands");
  }
  return true;
}

}  // namespace

int chat(const Arguments& arguments) {
  const Flags flags("chat", arguments, answer_flags({"system"}), answer_switches({}));
  if (flags.has("help")) {
    print(chat_help + chat_words);
    return 0;
  }
  const Answerer answerer = open_answerer(flags, 1000);
  const text::ChatTemplate chat = answerer.chat_template(flags);
  Conversation conversation(answerer, chat, flags.text("system").value_or(""));
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) log::info("/help lists commands; Ctrl-D quits");
  for (std::string line; (terminal ? print("> ") : void()), std::getline(std::cin, line);) {
    line = trim(line);
    if (line.empty()) continue;
    if (line.front() == '/') {
      if (!obey(line, conversation)) break;
      continue;
    }
    try {
      if (!conversation.ask(line)) return static_cast<int>(ExitCode::stopped);
    } catch (const InputError& error) {
      if (!terminal) throw;
      log::warning(error.what());
    }
  }
  if (terminal) print("\n");
  return 0;
}

}  // namespace tessera::tool
