"""Deep Q-learning with a replay buffer and a slowly following target network: find the way through a small grid."""

import argparse
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "state action reward next_state done")
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


class Grid:
    """5 x 5 cells with two pits; the floor is slippery."""

    pits = ((1, 3), (3, 1))

    def reset(self):
        self.place, self.time = np.array([0, 0]), 0
        return self.observe()

    def observe(self):
        row, column = self.place
        seen = np.zeros(10, dtype=np.float32)
        seen[row] = seen[5 + column] = 1.0
        return seen

    def step(self, action):
        if np.random.rand() < 0.1:
            action = np.random.randint(4)
        self.place = np.clip(self.place + MOVES[action], 0, 4)
        self.time += 1
        if tuple(self.place) in self.pits:
            return self.observe(), -1.0, True
        if tuple(self.place) == (4, 4):
            return self.observe(), 1.0, True
        return self.observe(), -0.02, self.time >= 25


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *transition):
        self.memory.append(Transition(*transition))

    def sample(self, size, device):
        batch = Transition(*zip(*random.sample(self.memory, size), strict=True))
        return (
            torch.from_numpy(np.stack(batch.state)).to(device),
            torch.tensor(batch.action, device=device).unsqueeze(1),
            torch.tensor(batch.reward, device=device),
            torch.from_numpy(np.stack(batch.next_state)).to(device),
            torch.tensor(batch.done, dtype=torch.float32, device=device),
        )


class QNetwork(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(10, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 4)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def choose(network, state, epsilon, device):
    if random.random() < epsilon:
        return random.randrange(4)
    with torch.no_grad():
        return network(torch.from_numpy(state).unsqueeze(0).to(device)).argmax(dim=1).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--interactions", type=int, default=304)
    parser.add_argument("--learning-starts", type=int, default=64)
    parser.add_argument("--train-every", type=int, default=4)
    parser.add_argument("--capacity", type=int, default=192)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--tau", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    device = torch.device("cuda")

    policy_net, target_net = QNetwork().to(device), QNetwork().to(device)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=args.lr, amsgrad=True)
    buffer, env, returns, total = ReplayBuffer(args.capacity), Grid(), [], 0.0
    state = env.reset()
    for step in range(1, args.interactions + 1):
        epsilon = max(0.1, 1.0 - step / 250)
        action = choose(policy_net, state, epsilon, device)
        next_state, reward, done = env.step(action)
        buffer.push(state, action, reward, next_state, done)
        total += reward
        state = next_state
        if done:
            returns.append(total)
            state, total = env.reset(), 0.0
        if step <= args.learning_starts or step % args.train_every:
            continue
        states, actions, rewards, next_states, dones = buffer.sample(32, device)
        q_values = policy_net(states).gather(1, actions).squeeze(1)
        with torch.no_grad():
            target = rewards + args.gamma * target_net(next_states).max(dim=1).values * (1 - dones)
        loss = F.smooth_l1_loss(q_values, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy_net.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target_net.parameters(), policy_net.parameters(), strict=True):
                slow.mul_(1 - args.tau).add_(args.tau * fast)
        if step % 40 == 0:
            print(f"step {step} episodes {len(returns)} loss {loss.item():.5f} return {np.mean(returns[-10:]):.3f}")

    with torch.no_grad():
        everywhere = np.concatenate([np.repeat(np.eye(5), 5, axis=0), np.tile(np.eye(5), (5, 1))], axis=1)
        values = target_net(torch.from_numpy(everywhere.astype(np.float32)).to(device)).max(dim=1).values
    print(f"mean value of a state {values.mean().item():.4f}, of the start {values[0].item():.4f}")
    np.savetxt("values.csv", values.view(5, 5).cpu().numpy(), delimiter=",", fmt="%.6f")


if __name__ == "__main__":
    main()
