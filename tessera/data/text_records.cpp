#include <tessera/data/text_records.h>

#include <memory>
#include <optional>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/cache/content_hash.h>
#include <tessera/corpus/columns.h>
#include <tessera/data/example_line.h>
#include <tessera/data/pairs.h>
#include <tessera/text/chat_template.h>

namespace tessera::data {
namespace {

constexpr std::uint64_t not_kept = std::uint64_t{1} << 20;  // bytes that are tokenized in less time than a file takes
constexpr std::uint64_t small_enough = std::uint64_t{64} << 20;  // made by every process, where nothing can be kept

std::uint64_t bytes_of(const std::vector<corpus::SourceFile>& sources) {
  std::uint64_t bytes = 0;
  for (const corpus::SourceFile& source : sources) bytes += source.bytes;
  return bytes;
}

int width_of(const text::Tokenizer& tokenizer) { return tokenizer.vocab_size() <= 65536 ? 2 : 4; }

/// Nothing where there is none, or one that cannot be read: that is said when all are.
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

/// Whether a record has the fields of examples by their own names, whatever is in them.
bool is_plain(const Value& record, const std::string& text_field) {
  const auto has = [&](std::string_view name) { return record.find(name) != nullptr; };
  const auto is_list = [&](std::string_view name) { return record.at(name).is_array(); };
  return has(text_field) || has("messages") ||
         (has("prompt") && has("completion") && !(is_list("prompt") && is_list("completion")));
}

/// Whether a record becomes a conversation.
bool is_conversation(const Value& record, const corpus::Columns* columns, const ExampleOptions& options) {
  if (options.text_field != "text" && record.find(options.text_field) != nullptr) return false;  // asked for by name
  if (columns == nullptr) return record.find("messages") != nullptr;
  using Form = corpus::RecordForm;
  return columns->form() == Form::messages || columns->form() == Form::sharegpt ||
         (columns->form() == Form::prompt_completion && columns->normal(record).contains("messages"));
}

/// For the key of the cache: what tokens depend on where records are conversations.
std::string chat_settings(const ExampleOptions& options, std::vector<std::string>& notes) {
  if (options.chat == nullptr) return ", no chat template";
  if (options.chat->asks_for_the_day())
    notes.push_back("the chat template writes the day into every conversation: a run on another day has other tokens");
  return concat(", chat template ", corpus::hash_of(std::string_view(options.chat->identity())).hex());
}

void check_ids(const std::vector<std::int32_t>& ids, const Value& record, const ExampleOptions& options) {
  for (const std::int32_t id : ids)
    if (id < 0 || id >= options.vocab_size)
      throw InputError(concat(record.where().str(), ": a token has id ", id, ", but the model's vocabulary has ",
                              options.vocab_size, " entries: tokenizer and model do not belong together"));
}

/// Nothing where records are examples as they are.
std::shared_ptr<const corpus::Columns> columns_of(const Value& first, const ExampleOptions& options) {
  if (options.column_map.empty() && is_plain(first, options.text_field)) return nullptr;
  const corpus::ColumnOptions columns{options.text_field == "text" ? "" : options.text_field,
                                      options.column_map.empty() ? std::vector<std::pair<std::string, std::string>>()
                                                                 : corpus::parse_column_map(options.column_map)};
  return std::make_shared<const corpus::Columns>(first, columns);
}

}  // namespace

ExampleOptions example_options(const DataConfig& config, const text::Tokenizer& tokenizer,
                               const std::string& tokenizer_place, std::int64_t block_size, std::int64_t vocab_size) {
  ExampleOptions options{.column_map = config.column_map,
                         .text_field = config.text_column_name,
                         .max_length = config.max_seq_length > 0 ? config.max_seq_length : block_size,
                         .max_prompt_length = config.max_prompt_length,
                         .vocab_size = vocab_size,
                         .assistant_only = config.assistant_only_loss};
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
  const auto first = options.pairs ? std::nullopt : first_record(sources);
  const auto columns = first ? columns_of(*first, options) : nullptr;
  const bool conversations = first && is_conversation(*first, columns.get(), options);
  if (conversations && options.chat == nullptr)
    throw InputError(concat(first->where().str(), ": holds messages, but ", options.why_no_chat));
  corpus::TokenRequest request;
  if (columns) {
    request.columns = columns->needed();
    notes.push_back(concat(sources.front().path, ": ", columns->note()));
  }
  request.sources = std::move(sources);
  request.examples = true;
  request.width = width_of(tokenizer);
  request.settings =
      concat("examples of at most ", options.max_length, " tokens, text field ", options.text_field, ", columns ",
             options.column_map, options.assistant_only ? ", the assistant alone is scored" : ", all is scored",
             conversations ? chat_settings(options, notes) : "");
  request.threads = threads;
  if (options.pairs) {
    request.settings = concat("pairs of examples of at most ", options.max_length, " tokens, the prompt's last ",
                              options.max_prompt_length, chat_settings(options, notes));
    request.encode = [&tokenizer, options](const Value& record, corpus::EncodedRecord& out) {
      encode_pair(record, tokenizer, options, out);
      check_ids(out.ids, record, options);
    };
    return request;
  }
  request.encode = [&tokenizer, options, columns](const Value& record, corpus::EncodedRecord& out) {
    ExampleLine example = encode_example(columns ? columns->normal(record) : record, tokenizer, options);
    check_ids(example.ids, record, options);
    out.ids = std::move(example.ids);
    out.scored = std::move(example.scored);
    out.text_bytes = example.text_bytes;
    out.text_tokens = example.text_tokens;
    out.cut = example.cut;
    out.kind = name_of(example.kind);
    if (!columns) out.unused_fields = std::move(example.unused_fields);  // else the note has them
  };
  return request;
}

std::string identity_of(const text::Tokenizer& tokenizer) {
  const TemporaryFolder folder("tessera-tokenizer");
  tokenizer.save(folder.path());
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
                              ", which cannot be written: name another folder (--data_cache_dir), or none, and each "
                              "process makes them for itself at every start"));
    notes.push_back(concat(name, ": tokens are made by each process, because ", root, " cannot be written"));
    return corpus::private_tokens(request, tell);
  }
  request.settings += concat(", tokenizer ", identity_of(tokenizer));
  auto tokens = corpus::cached_tokens(root, request, tell);
  notes.push_back(concat(name, ": ", format_count(static_cast<double>(tokens.tally.tokens)), " tokens ",
                         tokens.found ? "found in " : "made, and kept in ", tokens.entry));
  return tokens;
}

}  // namespace tessera::data
