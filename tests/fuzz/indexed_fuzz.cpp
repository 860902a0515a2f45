// libFuzzer entry for Megatron's .idx: any bytes give a dataset whose tokens can all be read from a .bin of 256 bytes,
// or InputError. Files are in $TMPDIR: a memory file system makes it fast.

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/megatron_indexed.h>

namespace {

/// PREFIX.bin with 256 bytes, PREFIX.idx still open for writing.
struct Files {
  tessera::TemporaryFolder folder;
  std::string prefix = tessera::path_join(folder.path(), "set");
  int idx = -1;

  Files() {
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
    tessera::write_file_atomically(prefix + ".bin", bytes);
    idx = ::open((prefix + ".idx").c_str(), O_RDWR | O_CREAT, 0600);
    if (idx < 0) std::abort();
  }
  ~Files() { ::close(idx); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Files files;
  if (::ftruncate(files.idx, static_cast<off_t>(size)) != 0) std::abort();
  if (::pwrite(files.idx, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const tessera::format::IndexedDataset set(files.prefix);
    std::int64_t total = 0;
    for (std::int64_t i = 0; i < set.sequence_count(); ++i) {
      if (set.sequence_begin(i) != total || set.sequence_length(i) < 0) std::abort();
      total += set.sequence_length(i);
    }
    if (total != set.token_count()) std::abort();
    for (std::int64_t d = 0; d <= set.document_count(); ++d)
      if (set.document_begin(d) < 0 || set.document_begin(d) > set.sequence_count()) std::abort();
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(total));  // at most 256 per 12 bytes of the index
    set.read(0, tokens);
  } catch (const tessera::InputError&) {
  }
  return 0;
}
