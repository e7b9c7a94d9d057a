"""The server: runs the strategies named in the settings one after the other, and prints what each reaches."""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedTrimmedAvg, Krum, Strategy

import lightning_fl as fl
from lightning_fl.flower.strategy import RobustStrategy, takes_f
from robust_mnist import data, task

app = ServerApp()


def make_strategy(name: str, config: dict, server: fl.Samples) -> Strategy:
    """A strategy of Flower's own, or one from any rule of lightning-fl."""
    f, n, rate = config["f"], config["min-clients"], config["learning-rate"]
    settings = {"fraction_evaluate": 0.0, "min_train_nodes": n, "min_available_nodes": n}
    if name == "flower_fedavg":
        return FedAvg(**settings)
    if name == "flower_krum":
        return Krum(num_malicious_nodes=f, **settings)
    if name == "flower_trimmed_mean":
        return FedTrimmedAvg(beta=f / n, **settings)
    return RobustStrategy(
        name,
        f=f if takes_f(name) else None,
        learning_rate=rate,
        # What rules with server data need; others do not ask.
        model=task.make_model(config["seed"]),
        samples=server,
        client=fl.client.LocalSgd(config["local-steps"], batch_size=config["batch-size"], learning_rate=rate),
        folder=Path(config["folder"], name) if config["folder"] else None,
        **settings,
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run each strategy from the same model."""
    config = context.run_config
    federation = data.federation(config["min-clients"], config["seed"])
    x, y = federation.test.gather(torch.arange(len(federation.test)))
    model = task.make_model(config["seed"])
    table = []
    # All of them first: what one lacks is said before another is trained.
    names = config["strategies"].split()
    strategies = {name: make_strategy(name, config, federation.server.samples) for name in names}
    for name, strategy in strategies.items():

        def evaluate(server_round: int, arrays: ArrayRecord, name: str = name) -> MetricRecord:
            model.load_state_dict(arrays.to_torch_state_dict())
            reached = task.accuracy(model, x, y)
            print(f"{name}: round {server_round}: accuracy {reached:.3f}", flush=True)
            return MetricRecord({"accuracy": reached})

        result = strategy.start(
            grid,
            ArrayRecord(task.make_model(config["seed"]).state_dict()),
            num_rounds=config["rounds"],
            timeout=config["timeout"],
            evaluate_fn=evaluate,
        )
        rounds = result.evaluate_metrics_serverapp
        skipped = sum(int(metrics.get("round/skipped", 0)) for metrics in result.train_metrics_clientapp.values())
        finite = all(value.isfinite().all() for value in result.arrays.to_torch_state_dict().values())
        table.append((name, rounds[max(rounds)]["accuracy"], skipped, "" if finite else "the model is not finite"))
    print("| strategy | accuracy | rounds skipped | |\n|---|---|---|---|")
    for name, reached, skipped, note in table:
        print(f"| {name} | {100 * reached:.1f} % | {skipped} | {note} |", flush=True)
