// tessera tokenize: text files to a Megatron indexed dataset (.bin and .idx).

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/config/command_flags.h>
#include <tessera/format/indexed.h>
#include <tessera/text/tokenizer.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera tokenize: text to tokens, as PREFIX.bin and PREFIX.idx (Megatron's indexed dataset)\n\n"
    "usage: tessera tokenize --train_file FILE --tokenizer_name FOLDER|FILE|byte --output PREFIX\n\n"
    "  --train_file FILE        .txt (the file is one document) or .jsonl (a document per line, field \"text\"); may be repeated\n"
    "  --tokenizer_name NAME    folder with tokenizer.json, such a file, or byte\n"
    "  --output PREFIX          PREFIX.bin and PREFIX.idx are written\n"
    "  --append_eod             ends each document with <|endoftext|>\n";

/// The documents of a file, one after another.
template <class Visit>
void for_each_document(const std::string& path, Visit visit) {
  const std::string text = read_file(path);
  if (!path.ends_with(".jsonl")) return visit(text, text.size());
  std::size_t begin = 0;
  for (int line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (trim(row).empty()) continue;
    visit(parse_json(row, concat(path, ":", line)).at("text").as_string(), row.size());
  }
}

}  // namespace

int tokenize_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const config::Flags flags("tokenize", arguments, {"train_file", "tokenizer_name", "output"}, {"append_eod"}, {"train_file"});
  flags.required("train_file", "text to tokenize");
  const std::string prefix = flags.required("output", "prefix of the .bin and .idx");
  const auto tokenizer = text::load_tokenizer(flags.required("tokenizer_name", "folder with tokenizer.json, or byte"));
  const auto end = tokenizer->end_of_text();
  if (flags.has("append_eod") && !end) throw InputError("--append_eod: this tokenizer has no <|endoftext|>");
  std::uint64_t total = 0;
  for (const std::string& path : flags.texts("train_file")) {
    if (!path_exists(path) || is_directory(path)) throw InputError(concat("--train_file: the file '", path, "' does not exist"));
    total += std::filesystem::file_size(path);
  }
  make_folders(std::filesystem::absolute(prefix).parent_path().string());

  const auto begin = std::chrono::steady_clock::now();
  format::IndexedWriter writer(prefix, tokenizer->vocab_size());
  {
    TextProgress progress;
    std::uint64_t done = 0;
    // A long document is encoded in lines: where a line feed stands between two words, cutting there changes no word of them, and
    // a run of blanks across it is cut as run_clm.py's line-wise reading cuts it.
    constexpr std::size_t piece = 1 << 20;
    for (const std::string& path : flags.texts("train_file")) {
      for_each_document(path, [&](std::string_view document, std::size_t bytes) {
        for (std::size_t at = 0; at < document.size();) {
          std::size_t cut = at + piece < document.size() ? document.find('\n', at + piece) : std::string_view::npos;
          cut = cut == std::string_view::npos ? document.size() : cut + 1;
          writer.add_sequence(tokenizer->encode(document.substr(at, cut - at)));
          done += (cut - at) * bytes / std::max<std::size_t>(document.size(), 1);
          progress.show("tokenizing", static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), true);
          at = cut;
        }
        if (flags.has("append_eod")) writer.add_sequence(std::vector<std::int32_t>{*end});
        writer.end_document();
      });
    }
  }
  if (writer.token_count() == 0) throw InputError("the text is empty: no token was written");
  writer.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cerr << concat("tokenize: ", writer.token_count(), " tokens in ", writer.document_count(), " documents, ", format_bytes(total), " in ",
                      format_real(seconds, 3), " s (", format_bytes(static_cast<std::uint64_t>(static_cast<double>(total) / seconds)), "/s) -> ",
                      prefix, ".bin, .idx\n");
  return 0;
}

}  // namespace tessera::tool
