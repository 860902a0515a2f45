#include <tessera/parallel/replicas/random_stream.h>

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>

#include <utility>
#include <vector>

namespace tessera::parallel {
namespace {

constexpr c10::DispatchKey stream_key = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local RandomStream* stream = nullptr;

std::optional<std::size_t> generator_argument(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == "generator") return i;
  return std::nullopt;
}

bool elsewhere(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().defined() && !value.toTensor().device().is_cpu();
  return value.isDevice() && !value.toDevice().is_cpu();
}

void draw(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (stream != nullptr) {
    const std::size_t first = stack->size() - op.schema().arguments().size();
    const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(first);
    bool cpu = true;
    for (const c10::IValue& argument : arguments) cpu = cpu && !elsewhere(argument);
    c10::IValue& generator = (*stack)[first + *generator_argument(op.schema())];
    if (cpu && generator.isNone()) generator = stream->use();
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, stream_key), stack);
}

/// Registered once and never removed: threads may still run operators while the process exits.
void register_generator_key() {
  struct Registrations {
    Registrations() {
      auto& dispatcher = c10::Dispatcher::singleton();
      held.push_back(
          dispatcher.registerFallback(stream_key, c10::KernelFunction::makeFallthrough(), "tessera: random streams"));
      for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
        const auto op = dispatcher.findSchema(name);
        if (op && generator_argument(op->schema()))
          held.push_back(dispatcher.registerImpl(name, stream_key, c10::KernelFunction::makeFromBoxedFunction<&draw>(),
                                                 std::nullopt, nullptr, "tessera: random streams"));
      }
    }
    std::vector<c10::RegistrationHandleRAII> held;
  };
  static const Registrations* const registrations = new Registrations;
  (void)registrations;
}

}  // namespace

RandomStream::RandomStream(at::Generator generator, std::function<void()> first_use)
    : generator_(std::move(generator)), first_use_(std::move(first_use)), before_(stream) {
  register_generator_key();
  stream = this;
  key_.emplace(stream_key);
}

RandomStream::~RandomStream() {
  key_.reset();
  stream = before_;
}

const at::Generator& RandomStream::use() {
  if (first_use_) std::exchange(first_use_, nullptr)();
  return generator_;
}

at::Generator thread_generator(c10::Device device) {
  if (device.is_cpu() && stream != nullptr) return stream->use();
  return at::globalContext().defaultGenerator(device);
}

std::uint64_t stream_seed(std::uint64_t key, std::uint64_t index) {
  // The finaliser of SplitMix64: neighbouring keys and indices give unrelated seeds.
  std::uint64_t z = key + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace tessera::parallel
