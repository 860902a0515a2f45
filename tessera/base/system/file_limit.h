#pragma once
/// \file
/// The limit on the size of the files that a process may write (ulimit -f, RLIMIT_FSIZE). The kernel's answer to a
/// write beyond it is SIGXFSZ, which ends a process without a word; without that signal the write fails with EFBIG.

#include <string>

namespace tessera {

/// From here on such a write fails, in this process and in those it starts that do not set it back. Where the program
/// has a handler of its own for the signal, nothing changes. At the start of a program, and in tessera::init().
void ignore_file_limit_signal();

/// What the errno of a call that writes, or makes a file longer, means; for EFBIG with the limit and the remedy.
std::string write_error_text(int error);

}  // namespace tessera
