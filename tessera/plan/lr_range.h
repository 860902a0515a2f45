#pragma once
/// \file
/// What a learning-rate range test says (Smith 2017, "Cyclical Learning Rates for Training Neural Networks").

#include <string>
#include <vector>

namespace tessera::plan {

struct RangePoint {
  double learning_rate = 0, loss = 0;
};

struct RangeTest {
  std::vector<RangePoint> points;  ///< up to where the loss exceeded four times its least, or ceased to be finite
  std::vector<double> smoothed;    ///< losses: an exponential mean of weight 0.2, without bias towards its beginning
  double steepest = 0;             ///< rate where the smoothed loss falls fastest per decade; 0: it falls nowhere
  double lowest = 0;               ///< rate where it is lowest
};

/// Points in the order of rising rates. Throws InputError for fewer than 5.
RangeTest range_test(const std::vector<RangePoint>& points);

/// Loss over the logarithm of the rate, as text; the steepest place is marked.
std::string draw(const RangeTest& test, int columns = 72, int rows = 14);
/// A suggestion with its derivation, one or two sentences.
std::string describe(const RangeTest& test);

}  // namespace tessera::plan
