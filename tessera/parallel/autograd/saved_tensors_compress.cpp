#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/autograd/saved_tensors_blocks.h>

namespace tessera::parallel {
namespace {

constexpr std::int64_t int8_block = 128;

/// Keeps tensors through the outer policies and counts their bytes in the account.
class Compressed : public PackedBlock {
 public:
  Compressed(std::shared_ptr<Account> account, const at::Tensor& flat, std::int64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {
    account_->add(static_cast<std::int64_t>(flat.nbytes()), bytes_);
  }
  ~Compressed() override { account_->remove(bytes_); }

 private:
  std::shared_ptr<Account> account_;
  std::int64_t bytes_;
};

class Bf16 final : public Compressed {
 public:
  Bf16(const std::shared_ptr<Account>& account, const at::Tensor& flat)
      : Compressed(account, flat, 2 * flat.numel()), dtype_(flat.scalar_type()), kept_(flat.to(at::kBFloat16)) {}
  at::Tensor read() override { return kept_.unpack().to(dtype_); }

 private:
  at::ScalarType dtype_;
  SavedTensor kept_;
};

/// q = round(x / s), s = max |x| of the block / 127.
class Int8 final : public Compressed {
 public:
  Int8(const std::shared_ptr<Account>& account, const at::Tensor& flat)
      : Compressed(account, flat, bytes(flat.numel())), dtype_(flat.scalar_type()), numel_(flat.numel()) {
    const std::int64_t blocks = (numel_ + int8_block - 1) / int8_block;
    at::Tensor x = flat.to(at::kFloat);
    if (blocks * int8_block != numel_) x = at::constant_pad_nd(x, {0, blocks * int8_block - numel_});
    x = x.view({blocks, int8_block});
    const at::Tensor scale = x.abs().amax(1, /*keepdim=*/true).div_(127);
    values_ = SavedTensor((x / scale.clamp_min(1e-38)).round_().to(at::kChar));
    scale_ = SavedTensor(scale);
  }
  at::Tensor read() override {
    return values_.unpack().to(at::kFloat).mul_(scale_.unpack()).to(dtype_).view(-1).slice(0, 0, numel_);
  }

 private:
  static std::int64_t bytes(std::int64_t numel) {
    const std::int64_t blocks = (numel + int8_block - 1) / int8_block;
    return blocks * (int8_block + 4);
  }

  at::ScalarType dtype_;
  std::int64_t numel_;
  SavedTensor values_, scale_;
};

class CompressPolicy final : public BlockPolicy {
 public:
  explicit CompressPolicy(const CompressOptions& options) : BlockPolicy(options.min_bytes, {}), options_(options) {}

 private:
  bool takes(const at::Tensor& tensor) const override {
    const bool wide = tensor.scalar_type() == at::kFloat ||
                      (options_.to == ActivationFormat::int8 && tensor.scalar_type() == at::kBFloat16);
    return wide && (!options_.only || options_.only(tensor));
  }
  std::unique_ptr<PackedBlock> pack_block(const at::Tensor& flat) override {
    if (options_.to == ActivationFormat::bf16) return std::make_unique<Bf16>(account_, flat);
    return std::make_unique<Int8>(account_, flat);
  }

  CompressOptions options_;
};

}  // namespace

std::shared_ptr<SavedTensorPolicy> compress_policy(const CompressOptions& options) {
  return std::make_shared<CompressPolicy>(options);
}

}  // namespace tessera::parallel

namespace tessera {

CompressActivations::CompressActivations(const CompressOptions& options)
    : policy_(parallel::compress_policy(options)), scope_(std::make_unique<parallel::SavedTensors>(policy_)) {}
CompressActivations::~CompressActivations() = default;
parallel::SavedBytes CompressActivations::bytes() const { return policy_->bytes(); }

}  // namespace tessera
