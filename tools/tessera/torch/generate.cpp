/// \file
/// tessera generate: generates text with a model folder and prints it as it is generated.

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

#include "answerer.h"

namespace tessera::tool {
namespace {

const std::string generate_help = concat(
    "tessera generate --model_name_or_path DIR --prompt TEXT [options]\n\n"
    "Continues the prompt with a model that `tessera train` (or Hugging Face\n"
    "transformers) has written. For conversations see `tessera chat`.\n\n"
    "  --model_name_or_path DIR  folder with config.json, model.safetensors,\n"
    "                            tokenizer.json; or a LoRA adapter's folder (PEFT)\n"
    "  --tokenizer_name NAME     another tokenizer: a folder, a tokenizer.json, byte\n"
    "  --prompt TEXT             text to continue\n"
    "  --chat                    the prompt is a question, formatted by the model's chat\n"
    "                            template; only the answer is printed\n"
    "  --chat_template FILE|TEXT with --chat: another template (Jinja)\n"
    "  --system TEXT             with --chat: system message\n"
    "  --messages FILE           instead of --prompt: a conversation to answer, a JSON list\n"
    "                            of {\"role\": ..., \"content\": ...}, or an object with\n"
    "                            messages, tools, documents\n"
    "  --max_new_tokens N        length of the continuation [100]\n",
    answer_help,
    "\nGeneration stops at the model's eos_token_id or the tokenizer's end of text (or of\n"
    "turn), which are not printed. The speed is printed to standard error.\n");

/// The prompt's tokens, and the part of it that is printed before the continuation.
struct Prompt {
  std::vector<std::int32_t> ids;
  std::string shown;
};

/// Reads a conversation of several turns from a file.
Prompt read_messages(const Flags& flags, const Answerer& answerer, const std::string& path) {
  const Value file = read_json(path);
  Value messages = Value::make_array();
  if (const auto system = flags.text("system")) messages.push_back(chat_message("system", *system));
  text::ChatOptions options;
  if (!file.is_array()) {
    if (const Value* tools = file.find("tools")) options.tools = *tools;
    if (const Value* documents = file.find("documents")) options.documents = *documents;
  }
  for (const Value& one : (file.is_array() ? file : file.at("messages")).items()) messages.push_back(one);
  try {
    return {chat_prompt(answerer, answerer.chat_template(flags), messages, options), ""};
  } catch (const InputError& error) {
    throw InputError(concat(path, ": ", error.what()));
  }
}

Prompt read_prompt(const Flags& flags, const Answerer& answerer) {
  if (const auto path = flags.text("messages")) return read_messages(flags, answerer, *path);
  const std::string given = flags.required("prompt", "the text to continue");
  const auto system = flags.text("system");
  if (!flags.has("chat")) {
    if (system) throw InputError("--system needs --chat: add --chat, or put the text into --prompt");
    if (flags.text("chat_template"))
      throw InputError("--chat_template needs --chat: add --chat, or remove --chat_template");
    const text::Tokenizer& tokenizer = *answerer.tokenizer;
    // tokens such as <|begin_of_text|>; no suffix, because the text continues
    Prompt prompt{tokenizer.prefix(), given};
    for (const std::int32_t id : tokenizer.encode(given)) prompt.ids.push_back(id);
    return prompt;
  }
  Value messages = Value::make_array();
  if (system) messages.push_back(chat_message("system", *system));
  messages.push_back(chat_message("user", given));
  return {chat_prompt(answerer, answerer.chat_template(flags), messages), ""};
}

}  // namespace

int generate(const Arguments& arguments) {
  const Flags flags("generate", arguments, answer_flags({"prompt", "messages", "system"}), answer_switches({"chat"}));
  if (flags.has("help")) {
    print(generate_help);
    return 0;
  }
  flags.required("model_name_or_path", "the folder of a trained model");
  if (flags.text("prompt") && flags.text("messages"))
    throw InputError("--prompt and --messages both set the prompt: remove one of them");
  if (!flags.text("messages")) flags.required("prompt", "the text to continue");
  const Answerer answerer = open_answerer(flags, 100);
  const Prompt prompt = read_prompt(flags, answerer);
  train::TextStream stream(*answerer.tokenizer, prompt.ids);
  bool started = false;
  const auto show = [&](std::int32_t id) {
    if (!started) print(prompt.shown);  // after all checks, so that bad input prints nothing on standard output
    started = true;
    print_said(stream.add(id));
  };
  const std::int64_t begin_ns = monotonic_ns();
  const auto made = train::generate(*answerer.model, prompt.ids, answerer.options, show);
  const double seconds = seconds_since(begin_ns);
  if (!started) print(prompt.shown);
  print_said(stream.finish() + "\n");
  log::info(made.size(), " tokens in ", format_real(seconds, 3), " s (",
            format_real(static_cast<double>(made.size()) / seconds, 3), " tok/s, prompt of ", prompt.ids.size(),
            " included)");
  if (static_cast<std::int64_t>(prompt.ids.size() + made.size()) > answerer.model->max_positions())
    log::info("stopped at the model's ", answerer.model->max_positions(), " positions");
  return 0;
}

}  // namespace tessera::tool
