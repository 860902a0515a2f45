#include <tessera/corpus/bytes/line_stream.h>

namespace tessera::corpus {

std::optional<std::string_view> LineStream::next() {
  window_.drop(given_);
  given_ = 0;
  std::size_t searched = 0;
  for (;;) {
    const std::size_t feed = window_.text().find('\n', searched);
    if (feed != std::string_view::npos) {
      given_ = feed + 1;
      break;
    }
    searched = window_.text().size();
    if (window_.more()) continue;
    if (searched == 0) return std::nullopt;
    given_ = searched;
    break;
  }
  return window_.text().substr(0, given_);
}

std::uint64_t LineStream::used() const { return window_.used(given_); }

}  // namespace tessera::corpus
