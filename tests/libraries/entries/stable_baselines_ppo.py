"""stable_baselines3: PPO on a small environment; its choice of a device asks CUDA and falls back."""

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.utils import get_device

torch.manual_seed(0)
print("device", get_device("auto").type)
agent = stable_baselines3.PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=32, batch_size=16, seed=0)
agent.learn(64)
total = sum(float(parameter.detach().cpu().double().abs().sum()) for parameter in agent.policy.parameters())
print("weights", f"{total:.1f}")
