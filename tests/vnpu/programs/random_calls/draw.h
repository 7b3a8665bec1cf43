// Where random calls get their arguments from. What calls gave out stays in pools after it was destroyed, so a draw may
// be live, stale, null or wild. A wild pointer is drawn only where the API must not read through it: CANN reads host
// memory as it is told, and a program that lies about its own memory crashes there as well.
#pragma once

#include <acl/acl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <third_party/hccl/inc/hccl/hccl.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace random_calls {

using Random = std::mt19937_64;

inline uint64_t below(Random &random, uint64_t bound) { return random() % bound; }

struct Piece {
    void *at = nullptr;
    size_t size = 0;
};

// Handles or pieces of memory, shared by all threads. A full pool destroys what it forgets.
class Pool {
  public:
    Pool(size_t places, std::function<void(void *)> destroy) : places_(places), destroy_(std::move(destroy)) {}

    Piece any(Random &random) {
        const std::lock_guard lock(mutex_);
        return kept_.empty() ? Piece{} : kept_[below(random, kept_.size())];
    }

    void keep(Piece piece, Random &random) {
        Piece forgotten;
        {
            const std::lock_guard lock(mutex_);
            if (kept_.size() < places_)
                kept_.push_back(piece);
            else
                forgotten = std::exchange(kept_[below(random, places_)], piece);
        }
        if (forgotten.at != nullptr) destroy_(forgotten.at);
    }

    void clear() {
        std::vector<Piece> all;
        {
            const std::lock_guard lock(mutex_);
            all.swap(kept_);
        }
        for (const Piece &piece : all) destroy_(piece.at);
    }

  private:
    const size_t places_;
    const std::function<void(void *)> destroy_;
    std::mutex mutex_;
    std::vector<Piece> kept_;
};

struct Pools {
    Pool streams{12, [](void *at) { aclrtDestroyStream(at); }};
    Pool events{24, [](void *at) { aclrtDestroyEvent(at); }};
    Pool contexts{8, [](void *at) { aclrtDestroyContext(at); }};
    Pool graphs{8, [](void *at) { aclmdlRIDestroy(at); }};
    Pool groups{8, [](void *) {}};  // of tasks in graphs, whose end is theirs
    Pool memory{48, [](void *at) { aclrtFree(at); }};
    Pool pinned{16, [](void *at) { aclrtFreeHost(at); }};
    Pool communicators{6, [](void *at) { HcclCommDestroy(at); }};
    Pool physical{8, [](void *at) { aclrtFreePhysical(at); }};
    Pool reserved{8, [](void *at) {
                      aclrtUnmapMem(at);
                      aclrtReleaseMemAddress(at);
                  }};
    std::atomic<pthread_t> servant{};  // the thread that processes reports

    // Memory first: what waits for work on it still finds its streams.
    void clear() {
        for (Pool *pool :
             {&memory, &pinned, &reserved, &physical, &graphs, &communicators, &events, &streams, &contexts})
            pool->clear();
    }
};

// One of them for each thread.
class Draw {
  public:
    static constexpr size_t kHost = 1 << 16;

    Draw(uint64_t seed, Pools &pools) : pools_(pools), random_(seed) {}

    uint64_t below(uint64_t bound) { return random_calls::below(random_, bound); }
    bool once_in(uint64_t times) { return below(times) == 0; }

    void *stream() { return once_in(6) ? nullptr : handle(pools_.streams); }
    void *event() { return handle(pools_.events); }
    void *context() { return handle(pools_.contexts); }
    void *graph() { return handle(pools_.graphs); }
    void *group() { return handle(pools_.groups); }
    void *physical() { return handle(pools_.physical); }
    void *communicator() { return handle(pools_.communicators); }

