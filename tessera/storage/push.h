#pragma once
/// \file
/// A checkpoint's folder into an object store. It is there, or it is not: the manifest goes last, so that an upload
/// that was interrupted is no checkpoint, and one that replaces another takes that one's manifest away first.

#include <tessera/format/manifest/manifest.h>
#include <tessera/launch/agent/unique_fd.h>
#include <tessera/storage/object_store.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::storage {

/// The files of a checkpoint, held open: what removes the folder meanwhile (--save_total_limit) does no harm.
class OpenCheckpoint {
 public:
  /// Throws InputError when the folder has no manifest or a file of it cannot be opened.
  explicit OpenCheckpoint(std::string folder);

  struct File {
    format::ManifestFile listed;
    launch::UniqueFd fd;
  };
  const std::string& folder() const { return folder_; }
  std::int64_t step() const { return manifest_.step; }
  const std::vector<File>& files() const { return files_; }
  const std::string& manifest_text() const { return manifest_text_; }
  std::uint64_t bytes() const;  ///< all files together

 private:
  std::string folder_, manifest_text_;
  format::Manifest manifest_;
  std::vector<File> files_;
};

struct TransferOptions {
  int connections = 4;
  std::uint64_t part_bytes = std::uint64_t{16} << 20;  ///< at least; objects have at most 10,000 parts
  /// Called from several threads, one at a time: bytes that are done, and all.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

struct PushReport {
  std::uint64_t bytes = 0;  ///< the whole checkpoint
  std::uint64_t sent = 0;   ///< now; the others were there already, from an earlier push
};

/// Makes `to` a copy of the checkpoint and returns when the store has every byte, by its own word or read back: an
/// object that is there with the right size and checksum is not sent again, nor is a part of an upload that was
/// interrupted. What is read is compared with the manifest before it is sent. Throws InputError when a file is not what
/// its manifest says, StorageError otherwise; what is there by then is used by the next call.
PushReport push_checkpoint(const ObjectStore& store, const OpenCheckpoint& checkpoint, const ObjectUrl& to,
                           const TransferOptions& options = {});

}  // namespace tessera::storage
