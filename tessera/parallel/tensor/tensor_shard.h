#pragma once
/// \file
/// Metadata of a parameter of which this rank holds a part, or whose gradient the ranks compute in parts. Attached to
/// the parameter itself, and kept when a sharding engine divides the part further.

#include <tessera/comm/group.h>
#include <tessera/layout/tensor_plan.h>
#include <tessera/nn/parameter_semantics.h>
#include <tessera/parallel/tensor/exchange.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

class TensorShard final : public nn::ParameterSemantics {
 public:
  /// State shared by all parameters of a module: the layout of its activations between layers.
  struct Activations {
    Between between = Between::whole;  ///< in training
    bool whole_now = false;            ///< a pass without gradients
    std::int64_t product_parts = 1;    ///< parts in which products of rows are computed, in training
    /// The embedding's output in this pass: rows, and tokens of this rank; -1: none yet.
    std::pair<std::int64_t, std::int64_t> tokens{-1, -1};
  };
  TensorShard(std::string name, layout::TensorRule rule, std::span<const std::int64_t> shape, comm::Group group,
              std::shared_ptr<Activations> activations);

  const std::string& name() const { return name_; }
  /// "'h.0.up.weight' (cut in dimension 0 over 'tp 0')", for errors.
  std::string described() const;
  /// The properties that ranks must agree on: style, blocks, heads.
  std::string rule_text() const;
  const comm::Group& group() const { return group_; }
  const layout::TensorPart& part() const { return parts_[static_cast<std::size_t>(group_.rank())]; }
  const layout::TensorPart& part_of(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  bool divided() const { return part().dim >= 0; }
  /// Whether sums over the group's ranks (norms) include this rank's values: of equal values only the first rank's
  /// count.
  bool counts() const { return divided() ? group_.rank() % part().sharers == 0 : group_.rank() == 0; }
  /// Whether ranks compute parts of the gradient of the same values.
  bool sums_gradient() const { return part().summed || part().sharers > 1; }
  /// The gradient summed over the ranks that hold the same values. Collective.
  at::Tensor sum_gradient(const at::Tensor& gradient) const;

  /// The layout of activations between layers in the current pass.
  Between between() const;

  at::Tensor own(const at::Tensor& whole) const;  ///< this rank's part, contiguous
  at::Tensor whole(const at::Tensor& own) const;  ///< collective

  /// The module's parameter; nullptr before apply_cut(). Copies of it have the same cut, but their gradients are not
  /// combined.
  const c10::TensorImpl* parameter = nullptr;

  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    nn::WeightLayout layout) const override;
  at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, std::int64_t padding_idx,
                       bool whole) const override;
  at::Tensor own_tokens(const at::Tensor& x) const override;
  void begin_with(const at::Tensor& x) const override;
  std::int64_t first_token(std::int64_t tokens) const override;
  std::int64_t first_along(int dim) const override;
  std::int64_t whole_numel() const override;
  at::Tensor all_tokens(const at::Tensor& x) const override;
  at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                  double scale, const nn::LossOptions& options, const at::Tensor& bias) const override;

 private:
  std::vector<Ranges> ranges() const;
  void begin_pass() const;
  void check_tokens(const at::Tensor& x, Between before) const;

  std::string name_;
  layout::TensorRule rule_;
  comm::Group group_;
  std::shared_ptr<Activations> activations_;
  std::vector<layout::TensorPart> parts_;  ///< by rank
};

/// The cut attached to a parameter; nullptr if it has none.
const TensorShard* cut_of(const at::Tensor& parameter);

/// Attaches a parameter's cut to another tensor, which holds some of its elements.
void share_cut(const at::Tensor& parameter, const at::Tensor& other);

/// Marks `tensor` as a part according to `cut`, or as an elementwise result of one: operators treat it accordingly.
void mark_cut(const at::Tensor& tensor, const c10::intrusive_ptr<c10::BackendMeta>& cut);

/// Gives a whole leaf this rank's part as its value. Divided parameters get nn::cut_key.
void apply_cut(const at::Tensor& parameter, const c10::intrusive_ptr<TensorShard>& cut);
/// Restores the whole value, even if the part was replaced by a tensor without the cut. Collective.
void undo_cut(const at::Tensor& parameter, const TensorShard& cut);

/// Registers LibTorch's operators on parameters with nn::cut_key: linear maps (linear, matmul, mm, addmm with the
/// parameter or its transpose) and embedding act according to the cut, elementwise operators work as usual, and all
/// others, which would compute with a part as if it were the whole, are refused by name. Once per process.
void register_cut_operators();

}  // namespace tessera::parallel
