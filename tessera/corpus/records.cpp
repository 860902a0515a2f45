#include <tessera/corpus/records.h>

#include <tessera/base/error.h>
#include <tessera/corpus/readers/readers.h>
#include <tessera/corpus/sources.h>
#include <tessera/corpus/tables/table_plugin.h>

namespace tessera::corpus {
namespace {

bool is_table(const SourceFile& file) { return file.kind == FileKind::parquet || file.kind == FileKind::arrow; }
bool is_lines(const SourceFile& file) { return file.kind == FileKind::text || file.kind == FileKind::jsonl; }

[[noreturn]] void has_no_records(const SourceFile& file) {
  throw InputError(concat(file.path, ": ", name_of(file.kind), " have no records; train on the file directly"));
}

}  // namespace

std::vector<Piece> pieces_of(const SourceFile& file, std::uint64_t bytes_each) {
  TESSERA_CHECK(bytes_each > 0, "a piece of no bytes");
  if (file.kind == FileKind::tokens) has_no_records(file);
  if (is_table(file)) return table_plugin().pieces_of(file, bytes_each);
  if (is_lines(file) && file.compression == Compression::none) return pieces_of_lines(file, bytes_each);
  return {{0, file.bytes, file.bytes}};  // record boundaries are known only when reading from the start
}

std::unique_ptr<RecordReader> read_records(const SourceFile& file, const Piece& piece,
                                           const std::vector<std::string>& columns) {
  switch (file.kind) {
    case FileKind::text:
    case FileKind::jsonl:
      return read_lines(file, piece);
    case FileKind::json:
      return read_json_values(Window(open_bytes(file), file.path));
    case FileKind::csv:
    case FileKind::tsv:
      return read_csv(Window(open_bytes(file), file.path), file.kind == FileKind::tsv ? '\t' : ',');
    case FileKind::parquet:
    case FileKind::arrow:
      return table_plugin().read_records(file, piece, columns);
    case FileKind::tokens:
      break;
  }
  has_no_records(file);
}

}  // namespace tessera::corpus
