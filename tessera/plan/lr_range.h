#pragma once
/// \file
/// Evaluates a learning-rate range test (Smith 2017, "Cyclical Learning Rates for Training Neural Networks").

#include <string>
#include <vector>

namespace tessera::plan {

struct RangePoint {
  double learning_rate = 0, loss = 0;
};

struct RangeTest {
  std::vector<RangePoint> points;  ///< points until the loss exceeds four times its minimum or is not finite
  std::vector<double> smoothed;    ///< losses: exponential mean of weight 0.2, bias-corrected at the start
  double steepest = 0;             ///< rate at which the smoothed loss falls most steeply per decade; 0: it never falls
  double lowest = 0;               ///< rate at which the smoothed loss is lowest
};

/// Evaluates points in order of ascending rates. Throws InputError for fewer than 5.
RangeTest range_test(const std::vector<RangePoint>& points);

/// Plots loss over the logarithm of the rate, as text, with the steepest point marked.
std::string draw(const RangeTest& test, int columns = 72, int rows = 14);
/// Returns a suggestion with its reason, in one or two sentences.
std::string describe(const RangeTest& test);

}  // namespace tessera::plan
