#pragma once
/// \file
/// Whether this process's output goes to a terminal, and the terminal's width.

namespace tessera {

/// Whether a stream (STDOUT_FILENO, STDERR_FILENO) is a terminal, or a pipe that the launcher forwards to one byte by
/// byte: TESSERA_TERMINAL lists the numbers of such streams, "12".
bool on_terminal(int stream);

/// Returns the terminal's width in columns; 80 if unknown.
int terminal_columns(int stream);

}  // namespace tessera
