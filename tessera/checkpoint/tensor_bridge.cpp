#include <tessera/checkpoint/tensor_bridge.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::checkpoint {
namespace {

using format::DType;

constexpr std::array<std::pair<DType, at::ScalarType>, 13> kTypes{{
    {DType::boolean, at::kBool},
    {DType::u8, at::kByte},
    {DType::i8, at::kChar},
    {DType::i16, at::kShort},
    {DType::u16, at::kUInt16},
    {DType::i32, at::kInt},
    {DType::u32, at::kUInt32},
    {DType::i64, at::kLong},
    {DType::u64, at::kUInt64},
    {DType::f16, at::kHalf},
    {DType::bf16, at::kBFloat16},
    {DType::f32, at::kFloat},
    {DType::f64, at::kDouble},
}};

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  for (const auto& [ours, torch] : kTypes) {
    if (ours == dtype) return torch;
  }
  throw Error(concat("no LibTorch type for safetensors dtype ", format::dtype_name(dtype)));
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, torch] : kTypes) {
    if (torch == type) return ours;
  }
  throw Error(concat("tensors of type ", c10::toString(type), " cannot be written to safetensors; convert them first"));
}

at::Tensor read_tensor(const format::SafetensorsFile& file, const format::TensorInfo& tensor) {
  const auto bytes = file.bytes(tensor);
  if (tensor.dtype == DType::boolean) {  // any other value of a bool is undefined behaviour
    const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (bad != bytes.end()) {
      throw InputError(concat(file.path(), ": tensor '", tensor.name, "': BOOL element ", bad - bytes.begin(), " is ",
                              std::to_integer<int>(*bad), "; only 0 and 1 are allowed"));
    }
  }
  at::Tensor copy = at::empty(tensor.shape, at::TensorOptions().dtype(scalar_type(tensor.dtype)));
  TESSERA_CHECK(copy.nbytes() == bytes.size(), tensor.name, ": ", copy.nbytes(), " bytes in memory, ", bytes.size(),
                " in the file");
  if (!bytes.empty()) std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

format::TensorSource tensor_source(const std::string& name, const at::Tensor& tensor) {
  TESSERA_CHECK(tensor.defined(), "tensor '", name, "' is undefined and cannot be written");
  return tensor_source(name, tensor.scalar_type(), tensor.sizes().vec(), [tensor] { return tensor; });
}

format::TensorSource tensor_source(const std::string& name, at::ScalarType type, std::vector<std::int64_t> shape,
                                   std::function<at::Tensor()> make, std::shared_ptr<at::Tensor> slot) {
  // The file needs plain bytes; a view of another dtype or device is materialized when requested and freed with the
  // source.
  if (!slot) slot = std::make_shared<at::Tensor>();
  return {name, dtype_of(type), std::move(shape),
          [make = std::move(make), plain = std::move(slot)]() -> std::span<const std::byte> {
            plain->reset();
            *plain = make().detach().resolve_neg().cpu().contiguous();
            return {static_cast<const std::byte*>(plain->const_data_ptr()), plain->nbytes()};
          }};
}

}  // namespace tessera::checkpoint
