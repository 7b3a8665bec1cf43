#include "opapi/aclnn/work.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/machine.h"
#include "opapi/aclnn/engine.h"

namespace vnpu::opapi {
namespace {

// How the work of an operator follows from its tensors: the lists of work.toml.
enum class Rule : uint8_t {
    Elements,  // all operands, once
    Product,   // the first two operands are matrices
    Sum,       // the first is added to the product of the next two
    Attention,
    AttentionGrad,
    Convolution,
    ConvolutionGrad,
    Norm,
    NormGrad,
    Rows,
    RowsGrad,
    Pool,
    Move,
    Gather,
};

struct Classified {
    std::string_view name;
    Rule rule;
};

#include "work.inc"

Rule rule_of(std::string_view name) {
    const auto found = std::ranges::lower_bound(kClassified, name, {}, &Classified::name);
    // The build has a class for each operator; other names are of tasks that are no operators.
    return found != kClassified.end() && found->name == name ? found->rule : Rule::Elements;
}

// By the address of the name: an operator is classified once for each thread.
Rule known_rule(const char *name) {
    struct Known {
        const char *name;
        Rule rule;
    };
    static thread_local std::array<Known, 512> known{};
    Known &found = known[(reinterpret_cast<uintptr_t>(name) >> 2) % known.size()];
    if (found.name != name) found = {name, rule_of(name)};
    return found.rule;
}

int64_t elements(const TensorLine &tensor) noexcept {
    int64_t product = 1;
    for (int i = 0; i < tensor.rank; ++i) product *= tensor.sizes[static_cast<size_t>(i)];
    return product;
}

int64_t size(const TensorLine &tensor, int dimension) noexcept {
    const int at = dimension < 0 ? tensor.rank + dimension : dimension;
    return at >= 0 && at < tensor.rank ? tensor.sizes[static_cast<size_t>(at)] : 1;
}

// How much more the matrix unit computes because it works in blocks of 16.
double padding(int64_t length) noexcept {
    if (length <= 0) return 1;
    return std::ceil(static_cast<double>(length) / 16) * 16 / static_cast<double>(length);
}

class Counted {
  public:
    Counted(const Description &what, const Chip &chip) : what_(what), chip_(chip) {
        for (const TensorLine &tensor : what.tensors) {
            (tensor.output ? out_ : in_)[tensor.output ? outs_ : ins_] = &tensor;
            size_t &count = tensor.output ? outs_ : ins_;
            count = std::min(count + 1, kMost - 1);
            // Images lie in blocks of 16 channels on chips that read nothing else.
            const double blocks = !chip.nd_native && tensor.rank == 4 ? padding(size(tensor, 1)) : 1;
            bytes_ += static_cast<double>(tensor.bytes) * blocks;
            plain_ += static_cast<double>(tensor.bytes);
            if (tensor.view && !tensor.output) views_ += 2 * static_cast<double>(tensor.bytes);
        }
    }

    Work all(Unit unit, double factor = 1) const { return {unit, 0, bytes_ * factor, views_}; }

    // Over rows, which are no images.
    Work rows(Unit unit, double factor) const { return {unit, 0, plain_ * factor, views_}; }

    Work product(size_t first) const {
        if (ins_ < first + 2) return all(Unit::Stream);
        const TensorLine &a = *in_[first], &b = *in_[first + 1];
        const int64_t columns = b.rank < 2 ? 1 : size(b, -1);
        // Over one matrix all leading dimensions are rows: of [S, 1, H] as many as of [1, S, H].
        const int64_t rows = a.rank < 2    ? 16
                             : b.rank <= 2 ? elements(a) / std::max<int64_t>(size(a, -1), 1)
                                           : size(a, -2);
        const double flops = 2. * static_cast<double>(elements(a)) * static_cast<double>(columns) *
                             padding(size(a, -1)) * padding(columns) * padding(rows);
        return {Unit::Cube, flops * wider(a, 4), plain_, chip_.nd_native ? 0 : 2 * plain_};
    }

