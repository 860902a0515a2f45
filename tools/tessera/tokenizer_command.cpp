// tessera tokenizer train: learns byte-level BPE from texts; writes a tokenizer.json that Hugging Face reads too.
// encode: shows the tokens of a text; decode: the texts of tokens.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/corpus/find.h>
#include <tessera/text/bpe/bpe_train.h>
#include <tessera/text/tokenizer.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/utf8.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/data/documents.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <span>
#include <thread>

namespace tessera::tool {
namespace {

constexpr const char* encode_help =
    "tessera tokenizer encode: the tokens of a text, one per line: id, bytes as a JSON string\n\n"
    "usage: tessera tokenizer encode --tokenizer_name FOLDER|FILE|byte --text TEXT | --file FILE\n\n"
    "  --text TEXT               the text\n"
    "  --file FILE               a text file; of other kinds (.jsonl, .parquet, ...) the ids of each record as a JSON "
    "array\n"
    "  --dataset_text_field N    the column with the text, when it is not \"text\" (--text_column_name is the "
    "same)\n"
    "  --add_special_tokens      adds the tokenizer's tokens before and after a text (Llama-3's <|begin_of_text|>)\n";

constexpr const char* decode_help =
    "tessera tokenizer decode: the texts of ids, one per line, as JSON strings\n\n"
    "usage: tessera tokenizer decode --tokenizer_name FOLDER|FILE|byte --file FILE\n\n"
    "  --file FILE               ids, one JSON array per line (as `tokenizer encode --file FILE.jsonl` prints)\n";

constexpr const char* help =
    "tessera tokenizer encode --help: shows the tokens of a text\n"
    "tessera tokenizer decode --help: shows the text of tokens\n\n"
    "tessera tokenizer train: learns byte-level BPE with GPT-2's split from texts, as Hugging Face's BpeTrainer "
    "does\n\n"
    "usage: tessera tokenizer train --train_file PATH --vocab_size N --output FOLDER|FILE.json\n\n"
    "  --train_file PATH      a file, a glob in quotes or a folder; may be repeated. A .txt is one document; of "
    ".jsonl\n"
    "                         .json .csv .tsv .parquet .arrow each record is one; also .gz .zst .xz (docs/data.md)\n"
    "  --dataset_text_field N the column with the text, when it is not \"text\" (--text_column_name is the same)\n"
    "  --column_map text=NAME the same, as for tessera train\n"
    "  --vocab_size N         tokens in all: <|endoftext|> (id 0), the 256 bytes, then merges\n"
    "  --output PATH          a folder (tokenizer.json and tokenizer_config.json are written there) or a .json file\n"
    "  --overwrite            replaces existing files\n"
    "  --min_frequency N      pairs seen less often are not merged [0]\n";

int training_threads() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u)); }

