#include <tessera/corpus/cache/items.h>

#include <algorithm>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/line_stream.h>
#include <tessera/corpus/cache/shard.h>

namespace tessera::corpus {
namespace {

constexpr std::uint64_t least_bytes = std::uint64_t{1} << 20, most_items = 256;
constexpr std::uint64_t most_kept = std::uint64_t{16} << 20;  // maximum bytes that a shard keeps in memory

std::string numbered(std::size_t item) {
  std::ostringstream text;
  text << std::setw(6) << std::setfill('0') << item;
  return text.str();
}

/// The shards of one item, one after the other.
class ItemWriter {
 public:
  ItemWriter(const TokenRequest& request, std::size_t number, const std::string& folder)
      : request_(request), number_(number), folder_(folder) {
    open();
  }

  void begin_record() { shard_->begin_record(); }
  void add(const EncodedRecord& record) { shard_->add(record.ids, record.scored); }
  /// Starts a new shard if this one is full. Call between records of examples, or anywhere in a stream.
  void may_go_on_in_next() {
    if (shard_->kept() < most_kept) return;
    close();
    open();
  }
  std::vector<format::ManifestFile> finish() {
    close();
    return std::move(files_);
  }

 private:
  void open() {
    name_ = concat(numbered(number_), "-", files_.size(), ".tokens");
    shard_.emplace(path_join(folder_, name_), ShardForm{request_.width, request_.examples});
  }
  void close() {
    files_.push_back({name_, std::move(*shard_).finish()});
    shard_.reset();
  }

  const TokenRequest& request_;
  std::size_t number_;
  std::string folder_, name_;
  std::optional<ShardWriter> shard_;
  std::vector<format::ManifestFile> files_;
};

std::unique_ptr<ByteStream> open_piece(const SourceFile& source, const Piece& piece) {
  if (source.compression != Compression::none) return open_bytes(source);
  return open_range(source.path, piece.begin, piece.end);
}

/// Tokenizes records in order and collects statistics and problems.
class Encoder {
 public:
  Encoder(const TokenRequest& request, ItemWriter& writer, ItemSummary& summary)
      : request_(request), writer_(writer), summary_(summary) {}

  /// Returns false if there are enough problems to report.
  bool encode(const ItemPiece& part) {
    const SourceFile& source = request_.sources[part.source];
    if (source.kind == FileKind::text) {
      encode_lines(source, part.piece);
      return true;
    }
    const auto reader = read_records(source, part.piece, request_.columns);
    // Line numbers in the middle of a file are known only after counting all preceding lines.
    middle_ = part.first ? "" : concat(source.path, " from ", part.piece.begin, " on");
    while (summary_.complaints.size() <= complaints_told) {
      try {
        const auto record = reader->next();
        if (!record) return true;
        clear();
        request_.encode(*record, encoded_);
        take(*record);
      } catch (const InputError& error) {
        std::vector<std::string>& told = summary_.complaints;
        if (!told.empty() && told.back() == error.what()) return false;  // the reader cannot get past it
        told.emplace_back(error.what());
      }
    }
    return false;
  }

 private:
  void clear() {
    encoded_.ids.clear();
    encoded_.scored.clear();
    encoded_.unused_fields.clear();
    encoded_.left_out.clear();
    encoded_.remark.clear();
    encoded_.text_bytes = encoded_.text_tokens = 0;
    encoded_.cut = encoded_.ill_formed = false;
  }

  void encode_lines(const SourceFile& source, const Piece& piece) {
    LineStream lines(Window(open_piece(source, piece), source.path));
    while (const auto line = lines.next()) {
      clear();
      request_.encode_line(*line, encoded_);
      take_text();
    }
  }

  void take_text() {
    Tally& tally = summary_.tally;
    tally.text_bytes += encoded_.text_bytes;
    tally.text_tokens += encoded_.text_tokens;
    tally.ill_formed |= encoded_.ill_formed;
    if (request_.examples) return;
    tally.add(encoded_);
    writer_.add(encoded_);
  }

  std::string place_of(const Value& record) const { return middle_.empty() ? record.where().str() : middle_; }

  void note(Findings& findings, const std::string& said, const Value& record) const {
    if (said.empty()) return;
    Finding& finding = findings[said];
    if (finding.count++ == 0) finding.place = place_of(record);
  }

