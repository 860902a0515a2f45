#pragma once
/// \file
/// The limit on the size of files that a process may write (ulimit -f, RLIMIT_FSIZE). For a write beyond it the kernel
/// sends SIGXFSZ, which kills a process silently; if the signal is ignored, the write fails with EFBIG.

#include <string>

namespace tessera {

/// Ignores SIGXFSZ, so that such writes fail instead, in this process and in children that do not restore it. Has no
/// effect if the program has its own handler. Called at program start and in tessera::init().
void ignore_file_limit_signal();

/// The text of an errno from a call that writes or extends a file; for EFBIG with the limit and the remedy.
std::string write_error_text(int error);

}  // namespace tessera
