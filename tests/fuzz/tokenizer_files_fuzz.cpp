// libFuzzer entry for SentencePiece's tokenizer.model, tiktoken's ranks and charsmaps: any bytes are read or refused
// with an InputError; a tokenizer that loads encodes any text and decodes its own ids.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/value.h>
#include <tessera/text/bpe/bpe_files.h>
#include <tessera/text/sentencepiece/model_json.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/charsmap.h>
#include <tessera/text/unicode/utf8.h>

namespace {

void use(const tessera::Value& tree, std::string_view text) {
  const auto tokenizer = tessera::text::parse_tokenizer_json(tessera::dump_json(tree, -1), "fuzzed");
  tokenizer->decode(tokenizer->encode(text));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::log::set_level(tessera::log::Level::error);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  // the second byte is the length of the text to encode, which is at the end
  const std::size_t text_size = std::min<std::size_t>(static_cast<unsigned char>(input[1]), size - 2);
  const std::string_view file = input.substr(2, size - 2 - text_size), text = input.substr(size - text_size);
  try {
    switch (static_cast<unsigned char>(input[0]) % 3) {
      case 0:
        use(tessera::text::tokenizer_json_of(tessera::text::read_sentencepiece_model(file, "fuzzed"), tessera::Value(),
                                             "fuzzed"),
            text);
        break;
      case 1:
        use(tessera::text::tokenizer_json_of_tiktoken(file, tessera::Value(), "fuzzed"), text);
        break;
      default: {
        const tessera::text::Charsmap map(file, "fuzzed");
        std::string storage;
        map.apply(tessera::text::replace_ill_formed(text), storage);
      }
    }
  } catch (const tessera::InputError&) {
  }
  return 0;
}
