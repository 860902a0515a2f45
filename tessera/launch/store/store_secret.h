#pragma once
/// \file
/// The job's secret: 256 random bits that the agents and ranks of one job share. It travels by an inherited file
/// descriptor only (never in argv, environment, files or logs).

#include <tessera/launch/agent/unique_fd.h>

#include <array>
#include <cstdint>

namespace tessera::launch {

using Secret = std::array<std::uint8_t, 32>;

/// A new one, from getrandom(2).
Secret make_secret();

/// A sealed memfd with the secret in it, close-on-exec: the agent clears that flag in the child (or dup2s it) and names
/// the descriptor in TESSERA_SECRET_FD.
UniqueFd secret_to_fd(const Secret& secret);

/// Reads it with pread, so that a descriptor shared by several ranks serves them all. The descriptor stays open. Throws
/// InputError when it does not hold exactly 32 bytes.
Secret secret_from_fd(int fd);

}  // namespace tessera::launch