    // Of BNSD, BSND, BSH and SBH alike: query holds S x N x D elements, each of which meets the keys of its sequence.
    Work attention(double products) const {
        if (ins_ < 2) return all(Unit::Stream);
        const TensorLine &query = *in_[0], &key = *in_[1];
        int64_t length = 0;  // of the sequence, from the statistics of softmax: [B, N, S, 8], or [T, N, 8]
        for (const TensorLine &tensor : what_.tensors)
            if (&tensor != &query && &tensor != &key && size(tensor, -1) == 8 && tensor.rank >= 3 &&
                tensor.dtype == static_cast<uint8_t>(at::kFloat))
                length = tensor.rank == 4 ? size(tensor, 2) : size(tensor, 0);
        if (length == 0) length = size(query, query.rank == 4 ? 2 : 1);
        const double keys = static_cast<double>(length) * static_cast<double>(elements(key)) /
                            static_cast<double>(std::max<int64_t>(elements(query), 1));
        // With fewer heads of keys than of queries the ratio of elements says too little.
        const double length_of_keys = keys < static_cast<double>(length) ? static_cast<double>(length) : keys;
        return {Unit::Cube, products * 2 * static_cast<double>(elements(query)) * length_of_keys, plain_, 0};
    }

    Work convolution() const {
        if (ins_ < 2 || outs_ < 1) return all(Unit::Stream);
        return convolved(*in_[0], *in_[1], *out_[0], 1);
    }

    Work convolution_grad() const {
        if (ins_ < 3) return all(Unit::Stream);
        const TensorLine &grad = *in_[0], &input = *in_[1], &weight = *in_[2];
        double products = 0;
        for (size_t i = 0; i < outs_; ++i)
            if (out_[i]->rank == weight.rank) ++products;  // of the input and of the weight; not of the bias
        Work work = convolved(input, weight, grad, std::max(products, 1.));
        work.bytes = bytes_ + (products > 1 ? static_cast<double>(grad.bytes) : 0);
        return work;
    }

    Work gather() const {
        if (ins_ < 1) return all(Unit::Gather);
        double written = 0;
        for (size_t i = 0; i < outs_; ++i) written += static_cast<double>(out_[i]->bytes);
        const auto source = static_cast<double>(in_[0]->bytes);
        return {Unit::Gather, 0, bytes_ - source + std::min(source, written), views_};
    }

    Work move() const {
        // A cast of whole tensors streams; other dtypes with other orders, and copies of views, do not.
        return {views_ > 0 || written_view() ? Unit::Move : Unit::Stream, 0, bytes_, 0};
    }

  private:
    static constexpr size_t kMost = 8;

    bool written_view() const {
        return std::any_of(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(outs_),
                           [](const TensorLine *tensor) { return tensor->view; });
    }

    // The matrix unit of chips that have bfloat16 multiplies float32 at a quarter of its rate (convolutions: half, as
    // HF32); older chips cast to float16.
    double wider(const TensorLine &tensor, double factor) const {
        return chip_.bf16 && tensor.dtype == static_cast<uint8_t>(at::kFloat) ? factor : 1;
    }

    Work convolved(const TensorLine &input, const TensorLine &weight, const TensorLine &output, double products) const {
        const int64_t channels_in = size(input, 1), channels_out = size(output, 1);
        const bool transposed = size(weight, 0) == channels_in && size(weight, 0) != channels_out;
        const TensorLine &spread = transposed ? input : output;
        const int64_t of_group = std::max<int64_t>(size(weight, 1), 1);
        const int64_t groups = std::max<int64_t>((transposed ? channels_out : channels_in) / of_group, 1);
        const double flops = 2. * static_cast<double>(elements(spread)) * static_cast<double>(elements(weight)) /
                             static_cast<double>(std::max<int64_t>(size(weight, 0), 1));
        const int64_t written = std::max<int64_t>((transposed ? channels_in : channels_out) / groups, 1);
        // Groups smaller than a block share one, which is empty but for its diagonal.
        const double padded = groups > 1 ? padding(of_group) : padding(of_group) * padding(written);
        // NCHW is brought into blocks of channels on every chip that is given it; the published programs of those that
        // read nothing else keep their tensors in blocks.
        return {of_group == 1 && groups > 1 ? Unit::Depthwise : Unit::Cube, flops * padded * products * wider(input, 2),
                bytes_, chip_.nd_native ? 2 * bytes_ : 0};
    }

