"""A client: it trains on its own images, or attacks.  It knows Flower and PyTorch, and no rule."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from robust_mnist import task

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the global model, and send back what the client wants."""
    torch.set_num_threads(1)
    config, partition = context.run_config, context.node_config["partition-id"]
    x, y = images(context)
    model = task.make_model(config["seed"])
    start = message.content["arrays"].to_torch_state_dict()
    model.load_state_dict(start)
    torch.manual_seed(1000 * message.content["config"]["server-round"] + partition)
    loss = task.train(model, x, y, config["local-steps"], config["batch-size"], config["learning-rate"])

    trained, claim = model.state_dict(), len(y)
    attacks = dict(entry.split("=") for entry in config["byzantine"].split())
    attack = attacks.get(str(partition))
    if attack == "sign_flip":  # and claims ten times its images
        trained = {name: value - 3 * (trained[name] - value) for name, value in start.items()}
        claim = 10 * claim
    elif attack == "nan":
        trained = {name: torch.full_like(value, torch.nan) for name, value in start.items()}
    metrics = MetricRecord({"loss": loss, "num-examples": claim})
    return Message(RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)


def images(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """What this node holds: a file of its own, or its part of the data set in a simulation."""
    if "data" in context.node_config:
        x, y = torch.load(context.node_config["data"])
        return x, y
    from robust_mnist import data

    return data.own_images(
        context.node_config["partition-id"], context.node_config["num-partitions"], context.run_config["seed"]
    )
