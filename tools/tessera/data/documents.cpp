#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/corpus/left_out.h>
#include <tessera/corpus/sources.h>
#include <tools/tessera/data/documents.h>

#include <algorithm>
#include <optional>

namespace tessera::tool {
namespace {

constexpr std::uint64_t any_size = std::uint64_t{1} << 62;

bool is_solid(char c) { return c > ' ' && c < 0x7F; }

/// The first position at or after `at` where a document may be cut.
std::size_t cut_after(std::string_view document, std::size_t at) {
  for (std::size_t i = std::max<std::size_t>(at, 2); i < document.size(); ++i)
    if (document[i - 1] == '\n' && is_solid(document[i]) && is_solid(document[i - 2])) return i;
  return document.size();
}

/// Reads the files one by one.
class Documents {
 public:
  Documents(const corpus::ColumnOptions& options, std::size_t part_bytes, const DocumentVisitor& visitor)
      : options_(options), part_bytes_(part_bytes), visitor_(visitor) {}

  void read(const corpus::SourceFile& file) {
    warned_ = false;
    const auto reader = corpus::read_records(file, corpus::pieces_of(file, any_size).at(0));
    std::string waiting;  // pending lines of a .txt file
    while (const auto record = reader->next()) {
      if (file.kind == corpus::FileKind::text) {
        add_line(waiting, record->at("text"));
      } else {
        try {
          add_document(text_of(*record));
        } catch (const corpus::LeftOut& why) {
          if (left_out_++ == 0)
            log::warning(record->where().str(), ": skipped, like later records of this kind: ", why.what());
        }
      }
      if (visitor_.progress) visitor_.progress(before_ + reader->bytes_read());
    }
    if (file.kind == corpus::FileKind::text) visitor_.take(waiting, true);
    before_ += file.bytes;
    if (left_out_ > 1) log::warning(file.path, ": ", left_out_, " records were skipped");
    left_out_ = 0;
  }

 private:
  void add_line(std::string& waiting, const Value& line) {
    warn_of_ill_formed(line);
    const std::string& text = line.as_string();
    if (waiting.size() >= part_bytes_ && waiting.size() >= 2 && waiting.back() == '\n' &&
        is_solid(waiting[waiting.size() - 2]) && is_solid(text.front())) {
      visitor_.take(waiting, false);
      waiting.clear();
    }
    waiting += text;
  }

  void add_document(const Value& value) {
    warn_of_ill_formed(value);
    std::string_view text = value.as_string();
    while (text.size() > part_bytes_) {
      const std::size_t cut = cut_after(text, part_bytes_);
      if (cut == text.size()) break;
      visitor_.take(text.substr(0, cut), false);
      text.remove_prefix(cut);
    }
    visitor_.take(text, true);
  }

  Value text_of(const Value& record) {
    if (!columns_) {
      corpus::ColumnOptions options = options_;
      const bool said = !options.text_field.empty() || !options.map.empty();
      if (!said && record.find("text") != nullptr) options.text_field = "text";  // regardless of other columns
      columns_.emplace(record, options);
      if (columns_->form() != corpus::RecordForm::text)
        throw InputError(concat(record.where().str(), ": ", columns_->note(),
                                ", but plain text is expected here; specify ", "its column with --dataset_text_field"));
    }
    return columns_->normal(record).at("text");
  }

  void warn_of_ill_formed(const Value& text) {
    if (warned_ || is_utf8(text.as_string())) return;
    warned_ = true;
    log::warning(text.where().str(), ": not valid UTF-8; ill-formed bytes here and below are read as U+FFFD");
  }

  const corpus::ColumnOptions& options_;
  std::size_t part_bytes_;
  const DocumentVisitor& visitor_;
  std::optional<corpus::Columns> columns_;
  std::uint64_t before_ = 0;
  std::uint64_t left_out_ = 0;
  bool warned_ = false;
};

}  // namespace

corpus::ColumnOptions column_options(const config::Flags& flags) {
  corpus::ColumnOptions options;
  const auto field = flags.text("dataset_text_field"), column = flags.text("text_column_name");
  if (field && column && *field != *column)
    throw InputError("--dataset_text_field and --text_column_name are two names of one flag: remove one of them");
  options.text_field = field ? *field : column.value_or("");
  if (const auto map = flags.text("column_map")) options.map = corpus::parse_column_map(*map);
  return options;
}

std::vector<corpus::SourceFile> text_sources(const std::vector<std::string>& paths) {
  std::vector<corpus::SourceFile> files;
  for (const std::string& path : paths) {
    const auto found = corpus::find_sources(path);
    files.insert(files.end(), found.begin(), found.end());
  }
  for (const corpus::SourceFile& file : files)
    if (file.kind == corpus::FileKind::tokens) throw InputError(concat(file.path, ": contains tokens, not text"));
  return files;
}

std::uint64_t bytes_of(const std::vector<corpus::SourceFile>& files) {
  std::uint64_t sum = 0;
  for (const corpus::SourceFile& file : files) sum += file.bytes;
  return sum;
}

void for_each_document(const std::vector<corpus::SourceFile>& files, const corpus::ColumnOptions& columns,
                       std::size_t part_bytes, const DocumentVisitor& visitor) {
  Documents documents(columns, part_bytes, visitor);
  for (const corpus::SourceFile& file : files) documents.read(file);
}

}  // namespace tessera::tool
