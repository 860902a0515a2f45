#include <tessera/data/text_records.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/columns.h>
#include <tessera/corpus/left_out.h>
#include <tessera/data/example_line.h>
#include <tessera/data/pairs.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/companion_files.h>

namespace tessera::data {
namespace {

// bytes; tokenizing this much is faster than reading a file
constexpr std::uint64_t not_kept = std::uint64_t{1} << 20;
// bytes; without a cache, every process tokenizes up to this much
constexpr std::uint64_t small_enough = std::uint64_t{64} << 20;

std::uint64_t bytes_of(const std::vector<corpus::SourceFile>& sources) {
  std::uint64_t bytes = 0;
  for (const corpus::SourceFile& source : sources) bytes += source.bytes;
  return bytes;
}

int width_of(const text::Tokenizer& tokenizer) { return tokenizer.vocab_size() <= 65536 ? 2 : 4; }

/// The first record; nullopt if it is missing or cannot be read (the full read then reports the error).
std::optional<Value> first_record(const std::vector<corpus::SourceFile>& sources) {
  try {
    for (const corpus::SourceFile& source : sources)
      for (const corpus::Piece& piece : corpus::pieces_of(source, source.bytes + 1))
        if (auto record = corpus::read_records(source, piece)->next()) return record;
  } catch (const InputError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

/// The part of the cache key on which the tokens of conversations depend.
std::string chat_settings(const ExampleOptions& options, std::vector<std::string>& notes) {
  if (options.chat == nullptr) return ", no chat template";
  if (options.chat->asks_for_the_day())
    notes.push_back("the chat template writes the current date into conversations, so tokens differ between days");
  return concat(", chat template ", corpus::hash_of(std::string_view(options.chat->identity())).hex());
}

void check_ids(const std::vector<std::int32_t>& ids, const Value& record, const ExampleOptions& options) {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= options.vocab_size)
      throw InputError(concat(record.where().str(), ": a token has id ", id, ", but the model's vocabulary has ",
                              options.vocab_size, " entries: tokenizer and model do not match"));
}

corpus::ColumnOptions column_options(const std::vector<corpus::SourceFile>& sources, const ExampleOptions& options) {
  const auto is_table = [](const corpus::SourceFile& file) {
    return file.kind == corpus::FileKind::parquet || file.kind == corpus::FileKind::arrow;
  };
  return {.text_field = options.text_field == "text" ? "" : options.text_field,
          .map = options.column_map.empty() ? std::vector<std::pair<std::string, std::string>>()
                                            : corpus::parse_column_map(options.column_map),
          .pairs = options.pairs,
          .nulls_are_missing = std::any_of(sources.begin(), sources.end(), is_table)};
}

/// Whether the files may contain conversations. They do not if the first record is a usable text or token record, since
/// all records are of one kind.
bool may_be_conversations(const Value& first, const corpus::Columns& columns) {
  if (columns.form() != corpus::RecordForm::text && columns.form() != corpus::RecordForm::tokens) return true;
  try {
    const Value line = columns.normal(first);
    const Value& held = line.members().front().second;
    return held.is_string() ? held.as_string().empty() : held.items().empty();
  } catch (const Error&) {
    return true;
  }
}

/// Encodes a record, or records why it is left out.
void encode_record(const Value& record, const corpus::Columns& columns, const text::Tokenizer& tokenizer,
                   const ExampleOptions& options, corpus::EncodedRecord& out) {
  try {
    const Value line = columns.normal(record, &out.unused_fields);
    if (options.pairs) {
      encode_pair(line, tokenizer, options, out);
    } else {
      ExampleLine example = encode_example(line, tokenizer, options);
      out.ids = std::move(example.ids);
      out.scored = std::move(example.scored);
      out.text_bytes = example.text_bytes;
      out.text_tokens = example.text_tokens;
      out.cut = example.cut;
      out.kind = name_of(example.kind);
      out.remark = std::move(example.remark);
      for (std::string& name : example.unused_fields) out.unused_fields.push_back(std::move(name));
    }
    check_ids(out.ids, record, options);
  } catch (const corpus::LeftOut& why) {
    out.ids.clear();
    out.scored.clear();
    out.left_out = why.what();
  }
}

}  // namespace

ExampleOptions example_options(const DataConfig& config, const text::Tokenizer& tokenizer,
                               const std::string& tokenizer_place, std::int64_t block_size, std::int64_t vocab_size) {
  ExampleOptions options{.column_map = config.column_map,
                         .text_field = config.text_column_name,
                         .max_length = config.max_seq_length > 0 ? config.max_seq_length : block_size,
                         .max_prompt_length = config.max_prompt_length,
                         .vocab_size = vocab_size,
                         .assistant_only = config.assistant_only_loss,
                         .completion_only = config.completion_only_loss};
  try {
    options.chat = std::make_shared<const text::ChatTemplate>(
        text::load_chat_template(tokenizer, tokenizer_place, config.chat_template));
  } catch (const InputError& error) {
    if (!config.chat_template.empty()) throw;
    options.why_no_chat = error.what();
  }
  return options;
}

corpus::TokenRequest lines_request(std::vector<corpus::SourceFile> sources, const text::Tokenizer& tokenizer,
                                   int threads) {
  corpus::TokenRequest request;
  request.sources = std::move(sources);
  request.width = width_of(tokenizer);
  request.settings = "lines";
  request.threads = threads;
  request.encode_line = [&tokenizer, prefix = tokenizer.prefix(), suffix = tokenizer.suffix()](
                            std::string_view line, corpus::EncodedRecord& out) {
    out.ids = tokenizer.encode(line);
    out.ids.insert(out.ids.begin(), prefix.begin(), prefix.end());
    out.ids.insert(out.ids.end(), suffix.begin(), suffix.end());
    out.text_bytes = line.size();
    out.text_tokens = out.ids.size();
    out.ill_formed = !is_utf8(line);
  };
  return request;
}

corpus::TokenRequest examples_request(std::vector<corpus::SourceFile> sources, const text::Tokenizer& tokenizer,
                                      const ExampleOptions& options, int threads, std::vector<std::string>& notes) {
  TESSERA_CHECK(options.max_length >= 2, "max_length ", options.max_length);
  const auto first = first_record(sources);
  corpus::TokenRequest request;
  request.examples = true;
  request.width = width_of(tokenizer);
  request.threads = threads;
  request.settings =
      concat("examples, 2: of at most ", options.max_length, " tokens, text field ", options.text_field, ", columns ",
             options.column_map, options.assistant_only ? ", the assistant alone is scored" : ", all is scored",
             options.completion_only ? "" : ", prompts too",
             options.pairs ? concat(", pairs, the prompt's last ", options.max_prompt_length, " tokens") : "");
  const corpus::ColumnOptions how = column_options(sources, options);
  request.sources = std::move(sources);
  const auto columns = first ? std::make_shared<const corpus::Columns>(*first, how)
                             : std::make_shared<const corpus::Columns>(how);  // the full read reports the error
  if (columns->has_messages() && options.chat == nullptr)
    throw InputError(concat(first->where().str(), ": contains messages, but ", options.why_no_chat));
  request.columns = columns->needed();
  if (!first || may_be_conversations(*first, *columns)) request.settings += chat_settings(options, notes);
  if (first && (columns->renames() || how.nulls_are_missing))  // only these columns of a table are read
    notes.push_back(concat(request.sources.front().path, ": ", columns->note(how.nulls_are_missing)));
  request.encode = [&tokenizer, options, columns](const Value& record, corpus::EncodedRecord& out) {
    encode_record(record, *columns, tokenizer, options, out);
  };
  return request;
}

std::string identity_of(const text::Tokenizer& tokenizer) {
  const TemporaryFolder folder("tessera-tokenizer");
  text::without_companion_files(tokenizer).save(folder.path());
  std::string all;
  for (const std::string& name : list_folder(folder.path()))
    all += concat(name, "\n", read_file(path_join(folder.path(), name)), "\n");
  static constexpr std::string_view probe =
      "The quick brown fox, 3.14159 times: don't  \tstop\u00e9\u4e2d\u6587 \u0627\u0644 \U0001f600!\r\n\n"
      "  int main() { return 0x1F; }\n<|endoftext|></s>[MASK] na\u00efve \u1e9e e\u0301 \u2581 2024-01-01\n";
  const auto ids = [&](const std::vector<std::int32_t>& list) {
    for (const std::int32_t id : list) all += concat(id, " ");
    all += '\n';
  };
  ids(tokenizer.encode(probe));
  ids(tokenizer.prefix());
  ids(tokenizer.suffix());
  for (const auto& end : {tokenizer.end_of_text(), tokenizer.end_of_turn()}) ids({end.value_or(-1)});
  return corpus::hash_of(std::string_view(all)).hex();
}

corpus::CachedTokens open_tokens(corpus::TokenRequest request, const text::Tokenizer& tokenizer,
                                 const std::string& cache_dir, const ReadProgress& progress,
                                 std::vector<std::string>& notes) {
  const std::uint64_t bytes = bytes_of(request.sources);
  const std::string name = request.sources.size() == 1
                               ? request.sources.front().path
                               : concat(request.sources.front().path, " and ", request.sources.size() - 1, " more");
  const corpus::CacheProgress tell = [&](std::uint64_t done, std::uint64_t of) {
    if (progress) progress(name, done, of);
  };
  if (cache_dir == "none" || bytes <= not_kept) return corpus::private_tokens(request, tell);
  const std::string root = cache_dir.empty() ? corpus::default_cache_folder() : cache_dir;
  if (!corpus::is_writable_cache(root)) {
    if (bytes > small_enough)
      throw InputError(concat("the tokens of ", name, " (", format_bytes(bytes), ") are kept in ", root,
                              ", which is not writable: use another folder (--data_cache_dir), or `none`, so that each "
                              "process tokenizes the data itself at every start"));
    notes.push_back(concat(name, ": each process makes its own tokens, because ", root, " is not writable"));
    return corpus::private_tokens(request, tell);
  }
  request.settings += concat(", tokenizer ", identity_of(tokenizer));
  auto tokens = corpus::cached_tokens(root, request, tell);
  notes.push_back(concat(name, ": ", format_count(static_cast<double>(tokens.tally.tokens)), " tokens ",
                         tokens.found ? "found in " : "made and stored in ", tokens.entry));
  return tokens;
}

}  // namespace tessera::data
