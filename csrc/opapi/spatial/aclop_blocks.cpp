// Operators of the old API that move blocks of an image into the batch or the channels and back, as MindSpore's layers
// ask for them: NCHW, and for the ND forms the last dimensions. They move elements and compute nothing.
#include "opapi/aclop/legacy.h"
#include "opapi/aclop/operands.h"

namespace vnpu::opapi {
namespace {

using List = std::vector<int64_t>;

struct Blocks {
    List size, edges;  // of each of the last dimensions; before and after it
};

// Inputs, or, in the D forms, attributes with one size for both sides.
Blocks of_inputs(LegacyArguments &call) { return {ints(call.in[1]), ints(call.in[2])}; }
Blocks of_attributes(LegacyArguments &call, const char *edges) {
    return {List(2, attribute<int64_t>(call.attributes, "block_size", 0)), attribute<List>(call.attributes, edges, {})};
}

int64_t product(const List &sizes) { return c10::multiply_integers(sizes); }

// `small` is the tensor with more batches, `large` the one with longer sides.
void check_blocks(const at::Tensor &large, const at::Tensor &small, const Blocks &made, int64_t sign) {
    const auto count = static_cast<int64_t>(made.size.size());
    if (count < 1 || count >= large.dim() || made.edges.size() != 2 * made.size.size())
        fail(FaultKind::InvalidArgument, "{} blocks and {} edges do not fit {}", count, made.edges.size(),
             describe(large));
    for (size_t i = 0; i < made.edges.size(); ++i)
        if (made.edges[i] < 0 || made.size[i / 2] < 1)
            fail(FaultKind::InvalidArgument, "a block is {} long with an edge of {}", made.size[i / 2], made.edges[i]);
    List expected(large.sizes().begin(), large.sizes().end());
    expected[0] *= product(made.size);
    for (int64_t i = 0; i < count; ++i) {
        const auto at_ = static_cast<size_t>(i);
        int64_t &side = expected[static_cast<size_t>(large.dim() - count + i)];
        side += made.edges[2 * at_] + made.edges[2 * at_ + 1];
        if (side % made.size[at_] != 0)
            fail(FaultKind::InvalidArgument, "a side of {} is no multiple of the block's {}", side, made.size[at_]);
        side /= made.size[at_];
    }
    sizes(small, expected, sign > 0 ? "the output" : "x");
    if (small.scalar_type() != large.scalar_type())
        fail(FaultKind::InvalidArgument, "x and the output differ in dtype");
}

// Padding of torch's kind begins with the last dimension.
List padding(const Blocks &made, int64_t sign) {
    List all;
    for (size_t i = made.size.size(); i-- > 0;)
        for (const size_t side : {0, 1}) all.push_back(sign * made.edges[2 * i + side]);
    return all;
}

// Batch b of offset o in the block becomes batch o * batches + b.
at::Tensor to_batch(const at::Tensor &x, const Blocks &made) {
    const at::Tensor padded = at::constant_pad_nd(x, padding(made, 1));
    const auto count = static_cast<int64_t>(made.size.size()), kept = x.dim() - count;
    List split(padded.sizes().begin(), padded.sizes().begin() + kept), order, out(split);
    out[0] *= product(made.size);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t block = made.size[static_cast<size_t>(i)], side = padded.size(kept + i) / block;
        split.insert(split.end(), {side, block});
        order.push_back(kept + 2 * i + 1);
        out.push_back(side);
    }
    for (int64_t i = 0; i < kept; ++i) order.push_back(i);
    for (int64_t i = 0; i < count; ++i) order.push_back(kept + 2 * i);
    return padded.reshape(split).permute(order).reshape(out);
}

at::Tensor to_space(const at::Tensor &x, const Blocks &made) {
    const auto count = static_cast<int64_t>(made.size.size()), kept = x.dim() - count;
    List split(made.size), order, whole{x.size(0) / product(made.size)};
    split.push_back(whole[0]);
    split.insert(split.end(), x.sizes().begin() + 1, x.sizes().end());
    for (int64_t i = 1; i < kept; ++i) whole.push_back(x.size(i));
    for (int64_t i = 0; i < kept; ++i) order.push_back(count + i);
    for (int64_t i = 0; i < count; ++i) {
        order.insert(order.end(), {count + kept + i, i});
        whole.push_back(x.size(kept + i) * made.size[static_cast<size_t>(i)]);
    }
    return at::constant_pad_nd(x.reshape(split).permute(order).reshape(whole), padding(made, -1));
}

// The block's offset is the slower part of the channel, as in TensorFlow (ops-nn: DepthToSpace, mode DCR).
void check_depth(LegacyArguments &call, const at::Tensor &large, const at::Tensor &small) {
    const auto block = attribute<int64_t>(call.attributes, "block_size", 0);
    const auto format = attribute<std::string>(call.attributes, "data_format", "NCHW");
    const auto mode = attribute<std::string>(call.attributes, "mode", "DCR");
    if (format != "NCHW" || (mode != "DCR" && !mode.empty()))  // MindSpore leaves mode empty
        fail(FaultKind::Unsupported,
             "The virtual NPU has blocks of channels in data_format NCHW and mode DCR only, not {} and {}.", format,
             mode);
    sizes(large, {-1, -1, -1, -1}, "the larger tensor");
    if (block < 1 || large.size(2) % block != 0 || large.size(3) % block != 0)
        fail(FaultKind::InvalidArgument, "blocks of {} do not fit {}", block, describe(large));
    sizes(small, {large.size(0), large.size(1) * block * block, large.size(2) / block, large.size(3) / block},
          "the smaller tensor");
}

at::Tensor to_depth(const at::Tensor &x, int64_t block) {
    return x.reshape({x.size(0), x.size(1), x.size(2) / block, block, x.size(3) / block, block})
        .permute({0, 3, 5, 1, 2, 4});
}

at::Tensor from_depth(const at::Tensor &x, int64_t block) {
    return x.reshape({x.size(0), block, block, x.size(1) / (block * block), x.size(2), x.size(3)})
        .permute({0, 3, 4, 1, 5, 2});
}

int64_t groups(LegacyArguments &call) {
    const auto count = attribute<int64_t>(call.attributes, "group", 1);
    if (count < 1 || call.in[0].dim() < 2 || call.in[0].size(1) % count != 0)
        fail(FaultKind::InvalidArgument, "attribute group is {} for {}", count, describe(call.in[0]));
    return count;
}

}  // namespace
}  // namespace vnpu::opapi