    // A place for what the call gives out; it is kept in the pool when the call has returned (settle).
    void **made(Pool &pool, size_t size = 0) {
        if (once_in(16)) return nullptr;
        made_.push_back({nullptr, size, &pool});
        return &made_.back().at;
    }
    void **stream_made() { return made(pools_.streams); }
    void **event_made() { return made(pools_.events); }
    void **context_made() { return made(pools_.contexts); }
    void **graph_made() { return made(pools_.graphs); }
    void **group_made() { return made(pools_.groups); }
    void **memory_made(size_t size) { return made(pools_.memory, size); }
    void **pinned_made() { return made(pools_.pinned); }
    void **communicator_made() { return made(pools_.communicators); }
    void **physical_made() { return made(pools_.physical); }
    void **reserved_made(size_t size) { return made(pools_.reserved, size); }

    void settle() {
        for (size_t i = 0; i < made_.size(); ++i)
            if (made_[i].at != nullptr) made_[i].pool->keep({made_[i].at, made_[i].size}, random_);
        made_.clear();
    }

    // Sizes: small, at the edges of pages, of what is allocated, and near what 64 bits hold.
    size_t size() {
        static constexpr std::array<size_t, 26> kSizes = {
            0,         1,          7,        8,        31,       32,         33,         4095,         4096,
            4097,      1u << 16,   1u << 20, 2u << 20, 4u << 20, 1ull << 31, 1ull << 32, 1ull << 40,   1ull << 62,
            INT64_MAX, 1ull << 63, SIZE_MAX, -32ull,   -31ull,   -4096ull,   -4095ull,   -(2ull << 20)};
        return once_in(16) ? random_() : kSizes[below(kSizes.size())];
    }
    size_t small() { return std::array<size_t, 6>{8, 32, 4096, 5000, 1 << 16, 1 << 20}[below(6)]; }
    size_t some_size() { return once_in(3) ? size() : small(); }

    // A multiple of what memory is mapped in, most times.
    size_t granules() { return once_in(6) ? size() : (below(3) + (once_in(3) ? 0 : 1)) << 21; }

    int32_t device() {
        static constexpr std::array<int32_t, 6> kOdd = {-1, 2, 63, 64, INT_MAX, INT_MIN};
        return once_in(8) ? kOdd[below(kOdd.size())] : static_cast<int32_t>(below(2));
    }

    int32_t number() {
        static constexpr std::array<int32_t, 8> kNumbers = {0, 1, 2, 3, -1, 7, INT_MAX, INT_MIN};
        return kNumbers[below(kNumbers.size())];
    }

    // Of an enumeration with values below `count`; now and then none of them.
    template <class Enum>
    Enum choice(int count) {
        return static_cast<Enum>(once_in(8) ? number() : static_cast<int32_t>(below(static_cast<uint64_t>(count))));
    }

    // Milliseconds.
    int32_t timeout() { return std::array<int32_t, 6>{-2, INT_MIN, 0, 1, 5, -1}[below(6)]; }

    // Where the API writes a value; null now and then.
    template <class T>
    T *out() {
        static_assert(sizeof(T) <= sizeof scratch_[0]);
        if (once_in(16)) return nullptr;
        scratch_[next_ = (next_ + 1) % scratch_.size()] = {};
        return reinterpret_cast<T *>(&scratch_[next_]);
    }

    // A value that the API reads.
    template <class T>
    T *given(T value) {
        T *place = out<T>();
        if (place != nullptr) *place = value;
        return place;
    }

    const char *text() {
        static constexpr std::array<const char *, 6> kTexts = {"",       "Identity",        "Fill",
                                                               "driver", "/does/not/exist", "x"};
        return once_in(8) ? nullptr : kTexts[below(kTexts.size())];
    }

    // This thread's own host memory, with kHost bytes behind the pointer.
    std::byte *host() { return host_.data() + (once_in(2) ? 0 : below(kHost)); }

