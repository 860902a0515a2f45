#pragma once
/// \file
/// Sockets of the rendezvous store: listening on one interface, connecting to one address.

#include <tessera/launch/agent/unique_fd.h>

#include <chrono>
#include <string>

namespace tessera::launch {

/// A non-blocking listening socket on one address (a number or a name of this host); its port is stored in
/// `actual_port`. Throws InputError naming both.
UniqueFd listen_on(const std::string& address, int port, int& actual_port);

/// A connected non-blocking socket, or an empty one with the reason in `why`. Tries every address of the name until
/// `deadline`.
UniqueFd connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline,
                    std::string& why);

/// Disables Nagle's delay and gives these small messages priority over bulk data where the network and this host's
/// queues support it (IPTOS_LOWDELAY); enables keep-alives, so that a vanished host is noticed within about a minute.
void set_store_socket_options(int fd);

}  // namespace tessera::launch
