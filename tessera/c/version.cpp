#include <tessera/c/guard.h>
#include <tessera/wire/arithmetic.h>

#include <algorithm>
#include <cstring>

namespace tessera::c {
namespace {
thread_local std::string last_error;
}

tessera_status remember(wire::Code code, const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
  return static_cast<tessera_status>(code);
}

void copy_out(const std::string& text, char* buffer, int64_t capacity, int64_t* needed) {
  if (capacity < 0) throw wire::Failure(wire::Code::invalid, concat("the capacity is ", capacity, "."));
  if (capacity > 0) given(buffer, "buffer");
  if (needed != nullptr) *needed = static_cast<int64_t>(text.size()) + 1;
  if (capacity == 0) return;
  const std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(capacity) - 1);
  std::memcpy(buffer, text.data(), bytes);
  buffer[bytes] = 0;
}

}  // namespace tessera::c

using namespace tessera;

extern "C" {

int32_t tessera_abi_version(void) { return TESSERA_ABI_VERSION; }
const char* tessera_version(void) { return TESSERA_VERSION; }

const char* tessera_status_name(tessera_status status) {
  switch (status) {
    case TESSERA_OK:
      return "ok";
    case TESSERA_INVALID:
      return "invalid argument";
    case TESSERA_PEER_LOST:
      return "peer lost";
    case TESSERA_TIMEOUT:
      return "timeout";
    case TESSERA_MISMATCH:
      return "mismatch";
    case TESSERA_ABORTED:
      return "aborted";
    case TESSERA_SHUT_DOWN:
      return "shut down";
    case TESSERA_STORE:
      return "store";
    case TESSERA_SYSTEM:
      return "system";
    default:
      return "unknown status";
  }
}

const char* tessera_last_error(void) { return c::last_error.c_str(); }

int64_t tessera_dtype_size(tessera_dtype dtype) {
  if (dtype < 0 || dtype >= wire::dtype_count) return 0;
  return static_cast<int64_t>(wire::width_of(static_cast<wire::Dtype>(dtype)));
}
const char* tessera_dtype_name(tessera_dtype dtype) {
  if (dtype < 0 || dtype >= wire::dtype_count) return "unknown";
  return wire::name_of(static_cast<wire::Dtype>(dtype));
}
const char* tessera_op_name(tessera_op op) {
  if (op < 0 || op >= wire::reduction_count) return "unknown";
  return wire::name_of(static_cast<wire::Reduction>(op));
}

}  // extern "C"
