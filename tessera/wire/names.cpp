#include <tessera/wire/names.h>

#include <tessera/wire/failure.h>

#include <algorithm>
#include <cctype>

namespace tessera::wire {
namespace {

constexpr std::string_view others_in_keys = "/_-. :";

bool is_in_keys(unsigned char c) {
  return c < 128 && (std::isalnum(c) != 0 || others_in_keys.find(static_cast<char>(c)) != std::string_view::npos);
}

bool is_control(unsigned char c) { return c < 32 || c == 127; }

// The name for a message: without control characters, shortened.
std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, 40)) {
    if (is_control(static_cast<unsigned char>(c))) {
      const char* digits = "0123456789abcdef";
      text += concat("\\x", digits[static_cast<unsigned char>(c) >> 4], digits[static_cast<unsigned char>(c) & 15]);
    } else {
      text += c;
    }
  }
  return concat("'", text, name.size() > 40 ? "...'" : "'");
}

}  // namespace

void check_key(const char* what, std::string_view key) {
  if (key.empty()) throw Failure(Code::invalid, concat(what, " is empty."));
  if (key.size() > longest_key) {
    throw Failure(Code::invalid, concat(what, " ", shown(key), " has ", key.size(), " bytes; at most ", longest_key,
                                        " are possible."));
  }
  if (std::all_of(key.begin(), key.end(), is_in_keys)) return;
  throw Failure(Code::invalid,
                concat(what, " ", shown(key), " may have letters, digits and \"", others_in_keys, "\" only."));
}

void check_group_name(std::string_view name) {
  if (name.size() > longest_group_name) {
    throw Failure(Code::invalid, concat("the group's name ", shown(name), " has ", name.size(), " bytes; at most ",
                                        longest_group_name, " are possible."));
  }
  if (std::any_of(name.begin(), name.end(), is_control)) {
    throw Failure(Code::invalid, concat("the group's name ", shown(name), " has control characters."));
  }
}

}  // namespace tessera::wire
