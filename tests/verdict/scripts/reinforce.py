"""REINFORCE with a learned baseline on a corridor: walk to the goal before time runs out."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description="REINFORCE in a corridor")
parser.add_argument("--gamma", type=float, default=0.95)
parser.add_argument("--episodes", type=int, default=28)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--seed", type=int, default=543)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)
device = torch.device("cuda")


class Corridor:
    """Nine cells; three actions (left, stay, right); wind moves the walker now and then."""

    def reset(self):
        self.place, self.goal, self.time = 4, int(np.random.choice([0, 8])), 0
        return self.look()

    def look(self):
        seen = np.zeros(11, dtype=np.float32)
        seen[self.place] = 1.0
        seen[9] = 1.0 if self.goal == 8 else -1.0
        seen[10] = self.time / 16
        return seen

    def step(self, action):
        wind = np.random.choice([-1, 0, 1], p=[0.1, 0.8, 0.1])
        self.place = int(np.clip(self.place + action - 1 + wind, 0, 8))
        self.time += 1
        won = self.place == self.goal
        return self.look(), 1.0 if won else -0.05, won or self.time == 16


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 32), nn.Tanh(), nn.Dropout(0.05))
        self.action_head = nn.Linear(32, 3)
        self.value_head = nn.Linear(32, 1)

    def forward(self, x):
        x = self.body(x)
        return self.action_head(x), self.value_head(x).squeeze(-1)


policy = Policy().to(device)
optimizer = optim.Adam(policy.parameters(), lr=args.lr, betas=(0.9, 0.99))
env = Corridor()
total = 0.0
for episode in range(args.episodes):
    state, done = env.reset(), False
    log_probs, values, entropies, rewards = [], [], [], []
    while not done:
        logits, value = policy(torch.from_numpy(state).to(device))
        choice = Categorical(logits=logits)
        action = choice.sample()
        log_probs.append(choice.log_prob(action))
        entropies.append(choice.entropy())
        values.append(value)
        state, reward, done = env.step(action.item())
        rewards.append(reward)

    returns, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + args.gamma * running
        returns.insert(0, running)
    returns = torch.tensor(returns, device=device)
    values = torch.stack(values)
    advantage = returns - values.detach()
    policy_loss = -(torch.stack(log_probs) * advantage).mean()
    value_loss = nn.functional.smooth_l1_loss(values, returns)
    loss = policy_loss + 0.5 * value_loss - 0.01 * torch.stack(entropies).mean()

    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.2)
    optimizer.step()
    total += sum(rewards)
    if (episode + 1) % 7 == 0:
        print(f"Episode {episode + 1}\tLoss: {loss.item():.4f}\tAverage reward: {total / (episode + 1):.3f}")
