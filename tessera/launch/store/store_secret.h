#pragma once
/// \file
/// The job's secret: 256 random bits shared by the agents and ranks of one job. It is passed on only by an inherited
/// file descriptor (never in argv, environment, files or logs).

#include <tessera/launch/agent/unique_fd.h>

#include <array>
#include <cstdint>

namespace tessera::launch {

using Secret = std::array<std::uint8_t, 32>;

/// Generates a secret with getrandom(2).
Secret make_secret();

/// Returns a sealed memfd that contains the secret. It is close-on-exec: the agent clears that flag in the child (or
/// dup2s it) and passes the descriptor's number in TESSERA_SECRET_FD.
UniqueFd secret_to_fd(const Secret& secret);

/// Reads the secret with pread, so that several ranks can share the descriptor, which stays open. Throws InputError
/// unless it contains exactly 32 bytes.
Secret secret_from_fd(int fd);

}  // namespace tessera::launch
