"""Learn to balance a pole by policy gradients (REINFORCE) with a CUDA GPU. The simulation runs on the CPU."""

import argparse
import math
import random

import torch
import torch.nn as nn
from torch.distributions import Categorical

device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")


class Pole:
    """A cart with a pole on it; an episode ends when the pole falls or the cart is off the track."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state

    def step(self, action):
        x, speed, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        inner = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        turn_rate = (9.8 * math.sin(angle) - math.cos(angle) * inner) / (
            0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        acceleration = inner - 0.05 * turn_rate * math.cos(angle) / 1.1
        self.state = [x + 0.02 * speed, speed + 0.02 * acceleration, angle + 0.02 * turn, turn + 0.02 * turn_rate]
        return self.state, abs(self.state[0]) < 2.4 and abs(self.state[2]) < 0.21


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--limit", type=int, default=60, help="steps of an episode at most")
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.2), nn.ReLU(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    pole, average = Pole(), 10.0
    for episode in range(args.episodes):
        state, scores, steps = pole.reset(), [], 0
        for _ in range(args.limit):
            logits = policy(torch.FloatTensor(state).unsqueeze(0).to(device))
            choice = Categorical(logits=logits)
            action = choice.sample()
            scores.append(choice.log_prob(action))
            state, alive = pole.step(action.item())
            steps += 1
            if not alive:
                break
        returns, value = [], 0.0
        for _ in range(steps):
            value = 1.0 + 0.99 * value
            returns.insert(0, value)
        returns = torch.tensor(returns, device=device)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.cat(scores) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average = 0.05 * steps + 0.95 * average
        if episode % 5 == 4:
            print(f"episode {episode + 1} steps {steps} average {average:.2f} loss {loss.item():.3f}")
    weights = next(policy.parameters())
    print("trained on", "GPU" if weights.is_cuda and weights.device.type == "cuda" else "CPU")


if __name__ == "__main__":
    main()
