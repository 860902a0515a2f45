#pragma once
/// \file
/// The sockets of the rendezvous store: one interface to listen on, one address to reach.

#include <tessera/launch/agent/unique_fd.h>

#include <chrono>
#include <string>

namespace tessera::launch {

/// A non-blocking listening socket on one address (a number or a name of this host), and the port it got. Throws
/// InputError naming both.
UniqueFd listen_on(const std::string& address, int port, int& actual_port);

/// A connected non-blocking socket, or none and the reason in `why`. Every address that the name has is tried until
/// `deadline`.
UniqueFd connect_to(const std::string& host, int port, std::chrono::steady_clock::time_point deadline,
                    std::string& why);

/// No delay of small messages, which go before bulk data where the network and this host's queues know of priorities
/// (IPTOS_LOWDELAY); keep-alives, so that a host that vanished is noticed within about a minute.
void set_store_socket_options(int fd);

}  // namespace tessera::launch
