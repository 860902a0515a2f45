#pragma once
/// \file
/// Bounds-checked forward reading of bytes from an untrusted source.

#include <tessera/base/error.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera {

/// A position within a span of bytes; never moves past its end.
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

  /// Returns the next `count` bytes. If fewer are left, calls complain(), which must throw.
  template <class Complain>
  std::span<const std::byte> take(std::uint64_t count, const Complain& complain) {
    if (count > left()) complain();
    TESSERA_CHECK(count <= left(), "a complaint did not throw");
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }

  /// Reads a number in the host's byte order.
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
