// The one source of random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
// torch_npu passes a seed and an offset that it advances with each call. They name a stream of blocks of four numbers:
// key = seed, counter = (block, offset). A value depends on nothing but (seed, offset, its position): neither on
// threads nor on what ran before.
#pragma once

#include <array>
#include <cstdint>

namespace vnpu::opapi {

class Philox {
  public:
    using Block = std::array<uint32_t, 4>;

    Philox(uint64_t seed, uint64_t offset) : seed_(seed), offset_(offset) {}

    Block operator()(uint64_t block) const {
        Block c{low(block), high(block), low(offset_), high(offset_)};
        uint32_t k0 = low(seed_), k1 = high(seed_);
        for (int round = 0; round < 10; ++round) {
            const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
            c = {high(p1) ^ c[1] ^ k0, low(p1), high(p0) ^ c[3] ^ k1, low(p0)};
            k0 += 0x9E3779B9;
            k1 += 0xBB67AE85;
        }
        return c;
    }

    // The numbers of a block as two of 64 bits.
    static uint64_t wide(const Block &block, int half) { return block[2 * half] | uint64_t{block[2 * half + 1]} << 32; }

  private:
    static uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
    static uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

    uint64_t seed_, offset_;
};

}  // namespace vnpu::opapi
