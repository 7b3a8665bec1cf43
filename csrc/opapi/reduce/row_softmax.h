// Softmax and its gradient over one row of scores, in fp32: a few passes over what lies in the first cache, where
// ATen's operators would each go through a whole block of rows.
#pragma once

#include <cstdint>

namespace vnpu::opapi::row {

struct Statistics {
    float maximum, sum;  // the row's largest score; the sum of exp(score - maximum)
};

// Turns the `count` > 0 scores into exp(score - maximum) / sum.
Statistics softmax(float *scores, int64_t count);
// ... where maximum and sum are known.
void probabilities(float *scores, int64_t count, Statistics known);
// Turns gradients of the probabilities into those of the scores: (grad - mean) * probability, where `mean` is the
// gradients' mean, weighed by the probabilities.
void gradient(float *grad, const float *probabilities, int64_t count, float mean);

void add(float *to, const float *values, int64_t count, float factor);
float dot(const float *a, const float *b, int64_t count);

}  // namespace vnpu::opapi::row
