"""
Flower with liars
=================

An app of Flower as anybody would write it: clients train and reply. Twelve of them join; three have a ``Liar`` before
their app, which sends back the way they came, three times as far. The server averages, as Flower does, or takes any
rule of lightning-fl as its strategy. Flower's own simulation engine runs both (extra ``flower``).
"""

import logging

import matplotlib.pyplot as plt
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

import lightning_fl as fl
from lightning_fl.flower import Liar, RobustStrategy

logging.getLogger("flwr").setLevel(logging.ERROR)  # it would print every round
N, LIARS, ROUNDS = 12, (9, 10, 11), 8
draw = torch.Generator().manual_seed(0)
y = torch.arange(1200) % 4
x = 4 * torch.eye(4, 20)[y] + torch.randn(1200, 20, generator=draw)

# %%
# The client. Each holds two of the four classes; a liar is an honest client with a mod.


def lie(message, context, call_next):
    """Lie, if this client is to."""
    if context.node_config["partition-id"] in LIARS:
        return Liar(fl.adversary.BitFlip(factor=3.0))(message, context, call_next)
    return call_next(message, context)


client = ClientApp(mods=[lie])


@client.train()
def train(message: Message, context: Context) -> Message:
    """Take five steps from the server's model."""
    k = context.node_config["partition-id"]
    own = ((y == k % 4) | (y == (k + 1) % 4)).nonzero().flatten()[k::N]
    model = nn.Linear(20, 4)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    steps = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(5):
        steps.zero_grad()
        nn.functional.cross_entropy(model(x[own]), y[own]).backward()
        steps.step()
    metrics = MetricRecord({"num-examples": len(own)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


# %%
# The server, once with Flower's own strategy and once with each of two rules.

strategies = {
    "Flower's FedAvg": FedAvg,
    "geometric median": lambda **settings: RobustStrategy("geometric_median", **settings),
    "mixing, trimmed mean": lambda **settings: RobustStrategy("nnm_trimmed_mean", f=len(LIARS), **settings),
}
curves = {name: [] for name in strategies}
server = ServerApp()


@server.main()
def main(grid, context):
    """Train with each strategy from the same model."""
    torch.manual_seed(0)
    model = nn.Linear(20, 4)
    begin = model.state_dict()
    for name, make in strategies.items():

        def evaluate(number, arrays, name=name):
            tried = nn.Linear(20, 4)
            tried.load_state_dict(arrays.to_torch_state_dict())
            curves[name].append(100 * (tried(x).argmax(1) == y).float().mean().item())
            return MetricRecord({"accuracy": curves[name][-1]})

        strategy = make(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
        strategy.start(grid, ArrayRecord(begin), num_rounds=ROUNDS, evaluate_fn=evaluate)


run_simulation(server, client, N, backend_config={"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2}})
for name, curve in curves.items():
    print(f"{name}: {curve[-1]:.1f} %")

# %%
# What each round left:

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, curve in curves.items():
    axes.plot(curve, marker="o", label=name)
axes.set(xlabel="round", ylabel="accuracy (%)", ylim=(0, 102))
axes.legend()
plt.show()
