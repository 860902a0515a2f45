#pragma once
/// \file
/// Compares the data on disk with what was written: a faulty disk, controller or cable is detected while the training
/// still has the right bytes, not when the checkpoint is needed.

#include <atomic>
#include <string>

#include <tessera/format/manifest/crc32c.h>

namespace tessera::checkpoint {

/// Reads a file that was synced to disk, bypassing the page cache where the file system can, and compares. Checks
/// `cancelled` periodically. Throws Error with the first bytes that differ, or if the file cannot be read or
/// `cancelled` is set.
void read_back(const std::string& path, const format::Digest& written, const std::atomic<bool>& cancelled);

/// Drops a file that was synced to disk from the page cache, so that the next reader reads the disk. A hint: failures
/// are ignored, because only the comparison depends on it.
void forget_pages(const std::string& path);

}  // namespace tessera::checkpoint
