// Arrow's IPC formats: the file (with an index at its end) and the stream (which `datasets` writes). Pieces are record
// batches.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/reader.h>
#include <arrow/type.h>

#include <tessera/corpus/tables/arrow.h>

namespace tessera::corpus {
namespace {

namespace ipc = arrow::ipc;
using File = std::shared_ptr<arrow::io::ReadableFile>;

struct Extent {
  std::int64_t begin = 0, end = 0;  // bytes of the file
};

/// The extents of a stream's messages.
struct StreamIndex {
  Extent schema;
  std::vector<Extent> batches;
  bool dictionaries = false;  ///< batches depend on preceding messages
};

File open_file(const std::string& path) { return require(arrow::io::ReadableFile::Open(path, limited_pool()), path); }

bool is_ipc_file(const File& file, const std::string& path) {
  const auto begin = require(file->ReadAt(0, 6), path)->ToString();
  if (begin.starts_with("FEA1"))
    throw InputError(concat(path,
                            ": is Feather version 1, which is not an Arrow format; rewrite it with "
                            "pyarrow.feather.write_feather"));
  return begin == "ARROW1";
}

/// Reads the header of the message at `at` and advances `at` past the message. Returns null at the end of the stream.
std::unique_ptr<ipc::Message> read_header(const File& file, const std::string& path, std::int64_t size,
                                          std::int64_t& at) {
  static_assert(std::endian::native == std::endian::little);
  if (at == size) return nullptr;  // the format allows a stream without an end marker
  const std::string place = concat(path, ": byte ", at);
  std::array<std::int32_t, 2> prefix{};
  const std::int64_t got = require(file->ReadAt(at, 8, prefix.data()), place);
  if (got < 4) throw InputError(concat(place, ": the file is truncated; was it copied completely?"));
  const bool marked = prefix[0] == -1;  // versions before 0.15 did not mark the start of messages
  const std::int64_t length = marked ? prefix[1] : prefix[0];
  at += marked ? 8 : 4;
  if (length == 0) return nullptr;
  if (length < 0) throw InputError(concat(place, ": no Arrow message begins here"));
  if (length > size - at) throw InputError(concat(place, ": the file is truncated; was it copied completely?"));
  auto metadata = require(file->ReadAt(at, length), place);
  auto message = require(ipc::Message::Open(std::move(metadata), nullptr), place);
  at += length;
  if (message->body_length() < 0 || message->body_length() > size - at)
    throw InputError(concat(place, ": the file is truncated; was it copied completely?"));
  at += message->body_length();
  return message;
}

StreamIndex index_of(const File& file, const std::string& path) {
  StreamIndex index;
  const std::int64_t size = require(file->GetSize(), path);
  std::int64_t at = 0;
  for (;;) {
    const std::int64_t begin = at;
    const auto message = read_header(file, path, size, at);
    if (!message) break;
    if (begin == 0) {
      if (message->type() != ipc::MessageType::SCHEMA)
        throw InputError(concat(path, ": does not begin with a schema: this is not an Arrow stream"));
      index.schema = {0, at};
    } else if (message->type() == ipc::MessageType::RECORD_BATCH) {
      index.batches.push_back({begin, at});
    } else {
      index.dictionaries = true;
    }
  }
  if (index.schema.end == 0) throw InputError(concat(path, ": is empty: this is not an Arrow stream"));
  return index;
}

/// Presents several parts of a file as one stream.
class Parts : public arrow::io::InputStream {
 public:
  Parts(File file, std::vector<Extent> parts) : file_(std::move(file)), parts_(std::move(parts)) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return told_; }

  arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    std::int64_t done = 0;
    while (done < bytes && !parts_.empty()) {
      Extent& part = parts_.front();
      if (part.begin == part.end) {
        parts_.erase(parts_.begin());
        continue;
      }
      const std::int64_t want = std::min(bytes - done, part.end - part.begin);
      ARROW_ASSIGN_OR_RAISE(const std::int64_t got,
                            file_->ReadAt(part.begin, want, static_cast<std::uint8_t*>(out) + done));
      if (got == 0) return arrow::Status::IOError("the file was truncated while it was read");
      part.begin += got;
      done += got;
    }
    told_ += done;
    return done;
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(bytes, limited_pool()));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t got, Read(bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(got, /*shrink_to_fit=*/false));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

 private:
  File file_;
  std::vector<Extent> parts_;
  std::int64_t told_ = 0;
  bool closed_ = false;
};

ipc::IpcReadOptions options() {
  ipc::IpcReadOptions options = ipc::IpcReadOptions::Defaults();
  options.memory_pool = limited_pool();
  options.use_threads = false;
  return options;
}

/// Indices of the requested columns in a schema; all if `columns` is empty.
std::vector<int> included(const arrow::Schema& schema, const std::vector<std::string>& columns) {
  std::vector<int> fields;
  for (int i = 0; i < schema.num_fields(); ++i)
    if (std::find(columns.begin(), columns.end(), schema.field(i)->name()) != columns.end()) fields.push_back(i);
  return fields;
}

/// Common base of both formats: numbers batches, counts bytes, and validates each batch before any of its offsets is
/// used.
class IpcBatches : public Batches {
 public:
  IpcBatches(std::string path, const Piece& piece) : path_(std::move(path)), piece_(piece), at_(piece.begin) {}

