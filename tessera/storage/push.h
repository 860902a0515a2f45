#pragma once
/// \file
/// Uploads a checkpoint's folder to an object store. The manifest is uploaded last, so an interrupted upload never
/// counts as a checkpoint; an upload that replaces another checkpoint deletes that one's manifest first.

#include <tessera/format/manifest/manifest.h>
#include <tessera/launch/agent/unique_fd.h>
#include <tessera/storage/object_store.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::storage {

/// The open files of a checkpoint, so that removing the folder during the upload (--save_total_limit) does no harm.
class OpenCheckpoint {
 public:
  /// Throws InputError when the folder has no manifest or one of its files cannot be opened.
  explicit OpenCheckpoint(std::string folder);

  struct File {
    format::ManifestFile listed;
    launch::UniqueFd fd;
  };
  const std::string& folder() const { return folder_; }
  std::int64_t step() const { return manifest_.step; }
  const std::vector<File>& files() const { return files_; }
  const std::string& manifest_text() const { return manifest_text_; }
  std::uint64_t bytes() const;  ///< total size of all files

 private:
  std::string folder_, manifest_text_;
  format::Manifest manifest_;
  std::vector<File> files_;
};

struct TransferOptions {
  int connections = 4;
  std::uint64_t part_bytes = std::uint64_t{16} << 20;  ///< minimum part size; objects have at most 10,000 parts
  /// Called from several threads, but never concurrently, with the bytes done and the total.
  std::function<void(std::uint64_t done, std::uint64_t all)> progress = {};
};

struct PushReport {
  std::uint64_t bytes = 0;  ///< size of the whole checkpoint
  std::uint64_t sent = 0;   ///< sent by this call; the rest was already there from an earlier push
};

/// Makes `to` a copy of the checkpoint. Returns when the store has every byte, confirmed by its response or by reading
/// back. Objects, and parts of an interrupted upload, that are already stored with the right size and checksum are not
/// sent again. Data is checked against the manifest before it is sent. Throws InputError when a file does not match its
/// manifest, StorageError otherwise; the next call continues with what has been stored.
PushReport push_checkpoint(const ObjectStore& store, const OpenCheckpoint& checkpoint, const ObjectUrl& to,
                           const TransferOptions& options = {});

}  // namespace tessera::storage
