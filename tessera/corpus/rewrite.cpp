#include <tessera/corpus/rewrite.h>

#include <utility>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/corpus/bytes/line_stream.h>
#include <tessera/corpus/find.h>
#include <tessera/corpus/left_out.h>
#include <tessera/corpus/sources.h>

namespace tessera::corpus {

OutputFormat output_format(const std::string& path) {
  const Recognised found = recognise(path);
  if (found.kind == FileKind::text || found.kind == FileKind::jsonl) return {*found.kind, found.compression};
  throw InputError(
      concat("--output ", path, ": only .jsonl and .txt can be written, each optionally followed by .gz, .zst or .xz"));
}

/// The open file, read as lines or as records.
struct LinesOfRecords::Input {
  std::unique_ptr<LineStream> lines;
  std::unique_ptr<RecordReader> records;
  bool jsonl = false, first = true;

  std::optional<std::string> next_line() {
    while (auto line = lines->next()) {
      if (jsonl && std::exchange(first, false) && line->starts_with(byte_order_mark))
        line->remove_prefix(byte_order_mark.size());
      if (line->ends_with('\n')) line->remove_suffix(1);
      if (jsonl && line->ends_with('\r')) line->remove_suffix(1);
      if (jsonl && line->find_first_not_of(" \t\r") == std::string_view::npos) continue;
      return std::string(*line) + "\n";
    }
    return std::nullopt;
  }
  std::uint64_t used() const { return lines ? lines->used() : records->bytes_read(); }
};

LinesOfRecords::LinesOfRecords(std::vector<SourceFile> files, FileKind kind, ColumnOptions columns)
    : files_(std::move(files)), kind_(kind), options_(std::move(columns)) {}

LinesOfRecords::~LinesOfRecords() = default;

void LinesOfRecords::open(const SourceFile& file) {
  input_ = std::make_unique<Input>();
  input_->jsonl = file.kind == FileKind::jsonl;
  if (file.kind == kind_) {
    input_->lines = std::make_unique<LineStream>(Window(open_bytes(file), file.path));
  } else {
    const Piece whole = pieces_of(file, std::uint64_t{1} << 62).at(0);
    input_->records = read_records(file, whole);
  }
}

std::optional<std::string> LinesOfRecords::next() {
  for (;;) {
    if (!input_) {
      if (at_ == files_.size()) return std::nullopt;
      open(files_[at_++]);
    }
    if (input_->lines) {
      if (auto line = input_->next_line()) return line;
    } else if (const auto record = input_->records->next()) {
      if (kind_ == FileKind::jsonl) {
        std::string line = dump_json(*record, -1);
        if (!is_utf8(line)) throw InputError(concat(record->where().str(), ": is not valid UTF-8, which JSON must be"));
        return line + "\n";
      }
      if (!columns_) columns_.emplace(*record, options_);
      if (columns_->form() != RecordForm::text)
        throw InputError(concat(record->where().str(), ": ", columns_->note(),
                                ": these are not plain text for a .txt; write ",
                                ".jsonl, or name the text with --dataset_text_field"));
      try {
        std::string text = columns_->normal(*record).at("text").as_string();
        if (!text.ends_with('\n')) text += '\n';
        return text;
      } catch (const LeftOut& why) {
        throw InputError(concat(record->where().str(), ": ", why.what(), ": cannot be a line of a .txt"));
      }
    }
    before_ += files_[at_ - 1].bytes;
    input_.reset();
  }
}

std::uint64_t LinesOfRecords::bytes_read() const { return before_ + (input_ ? input_->used() : 0); }

std::uint64_t LinesOfRecords::bytes() const {
  std::uint64_t sum = 0;
  for (const SourceFile& file : files_) sum += file.bytes;
  return sum;
}

}  // namespace tessera::corpus
