// Group norm with an activation behind it, in fp32 and rounded once.
#include "device/fault.h"
#include "opapi/aclnn/op.h"
#include "opapi/aclnn/precision.h"

namespace vnpu::opapi {
namespace {

void check_group_swish(const Operand &x, const Operand &gamma, const Operand &beta, int64_t groups, const Operand &out,
                       const Operand &mean, const Operand &rstd) {
    rank(x, {2, 3, 4, 5, 6, 7, 8});
    network(x, out);
    same_shape(out, x);
    if (groups <= 0 || x.size(1) % groups != 0)
        fail(FaultKind::InvalidArgument, "the number of groups is {}, expected a divisor of {}'s {} channels", groups,
             x.parameter(), x.size(1));
    for (const Operand *parameter : {&gamma, &beta})
        if (parameter->defined()) {
            network(*parameter);
            shape(*parameter, {x.size(1)});
        }
    for (const Operand *statistic : {&mean, &rstd}) shape(*statistic, {x.size(0), groups});
}

void check_known_layout(const std::string &format) {
    if (!format.empty() && format != "NCHW")
        fail(FaultKind::InvalidArgument, "parameter dataFormatOptional is \"{}\", allowed is NCHW", format);
}

// For each channel, beside x.
at::Tensor by_channel(const at::Tensor &parameter, const at::Tensor &x) {
    std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
    sizes[1] = x.size(1);
    return widened(parameter).view(sizes);
}

struct Normalized {
    at::Tensor value, mean, rstd;  // before gamma and beta; [N, groups]
};

Normalized normalized(const at::Tensor &x, int64_t groups, double eps) {
    const at::Tensor rows = widened(x).contiguous().view({x.size(0), groups, -1});
    const at::Tensor mean = rows.mean(2, true), centred = rows - mean;
    const at::Tensor rstd = centred.square().mean(2, true).add_(eps).rsqrt_();
    return {(centred * rstd).view(x.sizes()), mean.squeeze(2), rstd.squeeze(2)};
}

at::Tensor affine(const at::Tensor &value, const at::Tensor &gamma, const at::Tensor &beta) {
    at::Tensor result = value;
    if (gamma.defined()) result = result * by_channel(gamma, value);
    if (beta.defined()) result = result + by_channel(beta, value);
    return result;
}

void forward(const at::Tensor &x, const at::Tensor &gamma, const at::Tensor &beta, int64_t groups, double eps,
             bool activate, double scale, at::Tensor &out, at::Tensor &mean, at::Tensor &rstd) {
    if (x.numel() == 0) return;
    const Normalized normal = normalized(x, groups, eps);
    at::Tensor y = affine(normal.value, gamma, beta);
    if (activate) y = y * at::sigmoid(y * scale);
    out.copy_(y);
    mean.copy_(normal.mean);
    rstd.copy_(normal.rstd);
}

void backward(const at::Tensor &dy, const at::Tensor &mean, const at::Tensor &rstd, const at::Tensor &x,
              const at::Tensor &gamma, const at::Tensor &beta, int64_t groups, double scale, at::Tensor &dx,
              at::Tensor &dgamma, at::Tensor &dbeta) {
    if (x.numel() == 0) return;
    const std::vector<int64_t> grouped{x.size(0), groups, -1};
    const at::Tensor spread = widened(rstd).reshape({x.size(0), groups, 1});
    const at::Tensor centred = widened(x).contiguous().view(grouped) - widened(mean).reshape({x.size(0), groups, 1});
    const at::Tensor normal = (centred * spread).view(x.sizes());
    const at::Tensor y = affine(normal, gamma, beta), gate = at::sigmoid(y * scale);
    const at::Tensor grad = widened(dy) * gate * (1 + y * scale * (1 - gate));
    std::vector<int64_t> but_channels{0};
    for (int64_t dim = 2; dim < x.dim(); ++dim) but_channels.push_back(dim);
    if (dgamma.defined()) dgamma.copy_((grad * normal).sum(but_channels));
    if (dbeta.defined()) dbeta.copy_(grad.sum(but_channels));
    const at::Tensor scaled = (grad * by_channel(gamma, x)).contiguous().view(grouped), rows = normal.view(grouped);
    dx.copy_(((scaled - scaled.mean(2, true) - rows * (scaled * rows).mean(2, true)) * spread).view(x.sizes()));
}

}  // namespace
}  // namespace vnpu::opapi

OP(aclnnGroupNormSilu, optional(gamma, beta); check_group_swish(self, gamma, beta, group, out, meanOut, rstdOut),
                                              forward(self, gamma, beta, group, eps, true, 1, out, meanOut, rstdOut))
OP(aclnnGroupNormSwish, check_known_layout(dataFormatOptional);
   check_group_swish(x, gamma, beta, numGroups, yOut, meanOut, rstdOut),
   forward(x, gamma, beta, numGroups, eps, activateSwish, swishScale, yOut, meanOut, rstdOut))
OP(aclnnGroupNormSwishGrad, optional(dgammaOut, dbetaOut); check_known_layout(dataFormatOptional);
   check_group_swish(x, gamma, beta, numGroups, dxOut, mean, rstd); same_shape(dy, x);
   if (dgammaIsRequire) same_shape(dgammaOut, gamma);
   if (dbetaIsRequire) same_shape(dbetaOut, beta),
   backward(dy, mean, rstd, x, gamma, beta, numGroups, swishScale, dxOut, dgammaOut, dbetaOut))
