// Fourier transforms. Of those torch_npu asks for, only the short-time one is an operator; torch.fft multiplies by
// matrices.
#include "device/fault.h"
#include "opapi/aclnn/op.h"

namespace vnpu::opapi {
namespace {

struct Frames {
    int64_t points, hop, length;  // of the transform; samples between frames; samples of the window
    bool normalized, onesided;
    int64_t bins() const { return onesided ? points / 2 + 1 : points; }
};

void check_frames(Operand &self, Operand &window, const Operand &out, const Frames &frames, bool as_complex) {
    rank(self, {1, 2});
    const int64_t samples = self.size(-1);
    if (frames.points <= 0 || frames.points > samples)
        fail(FaultKind::InvalidArgument, "parameter nFft is {}, allowed are 1 to {}, the samples of self",
             frames.points, samples);
    if (frames.hop <= 0) fail(FaultKind::InvalidArgument, "parameter hopLength is {}, allowed is > 0", frames.hop);
    if (frames.length <= 0 || frames.length > frames.points)
        fail(FaultKind::InvalidArgument, "parameter winLength is {}, allowed are 1 to {}, nFft", frames.length,
             frames.points);
    if (window.defined()) {
        shape(window, {frames.length});
        same_dtype(window, self);
    }
    if (frames.onesided && self.is_complex())
        fail(FaultKind::InvalidArgument, "parameter onesided is true, allowed for real self only; it has dtype {}",
             c10::toString(self.scalar_type()));
    dtype(out, as_complex || self.is_complex() ? kComplex : kFloats);
    at::DimVector sizes(self.sizes().slice(0, static_cast<size_t>(self.dim()) - 1));
    sizes.push_back(frames.bins());
    sizes.push_back((samples - frames.points) / frames.hop + 1);
    if (!as_complex) sizes.push_back(2);
    shape(out, sizes);
}

// torch.stft without its padding, which torch_npu has done: the window lies in the middle of the frame.
void transform(const Operand &self, const Operand &window, const Operand &out, const Frames &frames) {
    const at::Tensor spectrum = at::stft(self, frames.points, frames.hop, frames.length, window.maybe(),
                                         frames.normalized, frames.onesided, /*return_complex=*/true);
    at::Tensor target = out;
    target.copy_(out.is_complex() ? spectrum : at::view_as_real(spectrum));
}

}  // namespace
}  // namespace vnpu::opapi

#define FRAMES {nFft, hopLength, winLength, normalized, onesided}
OP(aclStft, check_frames(self, windowOptional, out, FRAMES, returnComplex),
   transform(self, windowOptional, out, FRAMES))
