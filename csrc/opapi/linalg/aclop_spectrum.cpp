// Fourier transforms of the last dimensions and of windows along a line, as MindSpore's functions ask for them (its
// fft_with_size.cc; CANN's STFT). In double and rounded once.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

using Ints = std::vector<int64_t>;

constexpr DTypes kExact{at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble};

struct Transform {
    bool real, inverse, half;
    std::string norm;
    Ints dims, lengths;  // lengths: of a real inverse, else empty

    explicit Transform(LegacyArguments &call)
        : real(attribute<bool>(call.attributes, "real", false)),
          inverse(attribute<bool>(call.attributes, "inverse", false)),
          half(attribute<bool>(call.attributes, "onesided", true)),
          norm(attribute<std::string>(call.attributes, "norm", "backward")) {
        const at::Tensor &x = call.in[0];
        const auto count = attribute<int64_t>(call.attributes, "signal_ndim", 0);
        if (count < 1 || count > 3 || count > x.dim())
            fail(FaultKind::InvalidArgument, "attribute signal_ndim is {} for {}", count, describe(x));
        if (norm != "backward" && norm != "forward" && norm != "ortho")
            fail(FaultKind::InvalidArgument, "attribute norm is \"{}\"", norm);
        for (int64_t i = -count; i < 0; ++i) dims.push_back(i);
        if (!real || !inverse || !half) return;
        for (const int64_t dim : dims) lengths.push_back(x.size(dim));
        const Ints given = attribute<Ints>(call.attributes, "signal_sizes", {});
        lengths.back() = given.empty() ? 2 * (lengths.back() - 1) : given.back();
        if (lengths.back() / 2 + 1 != x.size(-1))
            fail(FaultKind::InvalidArgument, "attribute signal_sizes ends with {} for {}", lengths.back(), describe(x));
    }
};

Ints sizes_of(LegacyArguments &call, const Transform &how) {
    Ints made = call.in[0].sizes().vec();
    if (how.real && !how.inverse && how.half) made.back() = made.back() / 2 + 1;
    if (!how.lengths.empty()) made.back() = how.lengths.back();
    return made;
}

void check_transform(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kExact | kInts | at::kBool, "x");
    const Transform how(call);
    if (x.is_complex() != (!how.real || how.inverse))
        fail(FaultKind::InvalidArgument, "x is {}, attribute real is {}, inverse {}", describe(x), how.real,
             how.inverse);
    allowed(call.out[0], how.real && how.inverse ? DTypes{at::kFloat, at::kDouble} : kComplex, "the output");
    sizes(call.out[0], sizes_of(call, how), "the output");
}

void transform(LegacyArguments &call) {
    const Transform how(call);
    const at::Tensor &x = call.in[0];
    const at::Tensor wide = x.to(x.is_complex() ? at::kComplexDouble : at::kDouble);
    at::Tensor made;
    if (!how.lengths.empty())
        made = at::fft_irfftn(wide, how.lengths, how.dims, how.norm);
    else if (how.real && how.half)
        made = at::fft_rfftn(wide, {}, how.dims, how.norm);
    else if (how.inverse)
        made = at::fft_ifftn(wide, {}, how.dims, how.norm);
    else
        made = at::fft_fftn(wide, {}, how.dims, how.norm);
    call.out[0].copy_(made.is_complex() && !call.out[0].is_complex() ? at::real(made) : made);
}

// 0 stands for what torch takes by itself.
int64_t length(LegacyArguments &call, const char *name, int64_t otherwise) {
    const auto given = attribute<int64_t>(call.attributes, name, 0);
    return given == 0 ? otherwise : given;
}

void check_windows(LegacyArguments &call) {
    const at::Tensor &x = call.in[0];
    allowed(x, kExact, "x");
    const auto points = attribute<int64_t>(call.attributes, "n_fft", 0);
    if (x.dim() != 1 && x.dim() != 2)
        fail(FaultKind::InvalidArgument, "x is {}, expected 1 or 2 dimensions", describe(x));
    const int64_t hop = length(call, "hop_length", points / 4), width = length(call, "win_length", points);
    if (points < 1 || points > x.size(-1) || hop < 1 || width < 1 || width > points)
        fail(FaultKind::InvalidArgument, "attributes n_fft, hop_length and win_length are {}, {} and {} for {}", points,
             hop, width, describe(x));
    if (call.in.size() > 1 && call.in[1].defined()) sizes(call.in[1], {width}, "the window");
    const bool half = attribute<bool>(call.attributes, "onesided", true);
    const bool pairs = !attribute<bool>(call.attributes, "return_complex", true);
    const int64_t lines = x.numel() / x.size(-1), steps = (x.size(-1) - points) / hop + 1;
    holds(call.out[0], lines * (half ? points / 2 + 1 : points) * steps * (pairs ? 2 : 1), "the output");
}

void windows(LegacyArguments &call) {
    const auto points = attribute<int64_t>(call.attributes, "n_fft", 0);
    const auto wide = [](const at::Tensor &x) { return x.to(x.is_complex() ? at::kComplexDouble : at::kDouble); };
    const bool weighed = call.in.size() > 1 && call.in[1].defined();
    const at::Tensor made = at::stft(
        wide(call.in[0]), points, length(call, "hop_length", points / 4), length(call, "win_length", points),
        weighed ? std::optional(wide(call.in[1])) : std::nullopt, attribute<bool>(call.attributes, "normalized", false),
        attribute<bool>(call.attributes, "onesided", true), true, false);
    put(call.out[0], attribute<bool>(call.attributes, "return_complex", true) ? made : at::view_as_real(made));
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(CustFFTWithSize, check_transform(arguments), transform(arguments))
LEGACY(STFT, check_windows(arguments), windows(arguments))