  void take(const Value& record) {
    take_text();
    if (!request_.examples) return;
    Tally& tally = summary_.tally;
    note(tally.left_out, encoded_.left_out, record);
    note(tally.remarks, encoded_.remark, record);
    if (!encoded_.left_out.empty()) return;
    if (tally.kind.empty()) {
      tally.kind = encoded_.kind;
      tally.kind_place = place_of(record);
    } else if (tally.kind != encoded_.kind) {
      summary_.complaints.push_back(mixed_kinds(record.where().str(), encoded_.kind, tally));
      return;
    }
    for (std::string& name : encoded_.unused_fields) tally.unused_fields.insert(std::move(name));
    const auto& scored = encoded_.scored;
    if (scored.empty() || std::find(scored.begin() + 1, scored.end(), true) == scored.end()) {
      ++tally.dropped;
      return;
    }
    tally.add(encoded_);
    ++tally.records;
    writer_.may_go_on_in_next();
    writer_.begin_record();
    writer_.add(encoded_);
  }

  const TokenRequest& request_;
  ItemWriter& writer_;
  ItemSummary& summary_;
  EncodedRecord encoded_;
  std::string middle_;
};

}  // namespace

std::string done_name(std::size_t number) { return numbered(number) + ".done"; }

std::vector<Item> plan_items(const std::vector<SourceFile>& sources) {
  std::uint64_t total = 0;
  for (const SourceFile& source : sources) total += source.bytes;
  const std::uint64_t each = std::max(least_bytes, total / most_items);
  std::vector<Item> items;
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const std::vector<Piece> pieces = pieces_of(sources[s], each);
    const std::uint64_t chunks = hash_chunks(sources[s].bytes);
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      if (items.empty() || items.back().bytes + pieces[p].bytes / 2 >= each) items.emplace_back();
      items.back().pieces.push_back(
          {s, pieces[p], p == 0, chunks * p / pieces.size(), chunks * (p + 1) / pieces.size()});
      items.back().bytes += pieces[p].bytes;
    }
  }
  return items;
}

Value to_json(const ItemSummary& summary) {
  std::vector<Value> shards, hashes, complaints;
  for (const format::ManifestFile& shard : summary.shards) {
    std::vector<Value> sums;
    for (const std::uint32_t crc : shard.digest.chunks) sums.push_back(Value::of(static_cast<std::int64_t>(crc)));
    shards.push_back(Value::make_object({{"name", Value::of(shard.name)},
                                         {"bytes", Value::of(static_cast<std::int64_t>(shard.digest.size))},
                                         {"crc32c", Value::make_array(std::move(sums))}}));
  }
  for (const ChunkHash& chunk : summary.hashes)
    hashes.push_back(
        Value::make_array({Value::of(static_cast<std::int64_t>(chunk.source)),
                           Value::of(static_cast<std::int64_t>(chunk.chunk)), Value::of(chunk.hash.hex())}));
  for (const std::string& line : summary.complaints) complaints.push_back(Value::of(line));
  return Value::make_object({{"tally", to_json(summary.tally)},
                             {"shards", Value::make_array(std::move(shards))},
                             {"hashes", Value::make_array(std::move(hashes))},
                             {"complaints", Value::make_array(std::move(complaints))}});
}

ItemSummary summary_from_json(const Value& value) {
  ItemSummary summary;
  summary.tally = tally_from_json(value.at("tally"));
  for (const Value& shard : value.at("shards").items()) {
    format::ManifestFile file;
    file.name = shard.at("name").as_string();
    file.digest.size = static_cast<std::uint64_t>(shard.at("bytes").as_int());
    for (const Value& crc : shard.at("crc32c").items())
      file.digest.chunks.push_back(static_cast<std::uint32_t>(crc.as_int()));
    summary.shards.push_back(std::move(file));
  }
  for (const Value& chunk : value.at("hashes").items()) {
    const auto& parts = chunk.items();
    if (parts.size() != 3) throw InputError(concat(chunk.where().str(), ": a chunk's hash must have three values"));
    summary.hashes.push_back({static_cast<std::size_t>(parts[0].as_int()),
                              static_cast<std::uint64_t>(parts[1].as_int()),
                              parse_hash(parts[2].as_string(), chunk.where().str())});
  }
  for (const Value& line : value.at("complaints").items()) summary.complaints.push_back(line.as_string());
  return summary;
}

ItemSummary encode_item(const TokenRequest& request, const Item& item, std::size_t number, const std::string& folder) {
  ItemSummary summary;
  ItemWriter writer(request, number, folder);
  Encoder encoder(request, writer, summary);
  for (const ItemPiece& part : item.pieces) {
    const SourceFile& source = request.sources[part.source];
    if (!request.examples && part.first) {
      writer.begin_record();
      ++summary.tally.records;
    }
    if (!encoder.encode(part)) break;
    std::vector<ContentHash> hashes(part.hash_end - part.hash_begin);
    hash_file_chunks(source.path, part.hash_begin, part.hash_end, source.bytes, hashes);
    for (std::size_t i = 0; i < hashes.size(); ++i)
      summary.hashes.push_back({part.source, part.hash_begin + i, hashes[i]});
  }
  summary.shards = writer.finish();
  return summary;
}

}  // namespace tessera::corpus
