// The table of libtessera_xla.so.

#include <tessera/base/error.h>
#include <tessera/xla/compiled_step.h>
#include <tessera/xla/step/compiled_training.h>

namespace tessera::xla {
namespace {

class PjrtDevices final : public Devices {
 public:
  PjrtDevices(std::string path, int count) : path_(std::move(path)) {
    const auto plugin = Plugin::load(path_);
    // A CPU plug-in makes the devices that it is asked for; others refuse the option.
    try {
      client_ = std::make_shared<Client>(plugin, std::max(1, count));
    } catch (const Error&) {
      client_ = std::make_shared<Client>(plugin);
    }
    if (count > 0 && client_->devices() != count)
      throw InputError(
          concat("device xla: ", count, " devices are asked for, and ", path_, " has ", client_->devices()));
  }
  int count() const override { return client_->devices(); }
  std::string describe() const override {
    return concat(count(), " x ", client_->platform(), " (PJRT plug-in ", path_, ")");
  }
  std::unique_ptr<CompiledStep> compile(torch::nn::Module& module, CompiledStep::Loss loss,
                                        TrainingOptions options) const override {
    return std::make_unique<CompiledTraining>(client_, module, std::move(loss), std::move(options));
  }

 private:
  std::string path_;
  std::shared_ptr<const Client> client_;
};

std::unique_ptr<Devices> open(const std::string& path, int count) {
  return std::make_unique<PjrtDevices>(find_plugin(path), count);
}

constexpr XlaPlugin plugin{.open = &open};

}  // namespace
}  // namespace tessera::xla

extern "C" const void* tessera_xla_plugin() { return &tessera::xla::plugin; }
