#pragma once
/// \file
/// Which checkpoint a run goes on from: the newest that is whole. All ranks decide alike: each reads a share of the
/// bytes (together they read every byte once), tells the others what it found, and draws the same conclusion from what
/// all have told.
///
/// A checkpoint need not be read twice: its small files (what says how large the model is) are compared with their
/// checksums first; of its tensors checksums are taken while they are loaded, by whichever rank loads them.
/// Examination::finish() is the verdict; nothing that was loaded may be used before it.

#include <tessera/checkpoint/file_reader.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest/manifest.h>

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
  int threads = 1;  ///< with which this rank reads
};

/// What the ranks found about one folder; equal on every rank.
struct Finding {
  enum class Kind {
    whole,       ///< every byte is what was written, and a run can be resumed from it
    damaged,     ///< a manifest says what was written, and that is not there
    unusable,    ///< no manifest (half written, or not ours), the model only, or it cannot be read at present: nothing
                 ///< wrong with the bytes
    not_shared,  ///< the ranks see different folders
  };
  Kind kind = Kind::whole;
  std::string text;  ///< why it is not whole; one line
};

/// What is looked at.
enum class Depth {
  all,          ///< every byte
  small_files,  ///< the manifest, that each file is there with its size, and every byte of what is not a .safetensors
                ///< file
};

/// Why nothing can be resumed from what a manifest lists; "": something can. (Sizes and bytes are not looked at.)
using WhyNotResumable = std::function<std::string(const format::Manifest&)>;
/// The rule of the runs of `tessera train`.
std::string why_not_resumable(const format::Manifest& manifest);

/// Looks at a folder with all ranks. Collective; throws only what `gather` throws.
Finding examine(const std::string& folder, const Ranks& ranks, Depth depth = Depth::all,
                const WhyNotResumable& why_not = why_not_resumable);

/// examine() of every byte, of which most have been read by then: whoever loads the checkpoint does it
/// with sums().
class Examination {
 public:
  /// `ranks` must outlive this object.
  Examination(std::string folder, const Ranks& ranks);
  /// For the readers of this rank. (Without a manifest that can be read nothing is noted; finish() will say it.)
  const std::shared_ptr<format::ReadSums>& sums() const { return sums_; }
  /// Puts together what all ranks have noted, and reads what nobody has: the headers, and tensors that were not loaded.
  /// Once, when this rank reads no more; collective.
  Finding finish();

 private:
  std::string folder_;
  const Ranks& ranks_;
  std::shared_ptr<format::ReadSums> sums_;
};

/// The newest one of `candidates` (newest first) that is whole as far as is looked, or none. A damaged one is named in
/// a warning of rank 0, which also sets it aside (set_aside), so that the next start need not read it again; unusable
/// ones are passed over with a warning. Only rank 0's candidates count. Collective. Throws InputError on every rank
/// when ranks see different folders.
std::optional<std::string> choose_newest(const std::vector<StepFolder>& candidates, const Ranks& ranks,
                                         Depth depth = Depth::all, const WhyNotResumable& why_not = why_not_resumable);

/// Renames a damaged checkpoint-N to checkpoint-N.damaged (in place of an older one of that name, unless something else
/// is in it) and warns; its bytes stay, for whoever wants to look at them. One that cannot be renamed stays, with
/// another warning. Called by one rank.
void set_aside(const std::string& folder, const Finding& finding);

/// What a user is told who has named a folder that is not whole: the finding, and which is the newest whole checkpoint
/// beside it. Nothing is renamed. Collective.
std::string named_but_not_whole(const std::string& folder, const Finding& finding, const Ranks& ranks,
                                const WhyNotResumable& why_not = why_not_resumable);

}  // namespace tessera::checkpoint