  Batch next() final {
    if (at_ >= piece_.end) return {};
    Batch batch{nullptr, concat(path_, ": batch ", at_), 0};
    const std::uint64_t number = at_++;  // after an error the next call continues after it
    batch.rows = guarded(batch.place, [&] { return read(number, batch.place); });
    if (batch.rows == nullptr)
      throw InputError(concat(batch.place, ": is missing: the file was changed after it was opened"));
    require(batch.rows->ValidateFull(), batch.place);
    return batch;
  }

  std::uint64_t bytes_read() const final {
    const std::uint64_t count = piece_.end - piece_.begin;
    return count == 0 ? piece_.bytes : piece_.bytes / count * (at_ - piece_.begin);
  }

 protected:
  virtual std::shared_ptr<arrow::RecordBatch> read(std::uint64_t number, const std::string& place) = 0;
  std::string path_;

 private:
  Piece piece_;
  std::uint64_t at_;
};

class FileBatches : public IpcBatches {
 public:
  FileBatches(const File& file, const SourceFile& source, const Piece& piece, const std::vector<std::string>& columns)
      : IpcBatches(source.path, piece), reader_(require(ipc::RecordBatchFileReader::Open(file, options()), path_)) {
    if (columns.empty()) return;
    ipc::IpcReadOptions some = options();
    some.included_fields = included(*reader_->schema(), columns);
    if (some.included_fields.empty()) return;  // keeps the reader of all columns: an empty list would mean all, too
    reader_ = require(ipc::RecordBatchFileReader::Open(file, some), path_);
  }

 private:
  std::shared_ptr<arrow::RecordBatch> read(std::uint64_t number, const std::string& place) override {
    return require(reader_->ReadRecordBatch(static_cast<int>(number)), place);
  }

  std::shared_ptr<ipc::RecordBatchFileReader> reader_;
};

class StreamBatches : public IpcBatches {
 public:
  StreamBatches(const File& file, const SourceFile& source, const Piece& piece, const std::vector<std::string>& columns)
      : IpcBatches(source.path, piece) {
    const StreamIndex index = index_of(file, path_);
    const auto count = static_cast<std::uint64_t>(index.batches.size());
    if (piece.end > count)
      throw InputError(
          concat(path_, ": has ", count, " batches, but had ", piece.end, " when it was opened: it was changed"));
    std::vector<Extent> parts{index.schema};
    if (index.dictionaries) {  // in that case there is one piece: everything after the schema
      parts.push_back({index.schema.end, require(file->GetSize(), path_)});
    } else if (piece.begin < piece.end) {
      parts.push_back({index.batches[piece.begin].begin, index.batches[piece.end - 1].end});
    }
    ipc::IpcReadOptions some = options();
    if (!columns.empty()) {
      const auto whole = require(ipc::RecordBatchStreamReader::Open(std::make_shared<Parts>(file, parts), some), path_);
      some.included_fields = included(*whole->schema(), columns);
    }
    reader_ = require(ipc::RecordBatchStreamReader::Open(std::make_shared<Parts>(file, parts), some), path_);
  }

 private:
  std::shared_ptr<arrow::RecordBatch> read(std::uint64_t number, const std::string& place) override {
    std::shared_ptr<arrow::RecordBatch> rows;
    require(reader_->ReadNext(&rows), place);
    return rows;
  }

  std::shared_ptr<ipc::RecordBatchStreamReader> reader_;
};

}  // namespace

std::vector<Piece> pieces_of_ipc(const SourceFile& file, std::uint64_t bytes_each) {
  const File opened = open_file(file.path);
  std::uint64_t count = 0;
  bool together = false;
  if (is_ipc_file(opened, file.path)) {
    const auto reader = require(ipc::RecordBatchFileReader::Open(opened, options()), file.path);
    count = static_cast<std::uint64_t>(std::max(reader->num_record_batches(), 0));
  } else {
    const StreamIndex index = index_of(opened, file.path);
    count = index.batches.size();
    together = index.dictionaries;
  }
  const std::uint64_t batch_bytes = std::max<std::uint64_t>(file.bytes / std::max<std::uint64_t>(count, 1), 1);
  const std::uint64_t each = together ? std::max<std::uint64_t>(count, 1)
                                      : std::max<std::uint64_t>((bytes_each + batch_bytes - 1) / batch_bytes, 1);
  std::vector<Piece> pieces;
  for (std::uint64_t begin = 0; begin < count; begin += std::min(each, count - begin)) {
    const std::uint64_t end = begin + std::min(each, count - begin);
    pieces.push_back({begin, end, (end - begin) * batch_bytes});
  }
  if (pieces.empty()) pieces.push_back({});
  return pieces;
}

std::unique_ptr<Batches> ipc_batches(const SourceFile& file, const Piece& piece,
                                     const std::vector<std::string>& columns) {
  const File opened = open_file(file.path);
  if (is_ipc_file(opened, file.path)) return std::make_unique<FileBatches>(opened, file, piece, columns);
  return std::make_unique<StreamBatches>(opened, file, piece, columns);
}

}  // namespace tessera::corpus
