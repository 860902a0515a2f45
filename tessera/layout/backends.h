#pragma once
/// \file
/// The table of backends: what moves a group's tensors between its ranks. A row says everything in which they differ,
/// so that callers ask what a backend can do, and nobody compares names. Torch-free: configuration and program read the
/// rows; comm/ makes groups with the factories, which are defined beside each backend.

#include <tessera/base/words.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tessera::comm {
class Backend;
struct BackendRequest;
}  // namespace tessera::comm

namespace tessera {
/// Where a run computes; automatic: on CUDA where that is built and sees a GPU; xla: on the devices of a PJRT plug-in
/// (docs/tpu.md), with tensors on the CPU. The words: cpu, cuda, auto, xla.
enum class Device : unsigned char { cpu, cuda, automatic, xla };
const WordTable& words_of(Device);
}  // namespace tessera

namespace tessera::layout {

/// What a backend can do; comm::Group::capabilities() of a group.
struct Capabilities {
  /// Peers read and write tensors of comm::empty_shared where they lie, without a copy.
  bool reads_peers_in_place = false;
  /// Sums of bf16 and fp16 travel as they are, and are added in fp32; else comm/ sends them as fp32.
  bool reduces_halves = false;
  /// Messages between two ranks are done in the order in which both start them, whatever their tags.
  bool ordered_messages = false;
  /// Errors say who died, or what does not match: no other rank need be asked.
  bool names_causes = false;
};

/// Where the ranks of one group are.
struct Placement {
  int ranks = 1;               ///< in the group
  int hosts = 1;               ///< ranks of one host can share memory
  bool shares_device = false;  ///< two ranks use one accelerator
};

/// What is known of a backend without a tensor: its name, its reach, what it can do.
struct BackendRow {
  /// Which groups it can serve.
  enum class Reach { one_rank, one_host, anywhere };

  std::string_view name;            ///< the word of --backend, and what messages call it
  Device device;                    ///< where its tensors are; automatic: anywhere
  Reach reach = Reach::anywhere;    ///< larger groups are refused
  std::string_view rule;            ///< when `auto` takes it, in words
  bool (*suits)(const Placement&);  ///< `auto` takes the first row, of the device, that suits
  Capabilities capabilities = {};   ///< what every group has that it serves
  bool in_pytorch = false;          ///< torch.distributed has one of that name
  bool for_comparison = false;      ///< only measured: not among the words of --backend
};

// The rows, in the order in which `auto` looks at them. To add one: CONTRIBUTING.md, "Walk: a backend".

/// A world of one rank: nothing moves.
struct Local {
  static constexpr BackendRow row{.name = "local",
                                  .device = Device::automatic,
                                  .reach = BackendRow::Reach::one_rank,
                                  .rule = "one rank",
                                  .suits = [](const Placement& p) { return p.ranks == 1; },
                                  .capabilities = {.reduces_halves = true}};  ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);    ///< in comm/local.cpp
};

/// CPU tensors between processes of one host, through shared memory.
struct Shm {
  static constexpr BackendRow row{
      .name = "shm",
      .device = Device::cpu,
      .reach = BackendRow::Reach::one_host,
      .rule = "all ranks share a host",
      .suits = [](const Placement& p) { return p.hosts == 1; },
      .capabilities = {.reads_peers_in_place = true, .reduces_halves = true, .names_causes = true}};  ///< its row
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/shm/backend.cpp
};

/// Shared memory inside each host, another backend across.
struct Hier {
  static constexpr BackendRow row{.name = "hier",
                                  .device = Device::cpu,
                                  .rule = "several hosts have several ranks",
                                  .suits = [](const Placement& p) { return p.hosts > 1 && p.hosts < p.ranks; },
                                  .capabilities = {.reads_peers_in_place = true}};  ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/hierarchical/backend.cpp
};

/// CPU tensors over TCP.
struct Gloo {
  static constexpr BackendRow row{.name = "gloo",
                                  .device = Device::cpu,
                                  .rule = "else, on the CPU",
                                  .suits = [](const Placement&) { return true; },
                                  .in_pytorch = true};                      ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/gloo.cpp
};

/// LibTorch's Gloo with its own collectives, to compare with.
struct C10dGloo {
  static constexpr BackendRow row{.name = "c10d_gloo",
                                  .device = Device::cpu,
                                  .rule = "never",
                                  .suits = [](const Placement&) { return false; },
                                  .for_comparison = true};                  ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/gloo.cpp
};

/// CUDA tensors, in the plug-in.
struct Nccl {
  static constexpr BackendRow row{.name = "nccl",
                                  .device = Device::cuda,
                                  .rule = "on CUDA, one rank per GPU",
                                  .suits = [](const Placement& p) { return !p.shares_device; },
                                  .capabilities = {.reduces_halves = true, .ordered_messages = true},
                                  .in_pytorch = true};                      ///< its row of the table
  static std::shared_ptr<comm::Backend> make(const comm::BackendRequest&);  ///< in comm/nccl.cpp
};

/// All rows, in the order in which `auto` looks at them.
using Backends = std::tuple<Local, Shm, Hier, Gloo, C10dGloo, Nccl>;

/// The rows of Backends.
const std::vector<BackendRow>& backends();
/// nullptr: there is none of that name.
const BackendRow* find_backend(std::string_view name);
/// What `auto` means for a group with tensors on `device`; nullptr: no row suits.
const BackendRow* fitting_backend(Device device, const Placement& placement);
/// "auto" and the names of the rows; of those for comparison only `with_comparison`.
std::vector<std::string> backend_names(bool with_comparison);
/// "CPU", "CUDA": for messages.
std::string device_text(Device device);
/// The first of auto's rows for tensors on `device` and several ranks anywhere: what to use there instead of another.
std::string_view usual_backend(Device device);

}  // namespace tessera::layout
