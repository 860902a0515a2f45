#pragma once
/// \file
/// What is on the disk, compared with what was written: a disk, a controller or a cable that lies is found while the
/// training still has the right bytes, not when the checkpoint is needed.

#include <atomic>
#include <string>

#include <tessera/format/manifest/crc32c.h>

namespace tessera::checkpoint {

/// Reads a file that was forced to the disk past the page cache (where the file system can) and compares. `cancelled`
/// is looked at now and then. Throws Error naming the first bytes that differ, or when it cannot be read or `cancelled`
/// is set.
void read_back(const std::string& path, const format::Digest& written, const std::atomic<bool>& cancelled);

/// Lets the page cache forget a file that was forced to the disk, so that the next reader reads the disk. A hint:
/// failures are ignored, because only what is compared depends on it.
void forget_pages(const std::string& path);

}  // namespace tessera::checkpoint
