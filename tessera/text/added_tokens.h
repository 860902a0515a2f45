#pragma once
/// \file
/// Tokens that are found literally in the text before anything else is done with it (special or not).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool lstrip = false;      ///< swallows blanks before it
  bool rstrip = false;      ///< swallows blanks after it
  bool normalized = false;  ///< matched in the second round (after normalization, of which there is none here)
  bool special = false;
};

/// A piece of text: plain (id < 0) or one added token.
struct Segment {
  std::string_view text;
  std::int32_t id = -1;
};

/// Immutable.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  /// Cuts well-formed UTF-8 into segments, leftmost and longest match first, as Hugging Face does: tokens with
  /// normalized = false in the whole text, then the others in what is left. Empty pieces are left out.
  std::vector<Segment> split(std::string_view text) const;

 private:
  struct Matcher {
    std::vector<AddedToken> tokens;                      ///< longest first
    std::array<std::vector<std::uint16_t>, 256> begins;  ///< by first byte, indices into tokens
    std::array<bool, 256> is_first{};
    void build();
    void split(std::string_view text, std::vector<Segment>& out) const;
  };
  Matcher first_, second_;
};

}  // namespace tessera::text
