#pragma once
/// \file
/// Downloads checkpoints from an object store.

#include <tessera/format/manifest/manifest.h>
#include <tessera/storage/push.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::storage {

/// One checkpoint below a prefix, as found in a listing.
struct StoredCheckpoint {
  ObjectUrl url;
  std::optional<std::int64_t> step;  ///< from its name, checkpoint-STEP; nullopt: the prefix itself is a checkpoint
  bool whole = false;                ///< has a manifest, i.e. its upload is complete
  std::uint64_t objects = 0, bytes = 0;
};

/// Lists the checkpoints at `url`: `url` itself if it has a manifest, otherwise the checkpoint-STEP below it, by step.
std::vector<StoredCheckpoint> checkpoints_at(const ObjectStore& store, const ObjectUrl& url);
/// The checkpoint to resume from: `url` itself, or the newest complete one below it. Throws InputError when there is
/// neither.
StoredCheckpoint newest_at(const ObjectStore& store, const ObjectUrl& url);

struct FetchReport {
  std::string folder;
  std::int64_t step = 0;
  std::uint64_t bytes = 0;    ///< size of the whole checkpoint
  std::uint64_t fetched = 0;  ///< fetched by this call; the rest was left by an interrupted fetch
};

/// Makes `folder` a copy of the checkpoint at `from`. The copy is built in FOLDER.fetching, each byte checked against
/// the manifest as it arrives, and renamed when everything is on disk, so `folder` is either complete or absent. Data
/// of an interrupted fetch is reused where its checksum matches. Processes that fetch the same checkpoint, on one host
/// or on several that share the folder, wait for the first one (needs locks: NFS from version 4 on). A folder with the
/// same manifest is left unchanged. Throws InputError when the folder contains another checkpoint, StorageError when
/// the store's bytes do not match its manifest (naming file and bytes) or the store cannot be reached.
FetchReport fetch_checkpoint(const ObjectStore& store, const ObjectUrl& from, const std::string& folder,
                             const TransferOptions& options = {});

/// Reads every byte of the checkpoint at `from` without storing it. Returns one line per damaged place; empty: intact.
struct RemoteVerdict {
  format::Manifest manifest;
  std::vector<std::string> damages;
};
RemoteVerdict verify_checkpoint(const ObjectStore& store, const ObjectUrl& from, const TransferOptions& options = {});

}  // namespace tessera::storage
