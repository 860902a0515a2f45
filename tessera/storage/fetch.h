#pragma once
/// \file
/// Checkpoints out of an object store.

#include <tessera/format/manifest/manifest.h>
#include <tessera/storage/push.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::storage {

/// One checkpoint below a prefix, as a listing shows it.
struct StoredCheckpoint {
  ObjectUrl url;
  std::optional<std::int64_t> step;  ///< from its name, checkpoint-STEP; none: the prefix itself is one
  bool whole = false;                ///< it has a manifest: its upload has ended
  std::uint64_t objects = 0, bytes = 0;
};

/// The checkpoints at `url`: itself when it has a manifest, else its checkpoint-STEP, by step.
std::vector<StoredCheckpoint> checkpoints_at(const ObjectStore& store, const ObjectUrl& url);
/// The one to go on from: `url` itself, or the newest below it that is whole. Throws InputError when there is none.
StoredCheckpoint newest_at(const ObjectStore& store, const ObjectUrl& url);

struct FetchReport {
  std::string folder;
  std::int64_t step = 0;
  std::uint64_t bytes = 0;    ///< the whole checkpoint
  std::uint64_t fetched = 0;  ///< now; the others were there already, from a fetch that was interrupted
};

/// Makes `folder` a copy of the checkpoint at `from`. It grows as FOLDER.fetching, each byte compared with the manifest
/// as it arrives, and gets its name when all of them are on the disk: it is whole or it is not there. What an
/// interrupted fetch has left is kept where it has the right checksums. Processes that fetch the same, of one host or
/// of several that share the folder, wait for the first one (locks of NFS from version 4 on). A folder that is there
/// with the same manifest is left as it is. Throws InputError when the folder is another checkpoint, StorageError when
/// the store has other bytes than its manifest says (naming file and bytes) or cannot be reached.
FetchReport fetch_checkpoint(const ObjectStore& store, const ObjectUrl& from, const std::string& folder,
                             const TransferOptions& options = {});

/// Reads every byte of the checkpoint at `from` without keeping it. Returns a line per damage; none: it is whole.
struct RemoteVerdict {
  format::Manifest manifest;
  std::vector<std::string> damages;
};
RemoteVerdict verify_checkpoint(const ObjectStore& store, const ObjectUrl& from, const TransferOptions& options = {});

}  // namespace tessera::storage