    const Description &what_;
    const Chip &chip_;
    std::array<const TensorLine *, kMost> in_{}, out_{};
    size_t ins_ = 0, outs_ = 0;
    double bytes_ = 0, plain_ = 0, views_ = 0;
};

}  // namespace

void Shapes::take(std::initializer_list<Part> inputs, std::initializer_list<Part> outputs) {
    for (const auto &[parts, output] : {std::pair{&inputs, false}, std::pair{&outputs, true}})
        for (const Part &part : *parts) {
            const auto one = [&](const Operand &tensor) {
                const Layout layout = tensor.layout();
                add(tensor, output, layout ? layout.format : static_cast<uint8_t>(ACL_FORMAT_ND));
            };
            if (part.one != nullptr) one(*part.one);
            if (part.list != nullptr)
                for (const Operand &tensor : *part.list) one(tensor);
        }
}

void Shapes::add(const at::Tensor &tensor, bool output, uint8_t format) {
    if (!tensor.defined()) return;
    TensorLine &line = into_.tensors.emplace_back();
    line.dtype = static_cast<uint8_t>(tensor.scalar_type());
    line.format = format;
    line.output = output;
    const at::IntArrayRef sizes = tensor.sizes();
    line.rank = static_cast<uint8_t>(std::min(sizes.size(), TensorLine::kRanks));
    std::copy_n(sizes.begin(), line.rank, line.sizes.begin());
    int64_t held = tensor.numel();
    if (held == 0) return;
    if (!tensor.is_contiguous()) [[unlikely]] {
        // From the first to the last of its elements in memory; an expanded tensor has fewer there than it says.
        int64_t extent = 1;
        for (int64_t i = 0; i < tensor.dim(); ++i) extent += (tensor.size(i) - 1) * tensor.stride(i);
        line.view = extent >= held;
        held = std::min(held, extent);
    }
    line.bytes = static_cast<uint64_t>(held) * tensor.itemsize();
    if (tensor.storage().data() == nullptr) return;  // unbacked.h
    const AddressSpace &space = Machine::instance().space();
    const void *address = space.unalias(tensor.const_data_ptr());
    if (space.contains(address)) line.address = reinterpret_cast<uint64_t>(address);
}

Work work_of(const char *name, const Description &what) {
    const Counted counted(what, *Machine::instance().settings().chip);
    if (!what.tensors.empty() &&
        engine_of(name, static_cast<at::ScalarType>(what.tensors.front().dtype)) == Engine::DeviceCpu)
        return counted.all(Unit::DeviceCpu);
    switch (known_rule(name)) {
        case Rule::Product:
            return counted.product(0);
        case Rule::Sum:
            return counted.product(1);
        case Rule::Attention:
            return counted.attention(2);
        case Rule::AttentionGrad:
            return counted.attention(5);
        case Rule::Convolution:
            return counted.convolution();
        case Rule::ConvolutionGrad:
            return counted.convolution_grad();
        // Statistics need a pass of their own before what they are for.
        case Rule::Norm:
            return counted.all(Unit::Norm, 1.5);
        case Rule::NormGrad:
            return counted.all(Unit::Norm, 5. / 3);
        case Rule::Rows:
            return counted.rows(Unit::Norm, 1.5);
        case Rule::RowsGrad:
            return counted.rows(Unit::Norm, 5. / 3);
        case Rule::Pool:
            return counted.all(Unit::Pool);
        case Rule::Gather:
            return counted.gather();
        case Rule::Move:
            return counted.all(Unit::Move);
        case Rule::Elements:
            return std::string_view(name) == "aclnnInplaceCopy" ? counted.move() : counted.all(Unit::Stream);
    }
    return {};
}

}  // namespace vnpu::opapi
