#include <cstring>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/window.h>

namespace tessera::corpus {

Window::Window(std::unique_ptr<ByteStream> bytes, std::string name, std::size_t longest)
    : bytes_(std::move(bytes)), name_(std::move(name)), longest_(longest), buffer_(std::size_t{256} << 10) {}

bool Window::more() {
  if (end_ - begin_ > longest_)
    throw InputError(
        concat(name_, ": a record is longer than ", format_bytes(longest_), ": do its contents match its extension?"));
  if (begin_ > 0 && begin_ < end_) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const std::size_t got = bytes_->read({buffer_.data() + end_, buffer_.size() - end_});
  end_ += got;
  got_ += got;
  return got > 0;
}

std::uint64_t Window::used(std::size_t taken) const {
  const std::size_t waiting = end_ - begin_ - taken;
  if (got_ == 0 || waiting == 0) return bytes_->used();
  const double share = static_cast<double>(got_ - waiting) / static_cast<double>(got_);
  return static_cast<std::uint64_t>(static_cast<double>(bytes_->used()) * share);
}

}  // namespace tessera::corpus
