#pragma once
/// \file
/// What a tower and a projector before the decoder need (models/vision/llava.h). The tower is frozen: its forward keeps
/// nothing, but needs memory for a moment, before the decoder keeps any. How many images the rows will have nobody
/// knows before the data are read: one for each row is taken.

#include <tessera/plan/plan.h>
#include <tessera/plan/time.h>

namespace tessera::plan {

/// Images of a micro-batch: one for each row, as far as a row has room for its tokens; at least the black one that a
/// batch without images sees.
double images_of(const Vision& vision, const Plan& run);

/// Elements of one layer of the tower, which is a unit where a strategy divides parameters.
double tower_layer_elements(const Vision& vision);

/// Bytes that are there from the forward of a micro-batch to the end of its backward: the pixels, and what a projector
/// that is trained keeps.
double vision_kept(const Model& model, const Plan& run);
/// Bytes for a moment in the tower's forward, the pixels among them.
double tower_moment(const Model& model, const Plan& run);

/// Adds the seconds of tower and projector for one micro-batch.
void add_vision_seconds(StepTime& forward, StepTime& backward, const Model& model, const Plan& run,
                        const Device& device);

}  // namespace tessera::plan
