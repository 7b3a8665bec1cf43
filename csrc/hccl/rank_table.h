// RANK_TABLE_FILE: a JSON file that names every rank beforehand, so that they meet without a root info.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "hccl/segment.h"

namespace vnpu::hccl {

class RankTable {
  public:
    // Faults name the file and the field: InvalidArgument when it cannot be read or is no rank table; Unsupported when
    // it names several servers.
    explicit RankTable(const std::string &path);
    uint32_t ranks() const noexcept { return ranks_; }

    // The segment of the ranks of this table. Rank 0 makes it and tells the others, through a socket that has an
    // abstract name (nothing of it stays in the file system), for as long as the Meeting lives. Any user could take
    // that name or connect to it, so each side asks the system whose the other is.
    class Meeting {
      public:
        Meeting(std::shared_ptr<Segment> segment, int socket);
        Meeting(Meeting &&) noexcept = default;
        ~Meeting();
        const std::shared_ptr<Segment> &get() const noexcept { return segment_; }

      private:
        std::shared_ptr<Segment> segment_;
        std::shared_ptr<int> socket_;
        std::thread teller_;
    };
    // Faults: Timeout when rank 0 does not come; InvalidArgument when somebody else has taken its name.
    Meeting meet(uint32_t rank, Deadline deadline) const;

  private:
    std::string name_;
    uint32_t ranks_ = 0;
};

}  // namespace vnpu::hccl
