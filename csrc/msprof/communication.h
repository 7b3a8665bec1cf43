// Communication, counted: for JSON and the database alike.
#pragma once

#include "msprof/profile.h"

namespace msprof {

struct Spent {
    const Task *task;
    const char *transport;  // HCCS within a machine, RDMA between machines
    double megabytes;       // that this rank has sent
    double elapse_ms, transit_ms, wait_ms;
};
std::vector<Spent> spent(const Profile &profile);

struct Link {
    int from, to;  // ranks of the group
    double megabytes;
};
std::vector<Link> links(const Spent &one);

}  // namespace msprof
