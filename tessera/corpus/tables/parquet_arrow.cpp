// Parquet: pieces are row groups.

#include <algorithm>

#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/properties.h>

#include <tessera/corpus/tables/arrow.h>

namespace tessera::corpus {
namespace {

constexpr std::int64_t batch_bytes = std::int64_t{4} << 20;  // approximate size of the rows decoded at a time

std::unique_ptr<parquet::arrow::FileReader> open_parquet(const std::string& path) {
  parquet::ReaderProperties properties(limited_pool());
  properties.enable_buffered_stream();  // keeps one page at a time in memory, not a whole column chunk
  parquet::arrow::FileReaderBuilder builder;
  require(builder.OpenFile(path, /*memory_map=*/false, properties), path);
  builder.memory_pool(limited_pool());
  parquet::ArrowReaderProperties arrow;
  arrow.set_pre_buffer(false);  // pre-buffering would read whole row groups ahead and keep them
  builder.properties(arrow);
  return require(builder.Build(), path);
}

void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

/// The leaves of the requested columns; of all columns if `columns` is empty.
std::vector<int> leaves_of(const parquet::arrow::FileReader& file, const std::vector<std::string>& columns) {
  std::vector<int> leaves;
  for (const auto& field : file.manifest().schema_fields)
    if (columns.empty() || std::find(columns.begin(), columns.end(), field.field->name()) != columns.end())
      add_leaves(field, leaves);
  return leaves;
}

class ParquetBatches : public Batches {
 public:
  ParquetBatches(const SourceFile& file, const Piece& piece, const std::vector<std::string>& columns)
      : path_(file.path), file_(open_parquet(file.path)), leaves_(leaves_of(*file_, columns)) {
    const auto groups = static_cast<std::uint64_t>(file_->num_row_groups());
    if (piece.end > groups)
      throw InputError(
          concat(path_, ": has ", groups, " row groups, but had ", piece.end, " when it was opened: it was changed"));
    group_ = static_cast<int>(piece.begin);
    end_ = static_cast<int>(piece.end);
  }

  Batch next() override {
    while (group_ < end_) {
      Batch batch{nullptr, concat(path_, ": row group ", group_), row_};
      try {
        batch.rows = guarded(batch.place, [&] { return read(batch.place); });
      } catch (...) {
        next_group();  // the next call continues with the next row group
        throw;
      }
      if (batch.rows != nullptr) {
        row_ += batch.rows->num_rows();
        return batch;
      }
      next_group();
    }
    return {};
  }

  std::uint64_t bytes_read() const override { return bytes_; }

 private:
  std::shared_ptr<arrow::RecordBatch> read(const std::string& place) {
    if (!reader_) {
      const auto group = file_->parquet_reader()->metadata()->RowGroup(group_);
      rows_ = group->num_rows();
      group_bytes_ = static_cast<std::uint64_t>(std::max<std::int64_t>(group->total_compressed_size(), 0));
      const std::int64_t row_bytes =
          std::max<std::int64_t>(1, group->total_byte_size() / std::max<std::int64_t>(rows_, 1));
      file_->set_batch_size(std::clamp<std::int64_t>(batch_bytes / row_bytes, 1, 4096));
      reader_ = require(file_->GetRecordBatchReader({group_}, leaves_), place);
    }
    std::shared_ptr<arrow::RecordBatch> rows;
    require(reader_->ReadNext(&rows), place);
    if (rows != nullptr) require(rows->Validate(), place);
    if (rows == nullptr && row_ != rows_)
      throw InputError(concat(place, ": has ", row_, " rows, but its metadata specify ", rows_));
    return rows;
  }

  void next_group() {
    reader_.reset();
    row_ = 0;
    bytes_ += group_bytes_;
    group_bytes_ = 0;
    ++group_;
  }

  std::string path_;
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::vector<int> leaves_;
  std::unique_ptr<arrow::RecordBatchReader> reader_;
  int group_ = 0, end_ = 0;
  std::int64_t row_ = 0, rows_ = 0;
  std::uint64_t bytes_ = 0, group_bytes_ = 0;
};

}  // namespace

std::vector<Piece> pieces_of_parquet(const SourceFile& file, std::uint64_t bytes_each) {
  const auto metadata = open_parquet(file.path)->parquet_reader()->metadata();
  std::vector<Piece> pieces;
  const auto groups = static_cast<std::uint64_t>(std::max(metadata->num_row_groups(), 0));
  for (std::uint64_t group = 0; group < groups; ++group) {
    if (pieces.empty() || pieces.back().bytes >= bytes_each) pieces.push_back({group, group, 0});
    pieces.back().end = group + 1;
    const std::int64_t bytes = metadata->RowGroup(static_cast<int>(group))->total_compressed_size();
    pieces.back().bytes += static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0));
  }
  if (pieces.empty()) pieces.push_back({});
  return pieces;
}

std::unique_ptr<Batches> parquet_batches(const SourceFile& file, const Piece& piece,
                                         const std::vector<std::string>& columns) {
  return std::make_unique<ParquetBatches>(file, piece, columns);
}

}  // namespace tessera::corpus
