#include <tessera/text/chatml.h>

#include <cstdint>
#include <vector>

namespace tessera::text {

bool has_chat_tokens(const Tokenizer& tokenizer) {
  for (const std::string_view marker : {chat_begin, chat_end}) {
    const auto id = tokenizer.token_id(marker);
    if (!id || tokenizer.encode(marker) != std::vector<std::int32_t>{*id}) return false;
  }
  return true;
}

}  // namespace tessera::text
