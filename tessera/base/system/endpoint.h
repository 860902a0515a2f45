#pragma once
/// \file
/// Hosts and ports as people and launchers write them. An IPv6 address contains colons, so with a port it is bracketed
/// (RFC 3986): [fd00::1]:29500. Inside the program addresses have no brackets.

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

struct Endpoint {
  std::string host;              ///< without brackets
  std::optional<int> port = {};  ///< nullopt: not given
};

/// "[fd00::1]" -> "fd00::1"; unchanged without brackets. Apply it to every address read from outside.
std::string bare_host(std::string_view host);

/// Parses HOST, HOST:PORT, [ADDRESS], [ADDRESS]:PORT, or a bare IPv6 address. Without brackets the longest valid
/// address is taken: "fd00::1:8080" is an address, "fd00::1:29500" an address with a port. Returns nullopt for a
/// missing host or a port outside 0 to 65535.
std::optional<Endpoint> parse_endpoint(std::string_view text);

/// "host:29500", "[fd00::1]:29500".
std::string endpoint_text(std::string_view host, int port);

}  // namespace tessera
