#pragma once
/// \file
/// Hosts and ports as people and launchers write them. An IPv6 address has colons of its own, so that with a port it
/// stands in brackets (RFC 3986): [fd00::1]:29500. Inside the program an address has none.

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

struct Endpoint {
  std::string host;              ///< without brackets
  std::optional<int> port = {};  ///< nothing: none was given
};

/// "[fd00::1]" -> "fd00::1"; what has no brackets around it stays. For every address that is read from outside.
std::string bare_host(std::string_view host);

/// HOST, HOST:PORT, [ADDRESS], [ADDRESS]:PORT, and an IPv6 address alone. Without brackets the longest address counts:
/// "fd00::1:8080" is one, "fd00::1:29500" is one with a port. Nothing: no host, or a port that is none (0 to 65535).
std::optional<Endpoint> parse_endpoint(std::string_view text);

/// "host:29500", "[fd00::1]:29500".
std::string endpoint_text(std::string_view host, int port);

}  // namespace tessera
