// The plug-in's entry function: rows of batches as records.

#include <tessera/corpus/tables/arrow.h>
#include <tessera/corpus/tables/table_plugin.h>

namespace tessera::corpus {
namespace {

class TableReader : public RecordReader {
 public:
  explicit TableReader(std::unique_ptr<Batches> batches) : batches_(std::move(batches)) {}

  std::optional<Value> next() override {
    while (batch_.rows == nullptr || row_ >= batch_.rows->num_rows()) {
      batch_ = {};
      row_ = 0;
      batch_ = batches_->next();
      if (batch_.rows == nullptr) return std::nullopt;
    }
    const std::int64_t row = row_++;
    return guarded(batch_.place, [&] { return record(row); });
  }

  std::uint64_t bytes_read() const override { return batches_->bytes_read(); }

 private:
  Value record(std::int64_t row) const {
    const SourcePos where{std::make_shared<const std::string>(concat(batch_.place, ", row ", batch_.first_row + row)),
                          0, 0};
    std::vector<Value::Member> members;
    members.reserve(static_cast<std::size_t>(batch_.rows->num_columns()));
    for (int i = 0; i < batch_.rows->num_columns(); ++i)
      members.emplace_back(batch_.rows->column_name(i), value_of(*batch_.rows->column(i), row, where));
    Value value = Value::make_object(std::move(members));
    value.set_where(where);
    return value;
  }

  std::unique_ptr<Batches> batches_;
  Batches::Batch batch_;
  std::int64_t row_ = 0;
};

std::vector<Piece> table_pieces(const SourceFile& file, std::uint64_t bytes_each) {
  return guarded(file.path, [&] {
    return file.kind == FileKind::parquet ? pieces_of_parquet(file, bytes_each) : pieces_of_ipc(file, bytes_each);
  });
}

std::unique_ptr<RecordReader> table_records(const SourceFile& file, const Piece& piece,
                                            const std::vector<std::string>& columns) {
  return guarded(file.path, [&] {
    return std::make_unique<TableReader>(file.kind == FileKind::parquet ? parquet_batches(file, piece, columns)
                                                                        : ipc_batches(file, piece, columns));
  });
}

}  // namespace

arrow::MemoryPool* limited_pool() {
  static arrow::CappedMemoryPool pool(arrow::system_memory_pool(), std::int64_t{16} << 30);
  return &pool;
}

void require(const arrow::Status& status, const std::string& place) {
  if (!status.ok()) throw InputError(concat(place, ": ", status.message()));
}

extern "C" const TablePlugin* tessera_table_plugin() {
  static constexpr TablePlugin plugin{table_pieces, table_records};
  return &plugin;
}

}  // namespace tessera::corpus
