#include <tessera/base/system/endpoint.h>

#include <arpa/inet.h>

#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Also accepts an address followed by a scope: fe80::1%eth0.
bool is_ipv6(std::string_view text) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, std::string(text.substr(0, text.find('%'))).c_str(), &address) == 1;
}

}  // namespace

std::string bare_host(std::string_view host) {
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return std::string(brackets ? host.substr(1, host.size() - 2) : host);
}

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  if (is_ipv6(text)) return Endpoint{std::string(text)};
  const std::size_t inside = text.starts_with('[') ? text.find(']') : 0;
  if (inside == std::string_view::npos) return std::nullopt;
  const std::size_t colon = text.rfind(':');
  const std::string_view host = text.substr(0, colon == std::string_view::npos || colon < inside ? text.size() : colon);
  const std::string bare = bare_host(host);
  const bool in_brackets = bare.size() < host.size();
  const bool colons = bare.find(':') != std::string::npos;
  if (bare.empty() || bare.find_first_of("[]") != std::string::npos || (colons || in_brackets) != is_ipv6(bare)) {
    return std::nullopt;
  }
  if (host.size() == text.size()) return Endpoint{bare};
  const auto port = parse_int(text.substr(host.size() + 1));
  if (!port || *port < 0 || *port > 65535) return std::nullopt;
  return Endpoint{bare, static_cast<int>(*port)};
}

std::string endpoint_text(std::string_view host, int port) {
  const bool ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return concat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

}  // namespace tessera
