// tessera tokenize: converts text files to a Megatron indexed dataset (.bin and .idx).

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/plural.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/format/megatron_indexed.h>
#include <tessera/text/tokenizer.h>
#include <tools/tessera/commands.h>
#include <tools/tessera/data/documents.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <string_view>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera tokenize: text to tokens, as PREFIX.bin and PREFIX.idx (Megatron's indexed dataset)\n\n"
    "usage: tessera tokenize --train_file PATH --tokenizer_name FOLDER|FILE|byte --output PREFIX\n\n"
    "  --train_file PATH        a file, a glob in quotes or a folder; may be repeated. A .txt is one document; of "
    ".jsonl\n"
    "                           .json .csv .tsv .parquet .arrow each record is one; also .gz .zst .xz (docs/data.md)\n"
    "  --dataset_text_field N   the column with the text, when it is not \"text\" (--text_column_name is the same)\n"
    "  --column_map text=NAME   the same, as for tessera train\n"
    "  --tokenizer_name NAME    folder with tokenizer.json, such a file, or byte\n"
    "  --output PREFIX          PREFIX.bin and PREFIX.idx are written\n"
    "  --overwrite              replaces existing files\n"
    "  --append_eod             ends each document with the token for the end of a text (<|endoftext|>)\n";

constexpr char first_solid = '!', last_solid = '~';  // an ASCII character that is neither a blank nor a control
                                                     // character

bool is_solid(char c) { return c >= first_solid && c <= last_solid; }

/// Whether a token contains a line feed followed by solid ASCII, so that it could span a cut.
bool reaches_across(std::string_view token) {
  for (std::size_t at = 0; at + 1 < token.size(); ++at)
    if (token[at] == '\n' && is_solid(token[at + 1])) return true;
  return false;
}

std::string token_bytes(const text::Tokenizer& tokenizer, std::int32_t id) {
  try {
    return tokenizer.decode(std::span(&id, 1));
  } catch (const InputError&) {  // an unused id in the vocabulary
    return "";
  }
}

/// Long documents are encoded in parts, to bound memory and to show progress. They are cut after a line feed with solid
/// ASCII on both sides, and only if the ids stay the same. No token may span the cut, and the second part must not be
/// treated as the beginning of a text (add_prefix_space, SentencePiece's blank), whatever it begins with.
bool can_cut(const text::Tokenizer& tokenizer) {
  const std::vector<std::int32_t> first = tokenizer.encode("a\n");
  for (char c = first_solid; c <= last_solid; ++c) {
    std::vector<std::int32_t> parts = first;
    const std::vector<std::int32_t> second = tokenizer.encode(std::string_view(&c, 1));
    parts.insert(parts.end(), second.begin(), second.end());
    if (parts != tokenizer.encode(concat("a\n", std::string(1, c)))) return false;
  }
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (reaches_across(token_bytes(tokenizer, static_cast<std::int32_t>(id)))) return false;
  return true;
}

}  // namespace

int tokenize_command(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  std::vector<std::string> with_value = {"train_file", "tokenizer_name", "output"};
  with_value.insert(with_value.end(), std::begin(column_flags), std::end(column_flags));
  const config::Flags flags("tokenize", arguments, with_value, {"append_eod", "overwrite"}, {"train_file"});
  flags.required("train_file", "text to tokenize");
  const std::string prefix = flags.required("output", "prefix of the .bin and .idx");
  flags.require_new({prefix + ".bin", prefix + ".idx"});
  const auto tokenizer = text::load_tokenizer(flags.required("tokenizer_name", "folder with tokenizer.json, or byte"));
  const corpus::ColumnOptions columns = column_options(flags);
  const auto end = tokenizer->end_of_text();
  if (flags.has("append_eod") && !end)
    throw InputError(
        "--append_eod: this tokenizer has no token for the end of a text (<|endoftext|>, <|end_of_text|>, eos_token)");
  const std::vector<corpus::SourceFile> files = text_sources(flags.texts("train_file"));
  const std::uint64_t total = bytes_of(files);
  make_folders(std::filesystem::absolute(prefix).parent_path().string());

  const auto begin = std::chrono::steady_clock::now();
  format::IndexedWriter writer(prefix, tokenizer->vocab_size());
  {
    TextProgress progress;
    const std::size_t part = can_cut(*tokenizer) ? std::size_t{1} << 20 : std::string_view::npos;
    DocumentVisitor visitor;
    visitor.take = [&](std::string_view text, bool ends) {
      if (!text.empty()) writer.add_sequence(tokenizer->encode(text));
      if (!ends) return;
      if (flags.has("append_eod")) writer.add_sequence(std::vector<std::int32_t>{*end});
      writer.end_document();
    };
    visitor.progress = [&](std::uint64_t done) {
      progress.show("tokenizing", static_cast<std::int64_t>(done), static_cast<std::int64_t>(total), true);
    };
    for_each_document(files, columns, part, visitor);
  }
  if (writer.token_count() == 0) throw InputError("the text is empty: no token was written");
  writer.finish();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cerr << concat("tokenize: ", plural(writer.token_count(), "token"), " in ",
                      plural(writer.document_count(), "document"), ", ", format_bytes(total), " in ",
                      format_real(seconds, 3), " s (",
                      format_bytes(static_cast<std::uint64_t>(static_cast<double>(total) / seconds)), "/s) -> ", prefix,
                      ".bin, .idx\n");
  return 0;
}

}  // namespace tessera::tool
