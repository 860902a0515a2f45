#pragma once
/// \file
/// TCP ports for the rendezvous: listens before the ranks start, and finds a free port.

#include <tessera/launch/agent/unique_fd.h>
#include <string>

namespace tessera::launch {

/// Whether only this host can reach the address ("localhost", "::1", "127.1.2.3"). Judged by the text; no name is
/// looked up.
bool is_loopback(const std::string& address);

/// A socket bound to `address` (a name or address of this host), and its port.
struct BoundSocket {
  UniqueFd fd;
  int port = 0;
};

/// Binds and listens; port 0 chooses a free one. SO_REUSEADDR, close-on-exec. Throws InputError with address, port and
/// reason: in use, not an address of this host, not allowed.
BoundSocket listen_on(const std::string& address, int port);

/// Returns a free port on `address`. It is below the range that the kernel hands out by itself, so that no outgoing
/// connection takes it before rank 0 binds it. A given port (not 0) is only checked. Throws InputError as listen_on()
/// does.
int choose_port(const std::string& address, int port = 0);

}  // namespace tessera::launch
