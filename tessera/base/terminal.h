#pragma once
/// \file
/// Whether people see at a terminal what this process writes, and how wide that is.

namespace tessera {

/// Whether a stream (STDOUT_FILENO, STDERR_FILENO) is a terminal, or a pipe that the launcher passes on to one byte by
/// byte: TESSERA_TERMINAL holds the numbers of such streams, "12".
bool on_terminal(int stream);

/// Its columns; 80 where nobody knows.
int terminal_columns(int stream);

}  // namespace tessera
