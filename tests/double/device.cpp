// The parts of a device that LibTorch requires: the guard that switches devices and streams, and the hooks through
// which libtorch_cpu.so calls libtorch_cuda.so. Both are registered under CUDA's own names, which are free in a process
// without libtorch_cuda.so. LibTorch caches the hooks on first use (the first backward, for example), so this library
// must be loaded earlier.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <tests/double/allocators.h>
#include <tests/double/memory.h>
#include <tests/double/order.h>
#include <tests/double/random.h>

namespace cuda_double {
namespace {

c10::DeviceIndex current() { return static_cast<c10::DeviceIndex>(current_device()); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device former = getDevice();
    set_device(device.index());
    return former;
  }
  c10::Device getDevice() const override { return {c10::kCUDA, current()}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < device_count()) set_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  c10::Stream getStream(c10::Device device) const override {
    const c10::Device d = indexed(device);
    return c10::Stream(c10::Stream::UNSAFE, d, current_stream(d.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, indexed(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, indexed(device), new_stream());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), exchange_stream(stream.device_index(), stream.id()));
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    host_waits(Wait::stream, "synchronize", stream.device_index(), stream.id());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override { host_waits_device(device); }
  void recordDataPtrOnStream(const c10::DataPtr& p, const c10::Stream& stream) const override {
    record_stream(p.get(), stream.device_index(), stream.id());
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    *event = event_record(*event, stream.device_index(), stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    event_block(event, stream.device_index(), stream.id());
  }
  bool queryEvent(void* event) const override { return event_query(event); }
  void synchronizeEvent(void* event) const override { host_waits_event(event); }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { event_destroy(event); }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return event_milliseconds(to) - event_milliseconds(from);
  }

 private:
  c10::Device indexed(c10::Device device) const { return device.has_index() ? device : getDevice(); }
};

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasCUDA() const override { return device_count() > 0; }
  bool hasCUDART() const override { return device_count() > 0; }
  long versionCUDART() const override { return 13000; }
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return 91900; }
  long versionRuntimeCuDNN() const override { return 91900; }
  bool hasCuBLASLt() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }

  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return current(); }
  c10::DeviceIndex getCurrentDevice() const override { return current(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex former = current();
    set_device(device);
    return former;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(c10::DeviceIndex device) const override { host_waits_device(device); }

  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Allocator* getCUDADeviceAllocator() const override { return &device_allocator(); }
  at::Device getDeviceFromPtr(void* pointer) const override {
    return {c10::kCUDA, static_cast<c10::DeviceIndex>(device_of(pointer))};
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }
};

const c10::impl::DeviceGuardImplRegistrar guard_registered(c10::DeviceType::CUDA, new Guard);  // never destroyed

}  // namespace
}  // namespace cuda_double

namespace at {
// The registry's key is the text of the second argument; the third must be a unique class name.
using DoubleHooks = cuda_double::Hooks;
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, DoubleHooks)
}  // namespace at
