// tessera tokenizer train: learns a byte-level BPE from text files and writes a tokenizer.json that Hugging Face reads.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/command_flags.h>
#include <tessera/text/bpe_train.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/documents.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera tokenizer train: learns a byte-level BPE tokenizer (GPT-2's split, as Hugging Face's BpeTrainer)\n\n"
    "usage: tessera tokenizer train --train_file FILE --vocab_size N --output FOLDER|FILE.json\n\n"
    "  --train_file FILE      .txt (the file is one document) or .jsonl (a document per line, field \"text\"); may be "
    "repeated\n"
    "  --vocab_size N         tokens in all: <|endoftext|> (id 0), the 256 bytes, then merges\n"
    "  --output PATH          a folder (tokenizer.json and tokenizer_config.json are written there) or a .json file\n"
    "  --min_frequency N      pairs seen less often are not joined [0]\n";

int train(const Arguments& arguments) {
  const config::Flags flags("tokenizer train", arguments, {"train_file", "vocab_size", "output", "min_frequency"}, {},
                            {"train_file"});
  flags.required("train_file", "text to learn from");
  flags.required("vocab_size", "number of tokens");
  const std::string output = flags.required("output", "where to write");
  text::BpeTrainOptions options;
  options.vocab_size = flags.integer("vocab_size", 0);
  options.min_frequency = flags.integer("min_frequency", 0);
  options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  if (options.vocab_size > (1 << 24))
    throw InputError(concat("--vocab_size ", options.vocab_size, ": at most ", 1 << 24));

  std::vector<std::string> texts;
  std::uint64_t bytes = 0;
  for (const std::string& path : flags.texts("train_file")) {
    for_each_document(path, [&](std::string_view document, std::size_t size) {
      texts.emplace_back(document);
      bytes += size;
    });
  }
  const auto begin = std::chrono::steady_clock::now();
  text::BpeFile file;
  {
    TextProgress progress;
    options.progress = [&](const char* phase, std::int64_t done, std::int64_t of) {
      const bool counting = std::string_view(phase) == "bytes";
      progress.show(counting ? "counting words:" : "learning merges:", done, of, counting);
    };
    file = text::train_bpe(texts, options);
  }
  const std::string json = text::tokenizer_json(file);
  if (output.ends_with(".json")) {
    make_folders(std::filesystem::absolute(output).parent_path().string());
    write_file_atomically(output, json);
  } else {
    make_folders(output);
    text::write_tokenizer_files(output, json, file.specials[0].first);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cerr << concat("tokenizer: ", file.vocabulary.size(), " tokens from ", format_bytes(bytes), " of text in ",
                      format_real(seconds, 3), " s -> ", output, "\n");
  if (static_cast<std::int64_t>(file.vocabulary.size()) < options.vocab_size)
    std::cerr << "tokenizer: the text has no more pairs to join: " << file.vocabulary.size() << " tokens instead of "
              << options.vocab_size << "\n";
  return 0;
}

}  // namespace

int tokenizer_command(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    (arguments.empty() ? std::cerr : std::cout) << help;
    return arguments.empty() ? static_cast<int>(ExitCode::bad_input) : 0;
  }
  if (arguments[0] != "train")
    throw InputError(concat("tessera tokenizer has no command '", arguments[0], "'; did you mean 'train'?"));
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  return train({arguments.begin() + 1, arguments.end()});
}

}  // namespace tessera::tool
