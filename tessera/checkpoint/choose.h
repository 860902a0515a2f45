#pragma once
/// \file
/// Chooses the checkpoint that a run resumes from: the newest complete one. All ranks decide alike: each reads a share
/// of the bytes (together they read every byte once), sends its findings to the others, and draws the same conclusion
/// from all findings.
///
/// A checkpoint need not be read twice: its small files (those that determine the model's size) are compared with their
/// checksums first; checksums of its tensors are computed while they are loaded, by whichever rank loads them.
/// Examination::finish() gives the verdict; loaded values must not be used before it.

#include <tessera/checkpoint/file_reader.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest/manifest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::checkpoint {

/// The ranks that check a checkpoint together.
struct Ranks {
  int rank = 0, size = 1;
  /// Returns the texts of all ranks on every rank, in rank order. Collective. Not called if size is 1.
  std::function<std::vector<std::string>(const std::string&)> gather = {};
  int threads = 1;  ///< reading threads of this rank
};

/// The ranks' finding about one folder; equal on every rank.
struct Finding {
  enum class Kind {
    whole,       ///< every byte is as written, and a run can be resumed from it
    damaged,     ///< the files differ from what the manifest lists
    unusable,    ///< no manifest (half written, or not ours), only the model, or unreadable; the bytes may be fine
    not_shared,  ///< the ranks see different folders
  };
  Kind kind = Kind::whole;
  std::string text;  ///< reason if it is not whole; one line
};

/// How much of a folder is checked.
enum class Depth {
  all,          ///< every byte
  small_files,  ///< the manifest, presence and size of every file, and every byte of files other than .safetensors
};

/// Returns the reason why no run can be resumed from the files of a manifest; "" if one can. (Does not check sizes and
/// bytes.)
using WhyNotResumable = std::function<std::string(const format::Manifest&)>;
/// The rule for runs of `tessera train`.
std::string why_not_resumable(const format::Manifest& manifest);

/// Checks a folder with all ranks. Collective; throws only the errors of `gather`.
Finding examine(const std::string& folder, const Ranks& ranks, Depth depth = Depth::all,
                const WhyNotResumable& why_not = why_not_resumable);

/// Like examine() of every byte, for a checkpoint that is loaded with sums(): loading reads most of the bytes, and
/// finish() the rest.
class Examination {
 public:
  /// `ranks` must outlive this object.
  Examination(std::string folder, const Ranks& ranks);
  /// To be passed to the readers of this rank. (Without a readable manifest nothing is recorded; finish() will report
  /// it.)
  const std::shared_ptr<format::ReadSums>& sums() const { return sums_; }
  /// Combines the records of all ranks, and reads the remaining bytes: the headers, and tensors that were not loaded.
  /// Call once, when this rank has finished reading; collective.
  Finding finish();

 private:
  std::string folder_;
  const Ranks& ranks_;
  std::shared_ptr<format::ReadSums> sums_;
};

/// The newest of `candidates` (newest first) that is whole as far as checked, or nullopt. A damaged one causes a
/// warning on rank 0, which also sets it aside (set_aside), so that the next start need not read it again; unusable
/// ones are skipped with a warning. Only rank 0's candidates count. Collective. Throws InputError on every rank if
/// ranks see different folders.
std::optional<std::string> choose_newest(const std::vector<StepFolder>& candidates, const Ranks& ranks,
                                         Depth depth = Depth::all, const WhyNotResumable& why_not = why_not_resumable);

/// Renames a damaged checkpoint-N to checkpoint-N.damaged (replacing an older one of that name, unless it contains
/// other files) and warns; its bytes are kept for inspection. One that cannot be renamed stays in place, with another
/// warning. Called by one rank.
void set_aside(const std::string& folder, const Finding& finding);

/// Error text for a user who named a folder that is not whole: the finding, and the newest whole checkpoint in the same
/// folder. Renames nothing. Collective.
std::string named_but_not_whole(const std::string& folder, const Finding& finding, const Ranks& ranks,
                                const WhyNotResumable& why_not = why_not_resumable);

}  // namespace tessera::checkpoint
