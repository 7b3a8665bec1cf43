// Private formats: elements in blocks of 16 or 32 bytes' worth, as the cube unit reads them, the edges padded with
// zeros. torch_npu casts to them (torch_npu.npu_format_cast) and describes such tensors by their storage; operators
// see them unpacked, as rows.
#pragma once

#include <ATen/ATen.h>
#include <acl/acl_base.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "opapi/aclnn/tensor.h"

namespace vnpu::opapi {

// The layout of a tensor that is stored with these dimensions; none (false) for base formats (ND, NCHW ...). The last
// stored dimension is the block. Fault Unsupported for private formats other than FRACTAL_NZ (any block), NC1HWC0,
// FRACTAL_Z, NDC1HWC0 and FRACTAL_Z_3D.
Layout layout_of(aclFormat format, at::IntArrayRef storage_shape);
std::string name_of(Layout layout);

// The dimensions that a tensor of these sizes is stored with. Fault InvalidArgument when the format has no room for
// that many dimensions.
std::vector<int64_t> storage_shape(Layout layout, at::IntArrayRef sizes);

// The elements that a whole tensor in that layout, or whole matrices of a stack, are stored as, in one dimension. What
// lies before them takes as much more room as they do.
at::Tensor stored(const at::Tensor &tensor, Layout layout);
// A tensor of `sizes` from the elements that lie at `storage` (one dimension), and the reverse.
at::Tensor unpacked(const at::Tensor &storage, Layout layout, at::IntArrayRef sizes);
void pack(const at::Tensor &storage, Layout layout, const at::Tensor &tensor);

// --- for operators that take private formats; the others refuse them in required()

// Declares, in the first phase, that the operand may be in FRACTAL_NZ. Whole tensors, one matrix or more of a stack,
// and transposed ones; Fault InvalidArgument for other views.
void fractal_nz(Operand &operand);
void fractal_nz(Operands &list);
// The operand in rows: itself, or unpacked while the kernel runs.
at::Tensor unpacked(const Operand &operand);
Operands unpacked(const Operands &list);

}  // namespace vnpu::opapi
