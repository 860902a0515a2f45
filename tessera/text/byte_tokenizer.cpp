#include <tessera/base/error.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/byte_tokenizer.h>
#include <tessera/text/tokenizer_json.h>

namespace tessera::text {
namespace {

constexpr std::string_view end_marker = "<|endoftext|>";
constexpr std::int32_t end_id = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] == end_marker[0] && text.substr(at, end_marker.size()) == end_marker) {
        ids.push_back(end_id);
        at += end_marker.size();
      } else {
        ids.push_back(static_cast<unsigned char>(text[at++]));
      }
    }
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string out;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] > end_id)
        throw InputError(
            concat("byte tokenizer: id ", ids[i], " at position ", i, " has no token (ids are 0 to ", end_id, ")"));
      if (ids[i] == end_id)
        out += end_marker;
      else
        out += static_cast<char>(ids[i]);
    }
    return out;
  }

  std::int64_t vocab_size() const override { return end_id + 1; }
  std::optional<std::int32_t> end_of_text() const override { return end_id; }
  bool is_special(std::int32_t id) const override { return id == end_id; }

  /// Saves a byte-level BPE without merges, which Hugging Face's library treats identically (for valid UTF-8).
  void save(const std::string& folder) const override {
    BpeFile file;
    for (int byte = 0; byte < 256; ++byte)
      file.vocabulary.emplace_back(ByteAlphabet::get().spell(std::string(1, static_cast<char>(byte))), byte);
    file.vocabulary.emplace_back(std::string(end_marker), end_id);
    file.specials = {{std::string(end_marker), end_id}};
    write_tokenizer_files(folder, tokenizer_json(file), end_marker);
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_tokenizer() { return std::make_shared<ByteTokenizer>(); }

}  // namespace tessera::text
