// tessera tokenize: text files to a Megatron indexed dataset (.bin and .idx).

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/command_flags.h>
#include <tessera/format/indexed.h>
#include <tessera/text/tokenizer.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/documents.h>
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
    "  --train_file FILE        .txt (the file is one document) or .jsonl (a document per line, field \"text\"); may "
    "be repeated\n"
    "  --text_column_name NAME  another field than \"text\"\n"
    "  --tokenizer_name NAME    folder with tokenizer.json, such a file, or byte\n"
    "  --output PREFIX          PREFIX.bin and PREFIX.idx are written\n"
    "  --append_eod             ends each document with the token for the end of a text (<|endoftext|>)\n";

/// Long documents are encoded in pieces, to bound memory and to show progress. No word of a byte-level BPE tokenizer
/// reaches across a line feed that has non-blank ASCII on both sides, so cutting behind one changes no id.
std::size_t cut_after(std::string_view document, std::size_t at) {
  const auto solid = [](char c) { return c > ' ' && c < 0x7F; };
  for (std::size_t i = std::max<std::size_t>(at, 2); i < document.size(); ++i) {
    if (document[i - 1] == '\n' && solid(document[i]) && solid(document[i - 2])) return i;
  }
  return document.size();
}

/// False for tokenizers that treat the beginning of a text in a special way (add_prefix_space).
bool can_cut(const text::Tokenizer& tokenizer) {
  std::vector<std::int32_t> parts = tokenizer.encode("a\n");
  const std::vector<std::int32_t> second = tokenizer.encode("b");
  parts.insert(parts.end(), second.begin(), second.end());
  return parts == tokenizer.encode("a\nb");
}

}  // namespace

int tokenize_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const config::Flags flags("tokenize", arguments, {"train_file", "text_column_name", "tokenizer_name", "output"},
                            {"append_eod"}, {"train_file"});
  flags.required("train_file", "text to tokenize");
  const std::string prefix = flags.required("output", "prefix of the .bin and .idx");
  const auto tokenizer = text::load_tokenizer(flags.required("tokenizer_name", "folder with tokenizer.json, or byte"));
  const std::string column = flags.text("text_column_name").value_or("text");
  const auto end = tokenizer->end_of_text();
  if (flags.has("append_eod") && !end)
    throw InputError(
        "--append_eod: this tokenizer has no token for the end of a text (<|endoftext|>, <|end_of_text|>, eos_token)");
  std::uint64_t total = 0;
  for (const std::string& path : flags.texts("train_file")) {
    if (!path_exists(path) || is_directory(path))
      throw InputError(concat("--train_file: the file '", path, "' does not exist"));
    total += std::filesystem::file_size(path);
  }
  make_folders(std::filesystem::absolute(prefix).parent_path().string());

  const auto begin = std::chrono::steady_clock::now();
  format::IndexedWriter writer(prefix, tokenizer->vocab_size());
  {
    TextProgress progress;
    std::uint64_t done = 0;
    const std::size_t piece = can_cut(*tokenizer) ? std::size_t{1} << 20 : std::string_view::npos;
    for (const std::string& path : flags.texts("train_file")) {
      for_each_document(path, column, [&](std::string_view document, std::size_t bytes) {
        for (std::size_t at = 0; at < document.size();) {
          const std::size_t cut = piece < document.size() - at ? cut_after(document, at + piece) : document.size();
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
  std::cerr << concat("tokenize: ", writer.token_count(), " tokens in ", writer.document_count(), " documents, ",
                      format_bytes(total), " in ", format_real(seconds, 3), " s (",
                      format_bytes(static_cast<std::uint64_t>(static_cast<double>(total) / seconds)), "/s) -> ", prefix,
                      ".bin, .idx\n");
  return 0;
}

}  // namespace tessera::tool
