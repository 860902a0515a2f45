#pragma once
/// \file
/// Which checkpoint a run goes on from: the newest that is whole. All ranks decide alike: each reads a share of the bytes (together they
/// read every byte once), tells the others what it found, and draws the same conclusion from what all have told. Nothing is read from a
/// checkpoint before every byte of it was compared with its checksum.

#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::checkpoint {

/// The ranks that look together.
struct Ranks {
  int rank = 0, size = 1;
  /// Gives every rank the texts of all, in the order of ranks. Collective. Not called when size is 1.
  std::function<std::vector<std::string>(const std::string&)> gather = {};
  int threads = 1;  ///< of this rank, to read with
};

/// What the ranks found about one folder; equal on every rank.
struct Finding {
  enum class Kind {
    whole,       ///< every byte is what was written, and a run can be resumed from it
    damaged,     ///< a manifest says what was written, and that is not there
    unusable,    ///< no manifest (half written, or not ours), the model only, or it cannot be read at present: nothing wrong with the bytes
    not_shared,  ///< the ranks see different folders
  };
  Kind kind = Kind::whole;
  std::string text;  ///< why it is not whole; one line
};

/// Looks at a folder with all ranks. Collective; throws only what `gather` throws.
Finding examine(const std::string& folder, const Ranks& ranks);

/// The newest whole one of `candidates` (newest first), or none. A damaged one is named in a warning of rank 0, which also sets it aside as
/// checkpoint-N.damaged (in place of an older one of that name), so that the next start need not read it again; unusable ones are passed
/// over with a warning. Only rank 0's candidates count. Collective. Throws InputError on every rank when ranks see different folders.
std::optional<std::string> choose_newest(const std::vector<StepFolder>& candidates, const Ranks& ranks);

/// For a folder that the user has named: throws InputError on every rank unless it is whole. The message says what is damaged and which is
/// the newest whole checkpoint beside it. Nothing is renamed. Collective.
void require_whole(const std::string& folder, const Ranks& ranks);

/// Why no run can be resumed from what a manifest lists; "": one can. (Sizes and bytes are not looked at.)
std::string why_not_resumable(const format::Manifest& manifest);

}  // namespace tessera::checkpoint