    // Whole pages, of which nothing else is in use: registered ones are replaced by others. With kPages bytes behind
    // the first; most times a place where a page starts, and a size that does not go beyond them or far beyond all
    // memory.
    static constexpr size_t kPages = 1 << 16;
    Piece pages() {
        static std::byte *const all =
            static_cast<std::byte *>(mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        const size_t at = below(4) * 4096 + (once_in(8) ? 8 : 0);
        const std::array<size_t, 8> sizes = {0, 1, 4096, 5000, 8192, kPages - at, 1ull << 62, SIZE_MAX};
        return {once_in(16) ? nullptr : all + at, sizes[below(sizes.size())]};
    }

    // Device memory, live or freed, reserved or mapped; at its start, inside, at its end and behind it.
    std::byte *device_memory() {
        const Piece piece = (once_in(4) ? pools_.reserved : pools_.memory).any(random_);
        const std::array<size_t, 8> kOffsets = {0, 0, 0, 8, 32, piece.size / 2, piece.size - 1, piece.size};
        auto *base = static_cast<std::byte *>(piece.at);
        return base == nullptr ? nullptr : base + kOffsets[below(piece.size == 0 ? 5 : kOffsets.size())];
    }

    // A pointer that the API must not read through.
    void *anything() {
        switch (below(6)) {
            case 0:
                return nullptr;
            case 1:
                return wild();
            case 2:
                return host();
            case 3:
                return pools_.pinned.any(random_).at;
            case 4:
                return pools_.reserved.any(random_).at;
            default:
                return device_memory();
        }
    }

    struct Copy {
        void *dst;
        size_t room;
        void *src;
        size_t count;
        aclrtMemcpyKind kind;
    };

    // A copy that may be wrong in every way but one: it does not claim more host memory than there is.
    Copy copy() {
        bool on_host = false;
        const auto place = [&]() -> void * {
            if (once_in(16)) return nullptr;
            if (!once_in(3)) return device_memory();
            on_host = true;
            return host();
        };
        Copy drawn{place(), 0, place(), some_size(), choice<aclrtMemcpyKind>(8)};
        drawn.room = once_in(3) ? size() : drawn.count;
        if (on_host && drawn.count <= drawn.room && drawn.count > kHost) drawn.count %= kHost;
        if (once_in(2)) drawn.kind = ACL_MEMCPY_DEFAULT;
        return drawn;
    }

    // Descriptors of the old operators are plain objects of the program: a thread uses its own, and live ones only.
    template <class T>
    class Own {
      public:
        T *any(Draw &draw) { return kept_.empty() || draw.once_in(16) ? nullptr : kept_[draw.below(kept_.size())]; }
        void keep(T *made) {
            if (made != nullptr) kept_.push_back(made);
        }
        T *take(Draw &draw) {
            if (kept_.size() < 4) return nullptr;
            std::swap(kept_[draw.below(kept_.size())], kept_.back());
            T *taken = kept_.back();
            kept_.pop_back();
            return taken;
        }
        std::vector<T *> &all() { return kept_; }

      private:
        std::vector<T *> kept_;
    };
    Own<aclTensorDesc> descs;
    Own<aclDataBuffer> buffers;
    Own<aclopAttr> attributes;

    Pools &pools() { return pools_; }
    Random &random() { return random_; }

  private:
    struct Made {
        void *at;
        size_t size;
        Pool *pool;
    };
    struct alignas(16) Scratch {
        std::array<std::byte, 4352> bytes;  // the largest answer: HcclRootInfo
    };

    void *wild() {
        static constexpr std::array<uintptr_t, 5> kWild = {1, 8, 0x1234, UINTPTR_MAX, UINTPTR_MAX / 2 + 1};
        const uint64_t at = once_in(2) ? random_() : kWild[below(kWild.size())];
        return reinterpret_cast<void *>(at);
    }

    void *handle(Pool &pool) {
        if (once_in(16)) return anything();
        return pool.any(random_).at;
    }

    Pools &pools_;
    Random random_;
    std::deque<Made> made_;
    std::array<Scratch, 16> scratch_{};
    size_t next_ = 0;
    std::vector<std::byte> host_ = std::vector<std::byte>(2 * kHost);
};

}  // namespace random_calls
