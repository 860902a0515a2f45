#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/text/sentencepiece/model_file.h>

#include <bit>
#include <cmath>
#include <functional>

namespace tessera::text {
namespace {

/// One field of a protobuf message: a number (varint), or bytes (fixed-size or length-delimited).
struct ProtoField {
  std::uint64_t number = 0, varint = 0;
  std::string_view bytes;
  int wire_type = 0;
};

/// Iterates over the fields of a message (protobuf's encoding guide: "Message Structure").
class ProtoReader {
 public:
  ProtoReader(std::string_view message, const std::string& path) : message_(message), path_(path) {}

  bool next(ProtoField& field) {
    if (at_ == message_.size()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3, .varint = 0, .bytes = {}, .wire_type = static_cast<int>(key & 7)};
    switch (field.wire_type) {
      case 0:
        field.varint = varint();
        return true;
      case 1:
        field.bytes = take(8);
        return true;
      case 2:
        field.bytes = take(varint());
        return true;
      case 5:
        field.bytes = take(4);
        return true;
      default:
        fail(concat("wire type ", field.wire_type, " is not 0, 1, 2 or 5"));
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(concat(path_, ": not a SentencePiece model: ", what, " (byte ", at_, " of a message of ",
                            message_.size(), " bytes)"));
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == message_.size()) fail("a number is truncated");
      const auto byte = static_cast<unsigned char>(message_[at_++]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }
  std::string_view take(std::uint64_t size) {
    if (size > message_.size() - at_) fail(concat("a field of ", size, " bytes is truncated"));
    const std::string_view bytes = message_.substr(at_, size);
    at_ += size;
    return bytes;
  }

  std::string_view message_;
  const std::string& path_;
  std::size_t at_ = 0;
};

constexpr int varint_type = 0, bytes_type = 2, fixed32_type = 5;

double float_of(std::string_view bytes) {
  std::uint32_t bits = 0;
  for (std::size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
  return std::bit_cast<float>(bits);
}

SentencePiece read_piece(std::string_view message, const std::string& path) {
  SentencePiece piece;
  ProtoReader reader(message, path);
  for (ProtoField field; reader.next(field);) {
    if (field.number == 1 && field.wire_type == bytes_type) piece.spelling = field.bytes;
    if (field.number == 2 && field.wire_type == fixed32_type) piece.score = float_of(field.bytes);
    if (field.number == 3 && field.wire_type == varint_type) {
      if (field.varint < 1 || field.varint > 6) reader.fail(concat("a piece of type ", field.varint));
      piece.type = static_cast<SentencePiece::Type>(field.varint);
    }
  }
  if (piece.spelling.empty() || !is_utf8(piece.spelling)) reader.fail("a piece that is empty or not UTF-8");
  constexpr std::size_t longest = 1024;  // far above any real piece; limits the cost of a malformed file
  if (piece.spelling.size() > longest) reader.fail(concat("a piece of ", piece.spelling.size(), " bytes"));
  if (!std::isfinite(piece.score)) reader.fail(concat("the score of \"", piece.spelling, "\" is not finite"));
  return piece;
}

void read_trainer(std::string_view message, const std::string& path, SentencePieceModel& model) {
  ProtoReader reader(message, path);
  for (ProtoField field; reader.next(field);) {
    if (field.wire_type != varint_type) continue;
    const auto number = static_cast<std::int64_t>(field.varint);
    switch (field.number) {
      case 3:
        if (number < 1 || number > 4) reader.fail(concat("model type ", number));
        model.kind = static_cast<SentencePieceModel::Kind>(number);
        break;
      case 24:
        model.blanks_end_words = number != 0;
        break;
      case 35:
        model.byte_fallback = number != 0;
        break;
      case 40:
        model.unknown = number;
        break;
      case 41:
        model.begin = number;
        break;
      case 42:
        model.end = number;
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(std::string_view message, const std::string& path, SentencePieceModel& model) {
  ProtoReader reader(message, path);
  for (ProtoField field; reader.next(field);) {
    if (field.number == 2 && field.wire_type == bytes_type) model.charsmap = field.bytes;
    if (field.wire_type != varint_type) continue;
    if (field.number == 3) model.add_dummy_prefix = field.varint != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.varint != 0;
    if (field.number == 5) model.escape_whitespaces = field.varint != 0;
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& path) {
  SentencePieceModel model;
  ProtoReader reader(bytes, path);
  for (ProtoField field; reader.next(field);) {
    if (field.wire_type != bytes_type) continue;
    if (field.number == 1) model.pieces.push_back(read_piece(field.bytes, path));
    if (field.number == 2) read_trainer(field.bytes, path, model);
    if (field.number == 3) read_normalizer_spec(field.bytes, path, model);
  }
  if (model.pieces.empty()) throw InputError(concat(path, ": not a SentencePiece model: it has no pieces"));
  return model;
}

}  // namespace tessera::text