LEGACY(SpaceToBatchND, check_blocks(in[0], out[0], of_inputs(arguments), 1),
       out[0].copy_(to_batch(in[0], of_inputs(arguments))))
LEGACY(BatchToSpaceND, check_blocks(out[0], in[0], of_inputs(arguments), -1),
       out[0].copy_(to_space(in[0], of_inputs(arguments))))
LEGACY(SpaceToBatchD, check_blocks(in[0], out[0], of_attributes(arguments, "paddings"), 1),
       out[0].copy_(to_batch(in[0], of_attributes(arguments, "paddings"))))
LEGACY(BatchToSpaceD, check_blocks(out[0], in[0], of_attributes(arguments, "crops"), -1),
       out[0].copy_(to_space(in[0], of_attributes(arguments, "crops"))))
LEGACY(SpaceToDepth, check_depth(arguments, in[0], out[0]),
       put(out[0], to_depth(in[0], attribute<int64_t>(attributes, "block_size", 0))))
LEGACY(DepthToSpace, check_depth(arguments, out[0], in[0]),
       put(out[0], from_depth(in[0], attribute<int64_t>(attributes, "block_size", 0))))
LEGACY(ShuffleChannel, groups(arguments);
       alike(out[0], in[0], "the output"), put(out[0], at::native_channel_shuffle(in[0], groups(arguments))))
