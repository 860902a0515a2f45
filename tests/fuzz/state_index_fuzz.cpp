// libFuzzer entry for the index of tensors that are stored in pieces: for any text its pieces contain every element of
// a tensor exactly once and name files in the folder, or it throws InputError; an accepted index reads back as written.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <tests/format/region_elements.h>

#include <tessera/base/error.h>
#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/state_index.h>

namespace {

using namespace tessera;

/// Checks element by element for small tensors.
void check_held_once(const format::StoredTensor& tensor) {
  constexpr std::int64_t few = 10'000;
  const std::int64_t numel = layout::whole_region(tensor.shape).numel();
  std::int64_t held = 0;
  for (const auto& piece : tensor.pieces) {
    layout::check_region(piece.region, tensor.shape, "accepted");
    if (!format::is_plain_file_name(piece.file)) std::abort();
    if (piece.region.numel() > numel - held) std::abort();
    held += piece.region.numel();
  }
  if (held != numel) std::abort();
  if (numel > few) return;
  std::vector<bool> seen(static_cast<std::size_t>(numel));
  for (const auto& piece : tensor.pieces)
    for (std::int64_t place = piece.region.begin; place < piece.region.end; ++place) {
      const auto at = tessera::testing::element_of(piece.region, tensor.shape, place);
      if (seen[static_cast<std::size_t>(at)]) std::abort();
      seen[static_cast<std::size_t>(at)] = true;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto index = format::parse_state_index({reinterpret_cast<const char*>(data), size}, "fuzzed");
    for (const auto& tensor : index.tensors) check_held_once(tensor);
    std::string text;
    try {
      text = format::state_index_text(index);
    } catch (const InputError&) {
      std::abort();
    } catch (const Error&) {  // tensors of 2^63 bytes in total
      return 0;
    }
    if (!(format::parse_state_index(text, "written") == index)) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
