"""Double DQN on CartPole: replay buffer, soft target updates, smooth L1 loss."""

import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GAMMA, TAU, BATCH = 0.99, 0.005, 32


class DuelingQ(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.value, self.advantage = nn.Linear(64, 1), nn.Linear(64, n_actions)

    def forward(self, obs):
        h = self.body(obs)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


env = gym.make("CartPole-v1")
policy, target = DuelingQ(4, 2).to(device), DuelingQ(4, 2).to(device)
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
memory = deque(maxlen=1000)

obs, _ = env.reset(seed=0)
for t in range(1, 121):
    if random.random() < max(0.05, 1.0 - t / 100):
        action = random.randrange(env.action_space.n)
    else:
        with torch.no_grad():
            action = policy(torch.as_tensor(obs, device=device).unsqueeze(0)).argmax(dim=1).item()
    next_obs, reward, terminated, truncated, _ = env.step(action)
    memory.append((obs, action, reward, next_obs, float(terminated)))
    obs = env.reset()[0] if terminated or truncated else next_obs
    if t % 20 or len(memory) < BATCH:
        continue
    s, a, r, s2, done = (torch.as_tensor(np.array(c), device=device) for c in zip(*random.sample(memory, BATCH)))
    q = policy(s).gather(1, a.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        best = policy(s2).argmax(dim=1, keepdim=True)
        y = r.float() + GAMMA * (1 - done.float()) * target(s2).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(q, y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    with torch.no_grad():
        for p, tp in zip(policy.parameters(), target.parameters()):
            tp.lerp_(p, TAU)
    print(f"env step {t} loss {loss.item():.6f}")
