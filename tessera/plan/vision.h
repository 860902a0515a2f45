#pragma once
/// \file
/// Costs of a vision tower and a projector before the decoder (models/vision/llava.h). The tower is frozen: its forward
/// keeps nothing for backward, but needs temporary memory before the decoder keeps anything. The number of images per
/// row is unknown before the data are read: one per row is assumed.

#include <tessera/plan/plan.h>
#include <tessera/plan/time.h>

namespace tessera::plan {

/// Number of images of a micro-batch: one per row if the row has room for its tokens, but at least one, because a batch
/// without images gets a black image.
double images_of(const Vision& vision, const Plan& run);

/// Elements of one layer of the tower, which is a unit if a strategy shards parameters.
double tower_layer_elements(const Vision& vision);

/// Bytes alive from the forward of a micro-batch to the end of its backward: the pixels, and activations of a trained
/// projector.
double vision_kept(const Model& model, const Plan& run);
/// Temporary bytes of the tower's forward, including the pixels.
double tower_moment(const Model& model, const Plan& run);

/// Adds the seconds of tower and projector for one micro-batch.
void add_vision_seconds(StepTime& forward, StepTime& backward, const Model& model, const Plan& run,
                        const Device& device);

}  // namespace tessera::plan
