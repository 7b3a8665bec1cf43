// The Fourier transforms that MindSpore brings kernels of its own for to the AI CPU (its
// aicpu_ops/cpu_kernel/ms_kernel: fftbase.cc, fftnbase.cc, fftshift.cc, fft_shapecopy.cc, irfft_double.cc); the names
// have Cust before them. An input that is None is there and undefined. Transforms and norms are those of NumPy, and so
// of ATen.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

using Ints = std::vector<int64_t>;
using Norm = std::optional<std::string_view>;
using One = at::Tensor (*)(const at::Tensor &, std::optional<int64_t>, int64_t, Norm);
using Many = at::Tensor (*)(const at::Tensor &, at::OptionalIntArrayRef, at::OptionalIntArrayRef, Norm);

constexpr DTypes kResults{at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

std::optional<Ints> given(const at::Tensor &tensor) {
    return tensor.defined() ? std::optional(ints(tensor)) : std::nullopt;
}

int64_t single(const at::Tensor &tensor, const char *what) {
    holds(tensor, 1, what);
    return ints(tensor).front();
}

// fft_helper.h: NormMode.
Norm scaling(const at::Tensor &mode) {
    static constexpr std::array<std::string_view, 3> kModes{"backward", "forward", "ortho"};
    if (!mode.defined()) return {};
    const auto which = static_cast<size_t>(single(mode, "norm"));
    if (which >= kModes.size()) fail(FaultKind::InvalidArgument, "norm is {}, allowed are 0 to 2", which);
    return kModes[which];
}

// In the precision of the result, whose dtype says which it is.
at::Tensor lifted(const at::Tensor &x, const at::Tensor &out) {
    const at::ScalarType real = c10::toRealValueType(out.scalar_type());
    return x.to(x.is_complex() ? c10::toComplexType(real) : real);
}

void put_whole(const at::Tensor &out, const at::Tensor &result) {
    if (result.sizes() != out.sizes())
        fail(FaultKind::InvalidArgument, "the output is {}, the result {}", describe(out), describe(result));
    out.copy_(result);
}

void check_transform(LegacyArguments &call) {
    if (!call.in[0].defined()) fail(FaultKind::NullArgument, "the input is missing");
    allowed(call.out[0], kResults, "the output");
    if (call.in.size() != 4) fail(FaultKind::InvalidArgument, "there are {} inputs, expected 4", call.in.size());
}

void along(LegacyArguments &call, One transform) {
    const std::optional<Ints> length = given(call.in[1]);
    put_whole(call.out[0],
              transform(lifted(call.in[0], call.out[0]), length ? std::optional(length->at(0)) : std::nullopt,
                        single(call.in[2], "dim"), scaling(call.in[3])));
}

void over(LegacyArguments &call, Many transform) {
    const std::optional<Ints> lengths = given(call.in[1]), dims = given(call.in[2]);
    const auto list = [](const std::optional<Ints> &all) {
        return all ? at::OptionalIntArrayRef(*all) : at::OptionalIntArrayRef();
    };
    put_whole(call.out[0], transform(lifted(call.in[0], call.out[0]), list(lengths), list(dims), scaling(call.in[3])));
}

void shift(LegacyArguments &call, at::Tensor (*by)(const at::Tensor &, at::OptionalIntArrayRef)) {
    const std::optional<Ints> dims = given(call.in[1]);
    put_whole(call.out[0], by(call.in[0], dims ? at::OptionalIntArrayRef(*dims) : at::OptionalIntArrayRef()));
}

// The frequencies of n points that are d apart.
void frequencies(LegacyArguments &call, at::Tensor (*of)(int64_t, double, at::TensorOptions)) {
    holds(call.in[1], 1, "d");
    put_whole(call.out[0], of(single(call.in[0], "n"), call.in[1].to(at::kDouble).item<double>(), at::kDouble));
}

// In the gradients: cut, or filled up with zeros, at the end of each dimension.
void copy_shaped(const at::Tensor &in, const at::Tensor &out) {
    at::Tensor from = in, to = out.zero_();
    for (int64_t dim = 0; dim < in.dim(); ++dim) {
        const int64_t size = std::min(in.size(dim), out.size(dim));
        from = from.narrow(dim, 0, size);
        to = to.narrow(dim, 0, size);
    }
    to.copy_(from);
}

// Half a spectrum of n points stands for the other half, too: all but its first, and its middle one.
void doubled(LegacyArguments &call) {
    const int64_t n = single(call.in[1], "n"), dim = single(call.in[2], "dim"), size = call.in[0].size(dim);
    const int64_t count = std::min(n - (n / 2 + 1), size - 1);
    call.out[0].copy_(call.in[0]);
    if (count > 0) call.out[0].narrow(dim, 1, count).mul_(2);
}

void check_same_rank(const at::Tensor &in, const at::Tensor &out) {
    if (in.dim() != out.dim() || in.scalar_type() != out.scalar_type())
        fail(FaultKind::InvalidArgument, "the output is {}, the input {}", describe(out), describe(in));
}

}  // namespace
}  // namespace vnpu::opapi

#define ALONG(NAME, FUNCTION) LEGACY(Cust##NAME, check_transform(arguments), along(arguments, at::FUNCTION))
#define OVER(NAME, FUNCTION) LEGACY(Cust##NAME, check_transform(arguments), over(arguments, at::FUNCTION))
ALONG(FFT, fft_fft)
ALONG(IFFT, fft_ifft)
ALONG(RFFT, fft_rfft)
ALONG(IRFFT, fft_irfft)
ALONG(HFFT, fft_hfft)
ALONG(IHFFT, fft_ihfft)
OVER(FFT2, fft_fftn)
OVER(FFTN, fft_fftn)
OVER(IFFT2, fft_ifftn)
OVER(IFFTN, fft_ifftn)
OVER(RFFT2, fft_rfftn)
OVER(RFFTN, fft_rfftn)
OVER(IRFFT2, fft_irfftn)
OVER(IRFFTN, fft_irfftn)
OVER(HFFT2, fft_hfftn)
OVER(HFFTN, fft_hfftn)
OVER(IHFFT2, fft_ihfftn)
OVER(IHFFTN, fft_ihfftn)
LEGACY(CustFFTShift, alike(out[0], in[0], "the output"), shift(arguments, at::fft_fftshift))
LEGACY(CustIFFTShift, alike(out[0], in[0], "the output"), shift(arguments, at::fft_ifftshift))
LEGACY(CustFFTFreq, allowed(out[0], kFloats, "the output"), frequencies(arguments, at::fft_fftfreq))
LEGACY(CustRFFTFreq, allowed(out[0], kFloats, "the output"), frequencies(arguments, at::fft_rfftfreq))
LEGACY(CustFFTShapeCopy, check_same_rank(in[0], out[0]), copy_shaped(in[0], out[0]))
LEGACY(CustIRFFTDouble, alike(out[0], in[0], "the output"), doubled(arguments))
