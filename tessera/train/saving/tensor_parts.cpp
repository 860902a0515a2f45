#include <tessera/train/saving/tensor_parts.h>

#include <ATen/ATen.h>

#include <tessera/parallel/tensor/tensor_shard.h>
#include <tessera/parallel/tensor_parallel.h>

#include <memory>
#include <utility>

namespace tessera::train {
namespace {

/// Visits the runs of elements that `held` and the box share, as positions in both.
void for_each_run(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box,
                  const std::function<void(const layout::CommonRun&)>& visit) {
  const layout::Region own = layout::flat_region(parameter.shape, parameter.begin, parameter.begin + held.numel());
  layout::for_each_common_run(parameter.shape, own, box, visit);
}

}  // namespace

comm::Group tensor_group(const Sharded& sharded) {
  for (const ShardedParameter& p : sharded.named_parameters())
    if (const parallel::TensorShard* const cut = parallel::cut_of(p.local)) return cut->group();
  return {};
}

bool writes_whole(const comm::Group& tensor) { return !tensor || tensor.rank() == 0; }

bool lies_in_parts(const ShardedParameter& parameter) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter.local);
  return cut != nullptr && cut->divided();
}

bool writes_part(const ShardedParameter& parameter) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter.local);
  return cut == nullptr || cut->counts();
}

std::vector<std::int64_t> saved_shape(const ShardedParameter& parameter) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter.local);
  return cut != nullptr ? cut->part().whole : parameter.shape;
}

Sharded::PieceVisitor of_whole_tensors(const Sharded& sharded, const comm::Group& tensor, Sharded::PieceVisitor keep) {
  if (!tensor) return keep;
  const auto part = std::make_shared<at::Tensor>();
  return
      [&sharded, tensor, keep = std::move(keep), part](std::size_t index, std::int64_t begin, const at::Tensor& piece) {
        const ShardedParameter& parameter = sharded.named_parameters()[index];
        if (begin == 0) *part = at::empty(parameter.shape, piece.options());
        const at::Tensor flat = part->view({-1});
        flat.narrow(0, begin, piece.numel()).copy_(piece);
        if (begin + piece.numel() < flat.numel()) return;
        const at::Tensor whole = gather_tensor_parts(parameter.local, *part);
        if (writes_whole(tensor)) keep(index, 0, whole.reshape({-1}));
      };
}

std::vector<layout::TensorBox> held_boxes(const ShardedParameter& parameter, std::int64_t begin, std::int64_t count) {
  const parallel::TensorShard* const cut = parallel::cut_of(parameter.local);
  const layout::TensorPart part = cut != nullptr ? cut->part() : layout::TensorPart{.whole = parameter.shape};
  return layout::boxes_of(part, begin, begin + count);
}

at::Tensor take_box(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box) {
  const at::Tensor from = held.reshape({-1});
  if (box.numel() == from.numel()) return from;
  const at::Tensor elements = at::empty({box.numel()}, held.options());
  for_each_run(parameter, held, box, [&](const layout::CommonRun& run) {
    elements.narrow(0, run.to, run.count).copy_(from.narrow(0, run.from, run.count));
  });
  return elements;
}

void put_box(const ShardedParameter& parameter, const at::Tensor& held, const layout::Region& box,
             const at::Tensor& elements) {
  const at::Tensor to = held.view({-1});
  for_each_run(parameter, held, box, [&](const layout::CommonRun& run) {
    to.narrow(0, run.from, run.count).copy_(elements.narrow(0, run.to, run.count));
  });
}

void read_held(const ShardedParameter& parameter, const checkpoint::StoredState& stored, const std::string& name,
               const at::Tensor& held) {
  for (const auto& [box, place] : held_boxes(parameter, parameter.begin, held.numel())) {
    if (box.numel() == held.numel()) {
      stored.read(name, box, held);
      continue;
    }
    const at::Tensor elements = at::empty({box.numel()}, held.options());
    stored.read(name, box, elements);
    put_box(parameter, held, place, elements);
  }
}

}  // namespace tessera::train