int train(const Arguments& arguments) {
  std::vector<std::string> with_value = {"train_file", "vocab_size", "output", "model", "min_frequency"};
  with_value.insert(with_value.end(), std::begin(column_flags), std::end(column_flags));
  const config::Flags flags("tokenizer train", arguments, with_value, {"overwrite"}, {"train_file"});
  if (const std::string model = flags.text("model").value_or("bpe"); model != "bpe")
    throw InputError(concat("--model ", model,
                            ": tessera trains byte-level BPE (bpe) only; Hugging Face's tokenizers trains ",
                            "other models, and its tokenizer.json files are readable here"));
  flags.required("train_file", "text to learn from");
  flags.required("vocab_size", "number of tokens");
  const std::string output = flags.required("output", "where to write");
  if (output.ends_with(".json"))
    flags.require_new({output});
  else
    flags.require_new({path_join(output, "tokenizer.json"), path_join(output, "tokenizer_config.json")});
  const std::int64_t wanted = flags.integer("vocab_size", 0);
  if (wanted > (1 << 24)) throw InputError(concat("--vocab_size ", wanted, ": at most ", 1 << 24));

  std::vector<std::string> texts;
  const std::vector<corpus::SourceFile> files = text_sources(flags.texts("train_file"));
  const std::uint64_t bytes = bytes_of(files);
  DocumentVisitor visitor;
  visitor.take = [&](std::string_view document, bool ends) { texts.emplace_back(document); };
  for_each_document(files, column_options(flags), std::string_view::npos, visitor);
  const auto begin = std::chrono::steady_clock::now();
  std::string json;
  text::BpeTrainOptions options;
  options.vocab_size = wanted;
  options.min_frequency = flags.integer("min_frequency", 0);
  options.threads = training_threads();
  {
    TextProgress progress;
    options.progress = [&](const char* phase, std::int64_t done, std::int64_t of) {
      const bool counting = std::string_view(phase) == "bytes";
      progress.show(counting ? "counting words:" : "learning merges:", done, of, counting);
    };
    json = text::tokenizer_json(text::train_bpe(texts, options));
  }
  const std::int64_t tokens = text::parse_tokenizer_json(json, output)->vocab_size();
  if (output.ends_with(".json")) {
    make_folders(std::filesystem::absolute(output).parent_path().string());
    write_file_atomically(output, json);
  } else {
    make_folders(output);
    text::write_tokenizer_files(output, json, options.special_tokens[0]);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cerr << concat("tokenizer: ", tokens, " tokens from ", format_bytes(bytes), " of text in ",
                      format_real(seconds, 3), " s -> ", output, "\n");
  if (tokens < wanted)
    std::cerr << "tokenizer: the text yields no further merges: " << tokens << " tokens instead of " << wanted << "\n";
  return 0;
}

std::vector<std::int32_t> ids_of(const text::Tokenizer& tokenizer, std::string_view text, bool add_special_tokens) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (add_special_tokens) {
    const auto prefix = tokenizer.prefix(), suffix = tokenizer.suffix();
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

/// Formats a token's text; a partial character shows as U+FFFD.
std::string shown(const text::Tokenizer& tokenizer, std::int32_t id) {
  return dump_json(Value::of(text::replace_ill_formed(tokenizer.decode(std::span(&id, 1)))), -1);
}

int encode(const Arguments& arguments) {
  std::vector<std::string> with_value = {"tokenizer_name", "text", "file"};
  with_value.insert(with_value.end(), std::begin(column_flags), std::end(column_flags));
  const config::Flags flags("tokenizer encode", arguments, with_value, {"add_special_tokens"}, {});
  const auto tokenizer = text::load_tokenizer(flags.required("tokenizer_name", "folder with tokenizer.json, or byte"));
  const auto given = flags.text("text"), file = flags.text("file");
  if (given.has_value() == file.has_value())
    throw InputError("tessera tokenizer encode needs either --text or --file (one of them)");
  const bool special = flags.has("add_special_tokens");
  std::string out;
  const auto kind = file ? corpus::recognise(*file).kind : std::nullopt;
  if (kind && kind != corpus::FileKind::text) {
    DocumentVisitor visitor;
    visitor.take = [&](std::string_view text, bool ends) {
      out += '[';
      std::array<char, 12> digits;  // enough for any int32
      for (const std::int32_t id : ids_of(*tokenizer, text, special)) {
        if (out.back() != '[') out += ',';
        out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), id).ptr);
      }
      out += "]\n";
    };
    for_each_document(text_sources({*file}), column_options(flags), std::string_view::npos, visitor);
  } else {
    const std::string text = given ? *given : read_file(*file);
    for (const std::int32_t id : ids_of(*tokenizer, text, special))
      out += concat(id, "\t", shown(*tokenizer, id), "\n");
  }
  std::cout << out << std::flush;
  return 0;
}

int decode(const Arguments& arguments) {
  const config::Flags flags("tokenizer decode", arguments, {"tokenizer_name", "file"}, {}, {});
  const auto tokenizer = text::load_tokenizer(flags.required("tokenizer_name", "folder with tokenizer.json, or byte"));
  const std::string path = flags.required("file", "ids, one JSON array per line");
  const std::string rows = read_file(path);
  std::string_view rest = rows;
  std::string out;
  for (std::int64_t line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const Value row = parse_json(rest.substr(0, end), concat(path, ", line ", line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::vector<std::int32_t> ids;
    for (const Value& id : row.items()) {
      if (id.as_int() < 0 || id.as_int() >= tokenizer->vocab_size())
        throw InputError(concat(id.where().str(), ": id ", id.as_int(),
                                " is outside the vocabulary, which has ids 0 to ", tokenizer->vocab_size() - 1));
      ids.push_back(static_cast<std::int32_t>(id.as_int()));
    }
    out += dump_json(Value::of(text::replace_ill_formed(tokenizer->decode(ids))), -1) + "\n";
  }
  std::cout << out << std::flush;
  return 0;
}

}  // namespace

int tokenizer_command(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    (arguments.empty() ? std::cerr : std::cout) << help;
    return arguments.empty() ? static_cast<int>(ExitCode::bad_input) : 0;
  }
  struct Command {
    std::string_view name;
    const char* help;
    int (*run)(const Arguments&);
  };
  constexpr std::array<Command, 3> commands{
      {{"train", help, train}, {"encode", encode_help, encode}, {"decode", decode_help, decode}}};
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return command.name == arguments[0]; });
  if (found == commands.end())
    throw InputError(concat("tessera tokenizer has no command '", arguments[0],
                            "'; the commands are 'train', 'encode' and 'decode'"));
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << found->help;
    return 0;
  }
  return found->run(Arguments(arguments.begin() + 1, arguments.end()));
}

}  // namespace tessera::tool
