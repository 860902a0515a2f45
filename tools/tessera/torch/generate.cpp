/// \file
/// tessera generate: text from a model folder, printed as it comes.

#include <ATen/Parallel.h>

#include <cstdio>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/models/load.h>
#include <tessera/text/tokenizer.h>
#include <tessera/train/generate.h>
#include <tessera/train/setup.h>

#include "tool.h"

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera generate --model_name_or_path DIR --prompt TEXT [options]\n\n"
    "Continues the prompt with a model that `tessera train` (or Hugging Face transformers) has written.\n\n"
    "  --model_name_or_path DIR   folder with config.json, model.safetensors, tokenizer.json\n"
    "  --tokenizer_name NAME      another tokenizer: a folder, a tokenizer.json, or 'byte'\n"
    "  --prompt TEXT              text to continue\n"
    "  --max_new_tokens N         default 100\n"
    "  --greedy                   always the likeliest token (default: --do_sample)\n"
    "  --temperature T            default 1\n"
    "  --top_k K                  sample among the K likeliest; 0: all (default)\n"
    "  --top_p P                  sample among the likeliest that reach probability P; default 1\n"
    "  --seed S                   default 42\n"
    "  --threads_per_process N    default: all cores\n";

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int generate(const Arguments& arguments) {
  const Flags flags("generate", arguments,
                    {"model_name_or_path", "tokenizer_name", "prompt", "max_new_tokens", "temperature", "top_k",
                     "top_p", "seed", "threads_per_process"},
                    {"greedy", "do_sample", "help"});
  if (flags.has("help")) {
    print(help);
    return 0;
  }
  const auto folder = flags.text("model_name_or_path");
  const auto prompt = flags.text("prompt");
  if (!folder) throw InputError("--model_name_or_path is missing: the folder of a trained model");
  if (!prompt) throw InputError("--prompt is missing: the text to continue");
  if (flags.has("greedy") && flags.has("do_sample")) throw InputError("--greedy and --do_sample contradict each other");
  const std::int64_t threads = flags.integer("threads_per_process", 0);
  if (threads < 0) throw InputError(concat("--threads_per_process is ", threads, ", must be >= 0"));
  train::set_threads(threads, 1);

  ModelConfig config;
  config.model_name_or_path = *folder;
  const auto model = models::load_model(config, 0);
  // A folder without a tokenizer was trained on bytes or on ready-made tokens.
  const auto tokenizer = text::load_tokenizer(
      flags.text("tokenizer_name").value_or(path_exists(path_join(*folder, "tokenizer.json")) ? *folder : "byte"));
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
  options.stop_id = tokenizer->end_of_text();

  const std::vector<std::int32_t> ids = tokenizer->encode(*prompt);
  train::TextStream stream(*tokenizer);
  bool started = false;
  const auto show = [&](std::int32_t id) {
    if (!started) print(*prompt);  // after all checks: bad input prints nothing on standard output
    started = true;
    print(stream.add(id));
  };
  const auto made = train::generate(*model, ids, options, show);
  if (!started) print(*prompt);
  print(stream.finish() + "\n");
  if (static_cast<std::int64_t>(ids.size() + made.size()) > model->max_positions())
    log::info("stopped at the model's ", model->max_positions(), " positions");
  return 0;
}

}  // namespace tessera::tool
