#pragma once
/// \file
/// Reading forward through bytes that somebody else has written.

#include <tessera/base/error.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera {

/// A place in bytes that never leaves them.
class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t position() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }
  std::uint64_t size() const { return bytes_.size(); }
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }
  std::span<const std::byte> between(std::uint64_t begin, std::uint64_t end) const {
    return bytes_.subspan(begin, end - begin);
  }

  /// The next `count` bytes. Where fewer are left, complain() is called, which throws.
  template <class Complain>
  std::span<const std::byte> take(std::uint64_t count, const Complain& complain) {
    if (count > left()) complain();
    TESSERA_CHECK(count <= left(), "a complaint did not throw");
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }

  /// The next bytes as they are in memory.
  template <class Number, class Complain>
  Number number(const Complain& complain) {
    Number value;
    std::memcpy(&value, take(sizeof value, complain).data(), sizeof value);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
};

}  // namespace tessera
