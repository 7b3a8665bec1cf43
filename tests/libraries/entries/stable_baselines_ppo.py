"""stable_baselines3: PPO on a small environment, on the CPU; converted, `device="auto"` is the NPU."""

import gymnasium
import stable_baselines3
import torch

torch.manual_seed(0)
agent = stable_baselines3.PPO(
    "MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=32, batch_size=16, seed=0, device="cpu"
)
agent.learn(64)
total = sum(float(parameter.detach().cpu().double().abs().sum()) for parameter in agent.policy.parameters())
print("loss", f"{total:.1f}")
