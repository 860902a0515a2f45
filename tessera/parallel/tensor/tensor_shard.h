#pragma once
/// \file
/// What is known of one parameter of which this rank holds a part, or whose gradient the ranks form in parts; it hangs
/// on the parameter itself, and stays there when a sharding engine divides the part further.

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
  /// What all parameters of a module share: how its activations lie between layers.
  struct Activations {
    Between between = Between::whole;  ///< in training
    bool whole_now = false;            ///< a pass without gradients
    std::int64_t product_parts = 1;    ///< in which products of rows are formed, in training
    /// What the table handed out in this pass: rows, and tokens of this rank; -1: nothing yet.
    std::pair<std::int64_t, std::int64_t> tokens{-1, -1};
  };
  TensorShard(std::string name, layout::TensorRule rule, std::span<const std::int64_t> shape, comm::Group group,
              std::shared_ptr<Activations> activations);

  const std::string& name() const { return name_; }
  /// "'h.0.up.weight' (cut in dimension 0 over 'tp 0')", for errors.
  std::string described() const;
  /// What ranks must agree in: style, blocks, heads.
  std::string rule_text() const;
  const comm::Group& group() const { return group_; }
  const layout::TensorPart& part() const { return parts_[static_cast<std::size_t>(group_.rank())]; }
  const layout::TensorPart& part_of(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  bool divided() const { return part().dim >= 0; }
  /// Whether sums over the group's ranks (norms) count this rank's values: of equal ones the first rank's.
  bool counts() const { return divided() ? group_.rank() % part().sharers == 0 : group_.rank() == 0; }
  /// Ranks form parts of the gradient of the same values.
  bool sums_gradient() const { return part().summed || part().sharers > 1; }
  /// The sum over the ranks that hold the same values. Collective.
  at::Tensor sum_gradient(const at::Tensor& gradient) const;

  /// How activations lie between layers in the pass that is running.
  Between between() const;

  at::Tensor own(const at::Tensor& whole) const;  ///< this rank's part, contiguous
  at::Tensor whole(const at::Tensor& own) const;  ///< collective

  /// The module's parameter; nullptr before apply_cut(). Copies of it have the same cut, but nobody puts their
  /// gradients together.
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

/// The cut that hangs on a parameter; nullptr: none.
const TensorShard* cut_of(const at::Tensor& parameter);

/// What hangs on one parameter also hangs on another tensor, which holds some of its elements.
void share_cut(const at::Tensor& parameter, const at::Tensor& other);

/// `tensor` is a part as `cut` says, or was computed from one element by element: operators look at it so.
void mark_cut(const at::Tensor& tensor, const c10::intrusive_ptr<c10::BackendMeta>& cut);

/// Gives a leaf, whole so far, this rank's part as its value. What is divided gets nn::cut_key.
void apply_cut(const at::Tensor& parameter, const c10::intrusive_ptr<TensorShard>& cut);
/// Gives it the whole value back, also where somebody replaced the part by one without the cut. Collective.
void undo_cut(const at::Tensor& parameter, const TensorShard& cut);

/// Operators of LibTorch on parameters with nn::cut_key: linear maps (linear, matmul, mm, addmm with the parameter or
/// its transpose) and embedding mean what the cut says, elementwise ones do what they do, and all others, which would
/// compute with a part as if it were the whole, are refused by name. Once per process.
void register_cut_operators();

}  // namespace tessera::parallel
