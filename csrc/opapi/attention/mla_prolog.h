// MlaProlog of the old API (attention/aclop_attention.cpp), which later versions have replaced: mla_prolog.cpp computes
// them all.
#pragma once

#include <string>
#include <vector>

#include "opapi/aclnn/op.h"

namespace vnpu::opapi {

// Checks or computes. `in` and `out` stand in the order of op-plugin's call, left-out ones undefined, none in a private
// format. The caches among `out` are those among `in` with the rows in their places (op-plugin: test_mla_prolog.py).
void first_mla_prolog(Phase phase, const std::vector<at::Tensor> &in, const std::vector<at::Tensor> &out,
                      double epsilon_q, double epsilon_kv, const std::string &cache);

}  // namespace vnpu::opapi
