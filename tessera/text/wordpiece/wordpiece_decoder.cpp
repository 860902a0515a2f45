#include <tessera/text/wordpiece/wordpiece_decoder.h>

#include <array>
#include <utility>

namespace tessera::text {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = out.append(text, done);
}

void clean_up_english(std::string& token) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> changes{{{" .", "."},
                                                                                          {" ?", "?"},
                                                                                          {" !", "!"},
                                                                                          {" ,", ","},
                                                                                          {" ' ", "'"},
                                                                                          {" n't", "n't"},
                                                                                          {" 'm", "'m"},
                                                                                          {" do not", " don't"},
                                                                                          {" 's", "'s"},
                                                                                          {" 've", "'ve"},
                                                                                          {" 're", "'re"}}};
  for (const auto& [from, to] : changes) replace_all(token, from, to);
}

std::string WordPieceDecoder::decode(std::string_view token, bool is_first) const {
  std::string out(token);
  if (!is_first) out = joins && token.starts_with(prefix) ? out.substr(prefix.size()) : " " + out;
  if (joins && cleanup) clean_up_english(out);
  return out;
}

}  // namespace tessera::text
