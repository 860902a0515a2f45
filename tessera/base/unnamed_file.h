#pragma once
/// \file
/// Unnamed disk space: freed when its last descriptor or mapping is closed, however the process ends.

#include <string>

namespace tessera {

/// A new empty file in `folder` (empty: TMPDIR, else /tmp), open for reading and writing, mode 600, close-on-exec. The
/// caller closes the descriptor. `purpose` begins the message ("activations cannot be offloaded"). Throws InputError
/// when the folder is missing or cannot be written.
int open_unnamed_file(const std::string& folder, const std::string& purpose);

}  // namespace tessera
