"""A client: it trains on its own images, or lies about it.  An honest one knows Flower and PyTorch only."""

from collections.abc import Callable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from robust_mnist import task


def lie(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Play the attack that the settings give this client, if any."""
    attacks = dict(entry.split("=") for entry in context.run_config["byzantine"].split())
    attack = attacks.get(str(context.node_config["partition-id"]))
    if attack is None:
        return call_next(message, context)
    import lightning_fl as fl
    from lightning_fl.flower import Liar

    lies = {
        "bit_flip": lambda: Liar(fl.adversary.BitFlip(factor=3.0), claim=10),  # and claims ten times its images
        "label_flip": lambda: Liar(
            fl.adversary.LabelFlip(),
            learning_rate=context.run_config["learning-rate"],
            model=task.make_model(context.run_config["seed"]),
            samples=lambda context: fl.Samples(*images(context), n_classes=10),
            client=fl.client.LocalSgd(context.run_config["local-steps"], batch_size=context.run_config["batch-size"]),
        ),
        "nan": lambda: Liar(fl.adversary.NonFinite()),
    }
    return lies[attack]()(message, context, call_next)


app = ClientApp(mods=[lie])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train from the global model, and send back the result."""
    torch.set_num_threads(1)
    config, partition = context.run_config, context.node_config["partition-id"]
    x, y = images(context)
    model = task.make_model(config["seed"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    torch.manual_seed(1000 * message.content["config"]["server-round"] + partition)
    loss = task.train(model, x, y, config["local-steps"], config["batch-size"], config["learning-rate"])

    metrics = MetricRecord({"loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


def images(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """What this node holds: a file of its own, or its part of the data set in a simulation."""
    if "data" in context.node_config:
        x, y = torch.load(context.node_config["data"])
        return x, y
    from robust_mnist import data

    return data.own_images(
        context.node_config["partition-id"], context.node_config["num-partitions"], context.run_config["seed"]
    )
