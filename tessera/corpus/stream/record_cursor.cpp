#include <tessera/corpus/stream/record_cursor.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/corpus/permutation.h>

namespace tessera::corpus {
namespace {

constexpr std::uint64_t most_pieces = 16384;

std::unique_ptr<ByteStream> bytes_of(const SourceFile& source, const Piece& piece) {
  if (source.compression != Compression::none) return open_bytes(source);
  return open_range(source.path, piece.begin, piece.end);
}

}  // namespace

RecordCursor::RecordCursor(std::vector<SourceFile> sources, CursorOptions options)
    : sources_(std::move(sources)), options_(std::move(options)) {
  TESSERA_CHECK(!sources_.empty(), "a stream of no files");
  for (const SourceFile& source : sources_) states_.push_back(state_of(source.path));
}

/// Index of the current file in sources_.
std::size_t RecordCursor::file_number() const {
  const auto file = static_cast<std::uint64_t>(at_.file);
  if (!options_.shuffle_key) return file;
  return permuted(file, sources_.size(), mix(*options_.shuffle_key) + mix(static_cast<std::uint64_t>(at_.epoch)));
}

void RecordCursor::open_file() {
  const std::size_t number = file_number();
  const SourceFile& source = sources_[number];
  if (state_of(source.path) != states_[number]) throw Error(concat("'", source.path, "' was changed during training"));
  pieces_ = pieces_of(source, std::max(options_.piece_bytes, source.bytes / most_pieces));
  if (options_.shuffle_key) {
    const std::uint64_t key = mix(*options_.shuffle_key ^ mix(number)) + static_cast<std::uint64_t>(at_.epoch);
    std::vector<Piece> order(pieces_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = pieces_[permuted(i, order.size(), key)];
    pieces_ = std::move(order);
  }
  begins_ = true;
}

void RecordCursor::open_piece() {
  const SourceFile& source = sources_[file_number()];
  const Piece& piece = pieces_[static_cast<std::size_t>(at_.piece)];
  if (source.kind == FileKind::text) {
    lines_ = std::make_unique<LineStream>(Window(bytes_of(source, piece), source.path));
    begins_ |= at_.piece == 0 || pieces_[static_cast<std::size_t>(at_.piece) - 1].end != piece.begin;
  } else {
    records_ = read_records(source, piece, options_.columns);
  }
}

void RecordCursor::close() {
  pieces_.clear();
  lines_.reset();
  records_.reset();
}

/// Takes the next item of the open piece; returns false at its end.
bool RecordCursor::take(Item& item) {
  if (lines_) {
    const auto line = lines_->next();
    if (!line) return false;
    item = {std::nullopt, *line, std::exchange(begins_, false)};
  } else {
    auto record = records_->next();
    if (!record) return false;
    item = {std::move(record), {}, false};
  }
  ++at_.records;
  return true;
}

std::optional<RecordCursor::Item> RecordCursor::next() {
  while (at_.file < static_cast<std::int64_t>(sources_.size())) {
    if (pieces_.empty()) open_file();
    while (at_.piece < static_cast<std::int64_t>(pieces_.size())) {
      if (!lines_ && !records_) open_piece();
      Item item;
      if (take(item)) return item;
      lines_.reset();
      records_.reset();
      ++at_.piece;
      at_.records = 0;
    }
    close();
    ++at_.file;
    at_.piece = 0;
  }
  at_ = {at_.epoch + 1, 0, 0, 0};
  return std::nullopt;
}

void RecordCursor::seek(const CursorPosition& position) {
  close();
  at_ = position;
  at_.records = 0;
  const auto none = [&] {
    return InputError(concat("the stream of ", sources_.front().path, sources_.size() > 1 ? " and others" : "",
                             " has no position (file ", position.file, ", piece ", position.piece, ", record ",
                             position.records, ")"));
  };
  const auto files = static_cast<std::int64_t>(sources_.size());
  if (position.epoch < 0 || position.file < 0 || position.file > files || position.piece < 0 || position.records < 0)
    throw none();
  if (position.piece == 0 && position.records == 0) return;
  if (position.file == files) throw none();
  open_file();
  const auto pieces = static_cast<std::int64_t>(pieces_.size());
  if (position.piece > pieces || (position.piece == pieces && position.records > 0)) throw none();
  begins_ = false;
  if (position.piece == pieces) return;
  open_piece();
  Item passed;
  while (at_.records < position.records)
    if (!take(passed)) throw none();
}

}  // namespace tessera::corpus
