// Memory shared by the ranks of a host, and tensors of other libraries.
#include <tessera/c/guard.h>
#include <tessera/wire/shm/arena.h>

#include <cstring>
#include <map>
#include <mutex>

namespace tessera::c {
namespace {

using wire::Code;
using wire::Failure;

// https://dmlc.github.io/dlpack/latest/c_api.html, version 1.
struct DlTensor {
  void* data;
  struct {
    std::int32_t type, id;
  } device;
  std::int32_t dimensions;
  struct {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // null: row-major
  std::uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
struct DlManagedVersioned {
  struct {
    std::uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(DlManagedVersioned*);
  std::uint64_t flags;
  DlTensor tensor;
};
constexpr std::int32_t dl_cpu = 1;
constexpr std::uint64_t dl_read_only = 1;

tessera_dtype dtype_of(const DlTensor& tensor) {
  struct Row {
    std::uint8_t code, bits;
    tessera_dtype dtype;
  };
  constexpr Row rows[] = {{0, 8, TESSERA_INT8},       {0, 16, TESSERA_INT16},       {0, 32, TESSERA_INT32},
                          {0, 64, TESSERA_INT64},     {1, 8, TESSERA_UINT8},        {2, 16, TESSERA_FLOAT16},
                          {2, 32, TESSERA_FLOAT32},   {2, 64, TESSERA_FLOAT64},     {4, 16, TESSERA_BFLOAT16},
                          {5, 64, TESSERA_COMPLEX64}, {5, 128, TESSERA_COMPLEX128}, {6, 8, TESSERA_BOOL}};
  for (const Row& row : rows) {
    if (row.code == tensor.dtype.code && row.bits == tensor.dtype.bits && tensor.dtype.lanes == 1) return row.dtype;
  }
  throw Failure(Code::invalid, concat("DLPack: the dtype (code ", int{tensor.dtype.code}, ", ", int{tensor.dtype.bits},
                                      " bits, ", tensor.dtype.lanes, " lanes) has no tessera_dtype."));
}

void read(const DlTensor& tensor, bool read_only, tessera_view& view) {
  if (tensor.device.type != dl_cpu) {
    throw Failure(Code::invalid, concat("DLPack: the tensor is on a device of type ", tensor.device.type,
                                        "; only CPU memory (1) is supported."));
  }
  if (tensor.dimensions < 0 || (tensor.dimensions > 0 && tensor.shape == nullptr)) {
    throw Failure(Code::invalid, "DLPack: the tensor has no shape.");
  }
  std::int64_t count = 1;
  for (std::int32_t d = 0; d < tensor.dimensions; ++d) {
    if (tensor.shape[d] < 0 || (tensor.shape[d] > 0 && count > INT64_MAX / 16 / tensor.shape[d])) {
      throw Failure(Code::invalid, concat("DLPack: dimension ", d, " has size ", tensor.shape[d], "."));
    }
    count *= tensor.shape[d];
  }
  std::int64_t stride = 1;
  for (std::int32_t d = tensor.dimensions; tensor.strides != nullptr && count > 0 && d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != stride) {
      throw Failure(Code::invalid, "DLPack: the elements are not dense in row-major order: pass a contiguous tensor.");
    }
    stride *= tensor.shape[d];
  }
  if (count > 0 && tensor.data == nullptr) throw Failure(Code::invalid, "DLPack: the tensor's data is null.");
  const tessera_dtype dtype = dtype_of(tensor);
  view.data = tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
  view.count = count;
  view.dtype = dtype;
  view.read_only = read_only ? 1 : 0;
}

// Pieces of the arena that callers hold, to detect foreign addresses and double frees.
struct Pieces {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<wire::shm::Arena>> held;
};
Pieces& pieces() {
  static Pieces& all = *new Pieces;
  return all;
}

}  // namespace
}  // namespace tessera::c

using namespace tessera;
using namespace tessera::c;

extern "C" {

tessera_status tessera_memory_allocate(int64_t bytes, void** memory) {
  return guarded([&] {
    void*& result = given(memory, "memory");
    if (bytes < 1) throw Failure(Code::invalid, concat(bytes, " bytes cannot be allocated."));
    const auto arena = wire::shm::process_arena();
    void* const piece = arena->allocate(static_cast<std::size_t>(bytes));
    const std::lock_guard lock(pieces().mutex);
    pieces().held[piece] = arena;
    result = piece;
  });
}

tessera_status tessera_memory_free(void* memory) {
  return guarded([&] {
    if (memory == nullptr) return;
    std::shared_ptr<wire::shm::Arena> arena;
    {
      const std::lock_guard lock(pieces().mutex);
      const auto found = pieces().held.find(memory);
      if (found == pieces().held.end()) {
        throw Failure(Code::invalid, "the memory is not from tessera_memory_allocate(), or was freed before.");
      }
      arena = std::move(found->second);
      pieces().held.erase(found);
    }
    arena->free(memory);
  });
}

tessera_status tessera_view_dlpack(const void* managed, int32_t versioned, tessera_view* view) {
  return guarded([&] {
    tessera_view& result = given(view, "view");
    given(static_cast<const char*>(managed), "managed");
    if (versioned == 0) return read(static_cast<const DlManaged*>(managed)->tensor, false, result);
    const auto& tensor = *static_cast<const DlManagedVersioned*>(managed);
    if (tensor.version.major != 1) {
      throw Failure(Code::invalid, concat("DLPack: version ", tensor.version.major, ".", tensor.version.minor,
                                          "; this library reads version 1."));
    }
    read(tensor.tensor, (tensor.flags & dl_read_only) != 0, result);
  });
}

}  // extern "C"
