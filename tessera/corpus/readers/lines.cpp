// Text and JSON Lines: one record per line.

#include <algorithm>
#include <limits>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/file_part.h>
#include <tessera/base/json/json_line.h>
#include <tessera/corpus/bytes/line_stream.h>
#include <tessera/corpus/readers/readers.h>

namespace tessera::corpus {
namespace {

constexpr std::string_view json_blanks = " \t\r\n";

std::unique_ptr<ByteStream> bytes_of(const SourceFile& file, const Piece& piece) {
  if (file.compression != Compression::none) return open_bytes(file);
  return open_range(file.path, piece.begin, piece.end);
}

/// Lines and their positions. Line numbers are negative in a piece that does not start the file (file_part.h).
class PlacedLines {
 public:
  PlacedLines(const SourceFile& file, const Piece& piece)
      : lines_(Window(bytes_of(file, piece), file.path)), begins_file_(piece.begin == 0), step_(begins_file_ ? 1 : -1) {
    if (begins_file_) {
      name_ = std::make_shared<const std::string>(file.path);
    } else {
      name_ = std::make_shared<const FilePart>(file.path, piece.begin);
    }
  }

  std::optional<std::string_view> next() {
    const auto line = lines_.next();
    if (line && std::abs(line_) < std::numeric_limits<int>::max()) line_ += step_;
    return line;
  }
  bool is_first_of_file() const { return begins_file_ && line_ == 1; }
  SourcePos here() const { return {name_, line_, 1}; }
  const std::shared_ptr<const std::string>& name() const { return name_; }
  int number() const { return line_; }
  std::uint64_t used() const { return lines_.used(); }

 private:
  LineStream lines_;
  bool begins_file_;
  int step_, line_ = 0;
  std::shared_ptr<const std::string> name_;
};

class TextReader : public RecordReader {
 public:
  TextReader(const SourceFile& file, const Piece& piece) : lines_(file, piece) {}

  std::optional<Value> next() override {
    const auto line = lines_.next();
    if (!line) return std::nullopt;
    Value text = Value::of(std::string(*line));
    text.set_where(lines_.here());
    std::vector<Value::Member> members;
    members.emplace_back("text", std::move(text));
    Value record = Value::make_object(std::move(members));
    record.set_where(lines_.here());
    return record;
  }
  std::uint64_t bytes_read() const override { return lines_.used(); }

 private:
  PlacedLines lines_;
};

class JsonLinesReader : public RecordReader {
 public:
  JsonLinesReader(const SourceFile& file, const Piece& piece) : lines_(file, piece) {}

  std::optional<Value> next() override {
    while (auto line = lines_.next()) {
      if (lines_.is_first_of_file() && line->starts_with(byte_order_mark)) line->remove_prefix(byte_order_mark.size());
      if (line->ends_with('\n')) line->remove_suffix(1);
      if (line->ends_with('\r')) line->remove_suffix(1);
      if (line->find_first_not_of(json_blanks) == std::string_view::npos) continue;
      Value record = parse_json_line(*line, lines_.name(), lines_.number());
      record.members();  // throws unless it is an object
      return record;
    }
    return std::nullopt;
  }
  std::uint64_t bytes_read() const override { return lines_.used(); }

 private:
  PlacedLines lines_;
};

/// Returns the first line start at or after `at`, at most `end`.
std::uint64_t line_begin(const std::string& path, std::uint64_t at, std::uint64_t end) {
  if (at == 0 || at >= end) return std::min(at, end);
  const auto bytes = open_range(path, at - 1, end);  // a line begins at `at` itself if a line feed precedes it
  std::vector<char> buffer(std::size_t{4} << 10);
  for (std::uint64_t begin = at - 1;;) {
    const std::size_t got = bytes->read(buffer);
    if (got == 0) return end;
    const auto feed = std::find(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got), '\n');
    const auto distance = static_cast<std::size_t>(feed - buffer.begin());
    if (distance < got) return begin + distance + 1;
    begin += got;
    if (buffer.size() < (std::size_t{1} << 20)) buffer.resize(4 * buffer.size());
  }
}

}  // namespace

std::unique_ptr<RecordReader> read_lines(const SourceFile& file, const Piece& piece) {
  if (file.kind == FileKind::text) return std::make_unique<TextReader>(file, piece);
  return std::make_unique<JsonLinesReader>(file, piece);
}

std::vector<Piece> pieces_of_lines(const SourceFile& file, std::uint64_t bytes_each) {
  std::vector<Piece> pieces;
  std::uint64_t begin = 0;
  while (begin < file.bytes) {
    const std::uint64_t left = file.bytes - begin;
    const std::uint64_t end = left <= bytes_each ? file.bytes : line_begin(file.path, begin + bytes_each, file.bytes);
    pieces.push_back({begin, end, end - begin});
    begin = end;
  }
  if (pieces.empty()) pieces.push_back({});
  return pieces;
}

}  // namespace tessera::corpus
