#include <tessera/text/parted_tokens.h>

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::text {
namespace {

/// Bytes of the first character of `text`.
std::size_t character(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) ++size;
  return size;
}

bool can_be_parted(std::string_view token) { return !token.empty() && character(token) < token.size(); }

/// The first bytes of all tokens and of the mark.
std::array<bool, 256> beginnings(const std::vector<std::string>& tokens) {
  std::array<bool, 256> begins{};
  for (const std::string& token : tokens)
    if (can_be_parted(token)) begins[static_cast<unsigned char>(token.front())] = true;
  begins[static_cast<unsigned char>(parting.front())] = true;
  return begins;
}

class Parter {
 public:
  explicit Parter(const std::vector<std::string>& tokens) : tokens_(tokens), begins_(beginnings(tokens)) {}

  const std::string* token_in(std::string_view text) const {
    for (std::size_t at = 0; at < text.size(); ++at)
      if (const std::string* token = token_at(text, at)) return token;
    return nullptr;
  }

  const std::string* token_in(const Value& value) const {
    if (value.is_string()) return token_in(value.as_string());
    const std::string* found = nullptr;
    if (value.is_array())
      for (const Value& item : value.items())
        if ((found = token_in(item)) != nullptr) return found;
    if (value.is_object())
      for (const auto& [name, member] : value.members())
        if ((found = token_in(name)) != nullptr || (found = token_in(member)) != nullptr) return found;
    return nullptr;
  }

  std::string parted(const std::string& text) const {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view rest = std::string_view(text).substr(at);
      const std::size_t size = character(rest);
      out += rest.substr(0, size);
      if (rest.starts_with(parting) || token_at(text, at) != nullptr) out += parting;
      at += size;
    }
    return out;
  }

  Value parted(const Value& value) const {
    Value made;
    if (value.is_string()) {
      made = Value::of(parted(value.as_string()));
    } else if (value.is_array()) {
      std::vector<Value> items;
      for (const Value& item : value.items()) items.push_back(parted(item));
      made = Value::make_array(std::move(items));
    } else if (value.is_object()) {
      std::vector<Value::Member> members;
      for (const auto& [name, member] : value.members()) members.emplace_back(parted(name), parted(member));
      made = Value::make_object(std::move(members));
    } else {
      made = value;
    }
    made.set_where(value.where());
    return made;
  }

 private:
  const std::string* token_at(std::string_view text, std::size_t at) const {
    if (!begins_[static_cast<unsigned char>(text[at])]) return nullptr;
    for (const std::string& token : tokens_)
      if (can_be_parted(token) && text.substr(at).starts_with(token)) return &token;
    return nullptr;
  }

  const std::vector<std::string>& tokens_;
  std::array<bool, 256> begins_;
};

bool has_parting(const Value& value) {
  if (value.is_string()) return value.as_string().find(parting) != std::string::npos;
  if (value.is_array()) return std::any_of(value.items().begin(), value.items().end(), has_parting);
  return value.is_object() && std::any_of(value.members().begin(), value.members().end(), [](const auto& member) {
           return member.first.find(parting) != std::string::npos || has_parting(member.second);
         });
}

}  // namespace

const std::string* find_token(const Value& value, const std::vector<std::string>& tokens) {
  return Parter(tokens).token_in(value);
}

Value parted(const Value& value, const std::vector<std::string>& tokens) {
  const Parter parter(tokens);
  return parter.token_in(value) != nullptr || has_parting(value) ? parter.parted(value) : value;
}

std::vector<std::string> between_partings(std::string_view text) {
  std::vector<std::string> parts(1);
  while (!text.empty()) {
    const std::size_t at = std::min(text.find(parting), text.size());
    parts.back() += text.substr(0, at);
    text.remove_prefix(at);
    if (text.empty()) break;
    text.remove_prefix(parting.size());
    if (text.starts_with(parting)) {  // doubled: stands for the character itself
      parts.back() += parting;
      text.remove_prefix(parting.size());
    } else {
      parts.emplace_back();
    }
  }
  std::erase_if(parts, [](const std::string& part) { return part.empty(); });
  return parts;
}

}  // namespace tessera::text
