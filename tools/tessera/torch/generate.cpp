/// \file
/// tessera generate: text from a model folder, printed as it comes.

#include <ATen/Parallel.h>

#include <cstdio>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/models/load.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/tokenizer.h>
#include <tessera/train/inference/generate.h>
#include <tessera/train/loop/setup.h>

#include "tool.h"

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera generate --model_name_or_path DIR --prompt TEXT [options]\n\n"
    "Continues the prompt with a model that `tessera train` (or Hugging Face\n"
    "transformers) has written.\n\n"
    "  --model_name_or_path DIR  folder with config.json, model.safetensors,\n"
    "                            tokenizer.json; or a LoRA adapter's folder (PEFT)\n"
    "  --tokenizer_name NAME     another tokenizer: a folder, a tokenizer.json, byte\n"
    "  --prompt TEXT             text to continue\n"
    "  --chat                    the prompt is a question; only the answer is printed.\n"
    "                            For models that were taught ChatML (<|im_start|>)\n"
    "  --system TEXT             with --chat: how to answer\n"
    "  --max_new_tokens N        length of the continuation [100]\n"
    "  --greedy                  always the likeliest token (else: --do_sample)\n"
    "  --temperature T           below 1 sharpens, above 1 flattens the choice [1]\n"
    "  --top_k K                 sample among the K likeliest; 0: all [0]\n"
    "  --top_p P                 sample among the likeliest that reach probability P [1]\n"
    "  --seed S                  of the random choice [42]\n"
    "  --bf16                    matrix products in bfloat16\n"
    "  --threads_per_process N   [all cores]\n\n"
    "The text ends at the model's eos_token_id or the tokenizer's end of text (or of\n"
    "turn), which are not printed. Text goes to standard output, the speed to standard error.\n";

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// What the model is to continue, and what of it is printed before the continuation.
struct Prompt {
  std::vector<std::int32_t> ids;
  std::string shown;
};

Prompt read_prompt(const config::Flags& flags, const text::Tokenizer& tokenizer, const std::string& tokenizer_name) {
  const std::string given = flags.required("prompt", "the text to continue");
  const auto system = flags.text("system");
  if (!flags.has("chat")) {
    if (system) throw InputError("--system belongs to --chat: give both, or put the text into --prompt");
    Prompt prompt{tokenizer.prefix(), given};  // <|begin_of_text|> and the like; no suffix, for the text goes on
    for (const std::int32_t id : tokenizer.encode(given)) prompt.ids.push_back(id);
    return prompt;
  }
  text::check_chat_tokens(tokenizer, tokenizer_name);
  std::vector<text::Message> messages;
  if (system) messages.push_back({"system", *system});
  messages.push_back({"user", given});
  Prompt prompt;
  for (const text::Piece& piece : text::render_chat(messages, true))
    for (const std::int32_t id : tokenizer.encode(piece.text)) prompt.ids.push_back(id);
  return prompt;
}

/// What ends a text, by config.json and by generation_config.json if there is one.
std::vector<std::int32_t> stops(const models::CausalLm& model, const std::string& folder,
                                const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids = train::stop_ids(model.hf_config(), tokenizer);
  const std::string path = path_join(folder, "generation_config.json");
  if (path_exists(path))
    for (const std::int32_t id : train::stop_ids(read_json(path), tokenizer)) ids.push_back(id);
  if (text::has_chat_tokens(tokenizer)) ids.push_back(tokenizer.encode(text::chat_end).front());
  return ids;
}

}  // namespace

int generate(const Arguments& arguments) {
  const Flags flags("generate", arguments,
                    {"model_name_or_path", "tokenizer_name", "prompt", "system", "max_new_tokens", "temperature",
                     "top_k", "top_p", "seed", "threads_per_process"},
                    {"chat", "greedy", "do_sample", "bf16", "help"});
  if (flags.has("help")) {
    print(help);
    return 0;
  }
  const std::string folder = flags.required("model_name_or_path", "the folder of a trained model");
  flags.required("prompt", "the text to continue");
  if (flags.has("greedy") && flags.has("do_sample")) throw InputError("--greedy and --do_sample contradict each other");
  const std::int64_t threads = flags.integer("threads_per_process", 0);
  if (threads < 0) throw InputError(concat("--threads_per_process is ", threads, ", must be >= 0"));
  train::set_threads(threads, 1);

  ModelConfig config;
  config.model_name_or_path = folder;
  const auto model = models::load_model(config, 0);
  // A folder without a tokenizer was trained on bytes or on ready-made tokens.
  config.tokenizer_name = flags.text("tokenizer_name").value_or("");
  const std::string place = train::tokenizer_place(config);
  const auto tokenizer = text::load_tokenizer(place);
  if (tokenizer->vocab_size() > model->vocab_size())
    throw InputError(concat("the tokenizer has ", tokenizer->vocab_size(), " tokens but the model's embedding has ",
                            model->vocab_size(), " rows"));

  train::GenerateOptions options;
  options.max_new_tokens = flags.integer("max_new_tokens", 100);
  options.do_sample = !flags.has("greedy");
  options.temperature = flags.real("temperature", 1);
  options.top_k = flags.integer("top_k", 0);
  options.top_p = flags.real("top_p", 1);
  options.seed = static_cast<std::uint64_t>(flags.integer("seed", 42));
  options.vocabulary = tokenizer->vocab_size();
  options.stop_ids = stops(*model, folder, *tokenizer);
  options.bf16 = flags.has("bf16");

  const Prompt prompt = read_prompt(flags, *tokenizer, place);
  train::TextStream stream(*tokenizer, prompt.ids);
  bool started = false;
  const auto show = [&](std::int32_t id) {
    if (!started) print(prompt.shown);  // after all checks: bad input prints nothing on standard output
    started = true;
    print(stream.add(id));
  };
  const std::int64_t begin_ns = monotonic_ns();
  const auto made = train::generate(*model, prompt.ids, options, show);
  const double seconds = seconds_since(begin_ns);
  if (!started) print(prompt.shown);
  print(stream.finish() + "\n");
  log::info(made.size(), " tokens in ", format_real(seconds, 3), " s (",
            format_real(static_cast<double>(made.size()) / seconds, 3), " tok/s, prompt of ", prompt.ids.size(),
            " included)");
  if (static_cast<std::int64_t>(prompt.ids.size() + made.size()) > model->max_positions())
    log::info("stopped at the model's ", model->max_positions(), " positions");
  return 0;
}

}  // namespace tessera::tool
